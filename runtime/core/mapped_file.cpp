#include "core/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace neso_rt {

mapped_file::~mapped_file() {
  if (bytes) munmap(const_cast<uint8_t *>(bytes), size);
}

neso_status mapped_file::open(const char *path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return fail(NESO_FILE_UNREADABLE, "cannot open '%s': %s; check the path and its permissions", path,
                strerror(errno));
  struct stat info;
  neso_status status = NESO_OK;
  if (fstat(file, &info) != 0) {
    status = fail(NESO_FILE_UNREADABLE, "cannot read '%s': %s", path, strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    status = fail(NESO_FILE_UNREADABLE, "cannot read '%s': it is not a file", path);
  } else if (info.st_size != 0) {
    void *memory = mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) {
      status = fail(NESO_FILE_UNREADABLE, "cannot map '%s': %s", path, strerror(errno));
    } else {
      bytes = static_cast<const uint8_t *>(memory);
      size = size_t(info.st_size);
    }
  }
  close(file);
  return status;
}

} // namespace neso_rt
