#include "device/cuda/device.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>

#include "core/model.h"
#include "device/cuda/copy_kernel.h"

namespace neso_rt {
namespace {
constexpr uint16_t kElfMachineCuda = 190;
// Where constants begin in device memory: full lines of every cache, and any vector access.
constexpr int64_t kConstantAlign = 256;
// Of all devices: loading the runtime's own kernels, which happens once a device and model.
pthread_mutex_t own_kernel_mutex = PTHREAD_MUTEX_INITIALIZER;

bool is_ptx(const char *arch) { return strncmp(arch, "compute_", 8) == 0; }
const char *arch_of(const fbs::Plan *plan, int32_t target) {
  const flatbuffers::String *arch = plan->targets()->Get(uint32_t(target))->arch();
  return arch ? arch->c_str() : "";
}

// The driver is given no size: it trusts the headers of a cubin.
neso_status check_cubin(const uint8_t *bytes, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header) return fail(NESO_PACKAGE_MALFORMED, "the package's GPU code is too short to be a cubin");
  memcpy(&header, bytes, sizeof header);
  bool sections = header.e_shoff <= size && size_t(header.e_shnum) * header.e_shentsize <= size - header.e_shoff;
  bool segments = header.e_phoff <= size && size_t(header.e_phnum) * header.e_phentsize <= size - header.e_phoff;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != kElfMachineCuda || !sections || !segments)
    return fail(NESO_PACKAGE_MALFORMED, "the package's GPU code is no cubin");
  return NESO_OK;
}
} // namespace

void cuda_arch(const cuda_limits &limits, char *out, size_t size) {
  snprintf(out, size, "sm_%d%d", limits.major, limits.minor);
}

int cuda_fit(const char *arch, int major, int minor) {
  int number = 0, used = 0;
  bool ptx = is_ptx(arch);
  if (sscanf(arch, ptx ? "compute_%d%n" : "sm_%d%n", &number, &used) != 1 || number < 10) return 0;
  int have = major * 10 + minor;
  // The suffix "a" means instructions of one chip alone.
  bool only = arch[used] == 'a';
  if (only && number != have) return 0;
  if (ptx) return number <= have ? number + only : 0;
  return number / 10 == major && number <= have ? 100000 + number * 2 + only : 0;
}

neso_status cuda_limits::read(const cuda_driver &driver, cu_device device) {
  const struct {
    int attribute;
    int *value;
  } wanted[] = {{kCuAttributeMajor, &major},
                {kCuAttributeMinor, &minor},
                {kCuAttributeMaxThreads, &max_threads},
                {kCuAttributeSharedOptIn, &max_shared},
                {kCuAttributeMultiprocessors, &processors},
                {kCuAttributeL2Bytes, &l2_bytes}};
  for (const auto &w : wanted)
    NESO_TRY(driver.check(driver.cuDeviceGetAttribute(w.value, w.attribute, device), "reading a device's properties"));
  return NESO_OK;
}

cuda_scope::cuda_scope(const cuda_device *device) : device_(device) {
  cu_context now = nullptr;
  if (!device || (device->driver.cuCtxGetCurrent(&now) == 0 && now == device->context)) return;
  pushed_ = device->driver.cuCtxPushCurrent(device->context) == 0;
}
cuda_scope::~cuda_scope() {
  cu_context popped;
  if (pushed_) device_->driver.cuCtxPopCurrent(&popped);
}

bool cuda_device::is(int index, const char *library) const {
  return index == index_ && (library ? library_ && strcmp(library, library_) == 0 : !library_);
}

cuda_device::~cuda_device() {
  if (context) {
    {
      cuda_scope scope(this);
      blas.close();
      if (constant_memory_) driver.cuMemFree(constant_memory_);
      if (own_module_) driver.cuModuleUnload(own_module_);
      if (module_) driver.cuModuleUnload(module_);
    }
    driver.cuDevicePrimaryCtxRelease(device_);
  }
  free(library_);
}

