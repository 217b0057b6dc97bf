// The constants of a container under the loader's names: what there is, other values, the other set, and values back.
//
// The loader passes std::unordered_map<std::string, AtenTensorHandle> behind an opaque handle: the one place that needs the C++ library, which
// every process with libtorch has.
#include <stdlib.h>
#include <string.h>

#include <string>
#include <unordered_map>

#include "aoti/container.h"

using namespace neso_aoti;

namespace {
using constant_map = std::unordered_map<std::string, AtenTensorHandle>;
using constant = container::constant;

container *of(void *handle) { return static_cast<container *>(handle); }

int32_t constant_at(container *c, size_t index, const constant **out) {
  if (index >= c->constant_count) return failed("the model has no constant of that number");
  *out = &c->constants[index];
  return 0;
}

/// By the loader's name, or by the model's own.
const constant *find(const container &c, const char *name) {
  for (size_t i = 0; i < c.constant_count; ++i)
    if (strcmp(c.constants[i].name, name) == 0 || strcmp(c.constants[i].info.name, name) == 0) return &c.constants[i];
  return nullptr;
}

// Parameters must be there in a full update; the loader does not insist on buffers and constants.
int32_t check_full(const container &c, const named_tensor *entries, size_t count) {
  for (size_t k = 0; k < c.constant_count; ++k) {
    if (c.constants[k].info.kind != NESO_PARAMETER) continue;
    bool given = false;
    for (size_t i = 0; i < count && !given; ++i) given = find(c, entries[i].name) == &c.constants[k];
    if (!given) return failed((std::string("the update lacks parameter ") + c.constants[k].info.name).c_str());
  }
  return 0;
}

// A value's bytes on the host; the memory of one that lies on a GPU is brought here and is the caller's to free.
int32_t on_host(container *c, neso_tensor *value, void **owned) {
  if (value->device == NESO_CPU) return 0;
  int64_t count = 1;
  for (int32_t d = 0; d < value->rank; ++d) count *= value->sizes[d];
  *owned = malloc(size_t(count) * neso_dtype_size(value->dtype) + 1);
  if (!*owned) return failed("out of memory");
  const neso_tensor here{*owned, value->sizes, nullptr, value->rank, value->dtype, NESO_CPU, 0};
  if (int32_t bad = copy(c, here, *value)) return bad;
  *value = here;
  return 0;
}

// Reads the value where it lies, in the tensor's memory, which the set keeps.
int32_t borrow_one(container *c, weight_set *set, const constant &k, const neso_tensor &value, AtenTensorHandle tensor) {
  AtenTensorHandle held = nullptr;
  if (int32_t bad = outcome(neso_weights_set(set->weights, k.info.name, &value, NESO_WEIGHTS_BORROW))) return bad;
  if (c->torch->new_tensor_handle(tensor, &held)) return failed("libtorch gives no handle");
  AtenTensorHandle *place = &set->held[&k - c->constants];
  if (*place) c->torch->delete_tensor_object(*place);
  *place = held;
  return 0;
}

// What runs change is copied, into contexts in the end.
int32_t set_one(container *c, weight_set *set, const named_tensor &entry, holding how) {
  neso_tensor value{};
  if (const char *why = view(*c->torch, entry.handle, &value)) return failed(why);
  const constant *k = find(*c, entry.name);
  const bool changes = k && k->info.mutated;
  void *owned = nullptr;
  int32_t bad = on_host(c, &value, &owned);
  if (!bad && how != holding::copy && k && !changes && !owned) {
    bad = borrow_one(c, set, *k, value, entry.handle);
    if (!bad || how == holding::borrow) return bad;
    bad = 0;
  }
  if (!bad) bad = outcome(neso_weights_set(set->weights, k ? k->info.name : entry.name, &value, NESO_WEIGHTS_COPY));
  free(owned);
  return bad;
}

// Constants that runs change, once the set is in use.
int32_t settle_all(container *c, const named_tensor *entries, size_t count, holding how) {
  for (size_t i = 0; i < count; ++i) {
    const constant *k = find(*c, entries[i].name);
    if (!k || !k->info.mutated) continue;
    if (int32_t bad = settle(c, k->info, how == holding::copy ? nullptr : entries[i].handle)) return bad;
  }
  return 0;
}

// A new set takes the place of the one that it began from: the inactive one from the active one while there is none.
int32_t put(container *c, weight_set *made, bool use_inactive) {
  int32_t bad = outcome(neso_weights_seal(made->weights));
  if (!bad && !use_inactive) bad = outcome(neso_model_use(c->model, made->weights));
  if (bad)
    free_set(c, made);
  else
    replace_set(c, use_inactive ? &c->inactive : &c->active, made);
  return bad;
}
} // namespace

