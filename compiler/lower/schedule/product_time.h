// How long products of matrices take, for what is decided before their blocks are chosen: are they cut along k, do several
// become one? In microseconds, at usual sizes, by the machine's rates.
#pragma once
#include "base/machine.h"
#include "ir/loops/loops.h"

namespace neso::schedule {

struct ProductShape {
  int64_t batch = 1, m = 1, n = 1, k = 1; // at usual sizes
  Expr matrices = 1, rows = 1, columns = 1; // batch, m and n as they are
  int64_t itemBytes = 4;                  // of the larger operand's element
  bool matrix = false;                    // k is one dim, as in a product of matrices; convolutions have several
  bool summedBehind = false;              // the kernel that reads the result reads it as a row's: it can add parts up on the way
};
ProductShape shapeOf(const loops::Node &node, const loops::ContractionSpec &product, const Facts &facts);

/// So many parts are added in one expression, which is computed where it is needed (in the norm behind the product); more by a kernel.
constexpr int64_t kUnrolledParts = 8;

/// Parts of equal length along k that are whole steps, and whole rows of the innermost dimension of k or an equal part of one; 1:
/// better whole.
int64_t bestParts(const ProductShape &shape, int64_t innermost, const MachineSheet &machine);

/// Of the whole product in the blocks that were measured, where there are such; else by the rates for products that are cut along k.
double productTime(const ProductShape &shape, int64_t innermost, const MachineSheet &machine);

} // namespace neso::schedule
