// Matrix products as Contraction nodes.
#include <algorithm>
#include <cmath>

#include "ir/shape/usual.h"
#include "lower/graph_to_loops/linalg.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// The dtype in which a contraction of operands of type t accumulates.
DType accumulateType(DType t) {
  if (t == DType::F64) return t;
  if (isFloat(t)) return DType::F32;
  if (t == DType::Bool || t == DType::I8) return DType::I32;
  return t;
}

DType scaledProductType(DType a, DType b) { return a == b ? a : DType::F16; }

/// Rows of a product for which its right operand is worth computing once and storing, where it is computed from less memory than it would take.
static constexpr int64_t kManyRows = 64;
/// Scalar operators of an element that is computed anew for each block of rows, at most: of dequantised weights, less their zero point, scaled,
/// and rounded to 16 bits by each step.
static constexpr int kFewOps = 16;

/// Whether x is made of narrower numbers in few steps, as dequantised weights are: then reading those is cheaper than reading x.
static bool isWidened(const Tensor &x) {
  if (x.isComplex() || x.realized()) return false;
  const Cost cost = x.cost();
  const std::optional<int64_t> elements = x.numel().asConst();
  if (cost.heavy || cost.ops > kFewOps || !elements) return false;
  int64_t bytes = 0;
  for (BufferId id : x.loads()) {
    const loops::Buffer &buffer = x.ctx().program.buffer(id);
    const std::optional<int64_t> count = buffer.elements.asConst();
    if (!count) return false;
    bytes += *count * itemSize(buffer.dtype);
  }
  return bytes > 0 && bytes < *elements * itemSize(x.dtype());
}

Tensor matmul2(const Tensor &a0, const Tensor &b0, DType out, const EpilogueFn &epilogue) {
  Lowering &ctx = a0.ctx();
  Tensor a = a0, b = b0;
  if (a.isComplex() || b.isComplex()) {
    DType r = toReal(out);
    Tensor ar = a.real(), ai = a.imag(), br = b.real(), bi = b.imag();
    Tensor re = sub(matmul2(ar, br, r), matmul2(ai, bi, r)), im = add(matmul2(ar, bi, r), matmul2(ai, br, r));
    return Tensor::complex(re, im, out);
  }
  DType t = promote(a.dtype(), b.dtype());
  a = cast(a, t);
  b = cast(b, t);
  size_t rank = a.sizes().size(), batch = rank - 2;
  // Operands are read many times over: anything but a plain load is computed once, before; but few rows read weights once.
  if (!a.asStrided()) a.realize();
  const bool computed = batch == 0 && usualSize(a.sizes()[0], ctx.facts) <= kManyRows && isWidened(b);
  if (!computed && !b.asStrided()) b.realize();
  ContractionSpec spec;
  for (size_t d = 0; d < batch; ++d) spec.ranges.push_back(a.sizes()[d]);
  spec.ranges.push_back(a.sizes()[rank - 2]);
  spec.ranges.push_back(b.sizes()[rank - 1]);
  spec.reduceRanges = {a.sizes()[rank - 1]};
  spec.lhs = [a, batch](BodyBuilder &bb, const Index &i, const Index &r) {
    Index j(i.begin(), i.begin() + static_cast<int64_t>(batch) + 1);
    j.push_back(r[0]);
    return a.at(bb, j);
  };
  spec.rhs = [b, batch](BodyBuilder &bb, const Index &i, const Index &r) {
    Index j(i.begin(), i.begin() + static_cast<int64_t>(batch));
    j.push_back(r[0]);
    j.push_back(i[batch + 1]);
    return b.at(bb, j);
  };
  spec.operandType = t == DType::Bool ? DType::I32 : t;
  spec.accType = accumulateType(t);
  spec.outType = out;
  spec.epilogue = epilogue;
  return ctx.contract(spec);
}

