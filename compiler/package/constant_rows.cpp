#include "package/constant_rows.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "abi/archive.h"

namespace neso {
namespace {
using flatbuffers::Offset;

std::string hashText(const uint8_t *data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}
} // namespace

Offset<fbs::ElementOrder> ConstantRows::order(const loops::ElementOrder &order) {
  std::vector<Offset<fbs::OrderPiece>> pieces;
  for (const loops::ElementOrder::Piece &p : order.pieces)
    pieces.push_back(fbs::CreateOrderPiece(rows_.fb, rows_.fb.CreateVector(p.sizes), rows_.fb.CreateVector(p.toStrides),
                                           rows_.fb.CreateVector(p.fromStrides), p.to, p.from));
  return fbs::CreateElementOrder(rows_.fb, order.elements, rows_.fb.CreateVector(pieces));
}

bool ConstantRows::isMutated(const loops::Constant &c) const {
  return std::any_of(contents_.plan->program.buffers.begin(), contents_.plan->program.buffers.end(), [&](const auto &b) {
    return b.kind == loops::Buffer::Kind::Constant && b.mutated &&
           &contents_.plan->program.constants[static_cast<size_t>(b.index)] == &c;
  });
}

/// Whether tensors of the model, one behind the other, are all that the constant's bytes were made of.
bool ConstantRows::isOfTensors(const loops::Constant &c) {
  if (!c.foldedFrom.empty()) return false;
  const int64_t elements = c.orders.empty() ? c.bytes / itemSize(c.dtype) : c.sourceElements;
  // Where those end that begin at an element.
  std::map<int64_t, int64_t> ends;
  for (const loops::Constant::ModelTensor &t : c.tensors) {
    int64_t dense = 1;
    bool inRow = !t.fqn.empty();
    for (size_t d = t.sizes.size(); d-- > 0; dense *= t.sizes[d]) inRow &= t.sizes[d] == 1 || t.strides[d] == dense;
    if (inRow) ends[t.offset] = std::max(ends[t.offset], t.offset + dense);
  }
  int64_t end = 0;
  for (auto [begin, behind] : ends)
    if (begin <= end) end = std::max(end, behind);
  return end == elements;
}

/// The member that holds the constant's bytes; nullptr: the caller of the runtime gives them.
const std::string *ConstantRows::memberOf(const loops::Constant &c, bool mutated) {
  const WeightPlace::Kind place = contents_.weights.kind;
  if (place == WeightPlace::None && !mutated && c.bytes > 0 && isOfTensors(c)) return nullptr;
  const bool beside = place == WeightPlace::File && !mutated && !c.fqn.empty() && c.bytes > 0;
  auto [it, added] = memberOf_.try_emplace({c.data, c.bytes, beside}, nullptr);
  if (!added) return it->second;
  std::deque<WeightMember> &members = beside ? beside_ : inside_;
  std::string &hash = hashes_[{c.data, c.bytes}];
  if (beside && hash.empty()) hash = hashText(c.data, static_cast<size_t>(c.bytes));
  const std::string name = NESO_ARCHIVE_WEIGHT_FOLDER + (beside ? hash : fmt::format("weight_{}", members.size()));
  // Equal bytes in two places are one member of a file of weights.
  if (beside)
    for (const WeightMember &m : members)
      if (m.name == name) return it->second = &m.name;
  members.push_back({name, c.data, static_cast<size_t>(c.bytes)});
  return it->second = &members.back().name;
}

Offset<fbs::Constant> ConstantRows::constant(size_t number, const loops::Constant &c) {
  if (c.bytes > 0 && !c.data) rows_.note(fmt::format("constant '{}' has no bytes", c.fqn));
  const auto kind = c.isBuffer      ? fbs::ConstantKind::Buffer
                    : c.fqn.empty() ? fbs::ConstantKind::Folded
                                    : fbs::ConstantKind::Parameter;
  // As a whole it is what its first tensor is, if that begins with it; else a row of elements.
  const bool whole = !c.tensors.empty() && c.orders.empty() && c.tensors[0].offset == 0;
  std::vector<Offset<fbs::ModelTensor>> tensors;
  for (const loops::Constant::ModelTensor &t : c.tensors)
    tensors.push_back(fbs::CreateModelTensor(rows_.fb, rows_.fb.CreateString(t.fqn), rows_.fb.CreateVector(t.sizes),
                                             rows_.fb.CreateVector(t.strides), t.offset));
  const bool mutated = isMutated(c);
  Rows<fbs::ModelTensor> tensorRows = 0;
  if (!tensors.empty()) tensorRows = rows_.fb.CreateVector(tensors);
  const bool direct = c.orders.empty();
  std::vector<Offset<fbs::ElementOrder>> orders;
  for (const loops::ElementOrder &order : c.orders) orders.push_back(this->order(order));
  auto name = rows_.fb.CreateString(c.fqn.empty() ? fmt::format("constant.{}", number) : c.fqn);
  auto sizes = rows_.fb.CreateVector(whole ? c.tensors[0].sizes : std::vector<int64_t>{c.bytes / itemSize(c.dtype)});
  auto strides = whole ? rows_.fb.CreateVector(c.tensors[0].strides) : 0;
  const std::string *held = memberOf(c, mutated);
  auto member = held ? rows_.fb.CreateString(*held) : 0;
  return fbs::CreateConstant(rows_.fb, name, kind, dtypeOf(c.dtype), sizes, strides, member, 0,
                             static_cast<uint64_t>(c.bytes), mutated,
                             direct ? tensorRows : 0, orders.empty() ? 0 : rows_.fb.CreateVector(orders),
                             c.sourceElements, direct ? 0 : tensorRows,
                             c.foldedFrom.empty() ? 0 : rows_.fb.CreateVectorOfStrings(c.foldedFrom));
}

Rows<fbs::Constant> ConstantRows::all() {
  std::vector<Offset<fbs::Constant>> rows(rows_.constants.size());
  inside_.clear(), beside_.clear(), memberOf_.clear();
  std::vector<int64_t> order(rows.size());
  for (auto [index, row] : rows_.constants) order[static_cast<size_t>(row)] = index;
  for (size_t k = 0; k < rows.size(); ++k)
    rows[k] = constant(k, contents_.plan->program.constants[static_cast<size_t>(order[k])]);
  return rows_.fb.CreateVector(rows);
}

} // namespace neso
