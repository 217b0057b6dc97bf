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

struct map_entry {
  const char *name;
  AtenTensorHandle handle;
};

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

struct locked {
  pthread_mutex_t *lock;
  explicit locked(pthread_mutex_t *l) : lock(l) { pthread_mutex_lock(l); }
  locked(const locked &) = delete;
  locked &operator=(const locked &) = delete;
  ~locked() { pthread_mutex_unlock(lock); }
};

// Parameters must be there in a full update; the loader does not insist on buffers and constants.
int32_t check_full(const container &c, const map_entry *entries, size_t count) {
  for (size_t k = 0; k < c.constant_count; ++k) {
    if (c.constants[k].info.kind != NESO_PARAMETER) continue;
    bool given = false;
    for (size_t i = 0; i < count && !given; ++i) given = find(c, entries[i].name) == &c.constants[k];
    if (!given) return failed((std::string("the update lacks parameter ") + c.constants[k].info.name).c_str());
  }
  return 0;
}

int32_t set_all(const container &c, neso_weights *w, const map_entry *entries, size_t count, neso_weights_mode mode) {
  for (size_t i = 0; i < count; ++i) {
    const constant *k = find(c, entries[i].name);
    neso_tensor value{};
    if (const char *why = view(*c.torch, entries[i].handle, &value)) return failed(why);
    if (int32_t bad = outcome(neso_weights_set(w, k ? k->info.name : entries[i].name, &value, mode))) return bad;
  }
  return outcome(neso_weights_seal(w));
}

// A new set begins from the one that it replaces: the inactive one from the active one while there is none.
int32_t update(container *c, const map_entry *entries, size_t count, bool use_inactive, bool full,
               neso_weights_mode mode) {
  locked guard(&c->weights_lock);
  if (full)
    if (int32_t bad = check_full(*c, entries, count)) return bad;
  neso_weights *base = use_inactive && c->inactive ? c->inactive : c->active, *made = nullptr;
  if (int32_t bad = outcome(neso_weights_create(c->model, base, &made))) return bad;
  int32_t bad = set_all(*c, made, entries, count, mode);
  if (!bad && !use_inactive) bad = outcome(neso_model_use(c->model, made));
  if (bad) {
    neso_weights_free(made);
    return bad;
  }
  neso_weights **place = use_inactive ? &c->inactive : &c->active;
  neso_weights_free(*place);
  *place = made;
  return 0;
}

int32_t update_map(void *handle, void *map, bool use_inactive, bool full, neso_weights_mode mode) {
  const constant_map &given = *static_cast<const constant_map *>(map);
  map_entry *entries = static_cast<map_entry *>(calloc(given.size() + 1, sizeof(map_entry)));
  if (!entries) return failed("out of memory");
  size_t count = 0;
  for (const auto &[name, tensor] : given) entries[count++] = {name.c_str(), tensor};
  const int32_t bad = update(of(handle), entries, count, use_inactive, full, mode);
  free(entries);
  return bad;
}

// A tensor of its own for each constant, which stays the container's until the next extraction.
int32_t extract(container *c, constant_map *out, bool use_inactive) {
  locked guard(&c->weights_lock);
  neso_weights *set = use_inactive && c->inactive ? c->inactive : c->active, *package = nullptr;
  if (!set) {
    if (int32_t bad = outcome(neso_weights_create(c->model, nullptr, &package))) return bad;
    set = package;
  }
  int32_t bad = 0;
  for (size_t i = 0; !bad && i < c->constant_count; ++i) {
    const constant &k = c->constants[i];
    neso_tensor like = k.info.tensor;
    lent_tensor *made = static_cast<lent_tensor *>(calloc(1, sizeof(lent_tensor)));
    AtenTensorHandle handle = made ? new_tensor(*c->torch, like) : nullptr;
    if (!handle || view(*c->torch, handle, &like)) {
      free(made);
      bad = failed("libtorch gives no memory for a constant");
      continue;
    }
    *made = {handle, c->extracted};
    c->extracted = made;
    bad = outcome(neso_weights_get(set, k.info.name, &like));
    if (!bad) (*out)[k.info.name] = handle;
  }
  neso_weights_free(package);
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
  *out = neso_dtype_size(k->info.tensor.dtype);
  for (int32_t d = 0; d < k->info.tensor.rank; ++d) *out *= size_t(k->info.tensor.sizes[d]);
  return 0;
}
AOTI_API int32_t AOTInductorModelContainerDidCallLoadConstants(void *, bool *out) { return *out = true, 0; }

AOTI_API int32_t AOTInductorModelContainerUpdateConstantBuffer(void *handle, void *map, bool use_inactive, bool full) {
  return update_map(handle, map, use_inactive, full, NESO_WEIGHTS_COPY);
}
AOTI_API int32_t AOTInductorModelContainerUpdateConstantBufferFromCpu(void *handle, void *map, bool use_inactive,
                                                                      bool full) {
  return update_map(handle, map, use_inactive, full, NESO_WEIGHTS_COPY);
}
AOTI_API int32_t AOTInductorModelContainerUpdateInactiveConstantBuffer(void *handle, void *map) {
  return update_map(handle, map, true, true, NESO_WEIGHTS_COPY);
}
AOTI_API int32_t AOTInductorModelContainerUpdateUserManagedConstantBuffer(void *handle, void *map, bool use_inactive,
                                                                          bool full) {
  return update_map(handle, map, use_inactive, full, NESO_WEIGHTS_BORROW);
}
AOTI_API int32_t AOTInductorModelContainerUpdateConstantBufferPairs(void *handle, const map_entry *pairs, size_t count,
                                                                    bool use_inactive, bool full) {
  return update(of(handle), pairs, count, use_inactive, full, NESO_WEIGHTS_COPY);
}
AOTI_API int32_t AOTInductorModelContainerUpdateConstantBufferFromCpuPairs(void *handle, const map_entry *pairs,
                                                                           size_t count, bool use_inactive, bool full) {
  return update(of(handle), pairs, count, use_inactive, full, NESO_WEIGHTS_COPY);
}
AOTI_API int32_t AOTInductorModelContainerUpdateInactiveConstantBufferPairs(void *handle, const map_entry *pairs,
                                                                            size_t count) {
  return update(of(handle), pairs, count, true, true, NESO_WEIGHTS_COPY);
}
AOTI_API int32_t AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(void *handle, const map_entry *pairs,
                                                                               size_t count, bool use_inactive, bool full) {
  return update(of(handle), pairs, count, use_inactive, full, NESO_WEIGHTS_BORROW);
}
AOTI_API int32_t AOTInductorModelContainerExtractConstantsMap(void *handle, void *map, bool use_inactive) {
  return extract(of(handle), static_cast<constant_map *>(map), use_inactive);
}

// Nothing that depends on weights is kept: a model of this format is compiled so that all of them can change.
AOTI_API int32_t AOTInductorModelContainerRunConstantFolding(void *, bool, void *, void *) { return 0; }
AOTI_API int32_t AOTInductorModelContainerSwapConstantBuffer(void *handle) {
  container *c = of(handle);
  locked guard(&c->weights_lock);
  if (int32_t bad = outcome(neso_model_use(c->model, c->inactive))) return bad;
  neso_weights *before = c->active;
  c->active = c->inactive;
  c->inactive = before;
  return 0;
}
AOTI_API int32_t AOTInductorModelContainerFreeInactiveConstantBuffer(void *handle) {
  container *c = of(handle);
  locked guard(&c->weights_lock);
  neso_weights_free(c->inactive);
  c->inactive = nullptr;
  return 0;
}
}