Tensor matmul(const Tensor &a0, const Tensor &b0) {
  Tensor a = a0, b = b0, xs[] = {a, b};
  DType t = resultType(xs);
  bool row = a.rank() == 1, col = b.rank() == 1;
  if (row) a = unsqueeze(a, 0);
  if (col) b = unsqueeze(b, 1);
  Tensor r;
  if (b.rank() == 2 && a.rank() > 2) {
    // The batch of the left side is rows of one product.
    Expr rows = 1;
    Sizes sizes = a.sizes();
    for (size_t d = 0; d + 1 < sizes.size(); ++d) rows = rows * sizes[d];
    r = matmul2(reshape(a, {rows, sizes.back()}), b, t);
    sizes.back() = b.sizes()[1];
    r = reshape(r, sizes);
  } else {
    auto lead = [](const Tensor &x) { return Sizes(x.sizes().begin(), x.sizes().end() - 2); };
    Sizes la = lead(a), lb = lead(b), batch(std::max(la.size(), lb.size()), Expr(1));
    for (const Sizes &l : {la, lb})
      for (size_t k = 0; k < l.size(); ++k)
        if (Expr &e = batch[batch.size() - l.size() + k]; e.isConst(1)) e = l[k];
    auto widen = [&](const Tensor &x) {
      Sizes s = batch;
      s.push_back(x.size(-2));
      s.push_back(x.size(-1));
      return broadcastTo(x, s);
    };
    r = matmul2(widen(a), widen(b), t);
  }
  if (row) r = squeeze(r, -2);
  if (col) r = squeeze(r, -1);
  return r;
}

/// beta * c + alpha * (a @ b) with the sum as epilogue of the product.
static Tensor addProduct(const Tensor &c, const Tensor &a, const Tensor &b, double alpha, double beta, DType out) {
  size_t rank = a.sizes().size();
  if (!isFloat(out)) {
    Tensor p = matmul2(a, b, out);
    if (alpha != 1) p = mulNumber(p, alpha);
    if (beta == 0) return p;
    return add(p, beta == 1 ? c : mulNumber(cast(c, out), beta));
  }
  Sizes sizes(a.sizes().begin(), a.sizes().end() - 1);
  sizes.push_back(b.sizes()[rank - 1]);
  c.reused();
  Tensor bias = broadcastTo(cast(c, out), sizes);
  return matmul2(a, b, out, [bias, alpha, beta](BodyBuilder &bb, const Index &i, Val sum) {
    if (alpha != 1) sum = sum * alpha;
    if (beta == 0) return sum;
    Val v = bb.cast(bias.at(bb, i), sum.dtype);
    return sum + (beta == 1 ? v : v * beta);
  });
}

/// The same of complex numbers, from a product of type t that is there; `name` of the call is a number, or 1.
static Tensor addComplexProduct(OpCall &o, const Tensor &product) {
  const DType t = o.out().dtype;
  auto scaled = [&](const Tensor &x, std::string_view name) {
    const graph::Argument *a = o.node.arg(name);
    const int64_t *i = a ? std::get_if<int64_t>(a) : nullptr;
    return !a || (i && *i == 1) ? cast(x, t) : mul(cast(x, t), cast(o.t(name), t));
  };
  const graph::Argument *beta = o.node.arg("beta");
  const int64_t *i = beta ? std::get_if<int64_t>(beta) : nullptr;
  const graph::ComplexValue *z = beta ? std::get_if<graph::ComplexValue>(beta) : nullptr;
  const double *d = beta ? std::get_if<double>(beta) : nullptr;
  const Tensor p = scaled(product, "alpha");
  // What is not added may be anything.
  if ((i && *i == 0) || (d && *d == 0) || (z && z->real == 0 && z->imag == 0)) return broadcastTo(p, o.out().sizes);
  return add(p, scaled(o.t("self"), "beta"));
}

Tensor linear(const Tensor &x, const Tensor &w, const Tensor &bias) {
  Tensor wt = w.rank() == 1 ? w : transpose(w, 0, 1);
  Tensor xs[] = {x, w};
  DType t = resultType(xs);
  if (w.rank() == 1) {
    Tensor r = matmul(x, w);
    return bias.valid() ? add(r, bias) : r;
  }
  Expr rows = 1;
  Sizes sizes = x.sizes();
  for (size_t d = 0; d + 1 < sizes.size(); ++d) rows = rows * sizes[d];
  Tensor flat = reshape(x, {rows, sizes.back()});
  Tensor r = !bias.valid() ? matmul2(flat, wt, t) : isComplex(t) ? add(matmul2(flat, wt, t), bias) : addProduct(bias, flat, wt, 1, 1, t);
  sizes.back() = w.sizes()[0];
  return reshape(r, sizes);
}

