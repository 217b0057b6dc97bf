// Which bytes behind each pointer parameter a launch is certain to touch, as expressions of the grid and of the scalar
// arguments.
//
// A launch whose buffer does not hold them can be refused before it runs. What is not certain is left out, so that no
// sound launch is ever refused: an access under a condition that memory decides, an address that memory gives, sizes
// whose sign is unknown (those are part of `valid`). The kernel must have gone through runTilePipeline: no calls, no
// descriptors.
//
// Example: x[i] read for i = pid*64 + range(64), i < n, floats: bytes [0, 4*min(64*grid.0, n)) of x, valid if grid.0 >=
// 1 and n >= 1.
//
// How: the address of an access and its mask are affine in what the programs and lanes enumerate: program ids,
// positions along each dimension of the tile, iterations of loops. Variables that no mask bounds reach their ends
// independently; those that one does make one index together (pid*64 + lane), which must take every value between its
// ends for its greatest masked value to be known. Where program ids are divided up (tiles in groups), the last program
// alone is followed instead, for which they are plain numbers.
#pragma once
#include <string>
#include <vector>

#include "ir/shape/expr.h"
#include "ir/tile/tile.h"

namespace neso {

/// Symbols of the expressions: the programs along one axis of the grid, and the value of an integer parameter.
Symbol gridSymbol(unsigned axis);         // grid.0
Symbol argumentSymbol(unsigned argument); // arg.3

struct Footprint {
  unsigned param = 0; // of the function
  Expr begin, end;    // bytes from the address given, [begin, end)
  Expr valid;         // 0: nothing is known of this launch
  int line = 0;       // of the source; 0: unknown
};

/// At most `limit` of them, in the order of the program, equal ones once.
std::vector<Footprint> provableFootprints(tt::FuncOp func, size_t limit = 32);

} // namespace neso
