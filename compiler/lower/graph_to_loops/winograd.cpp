#include "lower/graph_to_loops/winograd.h"

#include <array>
#include <cstring>

#include "base/rules.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {
namespace {

constexpr int64_t kTaps = 3, kTile = 2, kInputs = kTile + kTaps - 1;

/// With fewer outputs of an image the weights, which are larger, come from memory.
constexpr int64_t kLeastOutputs = 100;
/// What a tile saves is in proportion to I O, what its transforms take to I + O: where I O / (I + O) is at least this it pays. Measured with AVX-512 on two cores:
/// what both transforms hold in a cache, 56 x 56 of 64 channels (32) gain a tenth, 28 x 28 of 128 (64) a third, 96 x 32 (24) nothing; behind it, 64 x 64 of 128 nothing.
constexpr int64_t kLeastInCache = 28, kLeastBehind = 72, kCachedBytes = 8 << 20;

/// A constant [O, I, 3, 3] of the model, as it lies in memory. (Lowering::fold interprets, of which a large layer would take seconds, and does not let constants grow.)
class Weights {
public:
  static std::optional<Weights> of(Lowering &ctx, const Tensor &w) {
    const std::optional<Strided> where = w.asStrided();
    if (!where || where->dtype != DType::F32 || !where->offset.isConst()) return std::nullopt;
    const loops::Buffer &buffer = ctx.program.buffer(where->buffer);
    if (buffer.kind != loops::Buffer::Kind::Constant || buffer.mutated) return std::nullopt;
    const loops::Constant &constant = ctx.program.constants[static_cast<size_t>(buffer.index)];
    Weights out;
    out.data_ = constant.data, out.offset_ = where->offset.constValue();
    for (size_t d = 0; d < 4; ++d) {
      if (!w.sizes()[d].isConst() || !where->strides[d].isConst()) return std::nullopt;
      out.sizes_[d] = w.sizes()[d].constValue(), out.strides_[d] = where->strides[d].constValue();
    }
    constant.addSources(out.names_);
    return out.data_ ? std::optional(out) : std::nullopt;
  }

  int64_t outputs() const { return sizes_[0]; }
  int64_t inputs() const { return sizes_[1]; }
  const std::vector<std::string> &names() const { return names_; }

  /// G g G^T for each pair of channels: [4, 4, I, O].
  std::vector<uint8_t> transformed() const {
    const int64_t pairs = inputs() * outputs();
    std::vector<uint8_t> bytes(static_cast<size_t>(kInputs * kInputs * pairs) * sizeof(float));
    float *to = reinterpret_cast<float *>(bytes.data());
    for (int64_t i = 0; i < inputs(); ++i)
      for (int64_t o = 0; o < outputs(); ++o) {
        std::array<std::array<double, kTaps>, kInputs> rows;
        for (int64_t b = 0; b < kTaps; ++b) {
          const std::array<double, kInputs> column = filtered(at(o, i, 0, b), at(o, i, 1, b), at(o, i, 2, b));
          for (size_t r = 0; r < column.size(); ++r) rows[r][static_cast<size_t>(b)] = column[r];
        }
        for (size_t r = 0; r < rows.size(); ++r) {
          const std::array<double, kInputs> row = filtered(rows[r][0], rows[r][1], rows[r][2]);
          for (size_t c = 0; c < row.size(); ++c) to[static_cast<int64_t>(r * row.size() + c) * pairs + i * outputs() + o] = static_cast<float>(row[c]);
        }
      }
    return bytes;
  }

private:
  double at(int64_t o, int64_t i, int64_t a, int64_t b) const {
    float v;
    const int64_t element = offset_ + o * strides_[0] + i * strides_[1] + a * strides_[2] + b * strides_[3];
    std::memcpy(&v, data_ + element * static_cast<int64_t>(sizeof v), sizeof v);
    return static_cast<double>(v);
  }
  /// G g.
  static std::array<double, kInputs> filtered(double a, double b, double c) { return {a, (a + b + c) / 2, (a - b + c) / 2, c}; }

  const uint8_t *data_ = nullptr;
  int64_t offset_ = 0;
  std::array<int64_t, 4> sizes_{}, strides_{};
  std::vector<std::string> names_;
};

bool pays(const Lowering &ctx, const Sizes &outSizes, int64_t inputs, int64_t outputs) {
  const Interval pixels = ctx.facts.rangeOf(outSizes[2] * outSizes[3]), tiles = ctx.facts.rangeOf(outSizes[0] * ceilDiv(outSizes[2], kTile) * ceilDiv(outSizes[3], kTile));
  const int64_t bytesOfTile = kInputs * kInputs * (inputs + outputs) * int64_t{sizeof(float)};
  const int64_t least = tiles.hi <= kCachedBytes / bytesOfTile ? kLeastInCache : kLeastBehind;
  return pixels.lo >= kLeastOutputs && inputs * outputs >= least * (inputs + outputs);
}

/// B^T d.
std::array<Val, kInputs> turned(const std::array<Val, kInputs> &d) { return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]}; }

