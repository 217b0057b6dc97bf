#include "device/cpu/code.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/archive.h"
#include "device/cpu/device.h"
#include "device/cpu/perf_map.h"

namespace neso_rt {
namespace {
neso_status write_all(int file, const uint8_t *bytes, size_t size) {
  while (size) {
    ssize_t n = write(file, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return fail(NESO_OUT_OF_MEMORY, "no memory for the package's code (%zu bytes): %s", size, strerror(errno));
    bytes += n;
    size -= size_t(n);
  }
  return NESO_OK;
}

// The dynamic loader trusts what it loads; the cheap mistakes are caught here. Checksums guard against the rest.
neso_status check_elf(const uint8_t *bytes, size_t size) {
#if defined(__x86_64__)
  constexpr uint16_t machine = EM_X86_64;
#else
  constexpr uint16_t machine = EM_AARCH64;
#endif
  Elf64_Ehdr header;
  if (size < sizeof header)
    return fail(NESO_PACKAGE_MALFORMED, "the package's code is too short to be a shared object");
  memcpy(&header, bytes, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_type != ET_DYN || header.e_machine != machine)
    return fail(NESO_PACKAGE_MALFORMED, "the package's code is not a shared object for this machine");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > size ||
      size_t(header.e_phnum) * sizeof(Elf64_Phdr) > size - header.e_phoff)
    return fail(NESO_PACKAGE_MALFORMED, "the package's code has a damaged header");
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    memcpy(&segment, bytes + header.e_phoff + size_t(i) * sizeof segment, sizeof segment);
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset)
      return fail(NESO_PACKAGE_MALFORMED, "a segment of the package's code reaches past its end");
  }
  return NESO_OK;
}

#if defined(__x86_64__)
// AMX TILE, BF16 and INT8, and the system's leave to use the tile registers, whose state it saves only for processes
// that asked. Threads that exist already get it too.
bool has_tiles() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
  if ((d & (amx_bf16 | amx_tile | amx_int8)) != (amx_bf16 | amx_tile | amx_int8)) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

// Bytes of a vector of ARM's SVE; 0: there is none.
[[maybe_unused]] int scalable_bytes() {
#if defined(__aarch64__)
  constexpr int get_length = 51; // PR_SVE_GET_VL; the upper half of the answer are flags
  const int answer = prctl(get_length, 0, 0, 0, 0);
  return answer > 0 ? answer & 0xffff : 0;
#else
  return 0;
#endif
}
} // namespace

bool cpu_supports(const char *arch) {
#if defined(__x86_64__)
#define ON_X86 &&true
#define ON_ARM64 &&false
#define FEATURE(name) &&__builtin_cpu_supports(name)
#define TILES &&has_tiles()
#else
#define ON_X86 &&false
#define ON_ARM64 &&true
#define FEATURE(name) &&false
#define TILES &&false
#endif
#define SCALABLE(bytes) &&scalable_bytes() >= bytes
#define NESO_CPU_NEEDS(level, name, needs)                                                                              \
  if (strcmp(arch, name) == 0) return true needs;
#include "abi/cpu_levels.def"
#undef NESO_CPU_NEEDS
#undef ON_X86
#undef ON_ARM64
#undef FEATURE
#undef TILES
#undef SCALABLE
  return false;
}

cpu_code::~cpu_code() {
  if (handle_) dlclose(handle_);
  if (file_ >= 0) close(file_);
}

neso_status cpu_code::load(const uint8_t *bytes, size_t size) {
  NESO_TRY(check_elf(bytes, size));
  file_ = memfd_create("neso-code", MFD_CLOEXEC);
  if (file_ < 0)
    return fail(NESO_CODE_NOT_LOADED, "cannot make an anonymous file for the package's code: %s", strerror(errno));
  NESO_TRY(write_all(file_, bytes, size));
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file_);
  handle_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle_) return fail(NESO_CODE_NOT_LOADED, "cannot load the package's code: %s", dlerror());
  return NESO_OK;
}

void *cpu_code::symbol(const char *name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

neso_status cpu_device::load(const code_source &source) {
  const array<plan_kernel> &kernels = source.program->kernels;
  NESO_TRY(functions.resize(kernels.size()));
  if (kernels.size() == 0) return NESO_OK;
  if (source.target < 0) {
    char held[256];
    source.program->name_targets(held, sizeof held);
    return fail(NESO_NO_FITTING_TARGET,
                "the package holds code for %s, none of it for the CPU of this machine; run it on a GPU (--device cuda, "
                "device=\"cuda\", NESO_CUDA), or compile it for the CPU, too (--target cpu, neso pack)",
                held);
  }
  const flatbuffers::String *name = source.program->root->targets()->Get(uint32_t(source.target))->member();
  const member *f = name ? source.files->find(name->c_str(), name->size()) : nullptr;
  if (name && !f)
    return fail(NESO_PACKAGE_MEMBER_MISSING, "the package does not hold its own code '%s'", name->c_str());
  if (f) {
    NESO_TRY(archive::verify(*f));
    NESO_TRY(code.load(f->data, f->size));
  }
  NESO_TRY(resolve(source));
  return f && source.perf_map ? name_for_perf(source) : NESO_OK;
}

// Static kernels have a file, and names in it.
neso_status cpu_device::name_for_perf(const code_source &source) const {
  array<placed_code> kernels;
  NESO_TRY(kernels.resize(functions.size()));
  size_t count = 0;
  for (size_t k = 0; k < functions.size(); ++k) {
    const plan_kernel &kernel = source.program->kernels[k];
    const void *begin = code.symbol(kernel.row->symbols()->Get(uint32_t(source.target))->c_str());
    if (begin && begin == reinterpret_cast<const void *>(functions[k])) kernels[count++] = {kernel.name, begin};
  }
  return write_perf_map(kernels.data(), count);
}

neso_status cpu_device::resolve(const code_source &source) {
  for (size_t k = 0; k < functions.size(); ++k) {
    const plan_kernel &kernel = source.program->kernels[k];
    const char *symbol = kernel.row->symbols()->Get(uint32_t(source.target))->c_str();
    for (size_t i = 0; i < source.static_kernel_count && !functions[k]; ++i)
      if (strcmp(source.static_kernels[i].symbol, symbol) == 0) functions[k] = source.static_kernels[i].function;
    if (!functions[k]) functions[k] = reinterpret_cast<neso_cpu_kernel_fn>(code.symbol(symbol));
    if (!functions[k])
      return fail(NESO_PACKAGE_MALFORMED, "the package's code does not hold kernel '%s' (symbol '%s')", kernel.name,
                  symbol);
  }
  return NESO_OK;
}

} // namespace neso_rt