namespace neso_aoti {
int32_t update(container *c, const named_tensor *entries, size_t count, bool use_inactive, bool full, holding how) {
  locked guard(&c->weights_lock);
  if (full)
    if (int32_t bad = check_full(*c, entries, count)) return bad;
  weight_set *made = nullptr;
  if (int32_t bad = create_set(c, use_inactive && c->inactive ? c->inactive : c->active, &made)) return bad;
  int32_t bad = 0;
  for (size_t i = 0; !bad && i < count; ++i) bad = set_one(c, made, entries[i], how);
  if (bad) {
    free_set(c, made);
    return bad;
  }
  bad = put(c, made, use_inactive);
  return bad || use_inactive ? bad : settle_all(c, entries, count, how);
}

int32_t update_map(container *c, void *map, bool use_inactive, bool full, holding how) {
  const constant_map &given = *static_cast<const constant_map *>(map);
  named_tensor *entries = static_cast<named_tensor *>(calloc(given.size() + 1, sizeof(named_tensor)));
  if (!entries) return failed("out of memory");
  size_t count = 0;
  for (const auto &[name, tensor] : given) entries[count++] = {name.c_str(), tensor};
  const int32_t bad = update(c, entries, count, use_inactive, full, how);
  free(entries);
  return bad;
}
} // namespace neso_aoti

namespace {
// What runs have left of a constant that they change; the last context's, where there are several.
int32_t read_changed(container *c, const neso_constant_info &info, const neso_tensor &to) {
  const size_t seat = take(c, nullptr);
  neso_tensor from{};
  int32_t bad = outcome(neso_context_buffer(c->seats[seat].context, info.name, &from));
  if (!bad) bad = outcome(neso_tensor_copy(c->seats[seat].context, &to, &from));
  give_back(c, seat);
  return bad;
}

int32_t read_value(container *c, const neso_weights *set, bool active, const neso_constant_info &info, const neso_tensor &to) {
  if (info.mutated && active) return read_changed(c, info, to);
  if (to.device == NESO_CPU) return outcome(neso_weights_get(set, info.name, &to));
  void *memory = nullptr;
  neso_tensor here = to;
  if (int32_t bad = on_host(c, &here, &memory)) return bad;
  int32_t bad = outcome(neso_weights_get(set, info.name, &here));
  if (!bad) bad = copy(c, to, here);
  free(memory);
  return bad;
}

// A tensor of its own for each constant, which stays the container's until the next extraction.
int32_t extract(container *c, bool use_inactive) {
  locked guard(&c->weights_lock);
  if (!c->extracted_entries)
    c->extracted_entries = static_cast<named_tensor *>(calloc(c->constant_count + 1, sizeof(named_tensor)));
  if (!c->extracted_entries) return failed("out of memory");
  const bool active = !use_inactive || !c->inactive;
  const weight_set *of = active ? c->active : c->inactive;
  neso_weights *set = of ? of->weights : nullptr, *package = nullptr;
  if (!set) {
    if (int32_t bad = outcome(neso_weights_create(c->model, nullptr, &package))) return bad;
    set = package;
  }
  int32_t bad = 0;
  for (size_t i = 0; !bad && i < c->constant_count; ++i) {
    const constant &k = c->constants[i];
    neso_tensor like = k.info.tensor;
    like.device = c->device, like.device_index = c->device_index;
    lent_tensor *made = static_cast<lent_tensor *>(calloc(1, sizeof(lent_tensor)));
    AtenTensorHandle handle = made ? new_tensor(*c->torch, like) : nullptr;
    if (!handle || view(*c->torch, handle, &like)) {
      free(made);
      bad = failed("libtorch gives no memory for a constant");
      continue;
    }
    *made = {handle, c->extracted};
    c->extracted = made;
    c->extracted_entries[i] = {k.info.name, handle};
    bad = read_value(c, set, active, k.info, like);
  }
  neso_weights_free(package);
  return bad;
}

// How far apart constants lie in one file of them: AOTInductor's alignment.
constexpr size_t kBlobAlign = 64;

size_t data_size(const constant &k) {
  size_t bytes = neso_dtype_size(k.info.tensor.dtype);
  for (int32_t d = 0; d < k.info.tensor.rank; ++d) bytes *= size_t(k.info.tensor.sizes[d]);
  return bytes;
}

size_t next_in_blob(size_t place, const constant &k) { return (place + data_size(k) + kBlobAlign - 1) / kBlobAlign * kBlobAlign; }

// All constants in their order, contiguous.
int32_t update_from_blob(container *c, const uint8_t *blob) {
  locked guard(&c->weights_lock);
  weight_set *made = nullptr;
  if (int32_t bad = create_set(c, c->active, &made)) return bad;
  int32_t bad = 0;
  size_t place = 0;
  for (size_t i = 0; !bad && i < c->constant_count; ++i) {
    const constant &k = c->constants[i];
    const neso_tensor &like = k.info.tensor;
    const neso_tensor value{const_cast<uint8_t *>(blob) + place, like.sizes, nullptr, like.rank, like.dtype, NESO_CPU, 0};
    bad = outcome(neso_weights_set(made->weights, k.info.name, &value, NESO_WEIGHTS_COPY));
    place = next_in_blob(place, k);
  }
  if (!bad) return put(c, made, false);
  free_set(c, made);
  return bad;
}
} // namespace

