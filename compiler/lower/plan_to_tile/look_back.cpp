#include "lower/plan_to_tile/look_back.h"

#include "ir/tile/build.h"
#include "ir/tile/tile.h"
#include "lower/plan_to_tile/blocks.h"
#include "lower/plan_to_tile/reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::LookBack;

namespace {

/// The tile of a row that a program has, its group and its place in that; the slot that a thread waits for.
const Symbol kTile = Symbol::local("tile"), kGroup = Symbol::local("group"), kPlace = Symbol::local("place"),
             kLane = Symbol::local("lane");

class LookBackScan {
public:
  LookBackScan(KernelContext &k, const Facts &facts)
      : k_(k), node_(k.kernel.nodes[0].get<loops::ScanSpec>()), look_(*node_.lookBack), length_(k.kernel.rRanges[0]),
        tile_(k, Frame{{look_.tile}}), scan_(node_, 0), wordType_(k.b.getI64Type()) {
    tile_.facts = facts;
  }

  void run() {
    bind();
    std::vector<Val> memo;
    Val element = tile_.value(node_.body, node_.inputs[0], memo);
    // What others wait for goes out before anything that only this program needs.
    Val total = scan_.reduceTile(tile_, {element}, 0, inside_)[0];
    const Expr place = kPlace, group = kGroup;
    publish(total, group, place + 1, row_.compare("lt", row_.index(place), row_.intConst(LookBack::kGroup - 2)));
    Val scanned = scan_.scanAlone(tile_, element, 0, inside_);

    Val before = totalBefore();
    // The last of a group, unless the row ends there.
    Val isLast = row_.compare("eq", row_.index(place), row_.intConst(LookBack::kGroup - 2));
    Val goesOn = row_.compare("lt", row_.index(kTile + 1), row_.index(look_.tiles(length_)));
    publish(scan_.combine(row_, {before}, {total})[0], group + 1, 0, row_.andMask(isLast, goesOn));
    Val out = scan_.combine(tile_, {before}, {scanned})[0];
    for (const loops::Store &s : node_.stores)
      tile_.store(s, tile_.cast(out, scan_.dtype(), k_.plan.program.buffer(s.buffer).dtype), {});
  }

private:
  /// Binds tile, group and place (of the tile in its group), the row's symbols and r0.
  void bind() {
    Value one = arith::ConstantOp::create(k_.b, k_.loc, k_.b.getI64IntegerAttr(1));
    Value ticket = tt::AtomicRMWOp::create(k_.b, k_.loc, wordType_, tt::RMWOp::ADD, k_.buffers.at(look_.words), one,
                                           Value(), tt::MemSemantic::RELAXED, tt::MemSyncScope::GPU);
    // Rows run side by side: the chain of each then has time.
    const Expr tiles = look_.tiles(length_);
    std::vector<Blocking> blockings = {{kTile, tiles, 1, -1}};
    for (size_t d = 0; d < k_.kernel.xRanges.size(); ++d)
      blockings.push_back({Symbol::outer(d), k_.kernel.xRanges[d], 1, -1});
    bindPrograms(tile_, blockings, tile_.toIndex({ticket}, DType::I64));
    const Expr t = kTile;
    auto define = [&](Symbol symbol, Expr e, Expr extent) {
      tile_.env[symbol] = tile_.index(e);
      tile_.facts.setIndex(symbol, extent);
    };
    define(kGroup, floorDiv(t, Expr(LookBack::kGroup - 1)), look_.groups(length_));
    define(kPlace, mod(t, Expr(LookBack::kGroup - 1)), LookBack::kGroup - 1);
    row_.facts = tile_.facts, row_.env = tile_.env;
    const Expr start = (node_.reverse ? tiles - 1 - t : t) * Expr(look_.tile);
    Val at = tile_.indexBinary("arith.addi", tile_.index(start), tile_.lanes(0));
    tile_.env[Symbol::inner(0)] = at;
    tile_.facts.setIndex(Symbol::inner(0), length_);
    if (tile_.facts.provablyDivisible(length_, Expr(look_.tile))) return;
    inside_ = tile_.compare("lt", at, tile_.index(length_));
    tile_.masks.push_back(inside_);
  }

  int64_t width() const { return LookBack::wordsOf(scan_.dtype()); }
  /// The first word of a slot of this row.
  Expr slot(Expr group, Expr place) const {
    Expr row = 0;
    for (size_t d = 0; d < k_.kernel.xRanges.size(); ++d) row = row * k_.kernel.xRanges[d] + Symbol::outer(d);
    return ((row * look_.groups(length_) + group) * Expr(LookBack::kGroup) + place) * Expr(width()) + LookBack::kHeader;
  }
  Value pointer(Emitter &e, Expr word) {
    Val at = e.index(word);
    Value base = k_.buffers.at(look_.words);
    if (at.vary) base = tile::splat(k_.b, k_.loc, base, e.frame.tile);
    return tile::addptr(k_.b, k_.loc, base, at.v);
  }
  Val word(int64_t v) { return {arith::ConstantOp::create(k_.b, k_.loc, k_.b.getI64IntegerAttr(v))}; }

