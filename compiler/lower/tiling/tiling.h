// What is decided of each kernel of a plan before its tile program is written.
//
// Contractions become products of tiles or plain reductions, some also a library's; weights get the order in which tiles
// read them; reductions get the form that tile programs have; kernels whose programs must run in turn are marked. Tuning
// chooses among the ways that ways.h lists. Afterwards the kernels' nodes and the program's constants stay as they are:
// lower/plan_to_tile writes the programs, and changes nothing.
#pragma once
#include <optional>
#include <vector>

#include "lower/tiling/attention.h"
#include "lower/tiling/contraction.h"
#include "lower/tiling/loops.h"
#include "lower/tiling/segments.h"
#include "lower/tiling/sorts.h"
#include "lower/tiling/target.h"

namespace neso {

/// Of one kernel.
struct KernelTiling {
  /// What its blocks are chosen by.
  TileTarget target;
  /// Of the number of warps that it then has: doubled so many times, halved if negative.
  int warpShift = 0;
  /// 0 or 1: a run in which it is 0 launches no programs. Invalid: always 1.
  Expr when;
  /// What holds where it is 1, in place of the plan's own facts.
  std::optional<Facts> facts;
  /// A contraction by products of tiles.
  std::optional<DotTiling> dot;
  /// Or one of these, by the kernel's nodes: pointwise, reduction and scan nodes; attention; segments; a sort; a scan that
  /// looks back.
  std::optional<LoopTiling> loop;
  std::optional<AttentionTiling> attention;
  std::optional<SegmentsTiling> segments;
  std::optional<SortTiling> sort;
  std::optional<LookBackTiling> lookBack;
};
/// By KernelId.
using Tilings = std::vector<KernelTiling>;

/// May add buffers and kernels: what remains of one whose product a library computes, and one for each class of lengths (lengths.h).
Tilings chooseTilings(plan::Plan &plan, const TileTarget &target);

} // namespace neso
