// One node: the loops around the lanes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/diagnostics/loops.h"
#include "ir/loops/interp_reduce.h"
#include "ir/loops/lanes.h"

namespace neso::loops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
/// Contraction operands are evaluated once each into a table when they have no more elements than this; else row by
/// row.
constexpr int64_t kTableLimit = int64_t{1} << 25;

int64_t productOf(const std::vector<int64_t> &v) {
  return std::accumulate(v.begin(), v.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

void scanLine(ScanKind kind, bool reverse, DType t, std::vector<double> &d, std::vector<int64_t> &v,
              std::vector<int64_t> &at) {
  int64_t n = static_cast<int64_t>(d.size()), step = reverse ? -1 : 1;
  bool floating = isFloat(t);
  double x = 0;
  int64_t i = 0, where = 0;
  for (int64_t k = 0, r = reverse ? n - 1 : 0; k < n; ++k, r += step) {
    size_t p = static_cast<size_t>(r);
    bool first = k == 0;
    switch (kind) {
    case ScanKind::Sum:
      x += d[p]; // from 0, as all sums
      i = static_cast<int64_t>(static_cast<uint64_t>(i) + static_cast<uint64_t>(v[p]));
      break;
    case ScanKind::Prod:
      x = first ? d[p] : x * d[p];
      i = first ? v[p] : static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(v[p]));
      break;
    case ScanKind::Max:
    case ScanKind::Min: {
      // The last of equals wins, and a NaN stays until the next NaN, as in ATen's cummax.
      bool wantMax = kind == ScanKind::Max, better = first;
      if (!first && floating) better = std::isnan(d[p]) || (!std::isnan(x) && (wantMax ? d[p] >= x : d[p] <= x));
      if (!first && !floating) {
        bool less = t == DType::U64 ? static_cast<uint64_t>(v[p]) < static_cast<uint64_t>(i) : v[p] < i;
        better = v[p] == i || less != wantMax;
      }
      if (better) x = d[p], i = v[p], where = r;
      break;
    }
    case ScanKind::LogSumExp: {
      double lo = std::min(x, d[p]), hi = std::max(x, d[p]);
      if (first)
        x = d[p];
      else if (std::isnan(x) || std::isnan(d[p]))
        x = std::numeric_limits<double>::quiet_NaN();
      else
        x = std::isinf(hi) ? hi : hi + std::log1p(std::exp(lo - hi));
      break;
    }
    }
    d[p] = x;
    v[p] = i;
    at[p] = where;
  }
}

} // namespace

struct NodeRunner::Impl {
  const Program *program = nullptr;
  Node node;
  std::vector<int64_t> outer, inner; // extents
  SlotTable slots;                   // outer dims, then inner dims, then indirect symbols
  BodyCode body, epilogue;
  std::vector<int> allOps, lhsOps, rhsOps, epilogueOps;
  std::vector<StoreCode> stores;
  std::vector<std::vector<StoreCode>> reductionStores; // [reduction][result]
  SymbolMap<Expr> sizes;

  std::vector<int64_t> extents() const {
    std::vector<int64_t> all = outer;
    all.insert(all.end(), inner.begin(), inner.end());
    return all;
  }
  /// Lanes of the first `count` dimensions from `first` on.
  std::vector<int64_t *> slotLanes(size_t first, size_t count) {
    std::vector<int64_t *> out;
    for (size_t d = first; d < first + count; ++d) out.push_back(slots.lanes[d]->i);
    return out;
  }
  void fillOuter(int64_t start, int n) { fillIndices(outer, start, n, slotLanes(0, outer.size())); }
  /// All lanes at outer element o; inner elements from `start`.
  void fillLine(int64_t o, int64_t start, int n) {
    int64_t at = o;
    for (size_t d = outer.size(); d-- > 0; at /= outer[d]) std::fill_n(slots.lanes[d]->i, n, at % outer[d]);
    fillIndices(inner, start, n, slotLanes(outer.size(), inner.size()));
  }

  Status compile(const Bindings &bindings, Symbol::Kind outerKind);
  Status runPointwise(std::span<const BufferView> buffers, int64_t begin, int64_t end);
  Status runReduction(std::span<const BufferView> buffers, int64_t begin, int64_t end);
  Status runSegments(const SegmentsSpec &segments, std::span<const BufferView> buffers, int64_t begin, int64_t end);
  Status storeReductions(std::span<const BufferView> buffers, const std::vector<std::vector<Accumulator>> &state, int64_t first, int count);
  Status runContraction(std::span<const BufferView> buffers, int64_t begin, int64_t end);
  Status runScan(std::span<const BufferView> buffers, int64_t begin, int64_t end);
  Status runSort(std::span<const BufferView> buffers, int64_t begin, int64_t end);
  Status runAttention(std::span<const BufferView> buffers);
  Status readOperand(const AttentionSpec::Operand &from, std::span<const BufferView> buffers, SlotTable &table,
                     std::array<std::pair<AttentionSpec::Axis, int64_t>, 2> box, std::vector<double> &out) const;
  Status runUserKernel(std::span<const BufferView> buffers);