  /// Where the condition holds.
  void publish(Val total, Expr group, Expr place, Val condition) {
    const int64_t bits = itemSize(scan_.dtype()) * 8;
    Value v = total.v;
    if (isa<FloatType>(v.getType()))
      v = tile::bitcast(k_.b, k_.loc, v, k_.b.getIntegerType(static_cast<unsigned>(bits)));
    if (v.getType() != wordType_) v = arith::ExtUIOp::create(k_.b, k_.loc, wordType_, v);
    for (int64_t w = 0; w < width(); ++w) {
      Val half = w == 0 ? row_.binary("arith.andi", {v}, word(UINT32_MAX)) : row_.binary("arith.shrui", {v}, word(32));
      Val filled = row_.binary("arith.ori", half, word(int64_t{1} << 32));
      tt::AtomicStoreOp::create(k_.b, k_.loc, pointer(row_, slot(group, place) + w), filled.v, condition.v,
                                tt::MemSemantic::RELAXED, tt::MemSyncScope::GPU);
    }
  }

  /// The total of all tiles before this one, once it is there.
  Val totalBefore() {
    Emitter lanes(k_, Frame{{LookBack::kGroup}});
    lanes.facts = row_.facts, lanes.env = row_.env;
    Val lane = lanes.lanes(0);
    lanes.env[kLane] = lane;
    lanes.facts.setIndex(kLane, LookBack::kGroup);
    // Slot 0 of a row's first group stays empty.
    Val exists = row_.compare("lt", row_.intConst(0), row_.index(kGroup));
    Val needed = lanes.binary("arith.andi", lanes.compare("le", lane, lanes.index(kPlace)),
                              lanes.binary("arith.ori", exists, lanes.compare("lt", lanes.intConst(0), lane)));
    SmallVector<Value> pointers;
    for (int64_t w = 0; w < width(); ++w) pointers.push_back(pointer(lanes, slot(kGroup, kLane) + w));

    // Only what is still missing is read again: many programs wait at the same words.
    SmallVector<Type> types(pointers.size(), RankedTensorType::get({LookBack::kGroup}, wordType_));
    SmallVector<Location> locs(types.size(), k_.loc);
    SmallVector<Value> none(types.size(), lanes.widen(word(0), 1).v);
    auto loop = scf::WhileOp::create(k_.b, k_.loc, types, none);
    {
      OpBuilder::InsertionGuard guard(k_.b);
      Block *test = k_.b.createBlock(&loop.getBefore(), {}, types, locs);
      SmallVector<Value> words;
      Val missing;
      auto isMissing = [&](Value v) {
        return lanes.binary("arith.andi", needed, lanes.compare("lt", {v, 1}, word(int64_t{1} << 32)));
      };
      for (size_t w = 0; w < pointers.size(); ++w) {
        Val have{test->getArgument(static_cast<unsigned>(w)), 1}, want = isMissing(have.v);
        Value read = tt::AtomicLoadOp::create(k_.b, k_.loc, types[w], pointers[w], want.v, tt::MemSemantic::RELAXED,
                                              tt::MemSyncScope::GPU);
        words.push_back(lanes.select(want, {read, 1}, have).v);
        missing = w == 0 ? isMissing(words[w]) : lanes.binary("arith.ori", missing, isMissing(words[w]));
      }
      missing = lanes.cast(missing, DType::Bool, DType::I32);
      SmallVector<Value> any = tile::reduce(k_.b, k_.loc, {missing.v}, 0, [&](ValueRange a) {
        return SmallVector<Value>{arith::OrIOp::create(k_.b, k_.loc, a[0], a[1])};
      });
      Val wait = row_.compare("ne", {any[0]}, row_.constant(DType::I32, 0, 0));
      scf::ConditionOp::create(k_.b, k_.loc, wait.v, words);
      Block *again = k_.b.createBlock(&loop.getAfter(), {}, types, locs);
      scf::YieldOp::create(k_.b, k_.loc, again->getArguments());
    }
    return scan_.reduceTile(lanes, {valueOf(lanes, loop.getResults())}, 0, needed)[0];
  }

  /// What the words of slots hold.
  Val valueOf(Emitter &lanes, ValueRange words) {
    const unsigned bits = static_cast<unsigned>(itemSize(scan_.dtype()) * 8);
    Val v = lanes.binary("arith.andi", {words[0], 1}, word(UINT32_MAX));
    if (words.size() > 1) v = lanes.binary("arith.ori", v, lanes.binary("arith.shli", {words[1], 1}, word(32)));
    auto shaped = [&](Type element) { return RankedTensorType::get({LookBack::kGroup}, element); };
    Type compute = computeTypeOf(k_.b.getContext(), scan_.dtype());
    if (scan_.dtype() == DType::Bool) return lanes.compare("ne", v, word(0));
    if (bits < 64) v.v = arith::TruncIOp::create(k_.b, k_.loc, shaped(k_.b.getIntegerType(bits)), v.v);
    if (isa<FloatType>(compute)) v.v = tile::bitcast(k_.b, k_.loc, v.v, shaped(compute));
    return v;
  }

  KernelContext &k_;
  const loops::ScanSpec &node_;
  const LookBack &look_;
  Expr length_;
  Emitter tile_, row_{k_, Frame{}}; // of the tile; of scalars
  Accumulator scan_;
  Type wordType_;
  Val inside_;
};

} // namespace

void emitLookBackScan(KernelContext &k, const Facts &facts, const LookBackTiling &tiling) {
  k.code.warps = tiling.warps;
  LookBackScan(k, facts).run();
}

} // namespace neso
