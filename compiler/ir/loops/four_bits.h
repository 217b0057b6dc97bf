// Numbers of four bits, as quantised weights are stored: several to a byte or a word, out of which a mask takes each.
#pragma once
#include "ir/loops/loops.h"

namespace neso::loops {

/// Whether an operator takes such a number, I32 in [0, 16), out of a word.
bool isFourBits(const Body &body, const Op &op);
/// Whether a value is computed of some.
bool usesFourBits(const Body &body, ValueIdx root);

/// So many rows of 16-bit floats, at most, are multiplied with such numbers as these come (lower/tiling/contraction.cpp); for more, weights are made of them once and
/// written. 4096 x 4096 on an H200, 256 rows: 36 microseconds so, 212 where each block of rows takes the numbers apart.
inline constexpr int64_t kRowsOfFourBits = 32;

} // namespace neso::loops