// ---- einsum
namespace {

/// An einsum of operands whose dimensions have letters. Products are taken from left to right; a letter that nothing
/// needs any more is summed away.
class Einsum {
public:
  /// False where the equation does not fit the operands.
  bool read(const std::string &equation, Tensors operands) {
    xs_ = std::move(operands);
    if (!split(equation)) return false;
    for (size_t k = 0; k < terms_.size(); ++k)
      if (!takeDiagonals(k)) return false;
    return true;
  }

  Tensor compute() {
    type_ = resultType(xs_);
    Tensor acc = cast(xs_[0], type_);
    std::string letters = terms_[0];
    sumAway(acc, letters, neededFrom(1));
    for (size_t k = 1; k < terms_.size(); ++k) multiply(acc, letters, k);
    if (terms_.size() > 1) sumAway(acc, letters, outs_);
    std::vector<int> order;
    for (char ch : outs_) order.push_back(static_cast<int>(letters.find(ch)));
    return permute(acc, order);
  }

private:
  static bool has(const std::string &letters, char ch) { return letters.find(ch) != std::string::npos; }

  /// Terms and result of the equation, ellipses written out: one stands for as many dims as remain, which get letters of
  /// their own ('\1', '\2', … from the right).
  bool split(const std::string &equation) {
    std::string s;
    for (char ch : equation)
      if (ch != ' ') s += ch;
    const size_t arrow = s.find("->");
    terms_.emplace_back();
    for (char ch : s.substr(0, arrow)) {
      if (ch == ',')
        terms_.emplace_back();
      else
        terms_.back() += ch;
    }
    if (terms_.size() != xs_.size()) return false;
    size_t dots = 0;
    for (size_t k = 0; k < terms_.size(); ++k)
      if (terms_[k].find("...") != std::string::npos && terms_[k].size() > xs_[k].sizes().size() + 3) return false;
    for (size_t k = 0; k < terms_.size(); ++k) dots = std::max(dots, writeOutDots(terms_[k], dotsOf(k)));
    if (arrow == std::string::npos) {
      outs_ = impliedResult(dots);
    } else {
      outs_ = s.substr(arrow + 2);
      writeOutDots(outs_, dots);
    }
    return true;
  }

  /// Dims that the ellipsis of a term stands for; 0 without one.
  size_t dotsOf(size_t k) const {
    return terms_[k].find("...") == std::string::npos ? 0 : xs_[k].sizes().size() - (terms_[k].size() - 3);
  }
  static size_t writeOutDots(std::string &term, size_t dims) {
    size_t at = term.find("...");
    if (at == std::string::npos) return 0;
    std::string letters;
    for (size_t k = dims; k > 0; --k) letters += static_cast<char>(k);
    term.replace(at, 3, letters);
    return dims;
  }
  /// What an equation without "->" gives: the dims of ellipses, then the letters that stand once, sorted.
  std::string impliedResult(size_t dots) const {
    std::map<char, int> count;
    for (const std::string &t : terms_)
      for (char ch : t) ++count[ch];
    std::string out;
    for (size_t k = dots; k > 0; --k) out += static_cast<char>(k);
    for (auto [ch, n] : count)
      if (n == 1 && ch > 32) out += ch;
    return out;
  }

  /// A letter that stands twice in a term takes the diagonal. Notes the extents of the term's letters.
  bool takeDiagonals(size_t k) {
    const std::string term = terms_[k];
    if (term.size() != xs_[k].sizes().size()) return false;
    std::string unique;
    Sizes sizes;
    for (char ch : term)
      if (!has(unique, ch)) unique += ch, sizes.push_back(xs_[k].sizes()[term.find(ch)]);
    if (unique.size() != term.size()) {
      xs_[k] = remap(xs_[k], sizes, [term, unique](const Index &i) {
        Index j;
        for (char ch : term) j.push_back(i[unique.find(ch)]);
        return j;
      });
      terms_[k] = unique;
    }
    for (size_t d = 0; d < unique.size(); ++d) {
      Expr &e = extent_.try_emplace(unique[d], Expr(1)).first->second;
      if (e.isConst(1)) e = xs_[k].sizes()[d];
    }
    return true;
  }

