// Kernels whose lengths only the run knows, once for each class of lengths.
//
// A block of threads holds a tile whatever is in it: made for rows of 4096 elements it takes as long over rows of 4, and made for 64 it walks a row of a
// million in steps that fetch little. So such a kernel is there several times, each time with blocks for lengths up to some bound; a run launches the one
// whose class its lengths are in, since the grids of the others have no programs.
//
// So are products of an open number of rows, and attention of an open number of queries.
//
//     y[i] = sum over j of x[i, j], n columns:  n <= 16: 64 rows a program; n <= 128: 8 rows; n <= 4096: a row at once; else a row in steps
#pragma once
#include <string>
#include <vector>

#include "lower/tiling/loops.h"

namespace neso {

struct LengthClass {
  Expr when;        // 0 or 1: the run's lengths are in it; of the classes of one kernel exactly one is 1
  Facts facts;      // of the plan, and what `when` says
  std::string name; // what the kernel's name ends with, unique among its classes; of the longest nothing
};

/// Of a kernel of loops whose blocks are `usual`, for a target of thread blocks; the longest last. Empty: one kernel is good for all lengths.
std::vector<LengthClass> lengthClasses(const plan::Plan &plan, const plan::Kernel &kernel, const LoopTiling &usual, const TileTarget &target);

/// Of so many rows: up to each of the bounds, and more. Empty: they are known, or never more than the first.
std::vector<LengthClass> rowClasses(const plan::Plan &plan, Expr rows, const std::vector<int64_t> &bounds);

} // namespace neso
