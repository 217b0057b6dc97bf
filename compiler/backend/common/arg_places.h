// Where the arguments of a tile function lie in the memory that a launch gives its kernel (abi/kernel_abi.h).
//
//     (x: pointer, n: i32, scale: f32)   [0, 8)  [8, 16)  [16, 24)
#pragma once
#include <vector>

#include "abi/kernel_abi.h"
#include "ir/tile/tile.h"

namespace neso {

/// In the order of the parameters. One that is neither a pointer to elements nor a number gets 0 bytes; back ends refuse
/// it.
std::vector<neso_arg_place> argPlaces(tt::FuncOp function);

} // namespace neso