/// Row a of A^T, (1 1 1 0) or (0 1 -1 1), of the sums that `at` gives.
Val combined(BodyBuilder &b, Expr a, const std::function<Val(Expr)> &at) {
  const Val one = b.constant(DType::F32, 1);
  return at(1) + where(b.compare(OpKind::Eq, a, 0), one, -one) * at(2) + at(a * (kInputs - 1));
}

} // namespace

std::optional<Tensor> convolveByWinograd(Lowering &ctx, const Tensor &x, const Tensor &w, const Tensor &bias, const Sizes &padding, const Sizes &outSizes) {
  const std::optional<Weights> weights = ctx.winograd != Winograd::Never && ctx.folds && ctx.reorders ? Weights::of(ctx, w) : std::nullopt;
  if (!weights || (ctx.winograd == Winograd::WherePays && !pays(ctx, outSizes, weights->inputs(), weights->outputs()))) return std::nullopt;
  applied(Rule::Winograd);

  const Expr inputs = weights->inputs(), outputs = weights->outputs();
  const Tensor u = ctx.addConstant(DType::F32, {kInputs, kInputs, inputs, outputs}, weights->transformed());
  ctx.program.constants.back().foldedFrom = weights->names();

  ContractionSpec spec;
  const Sizes tiles{outSizes[0], ceilDiv(outSizes[2], kTile), ceilDiv(outSizes[3], kTile)};
  spec.ranges = {kInputs, kInputs, tiles[0], tiles[1], tiles[2], outputs};
  spec.reduceRanges = {inputs};
  const Sizes sizes{kInputs, kInputs, tiles[0], tiles[1], tiles[2], inputs};
  const Tensor v = Tensor::strided(ctx, DType::F32, sizes, ctx.allocate(DType::F32, sizes));
  ctx.storeMany({tiles[0], tiles[1], tiles[2], inputs}, [&](BodyBuilder &b, const Index &i) {
    std::array<std::array<Val, kInputs>, kInputs> columns;
    for (int64_t c = 0; c < kInputs; ++c) {
      std::array<Val, kInputs> d;
      for (int64_t r = 0; r < kInputs; ++r) {
        const Expr h = kTile * i[1] + r - padding[0], w = kTile * i[2] + c - padding[1];
        const Val ok = b.inRange(h, 0, x.size(2)) && b.inRange(w, 0, x.size(3));
        d[static_cast<size_t>(r)] = b.masked(ok, [&] { return x.at(b, {i[0], i[3], h, w}); }, b.constant(DType::F32, 0));
      }
      columns[static_cast<size_t>(c)] = turned(d);
    }
    std::vector<Lowering::Placed> out;
    for (int64_t r = 0; r < kInputs; ++r) {
      std::array<Val, kInputs> row;
      for (size_t c = 0; c < row.size(); ++c) row[c] = columns[c][static_cast<size_t>(r)];
      row = turned(row);
      for (int64_t c = 0; c < kInputs; ++c) out.push_back({v, {r, c, i[0], i[1], i[2], i[3]}, row[static_cast<size_t>(c)]});
    }
    return out;
  });
  spec.lhs = [v](BodyBuilder &b, const Index &i, const Index &r) {
    Index at(i.begin(), i.end() - 1);
    at.push_back(r[0]);
    return v.at(b, at);
  };
  spec.rhs = [u](BodyBuilder &b, const Index &i, const Index &r) { return u.at(b, {i[0], i[1], r[0], i[5]}); };
  const Tensor m = ctx.contract(spec);

  return Tensor::lazy(ctx, DType::F32, outSizes,
                      [m, bias](BodyBuilder &b, const Index &i) {
                        auto sum = [&](Expr row, Expr column) { return m.at(b, {row, column, i[0], floorDiv(i[2], kTile), floorDiv(i[3], kTile), i[1]}); };
                        auto across = [&](Expr row) { return combined(b, mod(i[3], kTile), [&](Expr column) { return sum(row, column); }); };
                        const Val y = combined(b, mod(i[2], kTile), across);
                        return bias.valid() ? y + b.cast(bias.at(b, {i[1]}), DType::F32) : y;
                      })
      .withOrder({0, 2, 3, 1})
      .realize();
}

} // namespace neso::lower