  /// Letters of the result and of the terms from the k-th on.
  std::string neededFrom(size_t k) const {
    std::string out = outs_;
    for (; k < terms_.size(); ++k) out += terms_[k];
    return out;
  }

  void sumAway(Tensor &x, std::string &letters, const std::string &needed) const {
    Dims gone;
    std::string kept;
    bool sums = false;
    for (size_t d = 0; d < letters.size(); ++d) {
      if (has(needed, letters[d])) {
        kept += letters[d];
        continue;
      }
      gone.push_back(static_cast<int64_t>(d));
      // Of several operands' dims PyTorch sums those alone that have more than one element.
      sums |= terms_.size() == 1 || !x.size(static_cast<int64_t>(d)).isConst(1);
    }
    // Its sum of whole numbers has 64 bits; its matrix product has its operands'.
    if (!gone.empty()) x = sum(x, gone, false, sums && !isFloat(type_) && !isComplex(type_) ? DType::I64 : x.dtype());
    letters = kept;
  }

  Sizes sizesOf(const std::string &letters) {
    Sizes out;
    for (char ch : letters) out.push_back(extent_[ch]);
    return out;
  }
  /// x with its dims in the order of `want`; of size one where it has none.
  Tensor arrange(const Tensor &x, const std::string &have, const std::string &want) {
    Sizes sizes;
    for (char ch : want) sizes.push_back(has(have, ch) ? extent_[ch] : Expr(1));
    Sizes own = x.sizes();
    return remap(x, sizes, [have, want, own](const Index &i) {
      Index j(have.size());
      for (size_t d = 0; d < have.size(); ++d) j[d] = own[d].isConst(1) ? Expr(0) : i[want.find(have[d])];
      return j;
    });
  }
  Tensor whole(const Tensor &x, const std::string &have, const std::string &want) {
    return broadcastTo(arrange(x, have, want), sizesOf(want));
  }

  /// acc = acc times operand k, by a batched product over the letters that both have and nothing needs later.
  void multiply(Tensor &acc, std::string &letters, size_t k) {
    const std::string later = neededFrom(k + 1);
    Tensor y = cast(xs_[k], type_);
    std::string own = terms_[k], batch, m, n, reduced;
    sumAway(y, own, later + letters);
    for (char ch : letters) (has(own, ch) ? (has(later, ch) ? batch : reduced) : m) += ch;
    for (char ch : own)
      if (!has(letters, ch)) n += ch;
    if (reduced.empty()) {
      Sizes sizes = sizesOf(batch + m);
      sizes.insert(sizes.end(), n.size(), Expr(1));
      acc = mul(reshape(whole(acc, letters, batch + m), sizes), arrange(y, own, batch + m + n));
    } else {
      Expr b = product(sizesOf(batch)), rows = product(sizesOf(m)), columns = product(sizesOf(n)),
           depth = product(sizesOf(reduced));
      Tensor left = reshape(whole(acc, letters, batch + m + reduced), {b, rows, depth}),
             right = reshape(whole(y, own, batch + reduced + n), {b, depth, columns});
      acc = reshape(matmul2(left, right, type_), sizesOf(batch + m + n));
    }
    letters = batch + m + n;
  }

  Tensors xs_;
  std::vector<std::string> terms_;
  std::string outs_;
  std::map<char, Expr> extent_;
  DType type_ = DType::F32;
};

} // namespace

static Tensors einsumOp(OpCall &o) {
  Einsum einsum;
  if (!einsum.read(o.text("equation"), o.list("tensors"))) return o.fail("the equation does not fit the operands");
  return {einsum.compute()};
}