  struct Table {
    std::vector<int64_t> stride; // of each outer dimension, in elements; 0 where the operand does not depend on it
    std::vector<double> d;
    std::vector<int64_t> i;
  };
  Status evalTable(const std::vector<int> &ops, ValueIdx value, std::span<const BufferView> buffers, Table &out);
  Status evalRow(const std::vector<int> &ops, ValueIdx value, std::span<const BufferView> buffers, int64_t o,
                 Table &out);
  std::vector<bool> outerUse(const std::vector<int> &ops);
  Status storeContraction(std::span<const BufferView> buffers, int64_t begin, int n, const double *d, const int64_t *i);
};

Status NodeRunner::Impl::compile(const Bindings &bindings, Symbol::Kind outerKind) {
  for (const auto &[symbol, value] : bindings) sizes[symbol] = Expr(value);
  auto extent = [&](Expr e, std::vector<int64_t> &out) -> Status {
    Expr v = substitute(e, sizes);
    if (!v.isConst()) {
      std::vector<Symbol> names = symbolsOf(v);
      return fail(diag::LoopsUnknownSymbol, {}, node.name, names.empty() ? "?" : names.front().str(), e.str());
    }
    if (v.constValue() < 0) return fail(diag::LoopsBadExtent, {}, node.name, v.constValue(), e.str());
    out.push_back(v.constValue());
    return {};
  };
  for (Expr e : node.ranges)
    if (Status s = extent(e, outer); !s) return s;
  for (Expr e : node.reduceRanges)
    if (Status s = extent(e, inner); !s) return s;
  if (node.as<AttentionSpec>() || node.as<UserKernelSpec>() || node.as<ExternSpec>()) return {};
  for (size_t d = 0; d < outer.size(); ++d) slots.add(Symbol::of(outerKind, d));
  for (size_t d = 0; d < inner.size(); ++d) slots.add(Symbol::inner(d));

  Result<BodyCode> code = BodyCode::compile(*program, node, node.body(), slots, sizes);
  if (!code) return code.takeError();
  body = std::move(*code);
  std::vector<ValueIdx> everything(body.size());
  std::iota(everything.begin(), everything.end(), 0);
  allOps = body.closure(everything);
  if (const auto *product = node.as<ContractionSpec>()) {
    lhsOps = body.closure({product->lhs});
    rhsOps = body.closure({product->rhs});
    Result<BodyCode> after = BodyCode::compile(*program, node, product->epilogue, slots, sizes);
    if (!after) return after.takeError();
    epilogue = std::move(*after);
    std::vector<ValueIdx> values(epilogue.size());
    std::iota(values.begin(), values.end(), 0);
    epilogueOps = epilogue.closure(values);
  }
  auto compileStores = [&](std::span<const Store> from, std::vector<StoreCode> &to) -> Status {
    for (const Store &s : from) {
      Result<StoreCode> c = StoreCode::compile(*program, node, s, slots, sizes);
      if (!c) return c.takeError();
      to.push_back(std::move(*c));
    }
    return {};
  };
  if (Status s = compileStores(node.stores(), stores); !s) return s;
  for (const Reduction &r : node.reductions()) {
    reductionStores.emplace_back();
    if (Status s = compileStores(r.results, reductionStores.back()); !s) return s;
  }
  return {};
}

Status NodeRunner::Impl::runPointwise(std::span<const BufferView> buffers, int64_t begin, int64_t end) {
  std::vector<int64_t> box = extents();
  int64_t per = productOf(inner);
  begin *= per;
  end *= per;
  for (int64_t at = begin; at < end; at += kLanes) {
    int n = static_cast<int>(std::min<int64_t>(kLanes, end - at));
    fillIndices(box, at, n, slotLanes(0, box.size()));
    if (Status s = body.eval(allOps, slots, buffers, n); !s) return s;
    for (StoreCode &store : stores) {
      const int64_t *mask = store.store.mask >= 0 ? body.value(store.store.mask).i : nullptr;
      if (Status s = store.run(node.name, slots, buffers, body.value(store.store.value), body.dtype(store.store.value),
                               mask, n);
          !s)
        return s;
    }
  }
  return {};
}