neso_status cuda_device::open(const neso_model &model, int index, const char *library, const char *blas_library) {
  index_ = index;
  if (library && !(library_ = strdup(library))) return fail(NESO_OUT_OF_MEMORY, "out of memory");
  NESO_TRY(driver.open(library));
  NESO_TRY(driver.find_device(index, &device_));
  NESO_TRY(limits.read(driver, device_));
  cu_result r = driver.cuDevicePrimaryCtxRetain(&context, device_);
  if (r != 0) context = nullptr;
  NESO_TRY(driver.check(r, "opening the device"));
  cuda_scope scope(this);
  NESO_TRY(load_code(model));
  if (model.plan.products.size() && !(blas_library && !*blas_library)) (void)blas.open(blas_library);
  return upload(model);
}

neso_status cuda_device::load_code(const neso_model &model) {
  NESO_TRY(kernels.resize(model.plan.kernels.size()));
  if (kernels.size() == 0) return NESO_OK;
  const auto *targets = model.plan.root->targets();
  char held[256] = "";
  int32_t best = -1;
  int best_fit = 0;
  for (uint32_t t = 0; targets && t < targets->size(); ++t) {
    const char *arch = arch_of(model.plan.root, int32_t(t));
    size_t used = strlen(held);
    snprintf(held + used, sizeof held - used, "%s%s", used ? ", " : "", arch);
    if (targets->Get(t)->kind() != fbs::TargetKind::Cuda ||
        (model.forced_target >= 0 && model.forced_target != int32_t(t)))
      continue;
    int fit = cuda_fit(arch, limits.major, limits.minor);
    if (fit > best_fit) {
      best_fit = fit;
      best = int32_t(t);
    }
  }
  if (best >= 0) return load_target(model, best);
  char own[16];
  cuda_arch(limits, own, sizeof own);
  if (model.forced_target >= 0)
    return fail(NESO_NO_FITTING_TARGET, "code for %s was asked for, device cuda:%d (%s) cannot run it",
                arch_of(model.plan.root, model.forced_target), index_, own);
  return fail(NESO_NO_FITTING_TARGET,
              "the package holds code for %s, and none of it runs on device cuda:%d (%s); compile it with --target "
              "cuda --arch %s",
              held[0] ? held : "no target", index_, own, own);
}

neso_status cuda_device::load_target(const neso_model &model, int32_t target) {
  const char *arch = arch_of(model.plan.root, target);
  const flatbuffers::String *name = model.plan.root->targets()->Get(uint32_t(target))->member();
  const member *code = name ? model.files.find(name->c_str(), name->size()) : nullptr;
  if (!code) return fail(NESO_PACKAGE_MEMBER_MISSING, "the package does not hold its own code for %s", arch);
  NESO_TRY(archive::verify(*code));
  char log[400] = "";
  int options[] = {kCuJitErrorLog, kCuJitErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log - 1)};
  cu_result r;
  if (is_ptx(arch)) {
    array<char> text; // the driver wants an end mark
    NESO_TRY(text.resize(code->size + 1));
    memcpy(text.data(), code->data, code->size);
    r = driver.cuModuleLoadDataEx(&module_, text.data(), 2, options, values);
  } else {
    NESO_TRY(check_cubin(code->data, code->size));
    r = driver.cuModuleLoadDataEx(&module_, code->data, 0, nullptr, nullptr);
  }
  if (r == kCuUnsupportedPtxVersion)
    return fail(
        NESO_CODE_NOT_LOADED,
        "the driver is too old for the package's PTX (%s); compile with --arch for this GPU, or update the driver",
        arch);
  if (r == kCuInvalidPtx || r == kCuInvalidImage || r == kCuNoBinaryForGpu)
    return fail(NESO_CODE_NOT_LOADED, "the driver refuses the package's code for %s: %s %s", arch, driver.describe(r),
                log);
  NESO_TRY(driver.check(r, "loading the package's code"));
  return resolve(model, target);
}