static Tensors tensordotOp(OpCall &o) {
  Tensor a = o.t("self"), b = o.t("other");
  Dims da = o.ints("dims_self"), db = o.ints("dims_other");
  std::vector<int> pa, pb;
  // A contracted dim of size one stands for all of its partner's.
  for (size_t k = 0; k < da.size(); ++k) {
    int64_t p = da[k] < 0 ? da[k] + a.rank() : da[k], q = db[k] < 0 ? db[k] + b.rank() : db[k];
    if (a.size(p).isConst(1) && !b.size(q).isConst(1))
      b = sum(b, {q}, true, b.dtype());
    else if (b.size(q).isConst(1) && !a.size(p).isConst(1))
      a = sum(a, {p}, true, a.dtype());
  }
  Sizes outSizes;
  auto in = [](const Dims &ds, int64_t d, int64_t rank) {
    for (int64_t x : ds)
      if ((x < 0 ? x + rank : x) == d) return true;
    return false;
  };
  Expr m = 1, n = 1, k = 1;
  for (int64_t d = 0; d < a.rank(); ++d)
    if (!in(da, d, a.rank())) pa.push_back(static_cast<int>(d)), m = m * a.size(d);
  for (int64_t d : da) pa.push_back(static_cast<int>(d < 0 ? d + a.rank() : d)), k = k * a.size(d);
  for (int64_t d : db) pb.push_back(static_cast<int>(d < 0 ? d + b.rank() : d));
  for (int64_t d = 0; d < b.rank(); ++d)
    if (!in(db, d, b.rank())) pb.push_back(static_cast<int>(d)), n = n * b.size(d);
  Tensor r = matmul2(reshape(permute(a, pa), {m, k}), reshape(permute(b, pb), {k, n}), o.out().dtype);
  return {reshape(r, o.out().sizes)};
}

static Tensor identityLike(const Tensor &x) {
  const DType part = toReal(x.dtype()), t = computeType(part);
  return cast(Tensor::lazy(x.ctx(), part, x.sizes(), [t](BodyBuilder &b, const Index &i) { return b.cast(b.compare(OpKind::Eq, i[i.size() - 2], i.back()), t); }),
              x.dtype());
}

/// By scaling and squaring: exp(x) = exp(x / 2^s)^(2^s), with s such that the 1-norm of x / 2^s is at most 1/2.
/// Eighteen terms of Taylor's series leave less than 2e-22 there. In double precision: each squaring doubles what rounding did.
static Tensors matrixExp(OpCall &o) {
  constexpr int kTerms = 18, kSquarings = 24;
  const Tensor given = o.t("self");
  if (isReducedFloat(given.dtype())) return o.fail("PyTorch has no numbers for it in bfloat16 and float16");
  const DType part = DType::F64, acc = given.isComplex() ? DType::C128 : part;
  const Tensor x = cast(given, acc);
  Tensor norm = amax(sum(lengths(x), {-2}, true, part), {-1}, true);
  Tensor halvings = map(norm, [](Val n) {
                      Val s = un(OpKind::Ceil, un(OpKind::Log2, n)) + 1.0;
                      return vmin(vmax(where(n > 0.0, s, num(s, 0)), num(s, 0)), num(s, kSquarings));
                    }).realize();
  Tensor y = div(x, unary(halvings, OpKind::Exp2)).realize(), one = identityLike(y);
  one = cast(one, acc);
  // Horner: 1 + y (1 + y/2 (1 + y/3 (...))).
  Tensor r = one;
  for (int k = kTerms; k >= 1; --k) r = add(one, mulNumber(matmul(y, r), 1.0 / k)).realize();
  for (int k = 0; k < kSquarings; ++k) {
    Tensor more = binary(OpKind::Gt, halvings, scalarFloat(o.ctx, k));
    r = where(more, matmul(r, r), r).realize();
  }
  return {cast(r, given.dtype())};
}