Status NodeRunner::Impl::runReduction(std::span<const BufferView> buffers, int64_t begin, int64_t end) {
  const std::span<const Reduction> reductions = node.reductions();
  std::vector<int64_t> box = extents();
  int64_t per = productOf(inner);
  int64_t group = per == 0 ? kLanes : std::clamp<int64_t>(4096 / per, 1, kLanes);
  for (int64_t first = begin; first < end; first += group) {
    int count = static_cast<int>(std::min(group, end - first));
    std::vector<std::vector<Accumulator>> state(reductions.size(),
                                                std::vector<Accumulator>(static_cast<size_t>(count)));
    int64_t stop = (first + count) * per;
    for (int64_t at = first * per; at < stop; at += kLanes) {
      int n = static_cast<int>(std::min<int64_t>(kLanes, stop - at));
      fillIndices(box, at, n, slotLanes(0, box.size()));
      if (Status s = body.eval(allOps, slots, buffers, n); !s) return s;
      for (size_t k = 0; k < reductions.size(); ++k) {
        const Reduction &r = reductions[k];
        DType t = body.dtype(r.input);
        const Register &in = body.value(r.input);
        int64_t o = at / per - first, position = at % per;
        for (int l = 0; l < n; ++l) {
          bool floating = isFloat(t);
          accumulate(r.kind, t, state[k][static_cast<size_t>(o)], floating ? laneDouble(in, t, l) : 0, floating ? 0 : in.i[l], position);
          if (++position == per) position = 0, ++o;
        }
      }
    }
    if (Status s = storeReductions(buffers, state, first, count); !s) return s;
  }
  return {};
}

/// A segment after the other, and nothing outside of it: the body need have no value there.
Status NodeRunner::Impl::runSegments(const SegmentsSpec &segments, std::span<const BufferView> buffers, int64_t begin, int64_t end) {
  const std::span<const Reduction> reductions = node.reductions();
  const std::vector<int> ends = body.closure({segments.first, segments.last});
  const int64_t length = productOf(inner);
  for (int64_t o = begin; o < end; ++o) {
    fillLine(o, 0, 1);
    if (Status s = body.eval(ends, slots, buffers, 1); !s) return s;
    const int64_t first = std::clamp<int64_t>(body.value(segments.first).i[0], 0, length), last = std::clamp<int64_t>(body.value(segments.last).i[0], 0, length);
    std::vector<std::vector<Accumulator>> state(reductions.size(), std::vector<Accumulator>(1));
    for (int64_t at = first; at < last; at += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, last - at));
      fillLine(o, at, n);
      if (Status s = body.eval(allOps, slots, buffers, n); !s) return s;
      for (size_t k = 0; k < reductions.size(); ++k) {
        const DType t = body.dtype(reductions[k].input);
        const Register &in = body.value(reductions[k].input);
        for (int l = 0; l < n; ++l) accumulate(reductions[k].kind, t, state[k][0], isFloat(t) ? laneDouble(in, t, l) : 0, isFloat(t) ? 0 : in.i[l], at + l);
      }
    }
    if (Status s = storeReductions(buffers, state, o, 1); !s) return s;
  }
  return {};
}

/// Stores what `count` outer elements from `first` on were reduced to.
Status NodeRunner::Impl::storeReductions(std::span<const BufferView> buffers, const std::vector<std::vector<Accumulator>> &state, int64_t first, int count) {
  const std::span<const Reduction> reductions = node.reductions();
  fillOuter(first, count);
  Register result;
  for (size_t k = 0; k < reductions.size(); ++k)
    for (StoreCode &store : reductionStores[k]) {
      const Reduction &r = reductions[k];
      for (int l = 0; l < count; ++l) finishInto(r, body.dtype(r.input), state[k][static_cast<size_t>(l)], store.store.value, result, l);
      if (Status s = store.run(node.name, slots, buffers, result, resultType(r), nullptr, count); !s) return s;
    }
  return {};
}

std::vector<bool> NodeRunner::Impl::outerUse(const std::vector<int> &ops) {
  std::vector<bool> used(outer.size());
  for (int s : body.slotsOf(ops))
    if (static_cast<size_t>(s) < outer.size()) used[static_cast<size_t>(s)] = true;
  return used;
}

