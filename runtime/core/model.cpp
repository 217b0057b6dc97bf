#include "core/model.h"

#include <stdio.h>
#include <sys/mman.h>

#include <new>

#include "abi/archive.h"
#include "core/mapped_file.h"
#include "core/strided.h"

using namespace neso_rt;

neso_model::~neso_model() {
  drop_weights(&weights);
  while (devices) {
    device *d = devices;
    devices = d->next;
    d->table->close(d);
  }
  for (uint8_t *p : aligned_constants) free(p);
  free(aligned_plan);
  if (beside) beside->~weight_file();
  free(beside);
  if (mapped && bytes) munmap(const_cast<uint8_t *>(bytes), size);
}

neso_status neso_model::on_device(const neso_device_vtable &table, const neso_context_options &options,
                                  device **out) const {
  pthread_mutex_lock(&device_lock);
  neso_status status = NESO_OK;
  device *d = devices;
  while (d && !(d->table == &table && table.is(d, options))) d = d->next;
  if (!d) {
    const bool fits =
        asked_target >= 0 && int32_t(plan.root->targets()->Get(uint32_t(asked_target))->kind()) == table.code;
    const code_source source{&plan, &files, fits ? asked_target : -1, nullptr, 0, false};
    status = table.open(source, options, &d);
    if (status == NESO_OK) {
      d->next = devices;
      devices = d;
    }
  }
  if (status == NESO_OK) *out = d;
  pthread_mutex_unlock(&device_lock);
  return status;
}

