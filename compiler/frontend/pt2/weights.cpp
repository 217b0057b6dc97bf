#include "frontend/pt2/weights.h"

#include "base/diagnostics/pt2.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace neso::pt2 {

/// Bytes; that of the largest element.
static constexpr size_t kAlignment = 16;

Result<WeightTable> WeightTable::read(const Archive &archive, const std::string &model, bool checkData) {
  WeightTable t;
  t.archive_ = &archive;
  t.checkData_ = checkData;
  std::string w = "data/weights/", c = "data/constants/";
  if (Status s = t.readTable({w + model + "_weights_config.json", w + model + "_model_param_config.json"},
                             "data/weights/", ".pt");
      !s)
    return s.takeError();
  if (Status s = t.readTable({c + model + "_constants_config.json", c + model + "_model_constants_config.json"},
                             "data/constants/", ".pt");
      !s)
    return s.takeError();
  return t;
}

Status WeightTable::readTable(const std::vector<std::string> &names, const char *folder, const char *legacy) {
  const Member *member = nullptr;
  for (const std::string &n : names)
    if (!member) member = archive_->find(n);
  if (!member) {
    // A torch.save file in its place needs an unpickler.
    for (const Member &m : archive_->members())
      if (m.name.rfind(folder, 0) == 0 && m.name.size() > 3 && m.name.compare(m.name.size() - 3, 3, legacy) == 0)
        return fail(diag::WeightPickled, archive_->loc(), m.name);
    return fail(diag::MemberMissing, archive_->loc(), names.front());
  }
  if (Status s = archive_->verify(*member); !s) return s;
  simdjson::dom::parser parser;
  std::string_view text = archive_->text(*member);
  Json root;
  if (auto err = parser.parse(text.data(), text.size(), true).get(root))
    return fail(diag::BadJson, archive_->loc(member->name), simdjson::error_message(err));
  JsonReader r(archive_->path(), member->name);
  for (auto [fqn, meta] : r.object(root, "config")) {
    r.node = fqn;
    Row row;
    row.member = folder + std::string(r.string(meta, "path_name"));
    Json pickled = r.get(meta, "use_pickle");
    if (r.ok()) row.pickled = r.asBool(pickled, "use_pickle");
    if (std::optional<Json> type = r.optional(meta, "tensor_meta"); type && !row.pickled)
      row.type = r.tensorType(*type, fqn);
    if (!r.ok()) return r.takeError();
    // A table of weights and one of constants may name a buffer twice; the first, the weights', counts.
    rows_.emplace(std::string(fqn), std::move(row));
  }
  return r.ok() ? Status::ok() : Status(r.takeError());
}

/// Bytes from the start of the storage to the end of the last element; nullopt on overflow or a size that is not
/// constant.
static std::optional<int64_t> bytesNeeded(const graph::TensorType &t) {
  std::optional<int64_t> offset = t.offset.asConst();
  if (!offset || *offset < 0) return std::nullopt;
  int64_t last = *offset;
  bool empty = false;
  for (size_t i = 0; i < t.sizes.size(); ++i) {
    std::optional<int64_t> size = t.sizes[i].asConst(), stride = t.strides[i].asConst();
    if (!size || !stride || *size < 0 || *stride < 0) return std::nullopt;
    int64_t step;
    if (*size == 0)
      empty = true;
    else if (__builtin_mul_overflow(*size - 1, *stride, &step) || __builtin_add_overflow(last, step, &last))
      return std::nullopt;
  }
  if (empty) return 0;
  int64_t bytes;
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, itemSize(t.dtype), &bytes))
    return std::nullopt;
  return bytes;
}

Result<int> WeightTable::add(graph::Model &model, std::string_view fqn, graph::Weight::Kind kind, bool persistent,
                             const SourceLoc &where) {
  auto it = rows_.find(std::string(fqn));
  if (it == rows_.end()) return fail(diag::WeightMissing, where, fqn, "no table lists it");
  const Row &row = it->second;
  if (row.pickled || !row.type) return fail(diag::WeightPickled, where, fqn);
  const Member *member = archive_->find(row.member);
  if (!member) return fail(diag::WeightMissing, where, fqn, fmt::format("the member '{}' is missing", row.member));
  std::optional<int64_t> needed = bytesNeeded(*row.type);
  if (!needed)
    return fail(diag::BadField, where, "tensor_meta",
                fmt::format("the sizes and strides of '{}' address no memory", fqn));
  if (*needed > 0 && member->size == 0)
    return fail(diag::WeightMissing, where, fqn, "its member is empty (a fake tensor was exported)");
  if (*needed > member->size) return fail(diag::WeightSize, where, fqn, *needed, row.member, member->size);

  auto [slot, fresh] = storages_.try_emplace(row.member, static_cast<int>(model.storages.size()));
  if (fresh) {
    if (checkData_)
      if (Status s = archive_->verify(*member); !s) return s.takeError();
    const uint8_t *data = archive_->data(*member);
    if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0) {
      model.storages.push_back({data, member->size, member->offset, archive_->owner()});
    } else {
      // Torch aligns members to 64 bytes; an archive that other tools packed need not. Code reads elements in place, so
      // copy.
      struct Free {
        void operator()(void *p) const { std::free(p); }
      };
      size_t size = (static_cast<size_t>(member->size) + kAlignment - 1) / kAlignment * kAlignment;
      std::shared_ptr<void> copy(std::aligned_alloc(kAlignment, std::max(size, kAlignment)), Free());
      if (!copy) return fail(diag::FileUnreadable, where, archive_->path(), "no memory is left");
      std::memcpy(copy.get(), data, static_cast<size_t>(member->size));
      const uint8_t *bytes = static_cast<const uint8_t *>(copy.get());
      model.storages.push_back({bytes, member->size, -1, std::move(copy)});
    }
  }
  graph::Weight w;
  w.fqn = fqn;
  w.kind = kind;
  w.persistent = persistent;
  w.type = *row.type;
  w.storage = slot->second;
  model.weights.push_back(std::move(w));
  return static_cast<int>(model.weights.size()) - 1;
}

} // namespace neso::pt2