Status NodeRunner::Impl::evalTable(const std::vector<int> &ops, ValueIdx value, std::span<const BufferView> buffers,
                                   Table &out) {
  std::vector<bool> used = outerUse(ops);
  std::vector<int64_t> box;
  std::vector<int64_t *> lanes;
  for (size_t d = 0; d < outer.size(); ++d) {
    std::fill_n(slots.lanes[d]->i, kLanes, 0);
    if (!used[d]) continue;
    box.push_back(outer[d]);
    lanes.push_back(slots.lanes[d]->i);
  }
  int64_t per = productOf(inner), stride = per;
  out.stride.assign(outer.size(), 0);
  for (size_t d = outer.size(); d-- > 0;)
    if (used[d]) out.stride[d] = stride, stride *= outer[d];
  for (size_t d = 0; d < inner.size(); ++d) {
    box.push_back(inner[d]);
    lanes.push_back(slots.lanes[outer.size() + d]->i);
  }
  DType t = body.dtype(value);
  bool floating = isFloat(t);
  (floating ? out.d.resize(static_cast<size_t>(stride)) : out.i.resize(static_cast<size_t>(stride)));
  for (int64_t at = 0; at < stride; at += kLanes) {
    int n = static_cast<int>(std::min<int64_t>(kLanes, stride - at));
    fillIndices(box, at, n, lanes);
    if (Status s = body.eval(ops, slots, buffers, n); !s) return s;
    const Register &in = body.value(value);
    for (int l = 0; l < n; ++l)
      if (floating)
        out.d[static_cast<size_t>(at + l)] = laneDouble(in, t, l);
      else
        out.i[static_cast<size_t>(at + l)] = in.i[l];
  }
  return {};
}

Status NodeRunner::Impl::evalRow(const std::vector<int> &ops, ValueIdx value, std::span<const BufferView> buffers,
                                 int64_t o, Table &out) {
  int64_t per = productOf(inner);
  DType t = body.dtype(value);
  bool floating = isFloat(t);
  (floating ? out.d.resize(static_cast<size_t>(per)) : out.i.resize(static_cast<size_t>(per)));
  for (int64_t at = 0; at < per; at += kLanes) {
    int n = static_cast<int>(std::min<int64_t>(kLanes, per - at));
    fillLine(o, at, n);
    if (Status s = body.eval(ops, slots, buffers, n); !s) return s;
    const Register &in = body.value(value);
    for (int l = 0; l < n; ++l)
      if (floating)
        out.d[static_cast<size_t>(at + l)] = laneDouble(in, t, l);
      else
        out.i[static_cast<size_t>(at + l)] = in.i[l];
  }
  return {};
}

Status NodeRunner::Impl::storeContraction(std::span<const BufferView> buffers, int64_t begin, int n, const double *d,
                                          const int64_t *i) {
  fillOuter(begin, n);
  const DType accType = node.get<ContractionSpec>().accType;
  Register sums;
  LaneClass cls = classOf(accType);
  for (int l = 0; l < n; ++l) {
    if (cls == LaneClass::Int)
      sums.i[l] = wrapInt(accType, i[l]);
    else if (cls == LaneClass::Double)
      sums.d[l] = d[l];
    else
      sums.f[l] = roundTo(accType, static_cast<float>(d[l]));
  }
  bool plain = epilogue.size() == 0;
  if (!plain) {
    epilogue.value(0) = sums;
    if (Status s = epilogue.eval(epilogueOps, slots, buffers, n); !s) return s;
  }
  for (StoreCode &store : stores) {
    const Register &value = plain ? sums : epilogue.value(store.store.value);
    const int64_t *mask = store.store.mask >= 0 ? epilogue.value(store.store.mask).i : nullptr;
    if (Status s = store.run(node.name, slots, buffers, value, plain ? accType : epilogue.dtype(store.store.value), mask, n);
        !s)
      return s;
  }
  return {};
}

Status NodeRunner::Impl::runContraction(std::span<const BufferView> buffers, int64_t begin, int64_t end) {
  const auto &spec = node.get<ContractionSpec>();
  int64_t per = productOf(inner), total = productOf(outer);
  std::vector<bool> useA = outerUse(lhsOps), useB = outerUse(rhsOps);
  int64_t sizeA = per, sizeB = per;
  for (size_t d = 0; d < outer.size(); ++d) {
    if (useA[d]) sizeA *= outer[d];
    if (useB[d]) sizeB *= outer[d];
  }
  bool whole = begin == 0 && end == total;
  bool tableA = whole && sizeA <= kTableLimit, tableB = whole && sizeB <= kTableLimit;
  Table a, b;
  if (tableA)
    if (Status s = evalTable(lhsOps, spec.lhs, buffers, a); !s) return s;
  if (tableB)
    if (Status s = evalTable(rhsOps, spec.rhs, buffers, b); !s) return s;
  bool floating = isFloat(body.dtype(spec.lhs));
  double d[kLanes];
  int64_t v[kLanes];
  int n = 0;
  for (int64_t o = begin; o < end; ++o) {
    size_t startA = 0, startB = 0;
    int64_t rest = o;
    for (size_t k = outer.size(); k-- > 0; rest /= outer[k]) {
      if (tableA) startA += static_cast<size_t>(rest % outer[k] * a.stride[k]);
      if (tableB) startB += static_cast<size_t>(rest % outer[k] * b.stride[k]);
    }
    if (!tableA)
      if (Status s = evalRow(lhsOps, spec.lhs, buffers, o, a); !s) return s;
    if (!tableB)
      if (Status s = evalRow(rhsOps, spec.rhs, buffers, o, b); !s) return s;
    if (floating) {
      const double *x = a.d.data() + startA, *y = b.d.data() + startB;
      double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      int64_t k = 0;
      for (; k + 4 <= per; k += 4)
        s0 += x[k] * y[k], s1 += x[k + 1] * y[k + 1], s2 += x[k + 2] * y[k + 2], s3 += x[k + 3] * y[k + 3];
      for (; k < per; ++k) s0 += x[k] * y[k];
      d[n] = (s0 + s1) + (s2 + s3);
    } else {
      const int64_t *x = a.i.data() + startA, *y = b.i.data() + startB;
      uint64_t sum = 0;
      for (int64_t k = 0; k < per; ++k) sum += static_cast<uint64_t>(x[k]) * static_cast<uint64_t>(y[k]);
      v[n] = static_cast<int64_t>(sum);
    }
    if (++n == kLanes || o + 1 == end) {
      if (Status s = storeContraction(buffers, o + 1 - n, n, d, v); !s) return s;
      n = 0;
    }
  }
  return {};
}

