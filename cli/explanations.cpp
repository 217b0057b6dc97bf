#include "explanations.h"

#include <algorithm>
#include <iterator>

namespace neso::cli {
namespace {

struct Row {
  std::string_view code, name;
  Severity severity;
  std::string_view message;
};

// The files of rows once more, as a table. What they declare elsewhere is not needed here.
#undef NESO_DIAG
#define NESO_DIAG(code, kind, severity, text) {#code, #kind, Severity::severity, text},
#define NESO_STATUS(name, value, code, text) {code, "NESO_" #name, Severity::Error, text},
const Row kRows[] = {
// clang-format off
#include "base/diagnostics/backend.h"
#include "base/diagnostics/cli.h"
#include "base/diagnostics/graph.h"
#include "base/diagnostics/loops.h"
#include "base/diagnostics/package.h"
#include "base/diagnostics/pt2.h"
#include "base/diagnostics/tile.h"
#include "base/diagnostics/triton.h"
#include "base/diagnostics/tune.h"
#include "abi/status.def"
    // clang-format on
};
// base/diagnostics.h has these already.
const DiagInfo *const kCommon[] = {&diag::FileUnreadable, &diag::FileUnwritable, &diag::InternalFault};

struct Text {
  std::string_view area, text;
};
// The files of docs/errors, which the build puts here.
const Text kTexts[] = {
#include "error_texts.inc"
};

/// The part of a file under the heading of a code; without a code, what stands before the first one.
std::string_view section(std::string_view file, std::string_view code) {
  size_t begin = 0;
  if (!code.empty()) {
    const std::string heading = "\n## " + std::string(code) + "\n";
    begin = file.find(heading);
    if (begin == std::string_view::npos) return {};
    begin += heading.size();
  }
  std::string_view out = file.substr(begin, file.find("\n## ", begin) - begin);
  while (!out.empty() && out.front() == '\n') out.remove_prefix(1);
  while (!out.empty() && out.back() == '\n') out.remove_suffix(1);
  return out;
}

std::vector<Explanation> all() {
  std::vector<Explanation> out;
  std::vector<Row> rows(std::begin(kRows), std::end(kRows));
  for (const DiagInfo *row : kCommon) rows.push_back({row->code, row->kind, row->severity, row->text});
  for (const Row &row : rows) {
    if (row.code.empty()) continue;
    Explanation e{row.code, row.name, row.severity, row.message, {}, {}};
    for (const Text &t : kTexts) {
      if (!row.code.starts_with(t.area)) continue;
      e.area = section(t.text, {});
      e.text = section(t.text, row.code);
    }
    out.push_back(std::move(e));
  }
  std::sort(out.begin(), out.end(), [](const auto &a, const auto &b) { return a.code < b.code; });
  return out;
}

} // namespace

const std::vector<Explanation> &explanations() {
  static const std::vector<Explanation> table = all();
  return table;
}

} // namespace neso::cli
