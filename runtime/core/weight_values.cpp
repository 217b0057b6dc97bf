// What goes into a set of weights and comes out of it: tensors as the model has them, while constants may lie in another order.
#include <new>

#include "core/context.h"
#include "core/mapped_file.h"
#include "core/safetensors.h"
#include "core/strided.h"
#include "core/threaded_copy.h"

using namespace neso_rt;

namespace {
int64_t item(const plan_constant &c) { return int64_t(item_size(int(c.dtype))); }

/// Memory of one call; `data` is 64-byte aligned.
struct scratch {
  uint8_t *data = nullptr;
  scratch() = default;
  scratch(const scratch &) = delete;
  scratch &operator=(const scratch &) = delete;
  ~scratch() { free(memory_); }
  // Bytes that are about to be overwritten need no zeros. Large ones are calloc's for nothing: nobody touches their pages before those who write them.
  neso_status take(int64_t bytes, bool zeroed = true) {
    const size_t whole = size_t(bytes) + kAlign;
    free(memory_);
    memory_ = zeroed ? calloc(whole, 1) : malloc(whole);
    data = reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(memory_) + kAlign - 1) / kAlign * kAlign);
    if (!memory_) return fail(NESO_OUT_OF_MEMORY, "out of memory: %lld bytes for weights", (long long)bytes);
    return NESO_OK;
  }
  void swap(scratch &other) {
    std::swap(data, other.data);
    std::swap(memory_, other.memory_);
  }
  /// What is to be freed in the end; `data` stays valid until then.
  void *give() {
    void *out = memory_;
    memory_ = nullptr;
    return out;
  }

private:
  void *memory_ = nullptr;
};

const int64_t *strides_in(const plan_tensor &t, int64_t *space) {
  if (t.strides.present) return t.strides.data;
  contiguous_strides(t.sizes.data, t.sizes.size, space);
  return space;
}

void copy_pieces(const element_order &order, uint8_t *to, const uint8_t *from, int64_t bytes) {
  for (const element_piece &p : order.pieces)
    copy_strided_by_threads(to + p.to * bytes, p.to_strides.data, from + p.from * bytes, p.from_strides.data, p.sizes.data,
                            p.sizes.size, int(bytes));
}
void copy_pieces_back(const element_order &order, uint8_t *from, const uint8_t *to, int64_t bytes) {
  for (const element_piece &p : order.pieces)
    copy_strided_by_threads(from + p.from * bytes, p.from_strides.data, to + p.to * bytes, p.to_strides.data, p.sizes.data,
                            p.sizes.size, int(bytes));
}

/// source, in the model's own order, to `to`, which is zero where no piece writes.
neso_status put_in_order(const plan_constant &c, const uint8_t *source, uint8_t *to) {
  scratch between[2];
  for (int32_t k = 0; k < c.orders.size; ++k) {
    uint8_t *next = to;
    if (k + 1 < c.orders.size) {
      NESO_TRY(between[k % 2].take(c.orders[k].elements * item(c)));
      next = between[k % 2].data;
    }
    copy_pieces(c.orders[k], next, source, item(c));
    source = next;
  }
  return NESO_OK;
}

/// And back: elements that `ordered` does not have stay zero. bytes: of an element.
neso_status bring_back(const plan_constant &c, const uint8_t *ordered, int64_t bytes, scratch *out) {
  scratch between;
  for (int32_t k = c.orders.size; k-- > 0;) {
    scratch next;
    NESO_TRY(next.take((k ? c.orders[k - 1].elements : c.source_elements) * bytes));
    copy_pieces_back(c.orders[k], next.data, ordered, bytes);
    between.swap(next);
    ordered = between.data;
  }
  out->swap(between);
  return NESO_OK;
}

