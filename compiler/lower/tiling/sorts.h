// How kernels of one Sort node, and scans that look back, are shared among programs.
//
//     rows of up to 8192 elements, for blocks of threads      Rows: a program sorts whole rows in its registers
//     runs of longer ones (loops::SortSpec::run)              Merge: a program merges one tile of two runs
//     rows without a bound                                    Ranks: of each element, how many stand before it
//     for programs of one thread                              Heap, Insertion, Digits or Select, in scratch memory
#pragma once
#include <vector>

#include "lower/tiling/target.h"

namespace neso {

struct SortTiling {
  enum class Method : uint8_t {
    Rows,      // tile [rows, length], or [length] of one row: the rows of a program
    Merge,     // tile [elements of the result]
    Ranks,     // tile [elements of a program, elements that it compares them with in one step]
    Heap,      // the first elements are kept in a heap; tile as for Digits
    Insertion, // of short rows
    Digits,    // tile [elements that are packed into words at once]
    Select,    // of one place; tile [words that are looked at together]
  };
  Method method = Method::Digits;
  /// Powers of two.
  std::vector<int64_t> tile;
  int warps = 4;
};
SortTiling chooseSortTiling(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target);

/// Of a scan whose programs look back; its tile is part of the node (loops::LookBack), since words of memory depend on it.
struct LookBackTiling {
  int warps = 1;
};
LookBackTiling chooseLookBackTiling(const plan::Kernel &kernel);

} // namespace neso