namespace {
// Constants up to this many bytes are checked at load by default; reading more would make loading depend on the model's
// size.
constexpr uint64_t kCheckedByDefault = 32u << 20;

neso_status map_file(const char *path, neso_model *m) {
  mapped_file file;
  NESO_TRY(file.open(path));
  if (file.size == 0) return fail(NESO_NOT_A_PACKAGE, "'%s' is empty, not a Neso package", path);
  m->bytes = file.bytes;
  m->size = file.size;
  m->mapped = true;
  file.bytes = nullptr;
  return NESO_OK;
}

bool ends_with(const member &m, const char *tail, size_t n) {
  return m.name_size >= n && memcmp(m.name + m.name_size - n, tail, n) == 0;
}

// The name of the model whose plan a member is, "m" of "data/neso/m/plan"; NULL: it is no plan.
const char *model_of(const member &f, size_t *out_length) {
  constexpr char tail[] = "/plan";
  constexpr size_t folder = sizeof NESO_ARCHIVE_MODEL_FOLDER - 1;
  if (f.name_size <= folder + sizeof tail - 1 || memcmp(f.name, NESO_ARCHIVE_MODEL_FOLDER, folder) != 0 ||
      !ends_with(f, tail, sizeof tail - 1))
    return nullptr;
  *out_length = f.name_size - folder - (sizeof tail - 1);
  return f.name + folder;
}

// Is a model called `wanted`, or "wanted/…", as packages of several models call those that are one on different devices? NULL: any is.
bool is_called(const char *name, size_t length, const char *wanted) {
  if (!wanted) return true;
  const size_t own = strlen(wanted);
  if (own > length || memcmp(wanted, name, own) != 0) return false;
  return own == length || (name[own] == '/' && !memchr(name + own + 1, '/', length - own - 1));
}

// Has the plan code for such devices? What the model is called says nothing of that.
neso_status has_code_for(const member &f, neso_device_kind device, bool *out) {
  NESO_TRY(archive::verify(f));
  plan p;
  const uint8_t *bytes = f.data;
  uint8_t *copy = nullptr;
  if (reinterpret_cast<uintptr_t>(bytes) % 16 != 0) {
    copy = static_cast<uint8_t *>(aligned_alloc(kAlign, (f.size + kAlign) / kAlign * kAlign));
    if (!copy) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes for the plan", f.size);
    memcpy(copy, bytes, f.size);
    bytes = copy;
  }
  const neso_status status = p.check_header(bytes, f.size);
  const fbs::TargetKind kind = device == NESO_CUDA ? fbs::TargetKind::Cuda : fbs::TargetKind::Cpu;
  *out = false;
  if (status == NESO_OK && p.root->targets())
    for (const fbs::Target *t : *p.root->targets()) *out |= t->kind() == kind;
  free(copy);
  return status;
}

// The plan of the model called `name`; without one, of the only model, or of the only one that has code for the device.
neso_status find_plan(const neso_model &m, const char *name, int32_t for_device, const member **out) {
  char names[512] = "";
  const member *only = nullptr;
  int models = 0;
  for (const member &f : m.files.members()) {
    size_t length = 0;
    const char *start = model_of(f, &length);
    if (!start) continue;
    if (name && strlen(name) == length && memcmp(name, start, length) == 0) {
      *out = &f;
      return NESO_OK;
    }
    only = &f;
    ++models;
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%.*s", used ? ", " : "", int(length), start);
  }
  if (models == 0)
    return fail(NESO_NOT_A_PACKAGE,
                "not a Neso package: the archive holds no compiled model (is it the .pt2 itself? compile it first)");
  if (models == 1 && !name) return *out = only, NESO_OK;
  const member *of_device = nullptr;
  int of_devices = 0;
  for (const member &f : m.files.members()) {
    size_t length = 0;
    const char *start = for_device > 0 ? model_of(f, &length) : nullptr;
    if (!start || !is_called(start, length, name)) continue;
    bool fits = false;
    NESO_TRY(has_code_for(f, neso_device_kind(for_device - 1), &fits));
    if (fits) of_device = &f, ++of_devices;
  }
  if (of_devices == 1) return *out = of_device, NESO_OK;
  if (name) return fail(NESO_NO_SUCH_MODEL, "the package holds no model '%s'; it holds: %s", name, names);
  return fail(NESO_NO_SUCH_MODEL, "the package holds several models, name one of: %s (--name of the program, name= of neso.load)", names);
}

neso_status verify_members(const neso_model &m, neso_check check) {
  uint64_t constants = 0;
  for (const member &f : m.files.members()) constants += f.size;
  bool all = check == NESO_CHECK_ALL || constants <= kCheckedByDefault;
  if (all)
    for (const member &f : m.files.members()) NESO_TRY(archive::verify(f));
  if (!m.beside->is_open()) return NESO_OK;
  uint64_t weights = 0;
  for (const member &f : m.beside->files().members()) weights += f.size;
  if (check == NESO_CHECK_ALL || weights <= kCheckedByDefault)
    for (const member &f : m.beside->files().members()) NESO_TRY(archive::verify(f));
  return NESO_OK;
}

// Finds the last target that this machine can run, or the one asked for, among those of devices that know; others
// choose when they are opened.
neso_status choose_target(neso_model *m, const neso_model_options &o) {
  if (m->plan.kernels.size() == 0) return NESO_OK;
  const auto *targets = m->plan.root->targets();
  bool later = false;
  for (uint32_t t = 0; targets && t < targets->size(); ++t) {
    const char *arch = targets->Get(t)->arch() ? targets->Get(t)->arch()->c_str() : "";
    const neso_device_vtable *device = device_of_code(int32_t(targets->Get(t)->kind()));
    if (!device || (o.arch && strcmp(o.arch, arch) != 0)) continue;
    if (device->fit) {
      if (device->fit(arch) > 0) m->loaded_target = int32_t(t);
    } else {
      later = true;
      if (o.arch) m->asked_target = int32_t(t);
    }
  }
  if (m->loaded_target >= 0 || later || m->look_only) return NESO_OK;
  char held[256];
  m->plan.name_targets(held, sizeof held);
  return fail(NESO_NO_FITTING_TARGET,
              "the package holds code for %s, and none of it %s; compile it for this machine (--arch native)", held,
              o.arch ? "is the architecture asked for and fit for this machine" : "runs on this machine");
}

// Kernels that are linked statically are known only during this call, so that their device is opened now.
neso_status load_code(neso_model *m, const neso_model_options &o) {
  if (m->loaded_target < 0 || m->look_only) return NESO_OK;
  const fbs::TargetKind kind = m->plan.root->targets()->Get(uint32_t(m->loaded_target))->kind();
  const code_source source{&m->plan, &m->files, m->loaded_target, o.static_kernels, o.static_kernel_count, o.perf_map != 0};
  return device_of_code(int32_t(kind))->open(source, neso_context_options{}, &m->devices);
}

neso_status attach_constants(neso_model *m, const neso_model_options &o) {
  for (size_t i = 0; i < o.constant_count; ++i) {
    const neso_tensor &given = o.constants[i];
    plan_constant *found = nullptr;
    for (plan_constant &c : m->plan.constants)
      if (strcmp(c.name, o.constant_names[i]) == 0) found = &c;
    if (!found) return fail(NESO_NO_SUCH_NAME, "the model has no constant '%s'", o.constant_names[i]);
    if (int(given.dtype) != int(found->dtype) || given.rank != found->sizes.size)
      return fail(NESO_INVALID_ARGUMENT, "constant '%s' is given with another dtype or rank than the model's",
                  found->name);
    int64_t contiguous[kMaxRank], strides[kMaxRank];
    contiguous_strides(found->sizes.data, found->sizes.size, contiguous);
    for (int32_t d = 0; d < found->sizes.size; ++d) {
      if (given.sizes[d] != found->sizes[d])
        return fail(NESO_INVALID_ARGUMENT, "constant '%s' has size %lld in dimension %d, the model's has %lld",
                    found->name, (long long)given.sizes[d], d, (long long)found->sizes[d]);
      strides[d] = given.strides ? given.strides[d] : contiguous[d];
    }
    const int64_t *expected = found->strides.present ? found->strides.data : contiguous;
    if (!same_layout(found->sizes.data, strides, expected, given.rank))
      return fail(NESO_INVALID_ARGUMENT, "constant '%s' must be given with the model's strides", found->name);
    found->data = static_cast<const uint8_t *>(given.data);
  }
  NESO_TRY(m->aligned_constants.resize(m->plan.constants.size()));
  for (size_t i = 0; i < m->plan.constants.size(); ++i) {
    plan_constant &c = m->plan.constants[i];
    if (!c.data) {
      // Runs say so, unless a set of weights has it by then.
      if (c.bytes != 0) m->incomplete = true;
      continue;
    }
    if (reinterpret_cast<uintptr_t>(c.data) % kAlign == 0) continue;
    size_t bytes = (size_t(c.bytes) + kAlign - 1) / kAlign * kAlign;
    m->aligned_constants[i] = static_cast<uint8_t *>(aligned_alloc(kAlign, bytes ? bytes : kAlign));
    if (!m->aligned_constants[i])
      return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes for constant '%s'", bytes, c.name);
    memcpy(m->aligned_constants[i], c.data, size_t(c.bytes));
    c.data = m->aligned_constants[i];
  }
  return NESO_OK;
}

const char *symbol_of(const plan &p, int32_t slot, int64_t *min, int64_t *max) {
  const auto *symbols = p.root->symbols();
  for (uint32_t i = 0; symbols && i < symbols->size(); ++i)
    if (symbols->Get(i)->slot() == slot) {
      if (min) *min = symbols->Get(i)->min();
      if (max) *max = symbols->Get(i)->max();
      return symbols->Get(i)->name() ? symbols->Get(i)->name()->c_str() : nullptr;
    }
  return nullptr;
}

// A dimension's range: of the constant, the symbol, or unknown.
neso_dim dim_of_slot(const plan &p, int32_t slot) {
  if (slot >= 0 && slot < p.slot_constants) {
    int64_t value = p.constant_values[slot];
    return {value, value, nullptr};
  }
  neso_dim d{0, INT64_MAX, nullptr};
  if (slot >= 0) d.symbol = symbol_of(p, slot, &d.min, &d.max);
  return d;
}

neso_status describe_values(neso_model *m) {
  const plan &p = m->plan;
  size_t total = 0;
  for (const plan_input &in : p.inputs) total += size_t(in.dims.size);
  for (const plan_output &out : p.outputs) total += size_t(out.dims.size);
  NESO_TRY(m->dims.resize(total));
  NESO_TRY(m->input_dims.resize(p.inputs.size()));
  NESO_TRY(m->output_dims.resize(p.outputs.size()));
  int32_t at = 0;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    m->input_dims[i] = at;
    for (const fbs::InputDim &dim : p.inputs[i].dims) {
      neso_dim d = dim_of_slot(p, dim.equal());
      if (dim.define() != -1) d.symbol = symbol_of(p, dim.define(), nullptr, nullptr);
      if (dim.min() > d.min) d.min = dim.min();
      if (dim.max() < d.max) d.max = dim.max();
      m->dims[at++] = d;
    }
  }
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    m->output_dims[i] = at;
    for (int32_t slot : p.outputs[i].dims) m->dims[at++] = dim_of_slot(p, slot);
  }
  return NESO_OK;
}

