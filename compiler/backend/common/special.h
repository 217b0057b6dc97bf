// Special functions in compiled kernels: calls by name, and linking of their code.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace llvm {
class Module;
} // namespace llvm

namespace neso {

/// The symbol of the library's function for the kernel-level name ("digamma", "cyl_bessel_i0", "gcd"), empty if there
/// is none. Functions take and give doubles, those on integers int64.
llvm::StringRef specialSymbol(llvm::StringRef name);

/// Whether the function exists on floats as well, under the symbol with an 'f' behind it.
bool specialOnFloats(llvm::StringRef name);
/// The most lanes that a form of the function on vectors takes and that divide these, of floats or of doubles; 0: there is none.
unsigned specialLanes(llvm::StringRef name, bool isF32, unsigned lanes);

/// Puts the definitions of the special functions that the module declares into it, as internal functions. Call before
/// optimising.
void linkSpecialFunctions(llvm::Module &module);

} // namespace neso
