// Kernels that stand inside functions: a factory that returns one, a test that defines its own.
//
//     def make(dtype):
//         import triton.language as tl
//         @triton.jit
//         def kernel(x, BLOCK: tl.constexpr): …          is `make.kernel`
//
// No call of the function is known, so its parameters are opaque; what it does before the kernel is run as a module's statements
// are, with what it defines in reach of the kernel, as Triton takes a closure's names for globals.
#pragma once
#include <string>
#include <vector>

#include "frontend/triton/ast.h"

namespace neso::triton {

struct NestedKernel {
  std::string name;            // with all that it stands in: "make.kernel", "Class.method.kernel"
  std::vector<Stmt *> inside;  // the functions around it, outermost first
  Stmt *kernel = nullptr;
};

/// Functions inside functions that a decorator called `jit` marks, in order.
std::vector<NestedKernel> nestedKernels(const SyntaxTree &tree);

} // namespace neso::triton