/// memory: what the block frees in the end; nullptr: nothing, the data are the caller's.
neso_status new_block(neso_weights *w, size_t constant, uint8_t *data, void *memory) {
  void *block = malloc(sizeof(weight_block));
  if (!block) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  weight_block *b = new (block) weight_block;
  b->id = w->model->weights.ids.fetch_add(1) + 1;
  b->data = data;
  b->memory = memory;
  drop_block(w->blocks[constant]);
  w->blocks[constant] = b;
  w->values[constant] = data;
  w->ids[constant] = b->id;
  return NESO_OK;
}

/// Is the tensor all that lies in the constant, one element after the other?
bool is_whole(const plan_tensor &t, const plan_constant &c) {
  int64_t contiguous[kMaxRank], strides[kMaxRank];
  contiguous_strides(t.sizes.data, t.sizes.size, contiguous);
  const int64_t elements = c.orders.size ? c.source_elements : c.bytes / item(c);
  return t.offset == 0 && element_count(t.sizes.data, t.sizes.size) == elements &&
         same_layout(t.sizes.data, strides_in(t, strides), contiguous, t.sizes.size);
}

neso_status check_value(const plan_tensor &t, const plan_constant &c, const neso_tensor &value) {
  if (int(value.dtype) != int(c.dtype))
    return fail(NESO_INVALID_ARGUMENT, "weight '%s' is given as %s, the model has it as %s", t.name,
                neso_dtype_name(value.dtype), neso_dtype_name(neso_dtype(c.dtype)));
  if (value.rank != t.sizes.size || (value.rank && !value.sizes))
    return fail(NESO_INVALID_ARGUMENT, "weight '%s' is given with %d dimensions, the model has it with %d", t.name,
                value.rank, t.sizes.size);
  for (int32_t d = 0; d < value.rank; ++d)
    if (value.sizes[d] != t.sizes[d])
      return fail(NESO_INVALID_ARGUMENT, "weight '%s' is given with size %lld in dimension %d, the model has %lld",
                  t.name, (long long)value.sizes[d], d, (long long)t.sizes[d]);
  const int64_t elements = element_count(t.sizes.data, t.sizes.size);
  if (elements && !value.data) return fail(NESO_INVALID_ARGUMENT, "weight '%s' is given without data", t.name);
  if (!on_host(value))
    return fail(NESO_INVALID_ARGUMENT, "weight '%s' must lie in the memory of the host", t.name);
  for (int32_t d = 0; value.strides && d < value.rank; ++d)
    if (value.strides[d] < 0)
      return fail(NESO_INVALID_ARGUMENT, "weight '%s' is given with a negative stride", t.name);
  return NESO_OK;
}

// The place's part of its constant becomes `value`; what else lies there stays.
neso_status copy_to_place(neso_weights *w, const plan_tensor &t, const neso_tensor &value) {
  const size_t number = size_t(t.constant);
  const plan_constant &c = w->model->plan.constants[number];
  if (c.bytes == 0) return NESO_OK;
  int64_t contiguous[kMaxRank], space[kMaxRank];
  contiguous_strides(t.sizes.data, t.sizes.size, contiguous);
  const int64_t *given = value.strides ? value.strides : contiguous, *strides = strides_in(t, space);
  const bool whole = is_whole(t, c);
  const uint8_t *before = w->values[number];
  weight_block *own = w->blocks[number];
  // A block that was made for this set is written in place.
  const bool mine = own && own->memory && own->id > w->id && own->users.load() == 1;
  scratch made, source;
  uint8_t *target = mine ? own->data : nullptr;
  if (!mine) {
    NESO_TRY(made.take(c.bytes, c.orders.size || !whole));
    target = made.data;
  }
  if (!c.orders.size) {
    if (!mine && !whole && before) memcpy(target, before, size_t(c.bytes));
    copy_strided_by_threads(target + t.offset * item(c), strides, value.data, given, t.sizes.data, t.sizes.size, int(item(c)));
  } else if (whole && same_layout(t.sizes.data, given, contiguous, t.sizes.size)) {
    NESO_TRY(put_in_order(c, static_cast<const uint8_t *>(value.data), target));
  } else {
    if (before && !whole)
      NESO_TRY(bring_back(c, before, item(c), &source));
    else
      NESO_TRY(source.take(c.source_elements * item(c)));
    copy_strided_by_threads(source.data + t.offset * item(c), strides, value.data, given, t.sizes.data, t.sizes.size,
                 int(item(c)));
    NESO_TRY(put_in_order(c, source.data, target));
  }
  if (mine) return NESO_OK;
  void *memory = made.give();
  const neso_status status = new_block(w, number, target, memory);
  if (status != NESO_OK) free(memory);
  return status;
}

