#include "ir/tile/passes/footprint.h"

#include <algorithm>
#include <set>

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace neso {
namespace {

/// What one address enumerates. A lane is a position along a dimension of the tile; an iteration counts those of one
/// loop; a remainder stands for x % n of an index x, a single variable in its place.
struct Variable {
  enum Kind : uint8_t { Lane, Program, Iteration, Remainder } kind = Lane;
  int id = 0;   // Lane: the dimension; Program: the axis; Iteration and Remainder: a number of their own
  int dim = -1; // Remainder: the dimension of its lane, if it has one

  bool operator<(const Variable &o) const { return std::tie(kind, id, dim) < std::tie(o.kind, o.id, o.dim); }
};

/// constant + Σ coefficient * variable, where everything but the variables is the same in the whole launch. Of a
/// pointer: bytes from parameter `param`.
struct Form {
  Expr constant = 0;
  std::map<Variable, Expr> terms;
  int param = -1;
  bool isConstant() const { return terms.empty() && param < 0; }
};
using MaybeForm = std::optional<Form>;

/// A conjunction: each form is < 0.
using Mask = std::vector<Form>;

/// Ends of a variable's or an index's values, both taken.
struct Ends {
  Expr low, high;
};

void addTo(Form &form, const Variable &v, Expr coefficient) {
  Expr &slot = form.terms.try_emplace(v, Expr(0)).first->second;
  slot = slot + coefficient;
  if (slot.isConst(0)) form.terms.erase(v);
}

MaybeForm add(const MaybeForm &a, const MaybeForm &b, Expr scale = 1) {
  if (!a || !b || b->param >= 0) return std::nullopt;
  Form out = *a;
  out.constant = out.constant + b->constant * scale;
  for (const auto &[v, c] : b->terms) addTo(out, v, c * scale);
  return out;
}

MaybeForm multiply(const MaybeForm &a, const MaybeForm &b) {
  if (!a || !b || a->param >= 0 || b->param >= 0) return std::nullopt;
  const Form &factor = a->isConstant() ? *a : *b, &form = a->isConstant() ? *b : *a;
  if (!factor.isConstant()) return std::nullopt;
  return add(Form(), form, factor.constant);
}

class Prover {
public:
  Prover(tt::FuncOp func, bool lastProgramOnly) : func_(func), lastOnly_(lastProgramOnly) {}

  /// `proved`: accesses that need no further proof; those proved here join them.
  void prove(size_t limit, std::vector<Footprint> &out, DenseSet<Operation *> &proved) {
    func_.walk([&](Operation *op) {
      Value pointer, mask;
      if (tt::LoadOp o = dyn_cast<tt::LoadOp>(op))
        pointer = o.getPtr(), mask = o.getMask();
      else if (tt::StoreOp o = dyn_cast<tt::StoreOp>(op))
        pointer = o.getPtr(), mask = o.getMask();
      else if (tt::AtomicRMWOp o = dyn_cast<tt::AtomicRMWOp>(op))
        pointer = o.getPtr(), mask = o.getMask();
      else if (tt::AtomicCASOp o = dyn_cast<tt::AtomicCASOp>(op))
        pointer = o.getPtr();
      else
        return;
      if (out.size() >= limit || proved.contains(op)) return;
      std::optional<Footprint> found = access(op, pointer, mask);
      if (!found) return;
      proved.insert(op);
      auto same = [&](const Footprint &f) {
        return f.param == found->param && f.begin == found->begin && f.end == found->end && f.valid == found->valid;
      };
      if (std::none_of(out.begin(), out.end(), same)) out.push_back(*found);
    });
  }

private:
  tt::FuncOp func_;
  bool lastOnly_;  // program ids are those of the last program
  Expr valid_ = 1; // of the access under work
  DenseMap<Value, MaybeForm> forms_;
  DenseMap<Value, Expr> conditions_; // what the form of a value takes for granted
  std::map<int, Expr> trips_;        // by Iteration id
  DenseMap<Operation *, int> loops_;
  struct Rest {
    Ends ends;
    bool dense; // takes every value between its ends
    std::set<std::pair<int, int>> sources;
  };
  std::vector<Rest> rests_; // by Remainder id

  void require(Expr condition) { valid_ = logicalAnd(valid_, condition); }
  static Expr within32(Expr e) { return logicalAnd(le(Expr(INT32_MIN), e), le(e, Expr(INT32_MAX))); }

  // ---- Values to forms ----

  /// The form of `v`; what it takes for granted joins valid_.
  MaybeForm form(Value v) {
    auto it = forms_.find(v);
    if (it == forms_.end()) {
      forms_[v] = std::nullopt; // a value that depends on itself has no form
      conditions_[v] = 1;
      Expr outer = valid_;
      valid_ = 1;
      MaybeForm f = compute(v);
      conditions_[v] = valid_;
      valid_ = outer;
      it = forms_.find(v);
      it->second = std::move(f);
    }
    require(conditions_[v]);
    return it->second;
  }

  MaybeForm compute(Value v) {
    if (BlockArgument arg = dyn_cast<BlockArgument>(v)) return argument(arg);
    Operation *op = v.getDefiningOp();
    APInt number;
    if (matchPattern(v, m_ConstantInt(&number))) return constant(number);
    DenseElementsAttr elements;
    if (matchPattern(v, m_Constant(&elements)) && elements.isSplat() && isa<IntegerType>(elements.getElementType()))
      return constant(elements.getSplatValue<APInt>());
    if (tt::GetProgramIdOp o = dyn_cast<tt::GetProgramIdOp>(op)) {
      Expr size = gridSymbol(static_cast<unsigned>(o.getAxis()));
      Form f;
      if (lastOnly_)
        f.constant = size - 1;
      else
        addTo(f, {Variable::Program, static_cast<int>(o.getAxis())}, 1);
      return f;
    }
    if (tt::GetNumProgramsOp o = dyn_cast<tt::GetNumProgramsOp>(op))
      return Form{gridSymbol(static_cast<unsigned>(o.getAxis())), {}, -1};
    if (tt::MakeRangeOp o = dyn_cast<tt::MakeRangeOp>(op)) {
      Form f{static_cast<int64_t>(static_cast<int32_t>(o.getStart())), {}, -1};
      addTo(f, {Variable::Lane, 0}, 1);
      return f;
    }
    if (isa<tt::SplatOp, tt::BroadcastOp, tt::BitcastOp, arith::ExtSIOp, arith::ExtUIOp, arith::IndexCastOp>(op))
      return form(op->getOperand(0));
    if (tt::ExpandDimsOp o = dyn_cast<tt::ExpandDimsOp>(op)) {
      int axis = static_cast<int>(o.getAxis());
      return moveDims(form(o.getSrc()), [&](int d) { return d >= axis ? d + 1 : d; });
    }
    if (tt::TransOp o = dyn_cast<tt::TransOp>(op)) {
      ArrayRef<int32_t> order = o.getOrder();
      return moveDims(form(o.getSrc()), [&](int d) { return static_cast<int>(llvm::find(order, d) - order.begin()); });
    }
    if (tt::AddPtrOp o = dyn_cast<tt::AddPtrOp>(op)) {
      Type pointee = cast<tt::PointerType>(getElementTypeOrSelf(o.getType())).getPointeeType();
      if (!pointee.isIntOrFloat()) return std::nullopt;
      int64_t bytes = std::max(pointee.getIntOrFloatBitWidth() / 8, 1u);
      return add(form(o.getPtr()), form(o.getOffset()), bytes);
    }
    if (isa<arith::AddIOp>(op)) return add(form(op->getOperand(0)), form(op->getOperand(1)));
    if (isa<arith::SubIOp>(op)) return add(form(op->getOperand(0)), form(op->getOperand(1)), -1);
    if (isa<arith::MulIOp>(op)) return multiply(form(op->getOperand(0)), form(op->getOperand(1)));
    if (isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp>(op)) {
      MaybeForm a = form(op->getOperand(0)), b = form(op->getOperand(1));
      ArrayRef<int64_t> outer = shape_;
      RankedTensorType tile = dyn_cast<RankedTensorType>(v.getType());
      shape_ = tile ? tile.getShape() : ArrayRef<int64_t>();
      MaybeForm out = divide(a, b, isa<arith::RemSIOp, arith::RemUIOp>(op));
      shape_ = outer;
      return out;
    }
    if (isa<arith::MinSIOp, arith::MaxSIOp>(op)) {
      MaybeForm a = form(op->getOperand(0)), b = form(op->getOperand(1));
      if (!a || !b || !a->isConstant() || !b->isConstant()) return std::nullopt;
      require(logicalAnd(within32(a->constant), within32(b->constant)));
      return Form{isa<arith::MinSIOp>(op) ? min(a->constant, b->constant) : max(a->constant, b->constant), {}, -1};
    }
    if (arith::SelectOp o = dyn_cast<arith::SelectOp>(op)) {
      std::optional<Expr> condition = truth(o.getCondition());
      MaybeForm a = form(o.getTrueValue()), b = form(o.getFalseValue());
      if (!condition || !a || !b || !a->isConstant() || !b->isConstant()) return std::nullopt;
      return Form{where(*condition, a->constant, b->constant), {}, -1};
    }
    if (scf::ForOp loop = dyn_cast<scf::ForOp>(op)) {
      // What a loop leaves behind: the value after all its rounds.
      unsigned index = cast<OpResult>(v).getResultNumber();
      std::optional<Expr> trips = tripCount(loop);
      MaybeForm start = form(loop.getInitArgs()[index]);
      std::optional<Expr> step = stepOf(loop, index);
      if (!trips || !start || !step) return std::nullopt;
      start->constant = start->constant + *trips * *step;
      return start;
    }
    return std::nullopt;
  }

  static Form constant(const APInt &value) {
    return Form{value.getBitWidth() == 1 ? int64_t(value.getZExtValue()) : value.getSExtValue(), {}, -1};
  }

  MaybeForm argument(BlockArgument arg) {
    Operation *parent = arg.getOwner()->getParentOp();
    if (parent == func_ && arg.getOwner()->isEntryBlock()) {
      if (isa<tt::PointerType>(arg.getType())) return Form{0, {}, static_cast<int>(arg.getArgNumber())};
      if (isa<IntegerType>(arg.getType())) return Form{argumentSymbol(arg.getArgNumber()), {}, -1};
      return std::nullopt;
    }
    scf::ForOp loop = dyn_cast<scf::ForOp>(parent);
    if (!loop) return std::nullopt;
    std::optional<Expr> trips = tripCount(loop);
    if (!trips) return std::nullopt;
    MaybeForm out;
    std::optional<Expr> step;
    if (arg.getArgNumber() == 0) {
      out = form(loop.getLowerBound());
      if (MaybeForm s = form(loop.getStep()); s && s->isConstant()) step = s->constant;
    } else {
      out = form(loop.getInitArgs()[arg.getArgNumber() - 1]);
      step = stepOf(loop, arg.getArgNumber() - 1);
    }
    if (!out || !step) return std::nullopt;
    addTo(*out, {Variable::Iteration, loops_[loop]}, *step);
    return out;
  }

  /// Rounds of a loop whose bounds are the same in the whole launch. Numbers the loop.
  std::optional<Expr> tripCount(scf::ForOp loop) {
    MaybeForm low = form(loop.getLowerBound()), high = form(loop.getUpperBound()), step = form(loop.getStep());
    if (!low || !high || !step || !low->isConstant() || !high->isConstant() || !step->isConstant()) return std::nullopt;
    auto [it, fresh] = loops_.try_emplace(loop, static_cast<int>(loops_.size()));
    require(lt(0, step->constant));
    Expr trips = max(0, ceilDiv(high->constant - low->constant, max(step->constant, 1)));
    trips_[it->second] = trips;
    return trips;
  }

  /// What a carried value of a loop grows by in every round, if that is a number of the launch.
  std::optional<Expr> stepOf(scf::ForOp loop, unsigned index) {
    Value carried = loop.getRegionIterArgs()[index], next = loop.getBody()->getTerminator()->getOperand(index);
    if (next == carried) return Expr(0);
    Operation *op = next.getDefiningOp();
    if (!op || !isa<tt::AddPtrOp, arith::AddIOp>(op)) return std::nullopt;
    bool second = op->getOperand(0) != carried;
    if (second && (isa<tt::AddPtrOp>(op) || op->getOperand(1) != carried)) return std::nullopt;
    MaybeForm by = form(op->getOperand(second ? 0 : 1));
    if (!by || !by->isConstant()) return std::nullopt;
    if (!isa<tt::AddPtrOp>(op)) return by->constant;
    Type pointee = cast<tt::PointerType>(getElementTypeOrSelf(next.getType())).getPointeeType();
    if (!pointee.isIntOrFloat()) return std::nullopt;
    return by->constant * int64_t(std::max(pointee.getIntOrFloatBitWidth() / 8, 1u));
  }

  template <typename Move> MaybeForm moveDims(MaybeForm f, Move move) {
    if (!f) return f;
    Form out{f->constant, {}, f->param};
    for (const auto &[v, c] : f->terms) {
      Variable moved = v;
      if (v.kind == Variable::Lane) moved.id = move(v.id);
      if (v.kind == Variable::Remainder && v.dim >= 0) moved.dim = move(v.dim);
      out.terms[moved] = c;
    }
    return out;
  }

  MaybeForm divide(const MaybeForm &a, const MaybeForm &b, bool remainder) {
    if (!a || !b || a->param >= 0 || !b->isConstant()) return std::nullopt;
    Expr n = max(b->constant, 1);
    require(lt(0, b->constant));
    if (a->isConstant()) {
      // Division rounds towards zero, or has no sign: the same as Python's from 0 on.
      require(logicalAnd(le(0, a->constant), within32(a->constant)));
      return Form{remainder ? mod(a->constant, n) : floorDiv(a->constant, n), {}, -1};
    }
    if (!remainder) return std::nullopt;
    // An index that takes every value of [low, high] leaves a remainder that takes every value of [0, n) or [low,
    // high].
    std::optional<Index> index = indexOf(a->terms);
    if (!index || !index->dense) return std::nullopt;
    int lanes = -1;
    for (const auto &[kind, id] : index->sources)
      if (kind == Variable::Lane) {
        if (lanes >= 0) return std::nullopt;
        lanes = id;
      }
    Expr low = index->ends.low + a->constant, high = index->ends.high + a->constant;
    require(logicalAnd(density_, logicalAnd(le(0, low), lt(low, n))));
    Expr wraps = le(n, high);
    Rest rest{{where(wraps, 0, low), where(wraps, n - 1, high)}, low.isConst(0), index->sources};
    rests_.push_back(rest);
    Form out;
    addTo(out, {Variable::Remainder, static_cast<int>(rests_.size()) - 1, lanes}, 1);
    return out;
  }

  // ---- Conditions ----

  /// A condition as forms that are all < 0.
  std::optional<Mask> mask(Value v) {
    Operation *op = v.getDefiningOp();
    if (!op) return std::nullopt;
    if (isa<tt::SplatOp, tt::BroadcastOp>(op)) return mask(op->getOperand(0));
    if (tt::ExpandDimsOp o = dyn_cast<tt::ExpandDimsOp>(op)) {
      std::optional<Mask> inner = mask(o.getSrc());
      if (!inner) return inner;
      int axis = static_cast<int>(o.getAxis());
      for (Form &f : *inner) f = *moveDims(f, [&](int d) { return d >= axis ? d + 1 : d; });
      return inner;
    }
    if (isa<arith::AndIOp>(op)) {
      std::optional<Mask> a = mask(op->getOperand(0)), b = mask(op->getOperand(1));
      if (!a || !b) return std::nullopt;
      a->insert(a->end(), b->begin(), b->end());
      return a;
    }
    if (arith::CmpIOp o = dyn_cast<arith::CmpIOp>(op)) return comparison(o, false);
    if (MaybeForm f = form(v); f && f->isConstant()) return Mask{Form{Expr(0) - f->constant, {}, -1}};
    return std::nullopt;
  }

  std::optional<Mask> comparison(arith::CmpIOp op, bool negated) {
    using P = arith::CmpIPredicate;
    P p = negated ? arith::invertPredicate(op.getPredicate()) : op.getPredicate();
    MaybeForm a = form(op.getLhs()), b = form(op.getRhs());
    if (!a || !b || a->param >= 0 || b->param >= 0) return std::nullopt;
    MaybeForm less = add(a, b, -1), greater = add(b, a, -1);
    Form one{Expr(-1), {}, -1};
    switch (p) {
    case P::slt: return Mask{*less};
    case P::sle: return Mask{*add(*less, one)};
    case P::sgt: return Mask{*greater};
    case P::sge: return Mask{*add(*greater, one)};
    case P::eq: return Mask{*add(*less, one), *add(*greater, one)};
    default: return std::nullopt;
    }
  }

  /// A condition that is the same in the whole launch.
  std::optional<Expr> truth(Value v) {
    std::optional<Mask> m = mask(v);
    if (!m) return std::nullopt;
    Expr out = 1;
    for (const Form &f : *m) {
      if (!f.isConstant()) return std::nullopt;
      out = logicalAnd(out, lt(f.constant, 0));
    }
    return out;
  }

  // ---- Indices: sums of variables ----

  struct Index {
    Ends ends;
    bool dense; // every value between the ends is taken; conditions for it joined valid_
    std::set<std::pair<int, int>> sources;
  };

  std::set<std::pair<int, int>> sourcesOf(const Variable &v) const {
    if (v.kind != Variable::Remainder) return {{v.kind, v.id}};
    std::set<std::pair<int, int>> out = rests_[static_cast<size_t>(v.id)].sources;
    // The lane may have become that of another dimension.
    for (auto it = out.begin(); it != out.end(); ++it)
      if (it->first == Variable::Lane) {
        out.erase(it);
        out.insert({Variable::Lane, v.dim});
        break;
      }
    return out;
  }

  ArrayRef<int64_t> shape_; // of the tile whose lanes are counted

  /// Values of one variable. Of lanes whose tile is unknown: nothing.
  std::optional<std::pair<Ends, bool>> valuesOf(const Variable &v) {
    switch (v.kind) {
    case Variable::Lane:
      if (static_cast<size_t>(v.id) >= shape_.size()) return std::nullopt;
      return std::pair(Ends{0, shape_[static_cast<size_t>(v.id)] - 1}, true);
    case Variable::Program: {
      Expr size = gridSymbol(static_cast<unsigned>(v.id));
      require(lt(0, size));
      return std::pair(Ends{0, size - 1}, true);
    }
    case Variable::Iteration: {
      Expr trips = trips_[v.id];
      require(lt(0, trips));
      return std::pair(Ends{0, trips - 1}, true);
    }
    case Variable::Remainder: {
      const Rest &rest = rests_[static_cast<size_t>(v.id)];
      return std::pair(rest.ends, rest.dense);
    }
    }
    return std::nullopt;
  }

  /// Σ terms over variables that do not depend on each other.
  std::optional<Index> indexOf(const std::map<Variable, Expr> &terms) {
    Index out{{0, 0}, true, {}};
    struct Part {
      Expr size, span; // |coefficient|, values - 1
    };
    std::vector<Part> numbers, others;
    for (const auto &[v, c] : terms) {
      auto values = valuesOf(v);
      if (!values) return std::nullopt;
      for (const std::pair<int, int> &s : sourcesOf(v))
        if (!out.sources.insert(s).second) return std::nullopt;
      Expr a = c * values->first.low, b = c * values->first.high;
      std::optional<int64_t> number = c.asConst();
      out.ends.low = out.ends.low + (number ? *number >= 0 ? a : b : min(a, b));
      out.ends.high = out.ends.high + (number ? *number >= 0 ? b : a : max(a, b));
      out.dense &= values->second;
      Expr span = values->first.high - values->first.low;
      if (number)
        numbers.push_back({Expr(std::abs(*number)), span});
      else
        others.push_back({c, span});
    }
    // Digits of a number whose base is mixed: each step is no greater than what the digits below it fill.
    std::sort(numbers.begin(), numbers.end(),
              [](const Part &a, const Part &b) { return a.size.constValue() < b.size.constValue(); });
    std::sort(others.begin(), others.end(), [](const Part &a, const Part &b) { return a.size.kind() < b.size.kind(); });
    numbers.insert(numbers.end(), others.begin(), others.end());
    Expr filled = 1, conditions = 1;
    for (const Part &p : numbers) {
      Expr fits = logicalAnd(le(0, p.size), le(p.size, filled));
      if (fits.isConst(0)) out.dense = false;
      conditions = logicalAnd(conditions, fits);
      filled = filled + p.size * p.span;
    }
    if (out.dense) out.dense = !conditions.isConst(0), density_ = conditions;
    return out;
  }
  Expr density_ = 1; // what the last dense index takes for granted

  // ---- Accesses ----

  std::optional<Footprint> access(Operation *op, Value pointer, Value maskValue) {
    valid_ = 1;
    RankedTensorType tile = dyn_cast<RankedTensorType>(pointer.getType());
    shape_ = tile ? tile.getShape() : ArrayRef<int64_t>();
    MaybeForm address = form(pointer);
    if (!address || address->param < 0) return std::nullopt;
    std::optional<Mask> conditions = Mask{};
    if (maskValue) conditions = mask(maskValue);
    if (!conditions || !enclosing(op, *conditions)) return std::nullopt;
    Ends total{address->constant, address->constant};
    // Groups of variables that share a source or a condition.
    std::vector<std::set<Variable>> groups;
    auto join = [&](const std::set<Variable> &vars) {
      std::set<Variable> merged = vars;
      auto touches = [&](const std::set<Variable> &g) {
        for (const Variable &a : g)
          for (const Variable &b : merged) {
            std::set<std::pair<int, int>> sa = sourcesOf(a), sb = sourcesOf(b);
            if (std::any_of(sa.begin(), sa.end(), [&](const auto &s) { return sb.count(s) != 0; })) return true;
          }
        return false;
      };
      for (bool again = true; again;) {
        again = false;
        for (auto it = groups.begin(); it != groups.end(); ++it)
          if (touches(*it)) {
            merged.insert(it->begin(), it->end());
            groups.erase(it);
            again = true;
            break;
          }
      }
      groups.push_back(std::move(merged));
    };
    for (const auto &[v, c] : address->terms) join({v});
    for (const Form &f : *conditions) {
      std::set<Variable> vars;
      for (const auto &[v, c] : f.terms) vars.insert(v);
      if (vars.empty())
        require(lt(f.constant, 0));
      else
        join(vars);
    }
    // Every program and every loop around must run at all.
    for (unsigned axis = 0; axis < 3; ++axis) require(lt(0, gridSymbol(axis)));
    for (const std::set<Variable> &group : groups) {
      std::map<Variable, Expr> terms;
      for (const Variable &v : group)
        if (auto it = address->terms.find(v); it != address->terms.end()) terms[v] = it->second;
      std::vector<const Form *> bounds;
      for (const Form &f : *conditions)
        if (!f.terms.empty() && group.count(f.terms.begin()->first)) bounds.push_back(&f);
      std::optional<Ends> ends = bounds.empty() ? unbounded(terms) : bounded(terms, bounds);
      if (!ends) return std::nullopt;
      total.low = total.low + ends->low;
      total.high = total.high + ends->high;
    }
    if (valid_.isConst(0)) return std::nullopt;
    Type pointee = cast<tt::PointerType>(getElementTypeOrSelf(pointer.getType())).getPointeeType();
    if (!pointee.isIntOrFloat()) return std::nullopt;
    int64_t bytes = std::max(pointee.getIntOrFloatBitWidth() / 8, 1u);
    return Footprint{static_cast<unsigned>(address->param), total.low, total.high + bytes, valid_,
                     sourceLoc(op->getLoc()).line};
  }

  std::optional<Ends> unbounded(const std::map<Variable, Expr> &terms) {
    std::optional<Index> index = indexOf(terms);
    if (!index) return std::nullopt;
    return index->ends;
  }

  /// The bounds must all speak of one index, of which the terms are a multiple.
  std::optional<Ends> bounded(const std::map<Variable, Expr> &terms, const std::vector<const Form *> &bounds) {
    std::map<Variable, Expr> base = bounds.front()->terms;
    // The sign with which the first variable counts up.
    if (std::optional<int64_t> c = base.begin()->second.asConst(); c && *c < 0)
      for (auto &[v, e] : base) e = Expr(0) - e;
    std::optional<Index> index = indexOf(base);
    if (!index || !index->dense) return std::nullopt;
    require(density_);
    Expr low = index->ends.low, high = index->ends.high;
    for (const Form *f : bounds) {
      std::optional<Expr> scale = ratio(f->terms, base);
      if (!scale || !scale->isConst() || std::abs(scale->constValue()) != 1) return std::nullopt;
      // index + constant < 0, or -index + constant < 0.
      if (scale->isConst(1))
        high = min(high, Expr(-1) - f->constant);
      else
        low = max(low, f->constant + 1);
    }
    require(le(low, high));
    if (terms.empty()) return Ends{0, 0};
    std::optional<Expr> scale = ratio(terms, base);
    if (!scale) return std::nullopt;
    Expr a = *scale * low, b = *scale * high;
    if (std::optional<int64_t> number = scale->asConst()) return *number >= 0 ? Ends{a, b} : Ends{b, a};
    return Ends{min(a, b), max(a, b)};
  }

  /// The factor by which `terms` is `base`.
  static std::optional<Expr> ratio(const std::map<Variable, Expr> &terms, const std::map<Variable, Expr> &base) {
    if (terms.size() != base.size()) return std::nullopt;
    std::optional<Expr> scale;
    for (const auto &[v, c] : base) {
      auto it = terms.find(v);
      if (it == terms.end()) return std::nullopt;
      if (!scale && c.isConst() && std::abs(c.constValue()) == 1) scale = it->second * c;
    }
    if (!scale) return std::nullopt;
    for (const auto &[v, c] : base)
      if (terms.at(v) != *scale * c) return std::nullopt;
    return scale;
  }

  /// The conditions that loops, branches and early returns around `op` set. False if one is not known.
  bool enclosing(Operation *op, Mask &out) {
    for (Operation *at = op; at != func_; at = at->getParentOp()) {
      Operation *parent = at->getParentOp();
      if (scf::ForOp loop = dyn_cast<scf::ForOp>(parent)) {
        std::optional<Expr> trips = tripCount(loop);
        if (!trips) return false;
        require(lt(0, *trips));
      } else if (scf::IfOp branch = dyn_cast<scf::IfOp>(parent)) {
        if (!branchTaken(branch.getCondition(), at->getParentRegion() == &branch.getThenRegion(), out)) return false;
      } else if (parent != func_) {
        return false;
      }
      if (parent != func_) continue;
      for (Block *block = at->getBlock(); !block->isEntryBlock();) {
        Block *before = block->getSinglePredecessor();
        if (!before) return false;
        if (cf::CondBranchOp branch = dyn_cast<cf::CondBranchOp>(before->getTerminator());
            branch && branch.getTrueDest() != branch.getFalseDest())
          if (!branchTaken(branch.getCondition(), branch.getTrueDest() == block, out)) return false;
        block = before;
      }
    }
    return true;
  }

  bool branchTaken(Value condition, bool taken, Mask &out) {
    if (taken) {
      std::optional<Mask> m = mask(condition);
      if (m) out.insert(out.end(), m->begin(), m->end());
      return m.has_value();
    }
    if (arith::CmpIOp compare = condition.getDefiningOp<arith::CmpIOp>())
      if (std::optional<Mask> m = comparison(compare, true)) {
        out.insert(out.end(), m->begin(), m->end());
        return true;
      }
    std::optional<Expr> t = truth(condition);
    if (t) require(logicalNot(*t));
    return t.has_value();
  }
};

} // namespace

Symbol gridSymbol(unsigned axis) { return Symbol::of(Symbol::Kind::Grid, axis); }
Symbol argumentSymbol(unsigned argument) { return Symbol::of(Symbol::Kind::Argument, argument); }

std::vector<Footprint> provableFootprints(tt::FuncOp func, size_t limit) {
  std::vector<Footprint> out;
  if (func.isExternal()) return out;
  DenseSet<Operation *> proved;
  for (bool lastProgramOnly : {false, true}) Prover(func, lastProgramOnly).prove(limit, out, proved);
  return out;
}

} // namespace neso
