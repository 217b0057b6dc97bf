// What the name of a device library's function means: one place for the interpreter and the CPU, which each have a table from functions to
// what they do (interp_library.cpp, backend/cpu/extern.cpp).
#pragma once
#include <optional>

#include "base/directed.h"
#include "llvm/ADT/StringRef.h"

namespace neso::tile {

enum class LibraryFn {
#define NESO_LIBRARY(name, symbols) name,
#include "ir/tile/library.def"
#undef NESO_LIBRARY
};

struct LibraryCall {
  LibraryFn fn;
  /// As the name says; nothing: it says none.
  std::optional<directed::Rounding> rounding;
};

/// "__nv_fadd_rz" -> "fadd_rz": what is left without the library, the type and the precision.
llvm::StringRef libraryName(llvm::StringRef symbol);
/// Of a whole symbol ("__nv_fadd_rz": Add, towards zero); nothing: it is not in library.def.
std::optional<LibraryCall> libraryCall(llvm::StringRef symbol);

} // namespace neso::tile
