// The constants of a plan, what the model calls them, and how they were put into order.
#include "core/plan.h"
#include "core/plan_rows.h"

namespace neso_rt {

namespace {
// Whether strides may be negative: those of what a piece of an order reads are where a dimension was flipped.
enum class flips { none, allowed };

// A tensor whose first element is number `offset` must lie inside `bytes` bytes. Absent strides are contiguous ones.
neso_status fits(const char *name, const span<int64_t> &sizes, const span<int64_t> &strides, int64_t offset, int64_t bytes, int64_t item,
                 flips flip = flips::none) {
  if (sizes.size > kMaxRank || (strides.present && strides.size != sizes.size))
    return fail(NESO_PACKAGE_MALFORMED, "constant '%s' has a wrong number of dimensions", name);
  int64_t lowest = offset, last = offset, contiguous = 1;
  bool empty = false, large = offset < 0;
  for (int32_t d = sizes.size; d-- > 0;) {
    int64_t size = sizes[d], stride = strides.present ? strides[d] : contiguous, reach;
    if (size < 0 || (stride < 0 && flip == flips::none))
      return fail(NESO_PACKAGE_MALFORMED, "constant '%s' has a negative size or stride", name);
    empty |= size == 0;
    if (size > 1) {
      int64_t &end = stride < 0 ? lowest : last;
      large |= __builtin_mul_overflow(size - 1, stride, &reach) || __builtin_add_overflow(end, reach, &end);
    }
    large |= __builtin_mul_overflow(contiguous, size ? size : 1, &contiguous);
  }
  if (large) return fail(NESO_PACKAGE_MALFORMED, "constant '%s' is too large", name);
  if (bytes < 0 || bytes > kMaxBytes || (!empty && (lowest < 0 || last > bytes / item - 1)))
    return fail(NESO_PACKAGE_MALFORMED, "constant '%s' is larger than its bytes", name);
  return NESO_OK;
}

// Both sides of a piece lie inside `to` and `from` elements.
neso_status check_piece(const char *name, const element_piece &p, int64_t to, int64_t from) {
  NESO_TRY(fits(name, p.sizes, p.to_strides, p.to, to, 1));
  return fits(name, p.sizes, p.from_strides, p.from, from, 1, flips::allowed);
}

uint32_t hash_of(const char *name) {
  uint32_t hash = 2166136261u;
  for (; *name; ++name) hash = (hash ^ uint8_t(*name)) * 16777619u;
  return hash;
}
} // namespace

neso_status plan::count_orders() {
  size_t orders = 0, pieces = 0;
  for (size_t i = 0; i < constants.size(); ++i) {
    const auto *rows = root->constants()->Get(uint32_t(i))->orders();
    orders += count(rows);
    for (uint32_t k = 0; k < count(rows); ++k) pieces += count(rows->Get(k)->pieces());
  }
  NESO_TRY(orders_.resize(orders));
  return pieces_.resize(pieces);
}

// from: elements that are there before.
neso_status plan::read_order(const fbs::ElementOrder *row, const plan_constant &c, int64_t from, element_order *out) {
  element_piece *pieces = pieces_.data() + pieces_read_;
  const size_t wanted = count(row->pieces());
  pieces_read_ += wanted;
  *out = {row->elements(), {pieces, int32_t(wanted), true}};
  if (out->elements < 0 || out->elements > kMaxBytes)
    return fail(NESO_PACKAGE_MALFORMED, "constant '%s' is too large", c.name);
  for (size_t k = 0; k < wanted; ++k) {
    const fbs::OrderPiece *piece = row->pieces()->Get(uint32_t(k));
    element_piece &p = pieces[k];
    p = {numbers(piece->sizes()), numbers(piece->to_strides()), numbers(piece->from_strides()), piece->to(),
         piece->from()};
    if (misaligned_ || !p.to_strides.present || !p.from_strides.present)
      return fail(NESO_PACKAGE_MALFORMED, "constant '%s' is in an order without strides", c.name);
    NESO_TRY(check_piece(c.name, p, out->elements, from));
  }
  return NESO_OK;
}

neso_status plan::read_orders(const fbs::Constant *row, plan_constant *c) {
  const size_t orders = count(row->orders());
  if (orders == 0) return NESO_OK;
  element_order *own = orders_.data() + orders_read_;
  orders_read_ += orders;
  c->orders = {own, int32_t(orders), true};
  int64_t elements = c->source_elements = row->source_elements();
  if (elements < 0 || elements > kMaxBytes || c->mutated)
    return fail(NESO_PACKAGE_MALFORMED, "constant '%s' is in an order that it cannot have", c->name);
  for (size_t i = 0; i < orders; ++i) {
    NESO_TRY(read_order(row->orders()->Get(uint32_t(i)), *c, elements, own + i));
    elements = own[i].elements;
  }
  if (c->bytes < 0 || elements != c->bytes / int64_t(item_size(int(c->dtype))))
    return fail(NESO_PACKAGE_MALFORMED, "constant '%s' has another number of elements than its order", c->name);
  return NESO_OK;
}

neso_status plan::read_constants(const archive &files, weight_file *beside) {
  if (root->weight_file()) NESO_TRY(beside->open(root->weight_file()->c_str()));
  NESO_TRY(constants.resize(count(root->constants())));
  NESO_TRY(count_orders());
  for (size_t i = 0; i < constants.size(); ++i) {
    const fbs::Constant *row = root->constants()->Get(uint32_t(i));
    plan_constant &c = constants[i];
    c.name = text(row->name());
    c.kind = row->kind();
    c.dtype = row->dtype();
    c.sizes = numbers(row->sizes());
    c.strides = numbers(row->strides());
    c.bytes = int64_t(row->bytes());
    c.mutated = row->mutated();
    if (!known(c.kind, fbs::ConstantKind::MAX) || !known(c.dtype, fbs::DType::MAX))
      return fail(NESO_PACKAGE_MALFORMED, "constant '%s' has an unknown kind or dtype", c.name);
    NESO_TRY(read_orders(row, &c));
    NESO_TRY(fits(c.name, c.sizes, c.strides, 0, c.bytes, int64_t(item_size(int(c.dtype)))));
    if (!row->member()) continue;
    const member *m = files.find(row->member()->c_str(), row->member()->size());
    if (!m && root->weight_file()) {
      if (beside->left_out()) continue;
      m = beside->files().find(row->member()->c_str(), row->member()->size());
      if (!m)
        return fail(NESO_PACKAGE_MEMBER_MISSING,
                    "constant '%s' is not in the file of weights '%s': it was written for another package", c.name,
                    text(root->weight_file()));
    }
    if (!m)
      return fail(NESO_PACKAGE_MEMBER_MISSING, "constant '%s' lies in '%s', which the package does not hold", c.name,
                  text(row->member()));
    if (row->offset() > m->size || row->bytes() > m->size - row->offset())
      return fail(NESO_PACKAGE_MALFORMED, "constant '%s' reaches past the end of '%s'", c.name, text(row->member()));
    c.data = m->data + row->offset();
  }
  return NESO_OK;
}

neso_status plan::read_tensors() {
  auto rows_of = [&](size_t i) {
    const fbs::Constant *row = root->constants()->Get(uint32_t(i));
    return constants[i].orders.size ? row->sources() : row->tensors();
  };
  size_t total = 0;
  for (size_t i = 0; i < constants.size(); ++i) {
    const size_t tensors_there = count(rows_of(i));
    total += tensors_there ? tensors_there : 1;
  }
  NESO_TRY(tensors.resize(total));
  size_t at = 0;
  for (size_t i = 0; i < constants.size(); ++i) {
    const plan_constant &c = constants[i];
    const auto *rows = rows_of(i);
    const int64_t item = int64_t(item_size(int(c.dtype)));
    if (!count(rows)) tensors[at++] = {c.name, int32_t(i), c.sizes, c.strides, 0, -1};
    for (size_t k = 0; k < count(rows); ++k, ++at) {
      const fbs::ModelTensor *row = rows->Get(uint32_t(k));
      tensors[at] = {text(row->name()), int32_t(i), numbers(row->sizes()), numbers(row->strides()), row->offset(), -1};
      NESO_TRY(fits(tensors[at].name, tensors[at].sizes, tensors[at].strides, row->offset(),
                    c.orders.size ? c.source_elements * item : c.bytes, item));
    }
  }
  return name_tensors();
}

// A weight that is read in two orders lies in two constants: its places are chained, and it is listed once.
neso_status plan::name_tensors() {
  size_t places = 2, names = 0;
  while (places < 2 * tensors.size()) places *= 2;
  NESO_TRY(name_table_.resize(places));
  array<int32_t> last;
  NESO_TRY(last.resize(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t at = hash_of(tensors[i].name);
    while (name_table_[at & (places - 1)] && strcmp(tensors[size_t(name_table_[at & (places - 1)] - 1)].name, tensors[i].name) != 0)
      ++at;
    int32_t &entry = name_table_[at & (places - 1)];
    if (entry) {
      const size_t first = size_t(entry - 1);
      tensors[size_t(last[first])].next = int32_t(i);
      last[first] = int32_t(i);
    } else {
      entry = int32_t(i) + 1;
      last[i] = int32_t(i);
      ++names;
    }
  }
  NESO_TRY(named.resize(names));
  array<bool> later;
  NESO_TRY(later.resize(tensors.size()));
  size_t out = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!later[i]) named[out++] = int32_t(i);
    if (tensors[i].next >= 0) later[size_t(tensors[i].next)] = true;
  }
  return NESO_OK;
}

int32_t plan::find_tensor(const char *name) const {
  if (name_table_.size() == 0) return -1;
  for (size_t at = hash_of(name);; ++at) {
    const int32_t entry = name_table_[at & (name_table_.size() - 1)];
    if (!entry) return -1;
    if (strcmp(tensors[size_t(entry - 1)].name, name) == 0) return entry - 1;
  }
}

} // namespace neso_rt
