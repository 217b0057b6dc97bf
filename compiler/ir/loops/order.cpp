#include "ir/loops/order.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace neso::loops {

namespace {

/// More would make the plan large; orders of real weights have a handful.
constexpr size_t kMostPieces = 4096;

struct Run {
  int64_t position, count, first, step;
};

/// The offsets as runs of even spacing.
std::vector<Run> runsOf(const std::vector<int64_t> &offsets) {
  std::vector<Run> runs;
  for (size_t p = 0; p < offsets.size(); ++p) {
    if (!runs.empty()) {
      Run &last = runs.back();
      if (last.count == 1) last.step = offsets[p] - last.first;
      if (offsets[p] == last.first + last.count * last.step) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({static_cast<int64_t>(p), 1, offsets[p], 0});
  }
  return runs;
}

/// f(to, from, count, step of to, step of from) for each run of elements along the piece's last dimension.
template <typename F> void forEachRun(const ElementOrder::Piece &piece, F &&f) {
  int64_t source = piece.from, target = piece.to;
  const size_t rank = piece.sizes.size();
  if (std::find(piece.sizes.begin(), piece.sizes.end(), 0) != piece.sizes.end()) return;
  const int64_t inner = rank ? piece.sizes.back() : 1, toStep = rank ? piece.toStrides.back() : 0,
                fromStep = rank ? piece.fromStrides.back() : 0;
  std::vector<int64_t> at(rank, 0);
  for (;;) {
    f(target, source, inner, toStep, fromStep);
    size_t d = rank ? rank - 1 : 0;
    for (; d-- > 0;) {
      source += piece.fromStrides[d], target += piece.toStrides[d];
      if (++at[d] < piece.sizes[d]) break;
      source -= at[d] * piece.fromStrides[d], target -= at[d] * piece.toStrides[d];
      at[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

template <typename T> void copyPiece(const ElementOrder::Piece &piece, const uint8_t *from, uint8_t *to) {
  forEachRun(piece, [&](int64_t target, int64_t source, int64_t count, int64_t toStep, int64_t fromStep) {
    const T *s = reinterpret_cast<const T *>(from) + source;
    T *t = reinterpret_cast<T *>(to) + target;
    for (int64_t i = 0; i < count; ++i) t[i * toStep] = s[i * fromStep];
  });
}

/// `to` is of zeros.
void copyFourBits(const ElementOrder::Piece &piece, const uint8_t *from, uint8_t *to) {
  forEachRun(piece, [&](int64_t t, int64_t s, int64_t count, int64_t toStep, int64_t fromStep) {
    for (int64_t i = 0; i < count; ++i, t += toStep, s += fromStep)
      to[t / 2] = static_cast<uint8_t>(to[t / 2] | (from[s / 2] >> (s % 2 * 4) & 15) << (t % 2 * 4));
  });
}

struct Wide {
  uint64_t parts[2];
};

void copyAll(const ElementOrder &order, int64_t item, const uint8_t *from, uint8_t *to) {
  for (const ElementOrder::Piece &piece : order.pieces) switch (item) {
    case 1: copyPiece<uint8_t>(piece, from, to); break;
    case 2: copyPiece<uint16_t>(piece, from, to); break;
    case 4: copyPiece<uint32_t>(piece, from, to); break;
    case 8: copyPiece<uint64_t>(piece, from, to); break;
    default: copyPiece<Wide>(piece, from, to); break;
    }
}

} // namespace

Axis plainAxis(const std::vector<int64_t> &offsets, int64_t stride) {
  Axis axis;
  for (const Run &r : runsOf(offsets)) axis.push_back({r.position * stride, r.first, {{r.count, stride, r.step}}});
  return axis;
}

Axis blockedAxis(const std::vector<int64_t> &offsets, int64_t block, int64_t blockStride, int64_t stride) {
  Axis axis;
  for (const Run &r : runsOf(offsets)) {
    auto add = [&](int64_t done, int64_t blocks, int64_t width) {
      const int64_t p = r.position + done;
      if (blocks && width)
        axis.push_back({p / block * blockStride + p % block * stride,
                        r.first + done * r.step,
                        {{blocks, blockStride, block * r.step}, {width, stride, r.step}}});
    };
    // Up to the next block, whole blocks, the rest.
    const int64_t head = std::min(r.count, (block - r.position % block) % block), whole = (r.count - head) / block;
    add(0, 1, head);
    add(head, whole, block);
    add(head + whole * block, 1, r.count - head - whole * block);
  }
  return axis;
}

ElementOrder elementOrder(const std::vector<Axis> &axes, int64_t base, int64_t elements) {
  Axis all{{0, base, {}}};
  for (const Axis &axis : axes) {
    Axis next;
    for (const AxisPart &before : all)
      for (const AxisPart &part : axis) {
        AxisPart both{before.to + part.to, before.from + part.from, before.dims};
        both.dims.insert(both.dims.end(), part.dims.begin(), part.dims.end());
        next.push_back(std::move(both));
      }
    all = std::move(next);
  }
  ElementOrder order{elements, {}};
  for (AxisPart &part : all) {
    std::stable_sort(part.dims.begin(), part.dims.end(), [](const auto &a, const auto &b) { return a.to > b.to; });
    ElementOrder::Piece piece;
    piece.to = part.to, piece.from = part.from;
    for (const AxisPart::Dim &d : part.dims)
      if (d.size != 1)
        piece.sizes.push_back(d.size), piece.toStrides.push_back(d.to), piece.fromStrides.push_back(d.from);
    order.pieces.push_back(std::move(piece));
  }
  return order;
}

void reorder(Constant &c, const ElementOrder &order, DType dtype) {
  const int64_t item = itemSize(dtype);
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(order.elements * item), uint8_t{0});
  copyAll(order, item, c.data, bytes->data());
  if (c.orders.empty()) c.sourceElements = c.bytes / itemSize(c.dtype);
  if (dtype == c.dtype && order.pieces.size() <= kMostPieces) {
    c.orders.push_back(order);
  } else {
    for (const Constant::ModelTensor &t : c.tensors) c.foldedFrom.push_back(t.fqn);
    c.tensors.clear(), c.orders.clear();
  }
  c.data = bytes->data(), c.bytes = static_cast<int64_t>(bytes->size()), c.fileOffset = -1, c.owner = bytes;
}

void reorderFourBits(Constant &c, const ElementOrder &order) {
  const bool stays = order.elements == c.bytes * 2 &&
                     std::all_of(order.pieces.begin(), order.pieces.end(), [](const ElementOrder::Piece &p) {
                       return p.to == p.from && p.toStrides == p.fromStrides;
                     });
  if (stays) return;
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>((order.elements + 1) / 2), uint8_t{0});
  for (const ElementOrder::Piece &piece : order.pieces) copyFourBits(piece, c.data, bytes->data());
  for (const Constant::ModelTensor &t : c.tensors) c.foldedFrom.push_back(t.fqn);
  c.tensors.clear(), c.orders.clear();
  c.data = bytes->data(), c.bytes = static_cast<int64_t>(bytes->size()), c.fileOffset = -1, c.owner = bytes;
}

} // namespace neso::loops
