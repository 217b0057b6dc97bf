// Functions that compiled kernels call: the special functions of backend/common, and CUDA's libdevice where it is
// installed.
#pragma once
#include "base/diagnostics.h"
#include "llvm/IR/Module.h"

namespace neso::nvidia {

/// Puts the definitions of declared library functions into the module: neso_special_*, then __nv_*, libm functions
/// under the names of libdevice. ptxas: the assembler that the caller named, whose toolkit comes first. Call before
/// optimising. Errors: NvidiaNoLibrary (E0656) for a function of libdevice
/// where it is not found.
Status linkLibraries(llvm::Module &module, const std::string &ptxas = {});

} // namespace neso::nvidia