neso_status load(neso_model *m, const char *path, const neso_model_options *options) {
  double start = now_ms();
  neso_model_options o{};
  if (options) {
    size_t n = options->struct_size < sizeof o ? options->struct_size : sizeof o;
    if (n < sizeof(size_t)) return fail(NESO_INVALID_ARGUMENT, "neso_model_options.struct_size is not set");
    memcpy(&o, options, n);
  }
  m->look_only = o.look_only != 0;
  m->ops = {o.ops, o.op_count};
  m->objects = {o.objects, o.object_count};
  NESO_TRY(m->files.open(m->bytes, m->size));
  const member *plan_file = nullptr;
  NESO_TRY(find_plan(*m, o.name, o.for_device, &plan_file));
  NESO_TRY(archive::verify(*plan_file));
  const uint8_t *plan_bytes = plan_file->data;
  if (reinterpret_cast<uintptr_t>(plan_bytes) % 16 != 0) {
    m->aligned_plan = static_cast<uint8_t *>(aligned_alloc(kAlign, (plan_file->size + kAlign) / kAlign * kAlign));
    if (!m->aligned_plan) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes for the plan", plan_file->size);
    memcpy(m->aligned_plan, plan_bytes, plan_file->size);
    plan_bytes = m->aligned_plan;
  }
  void *beside = malloc(sizeof(weight_file));
  if (!beside) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  m->beside = new (beside) weight_file(path, m->look_only && !o.weights_path ? "" : o.weights_path);
  NESO_TRY(m->plan.open(plan_bytes, plan_file->size, m->files, m->beside));
  NESO_TRY(verify_members(*m, o.check));
  NESO_TRY(choose_target(m, o));
  NESO_TRY(attach_constants(m, o));
  NESO_TRY(load_code(m, o));
  NESO_TRY(describe_values(m));
  m->load_ms = now_ms() - start;
  return NESO_OK;
}