neso_status borrow_place(neso_weights *w, const plan_tensor &t, const neso_tensor &value) {
  const plan_constant &c = w->model->plan.constants[size_t(t.constant)];
  int64_t contiguous[kMaxRank];
  contiguous_strides(t.sizes.data, t.sizes.size, contiguous);
  const char *why = nullptr;
  if (t.next >= 0 || c.orders.size)
    why = "the model keeps it in another order";
  else if (!is_whole(t, c))
    why = "it shares its memory with others, or is not contiguous, in the model";
  else if (value.strides && !same_layout(t.sizes.data, value.strides, contiguous, t.sizes.size))
    why = "its memory is not contiguous";
  else if (reinterpret_cast<uintptr_t>(value.data) % kAlign != 0)
    why = "its address is not a multiple of 64";
  if (why) return fail(NESO_INVALID_ARGUMENT, "weight '%s' cannot be borrowed: %s; let it be copied", t.name, why);
  return new_block(w, size_t(t.constant), static_cast<uint8_t *>(value.data), nullptr);
}

neso_status check_not_folded(const neso_weights *w, const char *name) {
  for (size_t i = 0; i < w->model->plan.constants.size(); ++i) {
    const auto *from = w->model->plan.root->constants()->Get(uint32_t(i))->folded_from();
    for (uint32_t k = 0; from && k < from->size(); ++k)
      if (strcmp(from->Get(k)->c_str(), name) == 0)
        return fail(NESO_WEIGHT_FIXED,
                    "weight '%s' was computed into others when the model was compiled and cannot have another value; "
                    "compile it with --updatable",
                    name);
  }
  return NESO_OK;
}

/// Does `ordered` hold every element of the tensor? held: one byte an element of the source, 1 where it does.
neso_status holds(const plan_tensor &t, const plan_constant &c, bool *out) {
  scratch all, held;
  NESO_TRY(all.take(c.bytes / item(c), false));
  memset(all.data, 1, size_t(c.bytes / item(c)));
  NESO_TRY(bring_back(c, all.data, 1, &held));
  const int64_t count = element_count(t.sizes.data, t.sizes.size);
  scratch own;
  NESO_TRY(own.take(count));
  int64_t contiguous[kMaxRank], space[kMaxRank];
  contiguous_strides(t.sizes.data, t.sizes.size, contiguous);
  copy_strided(own.data, contiguous, held.data + t.offset, strides_in(t, space), t.sizes.data, t.sizes.size, 1);
  *out = count == 0 || !memchr(own.data, 0, size_t(count));
  return NESO_OK;
}

neso_status read_place(const neso_weights *w, const plan_tensor &t, const neso_tensor &to, bool *out_done) {
  const plan_constant &c = w->model->plan.constants[size_t(t.constant)];
  const uint8_t *bytes = w->values[size_t(t.constant)];
  if (!bytes && c.bytes) return NESO_OK;
  scratch source;
  if (c.orders.size) {
    NESO_TRY(holds(t, c, out_done));
    if (!*out_done) return NESO_OK;
    NESO_TRY(bring_back(c, bytes, item(c), &source));
    bytes = source.data;
  }
  int64_t contiguous[kMaxRank], space[kMaxRank];
  contiguous_strides(t.sizes.data, t.sizes.size, contiguous);
  if (c.bytes)
    copy_strided_by_threads(to.data, to.strides ? to.strides : contiguous, bytes + t.offset * item(c), strides_in(t, space),
                 t.sizes.data, t.sizes.size, int(item(c)));
  *out_done = true;
  return NESO_OK;
}
} // namespace

