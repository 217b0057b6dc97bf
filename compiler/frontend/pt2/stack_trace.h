// What a node's metadata says about where it came from.
#pragma once
#include <string>
#include <string_view>

#include "base/diagnostics.h"

namespace neso::pt2 {

/// The innermost frame of a Python stack trace that lies outside PyTorch itself; the innermost of all if there is none.
/// Each frame reads `File "PATH", line N, in NAME`. Unknown if the text holds no frame.
SourceLoc innermostUserLine(std::string_view trace);

/// The dotted path of the innermost module of "L__self__,,pkg.M;L__self__conv,conv,torch.nn.Conv2d": "conv".
std::string modulePath(std::string_view moduleStack);

} // namespace neso::pt2
