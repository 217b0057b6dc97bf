// Random loop programs from a seed: chains of the patterns that models have (broadcasts, views, softmax, norms,
// matmuls, gathers, scatters, concatenations, in-place updates, scans), over constant and symbolic sizes. Every program
// is valid and free of races.
#pragma once
#include <algorithm>
#include <random>

#include "ir/loops/build.h"

namespace neso::schedule::test {

using namespace loops;

struct Tensor {
  BufferId buffer;
  std::vector<Expr> sizes, strides;
  Expr offset = 0;
  bool whole = true; // covers its buffer contiguously
};

class RandomProgram {
public:
  /// With a `shake`, what argmax looks at is moved by up to 1e-4 of it (of 1, if that is more) unless it is exact, in a pattern of its own for each
  /// shake: the index of the largest of numbers that only rounding tells apart is not determined, and what hangs on it differs between shakes.
  /// Terms of sums that are not exact are moved by up to 1e-5 of them: a sum of n terms in any order is the exact sum of terms moved by up to
  /// n * 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), and what is left where large terms cancel hangs on that.
  explicit RandomProgram(uint32_t seed, int shake = 0) : rng_(seed), shake_(shake) {
    p.name = "random" + std::to_string(seed);
    p.facts.setRange(Symbol::size("s0"), {1, 9});
    p.facts.setRange(Symbol::size("s1"), {2, 70});
    std::vector<std::vector<Expr>> shapes = {{4, 6},
                                             {8, Symbol::size("s0")},
                                             {Symbol::size("s1"), 6},
                                             {3, 4, 6},
                                             {48},
                                             {Symbol::size("s0"), Symbol::size("s1")}};
    std::shuffle(shapes.begin() + 1, shapes.end(), rng_);
    // Symbols need an input that defines them; some programs have none.
    symbolic_ = chance(60);
    if (symbolic_) input({Symbol::size("s0"), Symbol::size("s1")}, DType::F32, chance(25));
    for (int k = 0, n = pick(1, 3); k < n; ++k) {
      std::vector<Expr> shape = shapes[static_cast<size_t>(pick(0, static_cast<int>(shapes.size()) - 1))];
      bool usesSymbol = std::any_of(shape.begin(), shape.end(), [](Expr e) { return !e.isConst(); });
      input(usesSymbol && !symbolic_ ? std::vector<Expr>{4, 6} : shape, DType::F32, chance(20));
    }
    indexInput_ = addInput({5}, DType::I64, false);
    for (int k = 0, n = pick(3, 12); k < n; ++k) step();
    finish();
  }
  Program p;
  /// Row-major contents of input k for the sizes in `sizes`, small integers so that sums are exact in any order.
  std::vector<uint8_t> contents(size_t k, int64_t elements, std::mt19937 &rng) const {
    std::vector<uint8_t> out(static_cast<size_t>(elements * itemSize(p.inputs[k].dtype)));
    for (int64_t e = 0; e < elements; ++e) {
      if (p.inputs[k].dtype == DType::F32)
        reinterpret_cast<float *>(out.data())[e] = static_cast<float>(static_cast<int>(rng() % 17) - 8) / 4;
      else
        reinterpret_cast<int64_t *>(out.data())[e] = static_cast<int64_t>(rng() % 3);
    }
    return out;
  }

private:
  static constexpr int kInputBits = 5, kRowBits = 10, kExactBits = 24, kInexact = 1000;
  std::mt19937 rng_;
  int shake_ = 0;
  /// By buffer: bits that its numbers take at most. Sums of up to 24 are exact in any order.
  std::vector<int> bits_;
  std::vector<Tensor> tensors_;
  Tensor indexInput_;
  bool symbolic_ = false;

  int pick(int lo, int hi) { return lo + static_cast<int>(rng_() % static_cast<uint32_t>(hi - lo + 1)); }
  bool chance(int percent) { return pick(0, 99) < percent; }