extern "C" {

neso_status neso_weights_set(neso_weights *w, const char *fqn, const neso_tensor *value, neso_weights_mode mode) {
  if (!w || !fqn || !value || w->sealed)
    return fail(NESO_INVALID_ARGUMENT, "neso_weights_set needs a set that is not sealed, a name and a value");
  const plan &p = w->model->plan;
  NESO_TRY(check_not_folded(w, fqn));
  const int32_t first = p.find_tensor(fqn);
  if (first < 0) return fail(NESO_NO_SUCH_NAME, "the model has no weight '%s'", fqn);
  NESO_TRY(check_value(p.tensors[size_t(first)], p.constants[size_t(p.tensors[size_t(first)].constant)], *value));
  for (int32_t at = first; at >= 0; at = p.tensors[size_t(at)].next) {
    const plan_tensor &t = p.tensors[size_t(at)];
    NESO_TRY(mode == NESO_WEIGHTS_BORROW ? borrow_place(w, t, *value) : copy_to_place(w, t, *value));
    w->given[size_t(at)] = true;
  }
  return NESO_OK;
}

neso_status neso_weights_get(const neso_weights *w, const char *fqn, const neso_tensor *to) {
  if (!w || !fqn || !to) return fail(NESO_INVALID_ARGUMENT, "neso_weights_get needs a set, a name and a tensor");
  const plan &p = w->model->plan;
  const int32_t first = p.find_tensor(fqn);
  if (first < 0) return fail(NESO_NO_SUCH_NAME, "the model has no weight '%s'", fqn);
  NESO_TRY(check_value(p.tensors[size_t(first)], p.constants[size_t(p.tensors[size_t(first)].constant)], *to));
  bool done = false;
  for (int32_t at = first; at >= 0 && !done; at = p.tensors[size_t(at)].next)
    NESO_TRY(read_place(w, p.tensors[size_t(at)], *to, &done));
  if (done) return NESO_OK;
  return fail(NESO_CONSTANT_MISSING, "not all of weight '%s' is known: the model does not read it all, or it was not given",
              fqn);
}

neso_status neso_weights_load(neso_weights *w, const char *path, const char *prefix, int64_t *out_set,
                              int64_t *out_ignored) {
  if (!w || !path || w->sealed)
    return fail(NESO_INVALID_ARGUMENT, "neso_weights_load needs a set that is not sealed, and a path");
  int64_t set = 0, ignored = 0;
  mapped_file file;
  NESO_TRY(file.open(path));
  safetensors reader;
  NESO_TRY(reader.open(file.bytes, file.size, path));
  const size_t cut = prefix ? strlen(prefix) : 0;
  safetensors_entry entry{};
  bool more = true;
  for (;;) {
    NESO_TRY(reader.next(&entry, &more));
    if (!more) break;
    const bool ours = strncmp(entry.name, prefix ? prefix : "", cut) == 0;
    if (ours) NESO_TRY(check_not_folded(w, entry.name + cut));
    if (!ours || w->model->plan.find_tensor(entry.name + cut) < 0) {
      ++ignored;
      continue;
    }
    const neso_tensor value{const_cast<uint8_t *>(entry.data), entry.sizes, nullptr, entry.rank, entry.dtype, NESO_CPU, 0};
    NESO_TRY(neso_weights_set(w, entry.name + cut, &value, NESO_WEIGHTS_COPY));
    ++set;
  }
  if (out_set) *out_set = set;
  if (out_ignored) *out_ignored = ignored;
  return NESO_OK;
}
}
