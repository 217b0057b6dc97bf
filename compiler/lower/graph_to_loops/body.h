// Scalar code of one loop nest, while it is being written.
//
// A BodyBuilder appends scalar ops to a loops::Body. It knows the ranges of the nest's index symbols, so that it can
// simplify index expressions and drop checks that always hold; equal ops are emitted once. A Val is one scalar value of
// the body under construction; the usual operators on Vals append ops. Both operands of an operator have the same
// dtype; a number takes the dtype of its partner.
//
// Values of reduced float tensors (f16, bf16, f8) are F32 in the body: load() widens, and the store of a nest narrows
// again. A chain of inlined ops therefore keeps F32 between ops (as TorchInductor does); an explicit cast, and the
// inputs of discontinuous functions (floor, comparisons, …), are rounded to the tensor's dtype.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "ir/loops/loops.h"

namespace neso::lower {

using loops::BufferId;
using loops::OpKind;
using loops::ValueIdx;

class BodyBuilder;

struct Val {
  BodyBuilder *b = nullptr;
  ValueIdx idx = -1;
  DType dtype = DType::F32;
  bool valid() const { return b != nullptr; }
};

/// A list of index expressions, one a dimension.
using Index = std::vector<Expr>;

class BodyBuilder {
public:
  explicit BodyBuilder(const Facts &modelFacts) : facts_(modelFacts) {}
  BodyBuilder(const BodyBuilder &) = delete;

  /// Declares an index symbol in [0, extent); an extent of 1 gives the constant 0 and declares nothing.
  Expr addIndex(Symbol symbol, Expr extent);
  const Facts &facts() const { return facts_; }

  Val constant(DType t, double value);
  Val constantInt(DType t, int64_t value);
  Val index(Expr e, DType t = DType::I64);
  /// buffer[index] as stored, then widened to the compute type of `t`.
  Val load(BufferId buffer, DType t, Expr index);
  /// The value as an index in [0, bound). See OpKind::Indirect. Under a guard that does not hold nothing is checked, and
  /// the index is 0.
  Expr indirect(Val v, Expr bound, bool wrap, bool check);
  /// Whether what is being built would be computed at all: the condition of the branch that it stands in. Values are
  /// computed either way, errors are reported only where it holds. Null: always.
  using Guard = std::function<Val(BodyBuilder &)>;
  const Guard *guard() const { return guard_; }
  void setGuard(const Guard *guard) { guard_ = guard; }
  Val cast(Val v, DType t);
  Val bitcast(Val v, DType t);
  /// Rounds a computed F32 to what a tensor of dtype t would hold, without a change of the body's dtype.
  Val round(Val v, DType t);
  Val unary(OpKind k, Val a);
  Val binary(OpKind k, Val a, Val b);
  Val where(Val c, Val a, Val b);
  Val random(OpKind k, Val seed, Val counter, Val word);
  /// fn's value where cond holds, else `other`; loads in fn happen only where cond holds.
  Val masked(Val cond, const std::function<Val()> &fn, Val other);
  /// lo <= e < hi as Bool, with the halves that always hold dropped.
  Val inRange(Expr e, Expr lo, Expr hi);
  Val compare(OpKind k, Expr a, Expr b);
  Val isTrue() { return constantInt(DType::Bool, 1); }

  std::optional<double> constantOf(Val v) const;
  bool isConstTrue(Val v) const { return constantOf(v) == 1.0; }
  const loops::Op &op(Val v) const { return body_.ops[v.idx]; }
  size_t opCount() const { return body_.ops.size(); }
  const loops::Body &body() const { return body_; }
  loops::Body take() { return std::move(body_); }

  /// Values of tensors already computed at an index under a mask (see Tensor::at). What the key names by its address is kept: another tensor
  /// would be taken for one that is gone.
  using MemoKey = std::pair<std::vector<const void *>, ValueIdx>;
  struct Memo {
    Val value;
    std::shared_ptr<const void> tensor;
  };
  std::map<MemoKey, Memo> memo;
  ValueIdx mask() const { return mask_; }
  /// Appends without merging it with an equal op (the placeholder of a contraction's sum).
  Val placeholder(DType t);

private:
  Val emit(loops::Op op);
  loops::Body body_;
  Facts facts_;
  ValueIdx mask_ = -1;
  const Guard *guard_ = nullptr;
  size_t indirects_ = 0;
  using Key = std::tuple<int, int, int, int, int, int64_t, int64_t, int, const void *, const void *, int>;
  std::map<Key, ValueIdx> seen_;
};

Val operator+(Val a, Val b);
Val operator-(Val a, Val b);
Val operator*(Val a, Val b);
Val operator/(Val a, Val b);
Val operator-(Val a);
Val operator+(Val a, double b);
Val operator-(Val a, double b);
Val operator*(Val a, double b);
Val operator/(Val a, double b);
Val operator+(double a, Val b);
Val operator-(double a, Val b);
Val operator*(double a, Val b);
Val operator/(double a, Val b);
Val operator<(Val a, Val b);
Val operator<=(Val a, Val b);
Val operator>(Val a, Val b);
Val operator>=(Val a, Val b);
Val operator<(Val a, double b);
Val operator<=(Val a, double b);
Val operator>(Val a, double b);
Val operator>=(Val a, double b);
Val eq(Val a, Val b);
Val eq(Val a, double b);
Val ne(Val a, Val b);
Val ne(Val a, double b);
Val operator&&(Val a, Val b);
Val operator||(Val a, Val b);
Val operator!(Val a);
Val where(Val c, Val a, Val b);
Val where(Val c, Val a, double b);
Val where(Val c, double a, Val b);
Val vmin(Val a, Val b);
Val vmax(Val a, Val b);
Val un(OpKind k, Val a);
Val bin(OpKind k, Val a, Val b);
Val bin(OpKind k, Val a, double b);
/// A number of the same dtype (and body) as `like`.
Val num(Val like, double v);

} // namespace neso::lower