#define AOTI_API __attribute__((visibility("default")))

extern "C" {

AOTI_API int32_t AOTInductorModelContainerGetNumConstants(void *handle, size_t *out) {
  return *out = of(handle)->constant_count, 0;
}
AOTI_API int32_t AOTInductorModelContainerGetConstantName(void *handle, size_t index, const char **out) {
  const constant *k = nullptr;
  const int32_t bad = constant_at(of(handle), index, &k);
  if (!bad) *out = k->name;
  return bad;
}
AOTI_API int32_t AOTInductorModelContainerGetConstantOriginalFQN(void *handle, size_t index, const char **out) {
  const constant *k = nullptr;
  const int32_t bad = constant_at(of(handle), index, &k);
  if (!bad) *out = k->info.name;
  return bad;
}
AOTI_API int32_t AOTInductorModelContainerGetConstantFromFolded(void *handle, size_t index, bool *out) {
  const constant *k = nullptr;
  *out = false;
  return constant_at(of(handle), index, &k);
}
// AOTInductor's ConstantType: 1 parameter, 2 buffer, 3 tensor constant.
AOTI_API int32_t AOTInductorModelContainerGetConstantType(void *handle, size_t index, int32_t *out) {
  const constant *k = nullptr;
  const int32_t bad = constant_at(of(handle), index, &k);
  if (!bad) *out = k->info.kind == NESO_PARAMETER ? 1 : k->info.kind == NESO_BUFFER ? 2 : 3;
  return bad;
}
AOTI_API int32_t AOTInductorModelContainerGetConstantDtype(void *handle, size_t index, int32_t *out) {
  const constant *k = nullptr;
  const int32_t bad = constant_at(of(handle), index, &k);
  if (!bad) *out = of(handle)->torch->dtypes[k->info.tensor.dtype];
  return bad;
}
AOTI_API int32_t AOTInductorModelContainerGetConstantDataSize(void *handle, size_t index, size_t *out) {
  const constant *k = nullptr;
  if (int32_t bad = constant_at(of(handle), index, &k)) return bad;
  return *out = data_size(*k), 0;
}
AOTI_API int32_t AOTInductorModelContainerDidCallLoadConstants(void *, bool *out) { return *out = true, 0; }

AOTI_API int32_t AOTInductorModelContainerUpdateConstantBuffer(void *handle, void *map, bool use_inactive, bool full) {
  return update_map(of(handle), map, use_inactive, full, holding::copy);
}
AOTI_API int32_t AOTInductorModelContainerUpdateConstantBufferFromCpu(void *handle, void *map, bool use_inactive,
                                                                      bool full) {
  return update_map(of(handle), map, use_inactive, full, holding::copy);
}
AOTI_API int32_t AOTInductorModelContainerUpdateInactiveConstantBuffer(void *handle, void *map) {
  return update_map(of(handle), map, true, true, holding::copy);
}
AOTI_API int32_t AOTInductorModelContainerUpdateUserManagedConstantBuffer(void *handle, void *map, bool use_inactive,
                                                                          bool full) {
  return update_map(of(handle), map, use_inactive, full, holding::borrow);
}
AOTI_API int32_t AOTInductorModelContainerUpdateConstantBufferPairs(void *handle, const named_tensor *pairs, size_t count,
                                                                    bool use_inactive, bool full) {
  return update(of(handle), pairs, count, use_inactive, full, holding::copy);
}
AOTI_API int32_t AOTInductorModelContainerUpdateConstantBufferFromCpuPairs(void *handle, const named_tensor *pairs,
                                                                           size_t count, bool use_inactive, bool full) {
  return update(of(handle), pairs, count, use_inactive, full, holding::copy);
}
AOTI_API int32_t AOTInductorModelContainerUpdateInactiveConstantBufferPairs(void *handle, const named_tensor *pairs,
                                                                            size_t count) {
  return update(of(handle), pairs, count, true, true, holding::copy);
}
AOTI_API int32_t AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(void *handle, const named_tensor *pairs,
                                                                               size_t count, bool use_inactive, bool full) {
  return update(of(handle), pairs, count, use_inactive, full, holding::borrow);
}
AOTI_API int32_t AOTInductorModelContainerExtractConstantsMap(void *handle, void *map, bool use_inactive) {
  container *c = of(handle);
  if (int32_t bad = extract(c, use_inactive)) return bad;
  for (size_t i = 0; i < c->constant_count; ++i)
    (*static_cast<constant_map *>(map))[c->extracted_entries[i].name] = c->extracted_entries[i].handle;
  return 0;
}
AOTI_API int32_t AOTInductorModelContainerExtractConstantsMapEntries(void *handle, const named_tensor **entries, size_t *count,
                                                                     bool use_inactive) {
  if (int32_t bad = extract(of(handle), use_inactive)) return bad;
  *entries = of(handle)->extracted_entries;
  *count = of(handle)->constant_count;
  return 0;
}
AOTI_API int32_t AOTInductorModelContainerGetConstantsBlobSize(void *handle, uint64_t *out) {
  size_t size = 0;
  for (size_t i = 0; i < of(handle)->constant_count; ++i) size = next_in_blob(size, of(handle)->constants[i]);
  return *out = size, 0;
}
AOTI_API int32_t AOTInductorModelUpdateConstantsFromBlob(void *handle, const uint8_t *blob) {
  return update_from_blob(of(handle), blob);
}

// Nothing that depends on weights is kept: a model of this format is compiled so that all of them can change.
AOTI_API int32_t AOTInductorModelContainerRunConstantFolding(void *, bool, void *, void *) { return 0; }
AOTI_API int32_t AOTInductorModelContainerSwapConstantBuffer(void *handle) {
  container *c = of(handle);
  locked guard(&c->weights_lock);
  // The package's values become the inactive ones; of an archive without weights there are none.
  if (!c->active && create_set(c, nullptr, &c->active) == 0 && neso_weights_seal(c->active->weights) != NESO_OK) {
    free_set(c, c->active);
    c->active = nullptr;
  }
  if (int32_t bad = outcome(neso_model_use(c->model, c->inactive ? c->inactive->weights : nullptr))) return bad;
  weight_set *before = c->active;
  c->active = c->inactive;
  c->inactive = before;
  return 0;
}
AOTI_API int32_t AOTInductorModelContainerFreeInactiveConstantBuffer(void *handle) {
  container *c = of(handle);
  locked guard(&c->weights_lock);
  replace_set(c, &c->inactive, nullptr);
  return 0;
}
}
