// Which contractions a library for matrix products (cuBLASLt) can compute, and when that pays.
//
// A contraction qualifies when its operands are plain loads whose batch, m, n and k dimensions each lie along one
// stride, its sum is stored likewise, and its own epilogue is nothing, a bias along n, a relu, or both. What else was
// fused behind it becomes a kernel of its own, the rest, which reads the sum from memory. The fused kernel stays in the
// package: it runs where there is no library.
#pragma once
#include "lower/tiling/contraction.h"

namespace neso {

struct LibraryForm {
  plan::Product product;
  std::optional<plan::Kernel> rest; // reads product.d
  Expr sumElements;                 // with a rest: of the memory for the sum, which has no place yet
};

/// The library's form of a contraction, or nothing. Call it before operands are packed.
std::optional<LibraryForm> libraryForm(const plan::Plan &plan, const plan::Kernel &kernel, const DotTiling &c,
                                       const TileTarget &target);

/// Gives the sum of a form memory behind the arena: sums of different kernels and the library's workspace (32 MiB)
/// share it, since they live for one step each. Then adds the product to the kernel and the rest to the plan's kernels,
/// which may move.
void placeLibraryForms(plan::Plan &plan, std::vector<std::pair<plan::KernelId, LibraryForm>> forms);

} // namespace neso
