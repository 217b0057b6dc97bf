#include "ir/loops/order.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/fault.h"

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

void addOnce(std::vector<std::string> &names, const std::string &name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

void copyAll(const ElementOrder &order, int64_t item, const uint8_t *from, uint8_t *to) {
  for (const ElementOrder::Piece &piece : order.pieces) copyElements(piece, item, from, to);
}

} // namespace

void copyElements(const ElementOrder::Piece &piece, int64_t itemBytes, const uint8_t *from, uint8_t *to) {
  switch (itemBytes) {
  case 1: return copyPiece<uint8_t>(piece, from, to);
  case 2: return copyPiece<uint16_t>(piece, from, to);
  case 4: return copyPiece<uint32_t>(piece, from, to);
  case 8: return copyPiece<uint64_t>(piece, from, to);
  default: return copyPiece<Wide>(piece, from, to);
  }
}

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

void Constant::addSources(std::vector<std::string> &names) const {
  for (const ModelTensor &t : tensors) addOnce(names, t.fqn);
  for (const std::string &name : foldedFrom) addOnce(names, name);
}

void reorder(Constant &c, const ElementOrder &order, DType dtype) {
  const int64_t item = itemSize(dtype);
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(order.elements * item), uint8_t{0});
  copyAll(order, item, c.data, bytes->data());
  if (c.orders.empty()) c.sourceElements = c.bytes / itemSize(c.dtype);
  if (dtype == c.dtype && order.pieces.size() <= kMostPieces) {
    c.orders.push_back(order);
  } else {
    c.addSources(c.foldedFrom);
    c.tensors.clear(), c.orders.clear();
  }
  c.data = bytes->data(), c.bytes = static_cast<int64_t>(bytes->size()), c.fileOffset = -1, c.owner = bytes;
}

void makeOf(Constant &c, std::vector<uint8_t> source) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(std::move(source));
  for (const ElementOrder &order : c.orders) {
    auto next = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(order.elements * itemSize(c.dtype)), uint8_t{0});
    copyAll(order, itemSize(c.dtype), bytes->data(), next->data());
    bytes = std::move(next);
  }
  NESO_CHECK(static_cast<int64_t>(bytes->size()) == c.bytes, "a constant is as large as its orders make it");
  c.data = bytes->data(), c.owner = bytes;
}

std::optional<Constant> sideBySide(std::span<const RowsOf> parts) {
  const Constant &first = *parts[0].constant;
  const int64_t item = itemSize(first.dtype), rows = first.bytes / item / std::max<int64_t>(parts[0].width, 1);
  Constant out;
  out.fqn = first.fqn, out.dtype = first.dtype, out.isBuffer = first.isBuffer;
  int64_t width = 0, elements = 0, source = 0;
  size_t levels = 0;
  for (const RowsOf &part : parts) {
    const Constant &c = *part.constant;
    NESO_CHECK(c.dtype == out.dtype && c.bytes == rows * part.width * item, "constants side by side have as many rows");
    for (Constant::ModelTensor t : c.tensors) t.offset += source, out.tensors.push_back(std::move(t));
    for (const std::string &name : c.foldedFrom) addOnce(out.foldedFrom, name);
    width += part.width, elements += c.bytes / item, source += c.orders.empty() ? c.bytes / item : c.sourceElements;
    levels = std::max(levels, c.orders.size());
  }
  // One after the other, each in its own order.
  for (size_t level = 0; level < levels; ++level) {
    ElementOrder order;
    int64_t from = 0;
    for (const RowsOf &part : parts) {
      const Constant &c = *part.constant;
      const int64_t before = c.orders.empty() ? c.bytes / item : level == 0 ? c.sourceElements : c.orders[std::min(level, c.orders.size()) - 1].elements;
      if (level < c.orders.size()) {
        for (ElementOrder::Piece piece : c.orders[level].pieces)
          piece.to += order.elements, piece.from += from, order.pieces.push_back(std::move(piece));
        order.elements += c.orders[level].elements;
      } else {
        order.pieces.push_back({{before}, {1}, {1}, order.elements, from});
        order.elements += before;
      }
      from += before;
    }
    out.orders.push_back(std::move(order));
  }
  ElementOrder beside{elements, {}};
  int64_t at = 0, from = 0;
  for (const RowsOf &part : parts) {
    beside.pieces.push_back({{rows, part.width}, {width, 1}, {part.width, 1}, at, from});
    at += part.width, from += rows * part.width;
  }
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(elements * item));
  at = 0;
  for (const RowsOf &part : parts) {
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(bytes->data() + (row * width + at) * item, part.constant->data + row * part.width * item, static_cast<size_t>(part.width * item));
    at += part.width;
  }
  if (rows > 1) out.orders.push_back(std::move(beside));
  for (const ElementOrder &order : out.orders)
    if (order.pieces.size() > kMostPieces) return std::nullopt;
  if (!out.orders.empty()) out.sourceElements = source;
  out.data = bytes->data(), out.bytes = static_cast<int64_t>(bytes->size()), out.owner = bytes;
  return out;
}

void reorderFourBits(Constant &c, const ElementOrder &order) {
  const bool stays = order.elements == c.bytes * 2 &&
                     std::all_of(order.pieces.begin(), order.pieces.end(), [](const ElementOrder::Piece &p) {
                       return p.to == p.from && p.toStrides == p.fromStrides;
                     });
  if (stays) return;
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>((order.elements + 1) / 2), uint8_t{0});
  for (const ElementOrder::Piece &piece : order.pieces) copyFourBits(piece, c.data, bytes->data());
  c.addSources(c.foldedFrom);
  c.tensors.clear(), c.orders.clear();
  c.data = bytes->data(), c.bytes = static_cast<int64_t>(bytes->size()), c.fileOffset = -1, c.owner = bytes;
}

} // namespace neso::loops
