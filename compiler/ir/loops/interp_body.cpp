// Index expressions and bodies over lanes.
#include <algorithm>

#include "base/diagnostics/loops.h"
#include "ir/loops/lanes.h"

namespace neso::loops {

void fillIndices(const std::vector<int64_t> &extents, int64_t start, int n, const std::vector<int64_t *> &slots) {
  size_t rank = extents.size();
  std::vector<int64_t> at(rank);
  for (size_t d = rank; d-- > 0;) {
    at[d] = start % extents[d];
    start /= extents[d];
  }
  if (rank == 0) return;
  for (int l = 0; l < n;) {
    // One run along the innermost dimension at a time.
    int run = static_cast<int>(std::min<int64_t>(n - l, extents[rank - 1] - at[rank - 1]));
    for (size_t d = 0; d + 1 < rank; ++d)
      if (slots[d]) std::fill_n(slots[d] + l, run, at[d]);
    if (int64_t *inner = slots[rank - 1])
      for (int k = 0; k < run; ++k) inner[l + k] = at[rank - 1] + k;
    l += run;
    at[rank - 1] += run;
    for (size_t d = rank - 1; d > 0 && at[d] == extents[d]; --d) {
      at[d] = 0;
      ++at[d - 1];
    }
  }
}

int SlotTable::find(Symbol symbol) const {
  for (size_t s = 0; s < symbols.size(); ++s)
    if (symbols[s] == symbol) return static_cast<int>(s);
  return -1;
}
int SlotTable::add(Symbol symbol) {
  symbols.push_back(symbol);
  lanes.push_back(std::make_unique<Register>());
  return static_cast<int>(symbols.size()) - 1;
}

Result<IndexCode> IndexCode::compile(Expr e, const SlotTable &slots, const std::string &node) {
  IndexCode code;
  Expr rest = e;
  code.affine_ = true;
  for (Symbol symbol : symbolsOf(e)) {
    int slot = slots.find(symbol);
    if (slot < 0) return fail(diag::LoopsUnknownSymbol, {}, node, symbol.str(), e.str());
    code.used_.push_back(slot);
    std::optional<Affine> a = code.affine_ ? affineIn(rest, symbol) : std::nullopt;
    if (!a || !a->coefficient.isConst()) {
      code.affine_ = false;
      continue;
    }
    code.terms_.push_back({slot, a->coefficient.constValue()});
    rest = a->rest;
  }
  if (code.affine_ && rest.isConst()) {
    code.constant_ = rest.constValue();
    return code;
  }
  code.affine_ = false;
  code.terms_.clear();
  std::optional<Error> error;
  code.emit(e, slots, node, error);
  if (error) return std::move(*error);
  return code;
}

int IndexCode::emit(Expr e, const SlotTable &slots, const std::string &node, std::optional<Error> &error) {
  Step step{e.kind(), -1, -1, -1, -1, 0};
  if (e.isConst()) {
    step.value = e.constValue();
  } else if (e.isSymbol()) {
    step.slot = slots.find(e.symbol());
  } else {
    const std::vector<Expr> &ops = e.operands();
    step.a = emit(ops[0], slots, node, error);
    // Longer sums, products and extremes fold from the left.
    for (size_t k = 1; k + 1 < ops.size() && e.kind() != ExprKind::Where; ++k) {
      step.b = emit(ops[k], slots, node, error);
      steps_.push_back(step);
      temps_.push_back(std::make_unique<Register>());
      step.a = static_cast<int>(steps_.size()) - 1;
    }
    if (e.kind() == ExprKind::Where) {
      step.b = emit(ops[1], slots, node, error);
      step.c = emit(ops[2], slots, node, error);
    } else if (ops.size() > 1) {
      step.b = emit(ops.back(), slots, node, error);
    }
  }
  steps_.push_back(step);
  temps_.push_back(std::make_unique<Register>());
  return static_cast<int>(steps_.size()) - 1;
}

namespace {
int64_t floorDivision(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return b == 0 ? 0 : static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
int64_t power(int64_t a, int64_t b) {
  uint64_t out = 1;
  for (int64_t k = 0; k < b && k < 64; ++k) out *= static_cast<uint64_t>(a);
  return static_cast<int64_t>(out);
}
} // namespace

void IndexCode::eval(const SlotTable &slots, int n, int64_t *out) {
  if (affine_) {
    std::fill_n(out, n, constant_);
    for (auto [slot, coefficient] : terms_) {
      const int64_t *lanes = slots.lanes[static_cast<size_t>(slot)]->i;
      for (int l = 0; l < n; ++l) out[l] += coefficient * lanes[l];
    }
    return;
  }
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step &step = steps_[s];
    int64_t *o = s + 1 == steps_.size() ? out : temps_[s]->i;
    const int64_t *a = step.a >= 0 ? temps_[static_cast<size_t>(step.a)]->i : nullptr;
    const int64_t *b = step.b >= 0 ? temps_[static_cast<size_t>(step.b)]->i : nullptr;
    const int64_t *c = step.c >= 0 ? temps_[static_cast<size_t>(step.c)]->i : nullptr;
    auto each = [&](auto f) {
      for (int l = 0; l < n; ++l) o[l] = f(l);
    };
    switch (step.kind) {
    case ExprKind::Const: std::fill_n(o, n, step.value); break;
    case ExprKind::Symbol: std::copy_n(slots.lanes[static_cast<size_t>(step.slot)]->i, n, o); break;
    case ExprKind::Add: each([&](int l) { return a[l] + b[l]; }); break;
    case ExprKind::Mul: each([&](int l) { return a[l] * b[l]; }); break;
    case ExprKind::FloorDiv: each([&](int l) { return floorDivision(a[l], b[l]); }); break;
    case ExprKind::Mod: each([&](int l) { return a[l] - floorDivision(a[l], b[l]) * b[l]; }); break;
    case ExprKind::Min: each([&](int l) { return std::min(a[l], b[l]); }); break;
    case ExprKind::Max: each([&](int l) { return std::max(a[l], b[l]); }); break;
    case ExprKind::Pow: each([&](int l) { return power(a[l], b[l]); }); break;
    case ExprKind::Eq: each([&](int l) { return a[l] == b[l]; }); break;
    case ExprKind::Ne: each([&](int l) { return a[l] != b[l]; }); break;
    case ExprKind::Lt: each([&](int l) { return a[l] < b[l]; }); break;
    case ExprKind::Le: each([&](int l) { return a[l] <= b[l]; }); break;
    case ExprKind::And: each([&](int l) { return a[l] && b[l]; }); break;
    case ExprKind::Or: each([&](int l) { return a[l] || b[l]; }); break;
    case ExprKind::Not: each([&](int l) { return !a[l]; }); break;
    case ExprKind::Where: each([&](int l) { return a[l] ? b[l] : c[l]; }); break;
    }
  }
}

Result<BodyCode> BodyCode::compile(const Program &program, const Node &node, const Body &body, SlotTable &slots,
                                   const SymbolMap<Expr> &sizes) {
  BodyCode out;
  out.node_ = node.name;
  out.scratch_ = std::make_unique<Register>();
  SymbolMap<int> definers;
  for (size_t k = 0; k < body.ops.size(); ++k) {
    const Op &op = body.ops[k];
    Code code;
    code.op = op;
    if (op.kind == OpKind::Load || op.kind == OpKind::Index) {
      Expr index = substitute(op.index, sizes);
      Result<IndexCode> compiled = IndexCode::compile(index, slots, node.name);
      if (!compiled) return compiled.takeError();
      code.index = std::move(*compiled);
      for (Symbol s : symbolsOf(index))
        if (auto it = definers.find(s); it != definers.end()) code.definers.push_back(it->second);
    }
    if (op.kind == OpKind::Load) {
      code.bufferType = accessType(program.buffer(op.buffer));
      code.bufferName = program.buffer(op.buffer).name;
    }
    if (op.kind == OpKind::Indirect) {
      Expr bound = substitute(op.bound, sizes);
      if (!bound.isConst())
        return fail(diag::LoopsUnknownSymbol, {}, node.name, symbolsOf(bound).front().str(), bound.str());
      code.bound = bound.constValue();
      code.slot = slots.add(op.symbol);
      definers[op.symbol] = static_cast<int>(k);
    }
    out.ops_.push_back(std::move(code));
    out.regs_.push_back(std::make_unique<Register>());
    if (op.kind == OpKind::Constant) { // never changes: filled once
      Register &r = *out.regs_.back();
      if (classOf(op.dtype) == LaneClass::Float)
        std::fill_n(r.f, kLanes, roundTo(op.dtype, static_cast<float>(op.imm)));
      else if (classOf(op.dtype) == LaneClass::Double)
        std::fill_n(r.d, kLanes, op.imm);
      else
        std::fill_n(r.i, kLanes, wrapInt(op.dtype, op.immInt));
    }
  }
  return out;
}

std::vector<int> BodyCode::closure(const std::vector<ValueIdx> &values) const {
  std::vector<bool> needed(ops_.size());
  for (ValueIdx v : values)
    if (v >= 0) needed[static_cast<size_t>(v)] = true;
  for (size_t k = ops_.size(); k-- > 0;) {
    if (!needed[k]) continue;
    for (ValueIdx v : {ops_[k].op.a, ops_[k].op.b, ops_[k].op.c})
      if (v >= 0) needed[static_cast<size_t>(v)] = true;
    for (int d : ops_[k].definers) needed[static_cast<size_t>(d)] = true;
  }
  std::vector<int> out;
  for (size_t k = 0; k < ops_.size(); ++k)
    if (needed[k] && ops_[k].op.kind != OpKind::Constant) out.push_back(static_cast<int>(k));
  return out;
}

std::vector<int> BodyCode::slotsOf(const std::vector<int> &ops) const {
  std::vector<int> out;
  for (int k : ops)
    for (int s : ops_[static_cast<size_t>(k)].index.used())
      if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  return out;
}

Status BodyCode::load(Code &code, Register &out, SlotTable &slots, std::span<const BufferView> buffers, int n) {
  const Op &op = code.op;
  code.index.eval(slots, n, scratch_->i);
  const int64_t *index = scratch_->i, *mask = op.a >= 0 ? value(op.a).i : nullptr;
  const BufferView &view = buffers[op.buffer.index()];
  int64_t elements = view.elements;
  for (int l = 0; l < n; ++l)
    if (static_cast<uint64_t>(index[l]) >= static_cast<uint64_t>(elements) && (!mask || mask[l]))
      return fail(diag::LoopsIndexOutOfRange, {}, node_, "reads", index[l], code.bufferName, elements);
  if (mask) {
    if (op.b >= 0)
      out = value(op.b);
    else
      std::fill_n(out.i, kLanes, 0);
  }
  loadLanes(code.bufferType, view.data, index, mask, out, n);
  return {};
}

Status BodyCode::indirect(Code &code, Register &out, SlotTable &slots, int n) {
  const Op &op = code.op;
  const Register &in = value(op.a);
  int64_t *lanes = slots.lanes[static_cast<size_t>(code.slot)]->i;
  const int64_t *mask = op.b >= 0 ? value(op.b).i : nullptr;
  for (int l = 0; l < n; ++l) {
    int64_t v = in.i[l];
    if (mask && !mask[l]) {
      v = 0;
    } else {
      if (op.check && (v >= code.bound || v < (op.wrap ? -code.bound : 0)))
        return fail(diag::LoopsIndirectOutOfRange, {}, node_, v, code.bound);
      if (op.wrap && v < 0) v += code.bound;
    }
    lanes[l] = out.i[l] = v;
  }
  return {};
}

Status BodyCode::eval(const std::vector<int> &ops, SlotTable &slots, std::span<const BufferView> buffers, int n) {
  for (int k : ops) {
    Code &code = ops_[static_cast<size_t>(k)];
    const Op &op = code.op;
    Register &out = *regs_[static_cast<size_t>(k)];
    Status status;
    switch (op.kind) {
    case OpKind::Constant: break;
    case OpKind::Index:
      if (classOf(op.dtype) == LaneClass::Int) {
        code.index.eval(slots, n, out.i);
        if (itemSize(op.dtype) < 8)
          for (int l = 0; l < n; ++l) out.i[l] = wrapInt(op.dtype, out.i[l]);
      } else {
        code.index.eval(slots, n, scratch_->i);
        castLanes(DType::I64, op.dtype, *scratch_, out, n);
      }
      break;
    case OpKind::Load: status = load(code, out, slots, buffers, n); break;
    case OpKind::Indirect: status = indirect(code, out, slots, n); break;
    default: {
      auto reg = [&](ValueIdx v) { return v >= 0 ? &value(v) : nullptr; };
      // Where's first operand is its condition; every other op computes in the dtype of operand 0.
      evalOp(op, dtype(op.a), reg(op.a), reg(op.b), reg(op.c), out, n);
    }
    }
    if (!status) return status;
  }
  return {};
}

Result<StoreCode> StoreCode::compile(const Program &program, const Node &node, const Store &store,
                                     const SlotTable &slots, const SymbolMap<Expr> &sizes) {
  StoreCode out;
  out.store = store;
  Result<IndexCode> index = IndexCode::compile(substitute(store.index, sizes), slots, node.name);
  if (!index) return index.takeError();
  out.index = std::move(*index);
  out.bufferType = accessType(program.buffer(store.buffer));
  out.bufferName = program.buffer(store.buffer).name;
  return out;
}

Status StoreCode::run(const std::string &node, SlotTable &slots, std::span<const BufferView> buffers,
                      const Register &value, DType valueType, const int64_t *mask, int n) {
  int64_t at[kLanes];
  index.eval(slots, n, at);
  const BufferView &view = buffers[store.buffer.index()];
  for (int l = 0; l < n; ++l)
    if (static_cast<uint64_t>(at[l]) >= static_cast<uint64_t>(view.elements) && (!mask || mask[l]))
      return fail(diag::LoopsIndexOutOfRange, {}, node, "writes", at[l], bufferName, view.elements);
  storeLanes(bufferType, store.mode, view.data, at, mask, value, valueType, n);
  return {};
}

} // namespace neso::loops