Status NodeRunner::Impl::runScan(std::span<const BufferView> buffers, int64_t begin, int64_t end) {
  int64_t length = productOf(inner);
  const auto &spec = node.get<ScanSpec>();
  size_t count = spec.inputs.size();
  struct Line {
    std::vector<double> d;
    std::vector<int64_t> v, at;
  };
  std::vector<Line> lines(count);
  for (Line &line : lines) {
    line.d.resize(static_cast<size_t>(length));
    line.v.resize(static_cast<size_t>(length));
    line.at.resize(static_cast<size_t>(length));
  }
  for (int64_t o = begin; o < end; ++o) {
    for (int64_t at = 0; at < length; at += kLanes) {
      int n = static_cast<int>(std::min<int64_t>(kLanes, length - at));
      fillLine(o, at, n);
      if (Status s = body.eval(allOps, slots, buffers, n); !s) return s;
      for (size_t k = 0; k < count; ++k) {
        DType t = body.dtype(spec.inputs[k]);
        const Register &in = body.value(spec.inputs[k]);
        for (int l = 0; l < n; ++l) {
          size_t p = static_cast<size_t>(at + l);
          if (isFloat(t))
            lines[k].d[p] = laneDouble(in, t, l);
          else
            lines[k].v[p] = in.i[l];
        }
      }
    }
    for (size_t k = 0; k < count; ++k)
      scanLine(spec.kind, spec.reverse, body.dtype(spec.inputs[k]), lines[k].d, lines[k].v, lines[k].at);
    for (int64_t at = 0; at < length; at += kLanes) {
      int n = static_cast<int>(std::min<int64_t>(kLanes, length - at));
      fillLine(o, at, n);
      for (StoreCode &store : stores) {
        size_t which = static_cast<size_t>(store.store.value);
        bool position = which >= count;
        const Line &line = lines[which % count];
        DType t = position ? DType::I64 : body.dtype(spec.inputs[which]);
        Register value;
        for (int l = 0; l < n; ++l) {
          size_t p = static_cast<size_t>(at + l);
          if (position)
            value.i[l] = line.at[p];
          else if (classOf(t) == LaneClass::Float)
            value.f[l] = roundTo(t, static_cast<float>(line.d[p]));
          else if (classOf(t) == LaneClass::Double)
            value.d[l] = line.d[p];
          else
            value.i[l] = wrapInt(t, line.v[p]);
        }
        if (Status s = store.run(node.name, slots, buffers, value, t, nullptr, n); !s) return s;
      }
    }
  }
  return {};
}

namespace {

/// The elements of one row of a sort: keys, as doubles or as integers, and positions.
struct SortedRow {
  const SortSpec &spec;
  DType type; // of keys
  std::vector<double> reals;
  std::vector<int64_t> integers, position, order;
  SortedRow(const SortSpec &spec, DType type, size_t length)
      : spec(spec), type(type), reals(length), integers(length), position(length), order(length) {}

  void set(int64_t at, const Register &key, int64_t itsPosition, int lane) {
    const size_t p = static_cast<size_t>(at);
    position[p] = itsPosition;
    if (isFloat(type))
      reals[p] = laneDouble(key, type, lane);
    else
      integers[p] = key.i[lane];
  }

  /// The position decides among equals: always stable.
  void sort() {
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
      if (spec.descending ? less(y, x) : less(x, y)) return true;
      return position[static_cast<size_t>(x)] < position[static_cast<size_t>(y)] && !(spec.descending ? less(x, y) : less(y, x));
    });
  }

  /// What stands at place `at` of the result: its key, or its position.
  void get(int64_t at, bool index, Register &out, int lane) const {
    const size_t from = static_cast<size_t>(order[static_cast<size_t>(at)]);
    if (index)
      out.i[lane] = position[from];
    else if (classOf(type) == LaneClass::Float)
      out.f[lane] = static_cast<float>(reals[from]);
    else if (classOf(type) == LaneClass::Double)
      out.d[lane] = reals[from];
    else
      out.i[lane] = integers[from];
  }

