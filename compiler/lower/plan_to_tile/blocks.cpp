#include "lower/plan_to_tile/blocks.h"

#include <algorithm>

#include "ir/tile/build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

Symbol blockOf(const std::vector<Blocking> &blockings, Symbol dimension) {
  for (size_t i = 0; i < blockings.size(); ++i)
    if (blockings[i].symbol == dimension) return Symbol::program(i);
  NESO_UNREACHABLE("a dimension without blocks");
}

std::vector<Blocking> rowBlocks(const KernelContext &k) {
  std::vector<Blocking> blockings;
  for (size_t d = 0; d < k.kernel.xRanges.size(); ++d) blockings.push_back({Symbol::outer(d), k.kernel.xRanges[d], 1, -1});
  return blockings;
}

void bindPrograms(Emitter &e, const std::vector<Blocking> &blockings, Val program) {
  KernelContext &k = e.k;
  Expr programs = 1;
  bool any = false;
  for (const Blocking &bl : blockings) any |= !(bl.size == 1 && bl.extent.isConst(1));
  const Symbol pid = Symbol::local("pid");
  Expr left = pid;
  // In order where nothing orders programs: one program does the work of all.
  bool loop = any && k.kernel.serial && k.target.threadBlocks;
  if (loop) {
    Expr all = 1;
    for (const Blocking &bl : blockings) all = all * ceilDiv(bl.extent, Expr(bl.size));
    Val count = e.index(all);
    auto over = mlir::scf::ForOp::create(k.b, k.loc, e.intConst(0).v, count.v, e.intConst(1).v);
    k.b.setInsertionPointToStart(over.getBody());
    e.env[pid] = {over.getInductionVar()};
    e.forgetIndices();
  } else if (program) {
    e.env[pid] = program;
  } else if (any) {
    e.env[pid] = e.toIndex({tile::programId(k.b, k.loc, 0)}, DType::I32);
  }
  for (size_t i = blockings.size(); i-- > 0;) {
    const Blocking &bl = blockings[i];
    Expr count = ceilDiv(bl.extent, Expr(bl.size));
    const Symbol block = Symbol::program(i);
    if (count.isConst(1)) {
      e.env[block] = e.intConst(0);
      e.facts.setRange(block, {0, 0});
    } else {
      bool outermost = true;
      for (size_t j = 0; j < i; ++j) outermost &= ceilDiv(blockings[j].extent, Expr(blockings[j].size)).isConst(1);
      e.facts.setRange(pid, {0, INT32_MAX});
      // With indices of 64 bits a block's number says how large it is: copies of boxes have coordinates of 32 (backend/nvidia/passes/boxes.h).
      const bool bounded = !k.indexType.isInteger(32) && k.target.threadBlocks && count.asConst();
      e.env[block] = e.index(!outermost ? mod(left, count) : bounded ? min(left, count - Expr(1)) : left);
      // Never below zero, which who asks whether an index may be negative sees by the maximum alone.
      if (bl.lastFirst)
        e.env[block] = e.indexBinary("arith.maxsi", e.indexBinary("arith.subi", e.index(count - Expr(1)), e.env[block]), e.intConst(0));
      e.facts.setIndex(block, count);
      left = floorDiv(left, count);
      programs = programs * count;
    }
    Val base = bl.size == 1 ? e.env[block] : e.index(block * Expr(bl.size));
    if (bl.frameDim >= 0) {
      size_t d = static_cast<size_t>(bl.frameDim);
      const Symbol lane = Symbol::lane(i);
      e.env[lane] = e.lanes(d);
      e.facts.setRange(lane, {0, std::max(bl.lanes, bl.size) - 1});
      e.env[bl.symbol] = count.isConst(1) ? e.env[lane] : e.indexBinary("arith.addi", base, e.env[lane]);
      e.blocked[bl.symbol] = block * Expr(bl.size) + lane;
      if (bl.lanes > bl.size)
        e.masks.push_back(e.compare("lt", e.env[bl.symbol], e.index(min(block * Expr(bl.size) + Expr(bl.size), bl.extent))));
      else if (!e.facts.provablyDivisible(bl.extent, Expr(bl.size)))
        e.masks.push_back(e.compare("lt", e.env[bl.symbol], e.index(bl.extent)));
      if (bl.extent.isConst(1) && bl.size > 1) e.oneElement |= 1u << d;
    } else {
      e.env[bl.symbol] = base;
    }
    e.facts.setIndex(bl.symbol, bl.extent);
  }
  k.code.grid = {loop ? Expr(1) : programs, 1, 1};
}

} // namespace neso
