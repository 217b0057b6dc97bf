// What a compilation that starts from the text of a stage needs besides: the bytes of weights, which the text does not
// hold, and its faults as faults of the input.
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "ir/graph/graph.h"
#include "ir/loops/loops.h"

namespace neso {

/// The whole file. FileUnreadable.
Result<std::string> readText(const std::string &path);

/// Gives weights that the text says lie in a model's file their bytes. source: that model, or null.
/// TextWithoutWeight, TextNotOfModel.
Status takeWeights(loops::Program &program, const graph::Model *source, const std::string &path);
Status takeWeights(graph::Model &model, const graph::Model *source, const std::string &path);

/// A breach of an invariant is a bug, but not in what somebody wrote: then it is a fault of the text (TextUnsound).
Status asFaultOfText(Status verified, const std::string &path);

} // namespace neso
