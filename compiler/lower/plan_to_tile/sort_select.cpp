#include "lower/plan_to_tile/sort_select.h"

#include "ir/tile/build.h"
#include "lower/plan_to_tile/scratch_code.h"
#include "lower/plan_to_tile/sort_order.h"
#include "lower/plan_to_tile/sort_row.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace neso {

using namespace mlir;
using loops::SortSpec;
namespace tb = tile;

namespace {

/// Words are moved together where at most one of so many is left, and where there are more than a few tiles of them: to move
/// one word takes what to compare about ten vectors' share of it takes.
constexpr int64_t kMovedShare = 8, kMovedTiles = 4;

class Selection {
public:
  Selection(KernelContext &k, const Facts &facts, const SortTiling &tiling)
      : k_(k), code_(k), node_(k.kernel.nodes[0].get<SortSpec>()), words_(node_.scratch->words), frame_(k, facts, tiling.tile),
        size_(tiling.tile[0]), type_(k.plan.program.buffer(words_).dtype), last_(word(-1)) {
    NESO_CHECK(node_.position < 0, "a selection by positions of its own");
  }

  void run() {
    std::vector<Val> memo;
    const Val place = row_.toIndex(row_.value(node_.body, node_.place, memo), DType::I64);
    storeAt(positionOfEqual(narrowed(packed(), place)));
  }

private:
  using Vals = ScratchCode::Vals;
  /// The least word and the greatest.
  struct Ends {
    Val low, high;
  };
  /// A word, and how many words that equal it stand in front of the one that is sought.
  struct Found {
    Val word, before;
  };
  /// What is known while the words that are looked at, `length` of them from `begin` on, become fewer: the one sought stands at
  /// `place` among them and lies in [low, high]; `below` of them are below low, `upTo` of them not above high.
  struct State {
    Val begin, length, place, low, high, below, upTo;
    Vals all() const { return {begin, length, place, low, high, below, upTo}; }
    static State of(const Vals &v) { return {v[0], v[1], v[2], v[3], v[4], v[5], v[6]}; }
  };

  Val add(Val a, Val b) { return row_.binary("arith.addi", a, b); }
  Val sub(Val a, Val b) { return row_.binary("arith.subi", a, b); }
  Val word(int64_t v) { return row_.constant(type_, 0, v); }
  Val words(int64_t v) { return tile_.widen(word(v), 1); }
  Val reduced(Val tile, const char *op) {
    Value out = tb::reduce(k_.b, k_.loc, {tile.v}, 0, [&](ValueRange args) {
      return SmallVector<Value>{row_.binary(op, Val{args[0]}, Val{args[1]}).v};
    })[0];
    return {out};
  }

  /// state = body(state, words at [begin, begin + length), mask, their places): whole tiles, then what is left of one. The mask is
  /// empty where a tile is whole; what it leaves out is as large as a word can be.
  Vals overTiles(Val begin, Val length, const Vals &first, const std::function<Vals(const Vals &, Val, Val)> &body) {
    const Val whole = row_.binary("arith.andi", length, row_.intConst(-size_));
    auto places = [&](Val start) { return tile_.indexBinary("arith.addi", start, tile_.lanes(0)); };
    auto index = [&](Val start) { return tile_.binary("arith.addi", add(base_, begin), places(start)); };
    Vals state = code_.fold(zero_, whole, row_.intConst(size_), first, [&](Val start, const Vals &now) {
      return body(now, code_.load(tile_, words_, index(start)), Val());
    });
    const Val rest = tile_.compare("lt", places(whole), length);
    return body(state, code_.load(tile_, words_, index(whole), rest, last_), rest);
  }

  /// Packs the row.
  Ends packed() {
    const int64_t size = size_;
    auto tileFrom = [&](Val start, bool whole, const Vals &now) {
      const Val r = tile_.indexBinary("arith.addi", start, tile_.lanes(0));
      Emitter e = frame_.elements(tile_, r);
      Val inside;
      if (!whole) inside = e.compare("lt", r, length_), e.masks.push_back(inside);
      std::vector<Val> memo;
      const Val key = e.widen(SortWords(e, node_, INT32_MAX).order(e.value(node_.body, node_.key, memo), type_), 1);
      code_.store(e, words_, e.binary("arith.addi", base_, r), key, inside);
      const Val low = whole ? key : e.select(inside, key, words(-1)), high = whole ? key : e.select(inside, key, words(0));
      return Vals{e.binary("arith.minui", now[0], low), e.binary("arith.maxui", now[1], high)};
    };
    const bool divides = row_.facts.provablyDivisible(n_, Expr(size));
    const Val whole = divides ? length_ : row_.binary("arith.andi", length_, row_.intConst(-size));
    Vals ends = code_.fold(zero_, whole, row_.intConst(size), {words(-1), words(0)},
                           [&](Val start, const Vals &now) { return tileFrom(start, true, now); });
    if (!divides) ends = tileFrom(whole, false, ends);
    return {reduced(ends[0], "arith.minui"), reduced(ends[1], "arith.maxui")};
  }

  /// How many of the words are not above `bound`, which is not the greatest that there can be.
  Val countUpTo(Val begin, Val length, Val bound) {
    const Val limit = tile_.widen(bound, 1);
    const Vals sums = overTiles(begin, length, {words(0)}, [&](const Vals &now, Val w, Val) {
      return Vals{tile_.binary("arith.addi", now[0], tile_.cast(tile_.compare("le", w, limit, true), DType::Bool, type_))};
    });
    return row_.toIndex(reduced(sums[0], "arith.addi"), type_);
  }