neso_status finish(neso_model *m, neso_status status, const char *path, const neso_model_options *options,
                   neso_model **out) {
  if (status == NESO_OK) status = load(m, path, options);
  if (status == NESO_OK)
    *out = m;
  else
    neso_model_free(m);
  return status;
}

neso_model *make_model() {
  void *memory = malloc(sizeof(neso_model));
  return memory ? new (memory) neso_model : nullptr;
}
} // namespace

extern "C" {

neso_status neso_model_load(const char *path, const neso_model_options *options, neso_model **out_model) {
  if (!path || !out_model) return fail(NESO_INVALID_ARGUMENT, "neso_model_load needs a path and a place for the model");
  *out_model = nullptr;
  neso_model *m = make_model();
  if (!m) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  return finish(m, map_file(path, m), path, options, out_model);
}

neso_status neso_model_load_memory(const void *bytes, size_t size, const neso_model_options *options,
                                   neso_model **out_model) {
  if (!bytes || !out_model)
    return fail(NESO_INVALID_ARGUMENT, "neso_model_load_memory needs bytes and a place for the model");
  *out_model = nullptr;
  neso_model *m = make_model();
  if (!m) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  m->bytes = static_cast<const uint8_t *>(bytes);
  m->size = size;
  return finish(m, NESO_OK, nullptr, options, out_model);
}

void neso_model_free(neso_model *model) {
  if (!model) return;
  model->~neso_model();
  free(model);
}
}