private:
  /// NaN is the largest.
  bool less(int64_t x, int64_t y) const {
    const size_t p = static_cast<size_t>(x), q = static_cast<size_t>(y);
    if (!isFloat(type))
      return type == DType::U64 ? static_cast<uint64_t>(integers[p]) < static_cast<uint64_t>(integers[q]) : integers[p] < integers[q];
    if (std::isnan(reals[p]) || std::isnan(reals[q])) return !std::isnan(reals[p]) && std::isnan(reals[q]);
    return reals[p] < reals[q];
  }
};

} // namespace

Status NodeRunner::Impl::runSort(std::span<const BufferView> buffers, int64_t begin, int64_t end) {
  const auto &spec = node.get<SortSpec>();
  int64_t length = productOf(inner), taken = length;
  if (spec.take.valid()) {
    Expr take = substitute(spec.take, sizes);
    if (!take.isConst())
      return fail(diag::LoopsUnknownSymbol, {}, node.name, symbolsOf(take).front().str(), spec.take.str());
    taken = std::min(length, take.constValue());
  }
  SortedRow row(spec, body.dtype(spec.key), static_cast<size_t>(length));
  for (int64_t o = begin; o < end; ++o) {
    int64_t first = 0;
    for (int64_t at = 0; at < length; at += kLanes) {
      int n = static_cast<int>(std::min<int64_t>(kLanes, length - at));
      fillLine(o, at, n);
      if (Status s = body.eval(allOps, slots, buffers, n); !s) return s;
      if (spec.place >= 0) first = std::clamp<int64_t>(body.value(spec.place).i[0], 0, length - taken);
      for (int l = 0; l < n; ++l)
        row.set(at + l, body.value(spec.key), spec.position >= 0 ? body.value(spec.position).i[l] : at + l, l);
    }
    row.sort();
    for (int64_t at = 0; at < taken; at += kLanes) {
      int n = static_cast<int>(std::min<int64_t>(kLanes, taken - at));
      fillLine(o, at, n);
      for (StoreCode &store : stores) {
        Register value;
        const bool index = store.store.value == 1;
        for (int l = 0; l < n; ++l) row.get(first + at + l, index, value, l);
        if (Status s = store.run(node.name, slots, buffers, value, index ? DType::I64 : row.type, nullptr, n); !s) return s;
      }
    }
  }
  return {};
}

namespace {

/// Attention of one (batch, head), in double precision. Row-major matrices: q [M, D], k [N, D], v [N, Dv], mask [M, N]
/// or empty.
struct AttentionHead {
  const AttentionSpec &spec;
  bool boolMask = false;
  int64_t keys = 0, size = 0, width = 0; // N, D, Dv
  std::vector<double> q{}, k{}, v{}, mask{}, weights{};
  double total = 0, top = 0; // of the scores: the largest, and the sum of what is exponentiated behind it
  bool noKey = false; // every key is masked off

  /// Weights of the keys for query row m, before the division by their total.
  void weigh(int64_t m) {
    top = -kInf, total = 0;
    weights.resize(static_cast<size_t>(keys));
    for (int64_t n = 0; n < keys; ++n) {
      const double score = scoreOf(m, n);
      weights[static_cast<size_t>(n)] = score;
      top = std::isnan(score) ? score : std::max(top, score);
    }
    noKey = top == -kInf;
    for (double &w : weights) w = noKey ? 0 : std::exp(w - top), total += w;
  }
  double logSum() const { return noKey ? -kInf : top + std::log(total); }
  double result(int64_t column) const {
    if (noKey) return spec.emptyIsNan && keys > 0 ? std::nan("") : 0;
    double sum = 0;
    for (int64_t n = 0; n < keys; ++n) sum += weights[static_cast<size_t>(n)] * v[static_cast<size_t>(n * width + column)];
    return sum / total;
  }

private:
  double scoreOf(int64_t m, int64_t n) const {
    double dot = 0;
    for (int64_t d = 0; d < size; ++d) dot += q[static_cast<size_t>(m * size + d)] * k[static_cast<size_t>(n * size + d)];
    dot *= spec.scale;
    if (!mask.empty()) {
      double extra = mask[static_cast<size_t>(m * keys + n)];
      dot = boolMask ? (extra != 0 ? dot : spec.masked) : dot + extra;
    }
    return spec.causal && n > m ? -kInf : dot;
  }
};

} // namespace

