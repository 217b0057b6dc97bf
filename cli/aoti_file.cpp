#include "aoti_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/diagnostics/common.h"
#include "package/aoti.h"

namespace neso::cli {
namespace {
std::string besideThisProgram() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, size > 0 ? static_cast<size_t>(size) : 0);
  return program.substr(0, program.rfind('/') + 1) + "../libexec/neso/libneso_aoti.so";
}
} // namespace

Result<std::string> asAotiArchive(const std::string &package, const std::string &device, const std::string &library) {
  const std::string path = library.empty() ? besideThisProgram() : library;
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return fail(diag::FileUnreadable, {}, path, std::strerror(errno));
  std::string code;
  char chunk[1 << 16];
  while (size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) code.append(chunk, n);
  if (std::ferror(file.get())) return fail(diag::FileUnreadable, {}, path, std::strerror(errno));
  return aotiArchive(code, package, device);
}

} // namespace neso::cli
