// The package behind the library's own bytes: the file ends with its place (compiler/package/aoti.cpp writes it).
#include <dlfcn.h>
#include <string.h>

#include "abi/aoti.h"
#include "aoti/container.h"
#include "core/mapped_file.h"

using namespace neso_rt;

namespace neso_aoti {
namespace {
mapped_file file;
neso_status state = NESO_OK;
uint64_t offset = 0, bytes = 0;
pthread_once_t once = PTHREAD_ONCE_INIT;

neso_status find() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&find), &info) || !info.dli_fname)
    return fail(NESO_FILE_UNREADABLE, "the library does not know from which file it was loaded");
  NESO_TRY(file.open(info.dli_fname));
  neso_aoti_trailer trailer;
  if (file.size < sizeof trailer) return fail(NESO_NOT_A_PACKAGE, "'%s' ends too early", info.dli_fname);
  memcpy(&trailer, file.bytes + file.size - sizeof trailer, sizeof trailer);
  const uint64_t limit = file.size - sizeof trailer;
  const char magic[8] = NESO_AOTI_MAGIC;
  if (memcmp(trailer.magic, magic, sizeof magic) != 0 || trailer.offset > limit ||
      trailer.bytes > limit - trailer.offset)
    return fail(NESO_NOT_A_PACKAGE, "'%s' has no Neso package behind the library; write it with neso compile --format aoti",
                info.dli_fname);
  offset = trailer.offset;
  bytes = trailer.bytes;
  return NESO_OK;
}
} // namespace

neso_status own_package(const void **out_bytes, size_t *out_size) {
  pthread_once(&once, [] { state = find(); });
  *out_bytes = file.bytes + offset;
  *out_size = bytes;
  return state;
}

} // namespace neso_aoti