/// One operand for all (p, q) of a box over two of the five symbols, at the batch and head that the slots hold.
Status NodeRunner::Impl::readOperand(const AttentionSpec::Operand &from, std::span<const BufferView> buffers,
                                     SlotTable &table, std::array<std::pair<AttentionSpec::Axis, int64_t>, 2> box,
                                     std::vector<double> &out) const {
  Result<IndexCode> code = IndexCode::compile(substitute(from.index, sizes), table, node.name);
  if (!code) return code.takeError();
  const int64_t elements = box[0].second * box[1].second;
  out.resize(static_cast<size_t>(elements));
  const BufferView &view = buffers[from.buffer.index()];
  DType t = accessType(program->buffer(from.buffer));
  for (int64_t at = 0; at < elements; at += kLanes) {
    int n = static_cast<int>(std::min<int64_t>(kLanes, elements - at));
    fillIndices({box[0].second, box[1].second}, at, n,
                {table.lanes[static_cast<size_t>(box[0].first)]->i, table.lanes[static_cast<size_t>(box[1].first)]->i});
    int64_t index[kLanes];
    code->eval(table, n, index);
    for (int l = 0; l < n; ++l)
      if (static_cast<uint64_t>(index[l]) >= static_cast<uint64_t>(view.elements))
        return fail(diag::LoopsIndexOutOfRange, {}, node.name, "reads", index[l], program->buffer(from.buffer).name,
                    view.elements);
    Register value;
    loadLanes(t, view.data, index, nullptr, value, n);
    for (int l = 0; l < n; ++l) out[static_cast<size_t>(at + l)] = laneDouble(value, t, l);
  }
  return {};
}

Status NodeRunner::Impl::runAttention(std::span<const BufferView> buffers) {
  const auto &spec = node.get<AttentionSpec>();
  Expr keys = substitute(spec.keyLength, sizes), headSize = substitute(spec.headSize, sizes);
  for (Expr e : {keys, headSize})
    if (!e.isConst()) return fail(diag::LoopsUnknownSymbol, {}, node.name, symbolsOf(e).front().str(), e.str());
  const int64_t length = keys.constValue(), size = headSize.constValue(), rows = outer[2], width = outer[3];
  using enum AttentionSpec::Axis;
  SlotTable table;
  for (size_t axis = 0; axis < AttentionSpec::kAxes; ++axis)
    table.add(AttentionSpec::symbol(static_cast<AttentionSpec::Axis>(axis)));
  auto slot = [&](AttentionSpec::Axis axis) { return table.lanes[static_cast<size_t>(axis)]->i; };
  StoreCode store;
  store.store.buffer = spec.out.buffer;
  store.bufferType = accessType(program->buffer(spec.out.buffer));
  store.bufferName = program->buffer(spec.out.buffer).name;
  Result<IndexCode> outIndex = IndexCode::compile(substitute(spec.out.index, sizes), table, node.name);
  if (!outIndex) return outIndex.takeError();
  store.index = std::move(*outIndex);
  StoreCode logSum;
  if (spec.logSum.buffer.valid()) {
    logSum.store.buffer = spec.logSum.buffer, logSum.bufferType = DType::F32, logSum.bufferName = program->buffer(spec.logSum.buffer).name;
    Result<IndexCode> index = IndexCode::compile(substitute(spec.logSum.index, sizes), table, node.name);
    if (!index) return index.takeError();
    logSum.index = std::move(*index);
  }
  // Which keys there are depends on the batch.
  auto keysOf = [&](int64_t b) -> Result<int64_t> {
    if (!spec.keys.valid()) return length;
    auto at = sizes;
    at[AttentionSpec::symbol(Batch)] = Expr(b);
    const Expr there = substitute(spec.keys, at);
    if (!there.isConst()) return fail(diag::LoopsBadSize, {}, node.name, spec.keys.str());
    return std::clamp<int64_t>(there.constValue(), 0, length);
  };
  AttentionHead head{spec};
  head.boolMask = spec.mask.buffer.valid() && program->buffer(spec.mask.buffer).dtype == DType::Bool;
  head.keys = length, head.size = size, head.width = width;
  for (int64_t b = 0; b < outer[0]; ++b) {
    Result<int64_t> keysThere = keysOf(b);
    if (!keysThere) return keysThere.takeError();
    const int64_t length = head.keys = *keysThere;
    for (int64_t h = 0; h < outer[1]; ++h) {
      std::fill_n(slot(Batch), kLanes, b);
      std::fill_n(slot(Head), kLanes, h);
      if (Status s = readOperand(spec.q, buffers, table, {{{Query, rows}, {Element, size}}}, head.q); !s) return s;
      if (Status s = readOperand(spec.k, buffers, table, {{{Key, length}, {Element, size}}}, head.k); !s) return s;
      if (Status s = readOperand(spec.v, buffers, table, {{{Key, length}, {Element, width}}}, head.v); !s) return s;
      if (spec.mask.buffer.valid())
        if (Status s = readOperand(spec.mask, buffers, table, {{{Query, rows}, {Key, length}}}, head.mask); !s) return s;
      for (int64_t m = 0; m < rows; ++m) {
        head.weigh(m);
        std::fill_n(slot(Query), kLanes, m);
        if (spec.logSum.buffer.valid()) {
          Register value;
          value.d[0] = head.logSum();
          if (Status s = logSum.run(node.name, table, buffers, value, DType::F64, nullptr, 1); !s) return s;
        }
        for (int64_t at = 0; at < width; at += kLanes) {
          int lanes = static_cast<int>(std::min<int64_t>(kLanes, width - at));
          Register value;
          for (int l = 0; l < lanes; ++l) value.d[l] = head.result(at + l), slot(Element)[l] = at + l;
          if (Status s = store.run(node.name, table, buffers, value, DType::F64, nullptr, lanes); !s) return s;
        }
      }
    }
  }
  return {};
}