/// What a bilinear layer decomposes to: the sum over some dims of the product of three tensors, each with dims of size
/// one put in.
static Tensors trilinear(OpCall &o) {
  Tensor all;
  for (const char *k : {"1", "2", "3"}) {
    Tensor x = o.t(std::string("i") + k);
    Dims dims = o.ints(std::string("expand") + k);
    std::sort(dims.begin(), dims.end());
    for (int64_t d : dims) x = unsqueeze(x, d);
    all = all.valid() ? mul(all, x) : x;
  }
  return {sum(all, o.ints("sumdim"), false, o.out().dtype)};
}

/// What the operators of addmm's kind add to: the product of two operands, whose names tell of which kind it is.
static Tensor productOf(OpCall &o) {
  const DType out = o.out().dtype;
  if (o.has("mat1")) return matmul2(o.t("mat1"), o.t("mat2"), out);
  if (o.has("mat")) return squeeze(matmul2(o.t("mat"), unsqueeze(o.t("vec"), 1), out), 1);
  if (o.has("vec1")) return mul(cast(unsqueeze(o.t("vec1"), 1), out), unsqueeze(o.t("vec2"), 0));
  const Tensor all = matmul2(o.t("batch1"), o.t("batch2"), out);
  return o.node.target == "aten.addbmm.default" ? sum(all, {0}, false, out) : all;
}

static void addProducts(OpTable &t) {
  t.add("_trilinear.default", trilinear);
  t.add("mm.default bmm.default mm.dtype bmm.dtype", [](OpCall &o) -> Tensors {
    return {matmul2(o.t("self"), o.t("mat2"), o.out().dtype)};
  });
  t.add("matmul.default __rmatmul__.default linalg_matmul.default mv.default dot.default inner.default vdot.default "
        "linalg_vecdot.default",
        [](OpCall &o) -> Tensors {
          if (o.node.target == "aten.linalg_vecdot.default") {
            Tensor x = o.t("x"), y = o.t("y");
            if (x.isComplex()) x = Tensor::complex(x.real(), neg(x.imag()), x.dtype());
            return {sum(mul(x, y), {o.integer("dim", -1)}, false, o.out().dtype)};
          }
          Tensor a = o.t("self"), b = o.t(o.has("other") ? "other" : o.has("vec") ? "vec" : "tensor");
          if (o.node.target == "aten.vdot.default" && a.isComplex())
            a = Tensor::complex(a.real(), neg(a.imag()), a.dtype());
          if (o.node.target == "aten.inner.default") {
            if (a.rank() == 0 || b.rank() == 0) return {mul(a, b)};
            const Expr m = vectorsOf(a), n = vectorsOf(b);
            Tensor r =
                matmul2(reshape(a, {m, a.size(-1)}), transpose(reshape(b, {n, b.size(-1)}), 0, 1), o.out().dtype);
            return {reshape(r, o.out().sizes)};
          }
          return {matmul(a, b)};
        });
  t.add("addmm.default addmm.dtype addmv.default addbmm.default baddbmm.default baddbmm.dtype addr.default", [](OpCall &o) -> Tensors {
    const std::string &n = o.node.target;
    Tensor c = o.t("self");
    DType out = o.out().dtype;
    if (isComplex(out)) return {addComplexProduct(o, productOf(o))};
    double alpha = o.number("alpha", 1), beta = o.number("beta", 1);
    if (n.starts_with("aten.addmm.")) return {addProduct(c, o.t("mat1"), o.t("mat2"), alpha, beta, out)};
    if (n.starts_with("aten.baddbmm.")) return {addProduct(c, o.t("batch1"), o.t("batch2"), alpha, beta, out)};
    if (n == "aten.addmv.default") {
      Tensor r =
          addProduct(c.rank() == 1 ? unsqueeze(c, 1) : c, o.t("mat"), unsqueeze(o.t("vec"), 1), alpha, beta, out);
      return {squeeze(r, 1)};
    }
    if (n == "aten.addbmm.default") {
      Tensor a = o.t("batch1"), b = o.t("batch2");
      Tensor a2 = reshape(permute(a, {1, 0, 2}), {a.size(1), a.size(0) * a.size(2)});
      return {addProduct(c, a2, reshape(b, {b.size(0) * b.size(1), b.size(2)}), alpha, beta, out)};
    }
    Tensor a = unsqueeze(o.t("vec1"), 1), b = unsqueeze(o.t("vec2"), 0);
    Tensor p = mul(a, b);
    if (out == DType::Bool)
      return {alpha == 0  ? broadcastTo(c, o.out().sizes)
              : beta == 0 ? p
                          : binary(OpKind::Or, broadcastTo(c, o.out().sizes), p)};
    if (alpha != 1) p = mulNumber(cast(p, out), alpha);
    if (beta == 0) return {p};
    return {add(cast(p, out), beta == 1 ? c : mulNumber(cast(c, out), beta))};
  });
  t.add("linear.default", [](OpCall &o) -> Tensors { return {linear(o.t("input"), o.t("weight"), o.opt("bias"))}; });
}