  static std::vector<Expr> contiguous(const std::vector<Expr> &sizes) {
    std::vector<Expr> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    return strides;
  }
  BufferId buffer(DType t, Buffer::Kind kind, Expr elements, int64_t index) {
    Buffer b;
    b.id = BufferId(static_cast<int64_t>(p.buffers.size()));
    b.name = "b" + std::to_string(p.buffers.size());
    b.dtype = t;
    b.kind = kind;
    b.elements = elements;
    b.index = index;
    p.buffers.push_back(b);
    bits_.push_back(kind == Buffer::Kind::Input ? kInputBits : 0);
    return b.id;
  }
  Tensor addInput(std::vector<Expr> sizes, DType t, bool mutated) {
    ProgramInput in;
    in.name = "in" + std::to_string(p.inputs.size());
    in.dtype = t;
    in.sizes = sizes;
    in.strides = contiguous(sizes);
    in.buffer = buffer(t, Buffer::Kind::Input, product(sizes), static_cast<int64_t>(p.inputs.size()));
    p.buffer(in.buffer).mutated = mutated;
    p.inputs.push_back(in);
    return {in.buffer, sizes, contiguous(sizes)};
  }
  void input(std::vector<Expr> sizes, DType t, bool mutated) {
    tensors_.push_back(addInput(std::move(sizes), t, mutated));
  }
  Tensor temp(std::vector<Expr> sizes, DType t = DType::F32) {
    std::vector<Expr> strides = contiguous(sizes);
    return {buffer(t, Buffer::Kind::Temp, product(sizes), -1), std::move(sizes), strides};
  }
  Tensor &any() { return tensors_[static_cast<size_t>(pick(0, static_cast<int>(tensors_.size()) - 1))]; }
  template <typename T> T &node(std::vector<Expr> ranges, std::vector<Expr> reduce, std::string name) {
    Node n;
    n.id = NodeId(static_cast<int64_t>(p.nodes.size()));
    n.name = std::move(name);
    n.ranges = std::move(ranges);
    n.reduceRanges = std::move(reduce);
    p.nodes.push_back(std::move(n));
    return p.nodes.back().spec.template emplace<T>();
  }
  static Expr at(const Tensor &t, const std::vector<Expr> &index) {
    Expr e = t.offset;
    for (size_t d = 0; d < index.size(); ++d) e = e + index[d] * t.strides[d];
    return e;
  }
  static std::vector<Expr> outerIndex(size_t rank) {
    std::vector<Expr> out;
    for (size_t d = 0; d < rank; ++d) out.push_back(Symbol::index(d));
    return out;
  }
  ValueIdx load(Body &b, BufferId from, Expr index) { return appendLoad(b, from, p.buffer(from).dtype, index); }
  static ValueIdx apply(Body &b, OpKind k, ValueIdx a, ValueIdx c = -1, DType t = DType::F32) {
    return append(b, k, t, a, c);
  }
  static ValueIdx constant(Body &b, double v) {
    Op op{OpKind::Constant};
    op.imm = v;
    return append(b, op);
  }
  static Store storeOf(const Tensor &t, const std::vector<Expr> &index, ValueIdx v, StoreMode mode = StoreMode::Set) {
    Store s;
    s.buffer = t.buffer;
    s.index = at(t, index);
    s.value = v;
    s.mode = mode;
    return s;
  }
  /// Some view of t: permuted, reshaped, sliced or itself.
  Tensor view(const Tensor &t) {
    Tensor v = t;
    int kind = pick(0, 5);
    if (kind == 0 && t.sizes.size() >= 2) {
      std::swap(v.sizes[0], v.sizes[1]);
      std::swap(v.strides[0], v.strides[1]);
      v.whole = false;
    } else if (kind == 1 && t.whole) {
      v.sizes = {product(t.sizes)};
      v.strides = {1};
    } else if (kind == 2 && t.sizes.back().isConst() && t.sizes.back().constValue() >= 2) {
      v.sizes.back() = t.sizes.back() - 1;
      v.offset = v.offset + (chance(50) ? v.strides.back() : Expr(0));
      v.whole = false;
    } else if (kind == 3 && t.whole && t.sizes.back().isConst(6)) {
      v.sizes.back() = 3;
      v.sizes.push_back(2);
      v.strides.back() = 2;
      v.strides.push_back(1);
    }
    return v;
  }
  /// An index into t for a loop over `sizes`, if t broadcasts to it.
  static std::optional<Expr> broadcast(const Tensor &t, const std::vector<Expr> &sizes,
                                       const std::vector<Expr> &index) {
    if (t.sizes.size() > sizes.size()) return std::nullopt;
    Expr e = t.offset;
    size_t skip = sizes.size() - t.sizes.size();
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      if (t.sizes[d] == sizes[d + skip])
        e = e + index[d + skip] * t.strides[d];
      else if (!t.sizes[d].isConst(1))
        return std::nullopt;
    }
    return e;
  }
  /// The buffer's numbers take that many bits, or as many as before.
  void takes(const Tensor &t, int bits) { bits_[t.buffer.index()] = std::max(bits_[t.buffer.index()], bits); }
  int bitsOf(const Tensor &t) const { return bits_[t.buffer.index()]; }
  /// v, or v moved by up to `relative` of it, or of `least` if that is more, if this program is shaken. `rank` outer indices and an inner one tell
  /// elements apart. The moves of a row lean to one side, another for each shake: they would cancel in a sum of many.
  ValueIdx shaken(Body &b, ValueIdx v, size_t rank, double relative, double least) {
    if (shake_ == 0) return v;
    // The square keeps an element from standing high in its pattern for every shake, as one would whose factors cancel modulo 13.
    Expr place = Symbol::inner(0) * (2 * shake_ + 1) + 5 * shake_ * shake_;
    for (size_t d = 0; d < rank; ++d) place = place + Symbol::index(d) * (static_cast<int64_t>(3 * d) + 5 * shake_ + 2);
    Op op{OpKind::Index};
    op.dtype = DType::I64, op.index = mod(place, 13);
    const int lean = 3 * (shake_ % 5 - 2);
    ValueIdx by = apply(b, OpKind::Mul, apply(b, OpKind::Add, apply(b, OpKind::Cast, append(b, op)), constant(b, lean - 6)), constant(b, relative / 12));
    return apply(b, OpKind::Add, v, apply(b, OpKind::Mul, by, apply(b, OpKind::Max, apply(b, OpKind::Abs, v), constant(b, least))));
  }
  /// A term of a sum whose result takes `bits`.
  ValueIdx term(Body &b, ValueIdx v, size_t rank, int bits) { return bits > kExactBits ? shaken(b, v, rank, 1e-5, 0) : v; }
  /// Some function of v; `bits` are those of its result.
  ValueIdx somePointwise(Body &b, ValueIdx v, int &bits) {
    const ValueIdx out = somePointwise(b, v);
    const OpKind kind = b.ops[static_cast<size_t>(out)].kind;
    if (out != v) bits = kind == OpKind::Tanh || kind == OpKind::Sigmoid ? kInexact : bits + 1;
    return out;
  }
  ValueIdx somePointwise(Body &b, ValueIdx v) {
    switch (pick(0, 6)) {
    case 0: return apply(b, OpKind::Relu, v);
    case 1: return apply(b, OpKind::Tanh, v);
    case 2: return apply(b, OpKind::Mul, v, constant(b, 0.5));
    case 3: return apply(b, OpKind::Abs, v);
    case 4: return apply(b, OpKind::Sigmoid, v);
    case 5: return apply(b, OpKind::Neg, v);
    default: return v;
    }
  }