NodeRunner::NodeRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeRunner::NodeRunner(NodeRunner &&) noexcept = default;
Status NodeRunner::Impl::runUserKernel(std::span<const BufferView> buffers) {
  const auto &spec = node.get<UserKernelSpec>();
  if (!spec.reference)
    return fail(diag::LoopsNotInterpreted, {}, node.name, "a user kernel without a reference");
  auto value = [&](Expr e) -> Result<int64_t> {
    Expr v = substitute(e, sizes);
    if (!v.isConst()) return fail(diag::LoopsBadSize, {}, node.name, e.str());
    return v.constValue();
  };
  std::vector<HostArgument> args;
  for (const UserKernelSpec::Argument &a : spec.arguments) {
    HostArgument h;
    if (a.kind == UserKernelSpec::Argument::Memory) {
      const BufferView &view = buffers[a.buffer.index()];
      Result<int64_t> offset = value(a.offset);
      if (!offset) return offset.takeError();
      int64_t item = itemSize(toReal(program->buffer(a.buffer).dtype));
      h.kind = HostArgument::Memory;
      h.data = view.data + *offset * item;
      h.bytes = (view.elements - *offset) * item;
    } else if (a.kind == UserKernelSpec::Argument::Integer) {
      Result<int64_t> v = value(a.integer);
      if (!v) return v.takeError();
      h.integer = *v;
    } else {
      h.kind = HostArgument::Real;
      h.real = a.real;
    }
    args.push_back(h);
  }
  std::array<int64_t, 3> grid;
  for (size_t d = 0; d < 3; ++d) {
    Result<int64_t> v = value(spec.grid[d]);
    if (!v) return v.takeError();
    grid[d] = *v;
  }
  return spec.reference(args, grid);
}

NodeRunner &NodeRunner::operator=(NodeRunner &&) noexcept = default;
NodeRunner::~NodeRunner() = default;

Result<NodeRunner> NodeRunner::create(const Program &program, const Node &node, const Bindings &sizes,
                                      Symbol::Kind outer) {
  auto impl = std::make_unique<Impl>();
  impl->program = &program;
  impl->node = node;
  if (Status s = impl->compile(sizes, outer); !s) return s.takeError();
  return NodeRunner(std::move(impl));
}

int64_t NodeRunner::outerCount() const { return productOf(impl_->outer); }

Status NodeRunner::run(std::span<const BufferView> buffers, int64_t begin, int64_t end) {
  if (begin >= end) return {};
  switch (impl_->node.kind()) {
  case Node::Kind::Pointwise: return impl_->runPointwise(buffers, begin, end);
  case Node::Kind::Reduction: return impl_->runReduction(buffers, begin, end);
  case Node::Kind::Segments: return impl_->runSegments(*impl_->node.as<SegmentsSpec>(), buffers, begin, end);
  case Node::Kind::Contraction: return impl_->runContraction(buffers, begin, end);
  case Node::Kind::Scan: return impl_->runScan(buffers, begin, end);
  case Node::Kind::Sort: return impl_->runSort(buffers, begin, end);
  case Node::Kind::Attention: return impl_->runAttention(buffers);
  case Node::Kind::UserKernel: return impl_->runUserKernel(buffers);
  case Node::Kind::Extern: 
    return runExtern(impl_->node.name, impl_->node.get<ExternSpec>(),
                     [&](Expr e) {
                       const Expr v = substitute(e, impl_->sizes);
                       return v.isConst() ? std::optional(v.constValue()) : std::nullopt;
                     },
                     buffers);
  case Node::Kind::ReadScalar:
  case Node::Kind::Region: break;
  }
  NESO_UNREACHABLE("unknown kind of node");
}

} // namespace neso::loops
