// neso diff --report: a page that shows two packages of one model beside each other, kernel by kernel.
#pragma once
#include <string>

#include "session.h"

namespace neso::cli {

/// Kernels of the two that compute the same operators of the model stand in one row: one beside one, or several where the packages cut
/// the model differently. times: both are run in turns by `options`, and their kernels timed; then they must be for this machine. Else
/// they may be for any. Errors of reading, of the runtime, FileUnwritable.
Status writeDiffReport(const std::string &path, const std::string &pathA, const std::string &pathB, const SessionOptions &options, bool times);

} // namespace neso::cli
