#include <elf.h>
#include <pthread.h>
#include <stdio.h>

#include "core/archive.h"
#include "device/cuda/copy_kernel.h"
#include "device/cuda/decide_kernel.h"
#include "device/cuda/device.h"

namespace neso_rt {
namespace {
constexpr uint16_t kElfMachineCuda = 190;
constexpr int kRecordsEarlyLaunches = 12030; // the driver that keeps in a graph what a launch need not wait for
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

neso_status cuda_device::load_code(const code_source &source) {
  NESO_TRY(kernels.resize(program->kernels.size()));
  if (kernels.size() == 0) return NESO_OK;
  const auto *targets = program->root->targets();
  char held[256] = "";
  int32_t best = -1;
  int best_fit = 0;
  for (uint32_t t = 0; targets && t < targets->size(); ++t) {
    const char *arch = arch_of(program->root, int32_t(t));
    size_t used = strlen(held);
    snprintf(held + used, sizeof held - used, "%s%s", used ? ", " : "", arch);
    if (targets->Get(t)->kind() != fbs::TargetKind::Cuda ||
        (source.target >= 0 && source.target != int32_t(t)))
      continue;
    int fit = cuda_fit(arch, limits.major, limits.minor);
    if (fit > best_fit) {
      best_fit = fit;
      best = int32_t(t);
    }
  }
  if (best >= 0) return load_target(source, best);
  char own[16];
  cuda_arch(limits, own, sizeof own);
  if (source.target >= 0)
    return fail(NESO_NO_FITTING_TARGET, "code for %s was asked for, device cuda:%d (%s) cannot run it",
                arch_of(program->root, source.target), index, own);
  return fail(NESO_NO_FITTING_TARGET,
              "the package holds code for %s, and none of it runs on device cuda:%d (%s); compile it with --target "
              "cuda --arch %s",
              held[0] ? held : "no target", index, own, own);
}

neso_status cuda_device::load_target(const code_source &source, int32_t target) {
  const char *arch = arch_of(program->root, target);
  const flatbuffers::String *name = program->root->targets()->Get(uint32_t(target))->member();
  const member *code = name ? source.files->find(name->c_str(), name->size()) : nullptr;
  if (!code) return fail(NESO_PACKAGE_MEMBER_MISSING, "the package does not hold its own code for %s", arch);
  int version = 0;
  NESO_TRY(driver.check(driver.cuDriverGetVersion(&version), "reading the driver's version"));
  begins_early = program->root->targets()->Get(uint32_t(target))->waits() && version >= kRecordsEarlyLaunches;
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
  return resolve(target);
}

neso_status cuda_device::resolve_entry(const char *kernel, const char *symbol, const fbs::KernelUsage &usage,
                                       cuda_entry *out) {
  *out = {nullptr, usage.threads(), usage.shared_bytes(), usage.cluster()};
  if (out->threads < 1 || out->threads > limits.max_threads)
    return fail(NESO_PACKAGE_MALFORMED, "kernel '%s' asks for blocks of %d threads, device cuda:%d takes 1 to %d", kernel,
                out->threads, index, limits.max_threads);
  if (driver.cuModuleGetFunction(&out->function, module_, symbol) != 0)
    return fail(NESO_PACKAGE_MALFORMED, "the package's code does not hold kernel '%s' (symbol '%s')", kernel, symbol);
  if (out->shared_bytes < 0 || out->shared_bytes > limits.max_shared)
    return fail(NESO_NO_FITTING_TARGET, "kernel '%s' needs %d bytes of shared memory a block, device cuda:%d has %d",
                kernel, out->shared_bytes, index, limits.max_shared);
  // Up to 48 KiB every kernel has; more is opted in to.
  if (out->shared_bytes <= 48 << 10) return NESO_OK;
  return driver.check(driver.cuFuncSetAttribute(out->function, kCuFunctionMaxDynamicShared, out->shared_bytes), kernel);
}

neso_status cuda_device::resolve(int32_t target) {
  for (size_t k = 0; k < kernels.size(); ++k) {
    const plan_kernel &row = program->kernels[k];
    const auto *usage = row.row->usage();
    cuda_kernel &out = kernels[k];
    out = {};
    out.name = row.name;
    out.serial = row.serial;
    const fbs::KernelUsage of_last(row.row->threads(), row.row->shared_bytes(), row.row->cluster(), 0, 0, 0);
    NESO_TRY(resolve_entry(row.name, row.row->symbols()->Get(uint32_t(target))->c_str(),
                           usage && usage->size() > uint32_t(target) ? *usage->Get(uint32_t(target)) : of_last,
                           &out.usual));
    bool resident = false;
    out.form = driver.cuTensorMapEncodeTiled ? box_form(row, target, &resident) : nullptr;
    if (!out.form) continue;
    NESO_TRY(resolve_entry(row.name, out.form->symbol()->c_str(), *out.form->usage(), &out.boxed));
    if (resident) out.resident = out.form->usage()->blocks_per_sm();
  }
  return NESO_OK;
}

neso_status cuda_device::load_own(const char *text, cu_module *module, const char *name, cu_function *out) const {
  pthread_mutex_lock(&own_kernel_mutex);
  neso_status status = NESO_OK;
  if (!*module)
    status = driver.check(driver.cuModuleLoadDataEx(module, text, 0, nullptr, nullptr), "loading the runtime's own kernels");
  if (status == NESO_OK) status = driver.check(driver.cuModuleGetFunction(out, *module, name), name);
  pthread_mutex_unlock(&own_kernel_mutex);
  return status;
}

neso_status cuda_device::own_kernel(int which, cu_function *out) const {
  return load_own(cuda_own_kernels(), &own_module_, cuda_own_kernel_names[which], out);
}

neso_status cuda_device::decide_kernel(cu_function *out) const {
  return load_own(cuda_decide_kernel(), &decide_module_, kDecideKernel, out);
}

} // namespace neso_rt