static void addContractions(OpTable &t) {
  t.add("einsum.default", einsumOp);
  t.add("tensordot.default", tensordotOp);
  t.add("outer.default ger.default",
        [](OpCall &o) -> Tensors { return {mul(unsqueeze(o.t("self"), 1), unsqueeze(o.t("vec2"), 0))}; });
  t.add("kron.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other");
    while (a.rank() < b.rank()) a = unsqueeze(a, 0);
    while (b.rank() < a.rank()) b = unsqueeze(b, 0);
    Sizes bs = b.sizes();
    auto outer = [bs](const Index &i) {
      Index j;
      for (size_t d = 0; d < i.size(); ++d) j.push_back(bs[d].isConst(1) ? i[d] : floorDiv(i[d], bs[d]));
      return j;
    };
    auto inner = [bs](const Index &i) {
      Index j;
      for (size_t d = 0; d < i.size(); ++d) j.push_back(bs[d].isConst(1) ? Expr(0) : mod(i[d], bs[d]));
      return j;
    };
    return {mul(remap(a, o.out().sizes, outer), remap(b, o.out().sizes, inner))};
  });
  t.add("linalg_multi_dot.default chain_matmul.default", [](OpCall &o) -> Tensors {
    Tensors xs = o.list(o.has("tensors") ? "tensors" : "matrices");
    Tensor r = xs[0];
    for (size_t k = 1; k < xs.size(); ++k) r = matmul(r, xs[k]);
    return {r};
  });
  t.add("linalg_matrix_power.default matrix_power.default", [](OpCall &o) -> Tensors {
    int64_t n = o.integer("n");
    Tensor x = o.t("self"), r;
    if (n < 0) {
      if (std::string why = anySizeFault(x); !why.empty()) return o.fail(why);
      x = solveMatrix(x, identityMatrix(x, x.size(-2), x.size(-1)));
      n = -n;
    }
    for (int64_t left = n; left > 0; left >>= 1, x = left > 0 ? matmul(x, x) : x)
      if (left & 1) r = r.valid() ? matmul(r, x) : x;
    return {r.valid() ? r : identityLike(x)};
  });
  t.add("matrix_exp.default linalg_matrix_exp.default", matrixExp);
}

void addMatmul(OpTable &t) {
  t.family(OnComplex::Own);
  addProducts(t);
  addContractions(t);
  t.add("_int_mm.default", [](OpCall &o) -> Tensors {
    return {matmul2(o.t("self"), o.t("mat2"), DType::I32)};
  });
  t.add("cross.default linalg_cross.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other"), xs[] = {a, b};
    Sizes s = broadcastSizes(xs);
    a = broadcastTo(a, s);
    b = broadcastTo(b, s);
    int64_t d = o.integer("dim", -1);
    if (!o.has("dim") && o.node.target == "aten.cross.default")
      for (int64_t k = a.rank(); k-- > 0;)
        if (a.size(k).isConst(3)) d = k;
    auto at = [&](const Tensor &x, int64_t k) { return slice(x, d, k, 1); };
    Tensors parts;
    for (int64_t k = 0; k < 3; ++k) {
      int64_t p = (k + 1) % 3, q = (k + 2) % 3;
      parts.push_back(sub(mul(at(a, p), at(b, q)), mul(at(a, q), at(b, p))));
    }
    return {concat(parts, d)};
  });
}

} // namespace neso::lower