neso_status cuda_device::resolve(const neso_model &model, int32_t target) {
  for (size_t k = 0; k < kernels.size(); ++k) {
    const plan_kernel &row = model.plan.kernels[k];
    const auto *usage = row.row->usage();
    const fbs::KernelUsage *u = usage && usage->size() > uint32_t(target) ? usage->Get(uint32_t(target)) : nullptr;
    cuda_kernel &out = kernels[k];
    out = {nullptr,
           row.name,
           u ? u->threads() : row.row->threads(),
           u ? u->shared_bytes() : row.row->shared_bytes(),
           u ? u->cluster() : row.row->cluster(),
           row.serial};
    if (out.threads < 1 || out.threads > limits.max_threads)
      return fail(NESO_PACKAGE_MALFORMED, "kernel '%s' asks for blocks of %d threads, device cuda:%d takes 1 to %d",
                  row.name, out.threads, index_, limits.max_threads);
    const char *symbol = row.row->symbols()->Get(uint32_t(target))->c_str();
    if (driver.cuModuleGetFunction(&out.function, module_, symbol) != 0)
      return fail(NESO_PACKAGE_MALFORMED, "the package's code does not hold kernel '%s' (symbol '%s')", row.name,
                  symbol);
    if (out.shared_bytes < 0 || out.shared_bytes > limits.max_shared)
      return fail(NESO_NO_FITTING_TARGET, "kernel '%s' needs %d bytes of shared memory a block, device cuda:%d has %d",
                  row.name, out.shared_bytes, index_, limits.max_shared);
    // Up to 48 KiB every kernel has; more is opted in to.
    if (out.shared_bytes > 48 << 10)
      NESO_TRY(driver.check(driver.cuFuncSetAttribute(out.function, kCuFunctionMaxDynamicShared, out.shared_bytes),
                            row.name));
  }
  return NESO_OK;
}

neso_status cuda_device::upload(const neso_model &model) {
  const array<plan_constant> &rows = model.plan.constants;
  NESO_TRY(constants_.resize(rows.size()));
  // Constants that share storage on the host (tied weights) share it here: found by address, in a table with one place
  // for each and as many free.
  size_t places = 2;
  while (places < 2 * rows.size()) places *= 2;
  array<int32_t> table;
  array<int64_t> offsets;
  NESO_TRY(table.resize(places));
  NESO_TRY(offsets.resize(rows.size()));
  int64_t total = 0;
  array<bool> first;
  NESO_TRY(first.resize(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].mutated || rows[i].bytes == 0) continue;
    size_t at = reinterpret_cast<uintptr_t>(rows[i].data) / 16 * 0x9e3779b97f4a7c15u >> 20;
    for (;; ++at) {
      int32_t &entry = table[at & (places - 1)];
      if (entry == 0) {
        entry = int32_t(i) + 1;
        first[i] = true;
        offsets[i] = total;
        total += (rows[i].bytes + kConstantAlign - 1) / kConstantAlign * kConstantAlign;
        break;
      }
      const plan_constant &other = rows[size_t(entry - 1)];
      if (other.data == rows[i].data && other.bytes == rows[i].bytes) {
        offsets[i] = offsets[size_t(entry - 1)];
        break;
      }
    }
  }
  if (total == 0) return NESO_OK;
  cu_result r = driver.cuMemAlloc(&constant_memory_, size_t(total));
  if (r == kCuOutOfMemory)
    return fail(NESO_OUT_OF_MEMORY, "out of memory on cuda:%d: %lld bytes for the model's constants", index_,
                (long long)total);
  NESO_TRY(driver.check(r, "memory for the model's constants"));
  constant_bytes_ = size_t(total);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].mutated || rows[i].bytes == 0) continue;
    cu_pointer to = constant_memory_ + uint64_t(offsets[i]);
    constants_[i] = reinterpret_cast<char *>(to);
    if (first[i])
      NESO_TRY(driver.check(driver.cuMemcpyHtoDAsync(to, rows[i].data, size_t(rows[i].bytes), nullptr),
                            "uploading the model's constants"));
  }
  return driver.check(driver.cuStreamSynchronize(nullptr), "uploading the model's constants");
}

neso_status cuda_device::own_kernel(int which, cu_function *out) const {
  pthread_mutex_lock(&own_kernel_mutex);
  neso_status status = NESO_OK;
  if (!own_module_)
    status = driver.check(driver.cuModuleLoadDataEx(&own_module_, cuda_own_kernels(), 0, nullptr, nullptr),
                          "loading the runtime's own kernels");
  if (status == NESO_OK)
    status = driver.check(driver.cuModuleGetFunction(out, own_module_, cuda_own_kernel_names[which]),
                          cuda_own_kernel_names[which]);
  pthread_mutex_unlock(&own_kernel_mutex);
  return status;
}

} // namespace neso_rt
