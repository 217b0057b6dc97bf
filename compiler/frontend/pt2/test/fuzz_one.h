// One input of the reader's fuzzer: whatever the bytes, reading ends with a model that keeps its invariants or with
// diagnostics.
#pragma once
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/verify.h"
#include "test/zip.h"

namespace neso::pt2::test {

/// Returns what is wrong with the outcome; empty if nothing is.
inline std::string fuzzOne(std::string bytes) {
  Result<graph::Model> m = read(std::move(bytes));
  if (!m) return m.error().diagnostics().empty() ? "failure without a diagnostic" : "";
  if (Status s = graph::verify(*m, graph::Form::AsExported); !s) return s.error().str();
  (void)graph::print(*m);
  Status s = graph::functionalize(*m);
  if (!s) return "";
  if (s = graph::verify(*m, graph::Form::Functional); !s) return s.error().str();
  graph::simplify(*m);
  if (s = graph::verify(*m, graph::Form::Functional); !s) return s.error().str();
  return "";
}

} // namespace neso::pt2::test