  void step() {
    switch (pick(0, 14)) {
    case 0:
    case 1:
    case 2:
    case 3: return pointwise();
    case 4: return reduction();
    case 5: return softmax();
    case 6: return norm();
    case 7: return matmul();
    case 8: return concat();
    case 9: return gather();
    case 10: return scatter();
    case 11: return update();
    case 12: return scan();
    case 13: return argmax();
    default: return reduceLeading();
    }
  }

  void pointwise() {
    Tensor lead = view(any());
    std::vector<Expr> index = outerIndex(lead.sizes.size());
    Tensor out = temp(lead.sizes);
    std::vector<Tensor> others;
    for (int k = 0; k < 3; ++k) others.push_back(chance(50) ? view(any()) : any());
    PointwiseSpec &n = node<PointwiseSpec>(lead.sizes, {}, "pw");
    int bits = bitsOf(lead);
    ValueIdx v = somePointwise(n.body, load(n.body, lead.buffer, at(lead, index)), bits);
    for (const Tensor &t : others)
      if (std::optional<Expr> e = broadcast(t, lead.sizes, index))
        bits = std::max(bits, bitsOf(t)) + 1, v = apply(n.body, chance(70) ? OpKind::Add : OpKind::Max, v, load(n.body, t.buffer, *e));
    n.stores = {storeOf(out, index, v)};
    takes(out, bits);
    // Sometimes the result is stored in another order of dimensions, as channels-last convolutions have it.
    if (chance(15) && out.sizes.size() >= 2) {
      std::vector<Expr> swapped = out.sizes;
      std::swap(swapped[0], swapped[1]);
      std::vector<Expr> strides = contiguous(swapped);
      std::swap(strides[0], strides[1]);
      out.strides = strides;
      out.whole = false;
      n.stores = {storeOf(out, index, v)};
    }
    tensors_.push_back(out);
  }
  /// Splits t's loop into outer indices and the reduced last dimension.
  template <typename T> T &rowNode(const Tensor &t, std::vector<Expr> &index, std::string name) {
    std::vector<Expr> outer(t.sizes.begin(), t.sizes.end() - 1);
    index = outerIndex(outer.size());
    index.push_back(Symbol::inner(0));
    return node<T>(outer, {t.sizes.back()}, std::move(name));
  }
  Tensor rows(const Tensor &t, DType type = DType::F32) {
    std::vector<Expr> sizes = t.sizes;
    sizes.back() = 1;
    return temp(sizes, type);
  }
  static std::vector<Expr> rowIndex(std::vector<Expr> index) {
    index.back() = 0;
    return index;
  }
  void reduction() {
    Tensor t = view(any()), out = rows(t);
    std::vector<Expr> index;
    ReductionSpec &n = rowNode<ReductionSpec>(t, index, "sum");
    int bits = bitsOf(t);
    ValueIdx v = somePointwise(n.body, load(n.body, t.buffer, at(t, index)), bits);
    ReduceKind kinds[] = {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Sum};
    const ReduceKind kind = kinds[pick(0, 3)];
    if (kind == ReduceKind::Sum) v = term(n.body, v, t.sizes.size() - 1, bits + kRowBits);
    n.reductions.push_back({kind, DType::F32, v, {storeOf(out, rowIndex(index), 0)}});
    takes(out, bits + kRowBits);
    tensors_.push_back(out);
  }
  void reduceLeading() {
    Tensor t = view(any());
    if (t.sizes.size() < 2) return;
    std::vector<Expr> rest(t.sizes.begin() + 1, t.sizes.end());
    Tensor out = temp(rest);
    ReductionSpec &n = node<ReductionSpec>(rest, {t.sizes[0]}, "colsum");
    std::vector<Expr> outer = outerIndex(rest.size()), index = outer;
    index.insert(index.begin(), Symbol::inner(0));
    const ValueIdx v = term(n.body, load(n.body, t.buffer, at(t, index)), rest.size(), bitsOf(t) + kRowBits);
    n.reductions.push_back({ReduceKind::Sum, DType::F32, v, {storeOf(out, outer, 0)}});
    takes(out, bitsOf(t) + kRowBits);
    tensors_.push_back(out);
  }
  void softmax() {
    Tensor t = view(any()), top = rows(t), total = rows(t), out = temp(t.sizes);
    std::vector<Expr> index;
    ReductionSpec &a = rowNode<ReductionSpec>(t, index, "max");
    a.reductions.push_back(
        {ReduceKind::Max, DType::F32, load(a.body, t.buffer, at(t, index)), {storeOf(top, rowIndex(index), 0)}});
    ReductionSpec &b = rowNode<ReductionSpec>(t, index, "sumexp");
    ValueIdx d = apply(b.body, OpKind::Sub, load(b.body, t.buffer, at(t, index)),
                       load(b.body, top.buffer, at(top, rowIndex(index))));
    b.reductions.push_back(
        {ReduceKind::Sum, DType::F32, apply(b.body, OpKind::Exp, d), {storeOf(total, rowIndex(index), 0)}});
    PointwiseSpec &c = node<PointwiseSpec>(t.sizes, {}, "softmax");
    std::vector<Expr> full = outerIndex(t.sizes.size());
    ValueIdx e = apply(c.body, OpKind::Sub, load(c.body, t.buffer, at(t, full)),
                       load(c.body, top.buffer, at(top, rowIndex(full))));
    c.stores = {storeOf(out, full,
                        apply(c.body, OpKind::Div, apply(c.body, OpKind::Exp, e),
                              load(c.body, total.buffer, at(total, rowIndex(full)))))};
    takes(out, kInexact);
    tensors_.push_back(out);
  }
  void norm() {
    Tensor t = any(), mean = rows(t), m2 = rows(t), scale = rows(t), out = temp(t.sizes);
    std::vector<Expr> index;
    ReductionSpec &a = rowNode<ReductionSpec>(t, index, "welford");
    // A mean is rounded whatever its terms are, and what it leaves of them may be little.
    a.reductions.push_back({ReduceKind::Welford,
                            DType::F32,
                            term(a.body, load(a.body, t.buffer, at(t, index)), t.sizes.size() - 1, kInexact),
                            {storeOf(mean, rowIndex(index), 0), storeOf(m2, rowIndex(index), 1)}});
    PointwiseSpec &b = node<PointwiseSpec>(std::vector<Expr>(t.sizes.begin(), t.sizes.end() - 1), {}, "rsqrt");
    std::vector<Expr> outer = outerIndex(t.sizes.size() - 1);
    outer.push_back(0);
    b.stores = {
        storeOf(scale, outer,
                apply(b.body, OpKind::Rsqrt,
                      apply(b.body, OpKind::Add, load(b.body, m2.buffer, at(m2, outer)), constant(b.body, 1))))};
    PointwiseSpec &c = node<PointwiseSpec>(t.sizes, {}, "norm");
    std::vector<Expr> full = outerIndex(t.sizes.size());
    ValueIdx d = apply(c.body, OpKind::Sub, load(c.body, t.buffer, at(t, full)),
                       load(c.body, mean.buffer, at(mean, rowIndex(full))));
    c.stores = {
        storeOf(out, full, apply(c.body, OpKind::Mul, d, load(c.body, scale.buffer, at(scale, rowIndex(full)))))};
    takes(out, kInexact);
    tensors_.push_back(out);
  }
  void matmul() {
    Tensor a = view(any()), b = view(any());
    if (a.sizes.size() < 2 || b.sizes.size() != 2 || a.sizes.back() != b.sizes[0]) { // Gram matrix: always fits
      b = a;
      if (a.sizes.size() != 2) return;
      std::swap(b.sizes[0], b.sizes[1]);
      std::swap(b.strides[0], b.strides[1]);
    }
    std::vector<Expr> shape(a.sizes.begin(), a.sizes.end() - 1);
    shape.push_back(b.sizes[1]);
    Tensor out = temp(shape);
    std::vector<Expr> index = outerIndex(shape.size()), left = index;
    left.back() = Symbol::inner(0);
    ContractionSpec &n = node<ContractionSpec>(shape, {a.sizes.back()}, "mm");
    const int bits = bitsOf(a) + bitsOf(b) + kRowBits;
    n.lhs = term(n.body, load(n.body, a.buffer, at(a, left)), shape.size(), bits);
    n.rhs = load(n.body, b.buffer, at(b, {Symbol::inner(0), index.back()}));
    n.stores = {storeOf(out, index, 0)};
    takes(out, bits);
    tensors_.push_back(out);
  }
  void concat() {
    Tensor a = any(), b = view(any());
    if (a.sizes.size() != b.sizes.size()) return;
    for (size_t d = 1; d < a.sizes.size(); ++d)
      if (a.sizes[d] != b.sizes[d]) return;
    std::vector<Expr> shape = a.sizes;
    shape[0] = a.sizes[0] + b.sizes[0];
    Tensor out = temp(shape);
    std::vector<Expr> index = outerIndex(shape.size());
    PointwiseSpec &m = node<PointwiseSpec>(a.sizes, {}, "cat");
    m.stores = {storeOf(out, index, load(m.body, a.buffer, at(a, index)))};
    PointwiseSpec &n = node<PointwiseSpec>(b.sizes, {}, "cat");
    ValueIdx v = load(n.body, b.buffer, at(b, index));
    index[0] = index[0] + a.sizes[0];
    n.stores = {storeOf(out, index, v)};
    takes(out, std::max(bitsOf(a), bitsOf(b)));
    tensors_.push_back(out);
  }
  Expr indirect(Body &b, Expr index, Expr bound) {
    Op op{OpKind::Indirect};
    op.dtype = DType::I64;
    op.a = load(b, indexInput_.buffer, index);
    op.symbol = Symbol::indirect(0);
    op.bound = bound;
    op.check = true;
    append(b, op);
    return Symbol::indirect(0);
  }
  void gather() {
    Tensor t = any();
    if (!t.sizes[0].isConst() || t.sizes[0].constValue() < 3) return;
    std::vector<Expr> shape = t.sizes;
    shape[0] = 5;
    Tensor out = temp(shape);
    std::vector<Expr> index = outerIndex(shape.size()), from = index;
    PointwiseSpec &n = node<PointwiseSpec>(shape, {}, "gather");
    from[0] = indirect(n.body, Symbol::index(0), t.sizes[0]);
    n.stores = {storeOf(out, index, load(n.body, t.buffer, at(t, from)))};
    takes(out, bitsOf(t));
    tensors_.push_back(out);
  }
  void scatter() {
    Tensor t = any();
    if (!t.sizes[0].isConst(5)) return;
    std::vector<Expr> shape = t.sizes;
    shape[0] = 3;
    Tensor out = temp(shape);
    std::vector<Expr> index = outerIndex(shape.size());
    PointwiseSpec &z = node<PointwiseSpec>(shape, {}, "zero");
    z.stores = {storeOf(out, index, constant(z.body, 0))};
    PointwiseSpec &n = node<PointwiseSpec>(t.sizes, {}, "scatter");
    ValueIdx v = load(n.body, t.buffer, at(t, index));
    index[0] = indirect(n.body, Symbol::index(0), 3);
    n.stores = {storeOf(out, index, v, chance(70) ? StoreMode::AtomicAdd : StoreMode::Set)};
    takes(out, bitsOf(t) + 3);
    tensors_.push_back(out);
  }
  /// In-place update of a mutated input or of a temp.
  void update() {
    Tensor t = any(), other = any();
    const Buffer &b = p.buffer(t.buffer);
    if (b.kind == Buffer::Kind::Input && !b.mutated) return;
    std::vector<Expr> index = outerIndex(t.sizes.size());
    PointwiseSpec &n = node<PointwiseSpec>(t.sizes, {}, "update");
    int bits = bitsOf(t);
    ValueIdx v = somePointwise(n.body, load(n.body, t.buffer, at(t, index)), bits);
    // Another view of the same memory would be a race.
    if (other.buffer != t.buffer)
      if (std::optional<Expr> e = broadcast(other, t.sizes, index))
        bits = std::max(bits, bitsOf(other)) + 1, v = apply(n.body, OpKind::Add, v, load(n.body, other.buffer, *e));
    n.stores = {storeOf(t, index, v)};
    takes(t, bits);
  }
  void scan() {
    Tensor t = any(), out = temp(t.sizes);
    std::vector<Expr> index;
    ScanSpec &n = rowNode<ScanSpec>(t, index, "cumsum");
    n.inputs = {term(n.body, load(n.body, t.buffer, at(t, index)), t.sizes.size() - 1, bitsOf(t) + kRowBits)};
    n.stores = {storeOf(out, index, 0)};
    takes(out, bitsOf(t) + kRowBits);
    tensors_.push_back(out);
  }
  void argmax() {
    Tensor t = view(any()), out = rows(t, DType::I64), real = rows(t);
    std::vector<Expr> index;
    ReductionSpec &n = rowNode<ReductionSpec>(t, index, "argmax");
    ValueIdx v = load(n.body, t.buffer, at(t, index));
    if (bitsOf(t) > kExactBits) v = shaken(n.body, v, t.sizes.size() - 1, 1e-4, 1);
    n.reductions.push_back({ReduceKind::ArgMax, DType::F32, v, {storeOf(out, rowIndex(index), 0)}});
    takes(real, kInputBits + kRowBits);
    PointwiseSpec &c = node<PointwiseSpec>(std::vector<Expr>(t.sizes.begin(), t.sizes.end() - 1), {}, "cast");
    std::vector<Expr> outer = outerIndex(t.sizes.size() - 1);
    outer.push_back(0);
    c.stores = {storeOf(real, outer, apply(c.body, OpKind::Cast, load(c.body, out.buffer, at(out, outer))))};
    tensors_.push_back(real);
  }
  void output(const Tensor &t, bool writeBack) {
    ProgramOutput o;
    o.buffer = t.buffer;
    o.dtype = p.buffer(t.buffer).dtype;
    o.sizes = t.sizes;
    o.strides = t.strides;
    o.offset = t.offset;
    if (writeBack) o.writeBackTo = t.buffer, o.writeBackStrides = t.strides, o.writeBackOffset = t.offset;
    p.outputs.push_back(o);
  }
  void finish() {
    std::vector<bool> read(p.buffers.size());
    for (const Node &n : p.nodes)
      for (const Op &op : n.body().ops)
        if (op.kind == OpKind::Load) read[op.buffer.index()] = true;
    for (const Tensor &t : tensors_)
      if ((!read[t.buffer.index()] && chance(90)) || chance(10)) output(chance(80) ? t : view(t), false);
    if (p.outputs.empty()) output(tensors_.back(), false);
    for (const Tensor &t : tensors_) // write-backs of what was mutated
      if (p.buffer(t.buffer).mutated) output(t, true);
    if (chance(15)) { // a write-back from a temp to an input of the same shape
      for (const Tensor &t : tensors_)
        for (const Tensor &u : tensors_)
          if (p.buffer(t.buffer).kind == Buffer::Kind::Input && !p.buffer(t.buffer).mutated && t.whole && u.whole &&
              p.buffer(u.buffer).kind == Buffer::Kind::Temp && t.sizes == u.sizes) {
            output(u, false);
            p.outputs.back().writeBackTo = t.buffer, p.buffer(t.buffer).mutated = true;
            p.outputs.back().writeBackStrides = t.strides, p.outputs.back().writeBackOffset = t.offset;
            return;
          }
    }
  }
};

} // namespace neso::schedule::test
