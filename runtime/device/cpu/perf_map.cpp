#include "device/cpu/perf_map.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace neso_rt {
namespace {
struct text_range {
  uintptr_t of, begin = 0, end = 0; // of: an address in it
};

int find_text(dl_phdr_info *object, size_t, void *user) {
  text_range &text = *static_cast<text_range *>(user);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) &segment = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) || text.of < begin || text.of - begin >= segment.p_memsz) continue;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    text.begin = begin / page * page;
    text.end = (begin + segment.p_memsz + page - 1) / page * page;
    return 1;
  }
  return 0;
}

// The same bytes at the same place, in memory of no file.
neso_status detach_from_file(const text_range &text) {
  const size_t bytes = text.end - text.begin;
  char *copy = static_cast<char *>(malloc(bytes)), *at = reinterpret_cast<char *>(text.begin);
  if (!copy) return fail(NESO_OUT_OF_MEMORY, "no memory for a copy of the package's code (%zu bytes)", bytes);
  memcpy(copy, at, bytes);
  // From here on the code is lost if a call fails; the model is not loaded then.
  bool done = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
  if (done) memcpy(at, copy, bytes);
  free(copy);
  done = done && mprotect(at, bytes, PROT_READ | PROT_EXEC) == 0;
  if (!done) return fail(NESO_CODE_NOT_LOADED, "cannot place the package's code in anonymous memory for perf: %s", strerror(errno));
  __builtin___clear_cache(at, at + bytes);
  return NESO_OK;
}
} // namespace

neso_status write_perf_map(const placed_code *kernels, size_t count) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", int(getpid()));
  // The folder is everybody's: what lies there under the name, and is no file of this user's, is not followed.
  const int number = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  FILE *file = number < 0 ? nullptr : fdopen(number, "a");
  if (!file) {
    if (number >= 0) close(number);
    return fail(NESO_FILE_UNWRITABLE, "cannot write '%s', perf's map of this process: %s", path, strerror(errno));
  }
  text_range text{};
  neso_status status = NESO_OK;
  for (size_t k = 0; k < count && status == NESO_OK; ++k) {
    text.of = uintptr_t(kernels[k].begin);
    if (text.of < text.begin || text.of >= text.end) {
      if (!dl_iterate_phdr(find_text, &text)) continue;
      status = detach_from_file(text);
    }
    Dl_info info;
    ElfW(Sym) *symbol = nullptr;
    const bool known = dladdr1(kernels[k].begin, &info, reinterpret_cast<void **>(&symbol), RTLD_DL_SYMENT) && symbol;
    fprintf(file, "%lx %lx neso:%s\n", static_cast<unsigned long>(text.of), static_cast<unsigned long>(known ? symbol->st_size : 1), kernels[k].name);
  }
  const bool failed = ferror(file);
  if ((fclose(file) || failed) && status == NESO_OK) return fail(NESO_FILE_UNWRITABLE, "cannot write '%s': %s", path, strerror(errno));
  return status;
}

} // namespace neso_rt