  Found narrowed(const Ends &ends, Val place) {
    const Vals end = code_.whileTrue(State{zero_, length_, place, ends.low, ends.high, zero_, length_}.all(),
                                     [&](const Vals &v) {
                                       const State s = State::of(v);
                                       return row_.binary("arith.andi", row_.compare("lt", s.low, s.high, true),
                                                          row_.compare("lt", one_, sub(s.upTo, s.below)));
                                     },
                                     [&](const Vals &v) { return movedTogether(half(State::of(v))).all(); });
    const State s = State::of(end);
    // Of those that are not below it the least: all that are left are equal.
    const Val limit = tile_.widen(s.low, 1);
    const Vals least = overTiles(s.begin, s.length, {words(-1)}, [&](const Vals &now, Val w, Val) {
      return Vals{tile_.binary("arith.minui", now[0], tile_.select(tile_.compare("lt", w, limit, true), words(-1), w))};
    });
    return {reduced(least[0], "arith.minui"), sub(s.place, s.below)};
  }

  /// The half of [low, high] in which the place lies.
  State half(State s) {
    const Val middle = add(s.low, row_.binary("arith.shrui", sub(s.high, s.low), word(1)));
    const Val count = countUpTo(s.begin, s.length, middle), above = row_.compare("le", count, s.place);
    s.low = row_.select(above, add(middle, word(1)), s.low), s.high = row_.select(above, s.high, middle);
    s.below = row_.select(above, count, s.below), s.upTo = row_.select(above, s.upTo, count);
    return s;
  }

  /// Those that are left are moved to the second half of the row's memory, where they are few.
  State movedTogether(const State &s) {
    const Val left = sub(s.upTo, s.below);
    auto times = [&](Val x, int64_t by) { return row_.binary("arith.muli", x, row_.intConst(by)); };
    const Val few = row_.binary("arith.andi", row_.compare("lt", row_.intConst(size_ * kMovedTiles), s.length),
                                row_.compare("le", times(left, kMovedShare), s.length));
    const Vals part = code_.choose(
        few,
        [&] {
          const Val span = sub(s.high, s.low), from = add(base_, s.begin), to = add(base_, length_);
          code_.fold(zero_, s.length, one_, {to}, [&](Val i, const Vals &next) {
            const Val w = code_.load(row_, words_, add(from, i));
            // Written in any case: what is not kept is written over by the next. No word is written over before it is read.
            code_.store(row_, words_, next[0], w);
            const Val kept = row_.compare("le", sub(w, s.low), span, true);
            return Vals{add(next[0], row_.cast(kept, DType::Bool, indexTypeOf(k_)))};
          });
          return Vals{length_, left, sub(s.place, s.below), zero_, left};
        },
        [&] { return Vals{s.begin, s.length, s.place, s.below, s.upTo}; });
    return {part[0], part[1], part[2], s.low, s.high, part[3], part[4]};
  }

  /// The position of the element. Whole tiles are passed over until the one that it is in, then elements.
  Val positionOfEqual(const Found &found) {
    const Val limit = tile_.widen(found.word, 1);
    auto equalsFrom = [&](Val start) {
      const Val r = tile_.indexBinary("arith.addi", start, tile_.lanes(0)), inside = tile_.compare("lt", r, length_);
      const Val w = code_.load(tile_, words_, tile_.binary("arith.addi", base_, r), inside, last_);
      const Val equal = tile_.binary("arith.andi", tile_.compare("eq", w, limit), inside);
      return row_.toIndex(reduced(tile_.cast(equal, DType::Bool, DType::I32), "arith.addi"), DType::I32);
    };
    const Val step = row_.intConst(size_);
    const Vals tile = code_.whileTrue(
        {zero_, found.before, equalsFrom(zero_)},
        [&](const Vals &v) {
          return row_.binary("arith.andi", row_.compare("le", v[2], v[1]), row_.compare("lt", add(v[0], step), length_));
        },
        [&](const Vals &v) { return Vals{add(v[0], step), sub(v[1], v[2]), equalsFrom(add(v[0], step))}; });
    const Val end = sub(length_, one_);
    const Vals element = code_.whileTrue(
        {tile[0], tile[1]},
        [&](const Vals &v) {
          const Val differs = row_.compare("ne", code_.load(row_, words_, add(base_, v[0])), found.word);
          const Val goesOn = row_.binary("arith.ori", differs, row_.compare("lt", zero_, v[1]));
          return row_.binary("arith.andi", goesOn, row_.compare("lt", v[0], end));
        },
        [&](const Vals &v) {
          const Val equal = row_.compare("eq", code_.load(row_, words_, add(base_, v[0])), found.word);
          return Vals{add(v[0], one_), sub(v[1], row_.cast(equal, DType::Bool, indexTypeOf(k_)))};
        });
    return element[0];
  }

  /// Stores the element at this position of the row, as the body gives it: a word does not tell -0 from 0.
  void storeAt(Val position) {
    Emitter e = frame_.elements(row_, position);
    std::vector<Val> memo;
    const Val key = e.value(node_.body, node_.key, memo);
    e.forgetIndices();
    e.env[Symbol::inner(0)] = zero_;
    storeSelected(e, node_, key, row_.cast(position, indexTypeOf(k_), DType::U32), DType::U32);
  }

  KernelContext &k_;
  ScratchCode code_;
  const SortSpec &node_;
  const loops::BufferId words_;
  SortRow frame_;
  const Expr &n_ = frame_.n;
  Emitter &row_ = frame_.one, &tile_ = frame_.many;
  const Val &length_ = frame_.length, &zero_ = frame_.zero, &one_ = frame_.unit, &base_ = frame_.base;
  const int64_t size_; // of a tile
  const DType type_;   // of a word
  const Val last_;     // the greatest word
};

} // namespace

void emitSelection(KernelContext &k, const Facts &facts, const SortTiling &tiling) { Selection(k, facts, tiling).run(); }

} // namespace neso
