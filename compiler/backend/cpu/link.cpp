// lld as a library. Inputs are given as memory files (/proc/self/fd/N); lld writes its output beside the given path and
// renames it, which a memory file cannot do, so the output is one temporary file, read back and removed.
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/target.h"
#include "base/diagnostics/backend.h"
#include "lld/Common/CommonLinkerContext.h"
#include "lld/Common/Driver.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

namespace neso::cpu {

namespace {
bool writeAll(int fd, const std::vector<uint8_t> &bytes) {
  for (size_t done = 0; done < bytes.size();) {
    ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}
} // namespace

Result<std::vector<uint8_t>> linkShared(const std::vector<std::vector<uint8_t>> &objects) {
  // lld keeps its state in globals.
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);

  std::vector<std::string> args = {"ld.lld",
                                   "-shared",
                                   "--no-undefined-version",
                                   "--hash-style=gnu",
                                   "--build-id=none",
                                   "--threads=1",
                                   "-O0",
                                   "--gc-sections",
                                   "-z",
                                   "noexecstack",
                                   "-z",
                                   "norelro"};
  std::vector<int> fds;
  Status status;
  for (const std::vector<uint8_t> &object : objects) {
    int fd = memfd_create("neso-object", MFD_CLOEXEC);
    if (fd < 0 || !writeAll(fd, object)) {
      if (fd >= 0) close(fd);
      status = fail(diag::LinkFailed, {}, "cannot make a memory file");
      break;
    }
    fds.push_back(fd);
    args.push_back("/proc/self/fd/" + std::to_string(fd));
  }
  llvm::SmallString<128> path;
  if (status && llvm::sys::fs::createTemporaryFile("neso", "so", path))
    status = fail(diag::LinkFailed, {}, "cannot create a temporary file; check that TMPDIR is writable");
  std::vector<uint8_t> out;
  if (status) {
    args.push_back("-o");
    args.push_back(std::string(path));
    std::vector<const char *> argv;
    for (const std::string &a : args) argv.push_back(a.c_str());
    std::string messages;
    llvm::raw_string_ostream os(messages);
    bool ok = lld::elf::link(argv, os, os, /*exitEarly=*/false, /*disableOutput=*/false);
    lld::CommonLinkerContext::destroy();
    auto file = llvm::MemoryBuffer::getFile(path, false, false);
    if (!ok || !file)
      status = fail(diag::LinkFailed, {}, messages);
    else
      out.assign((*file)->getBufferStart(), (*file)->getBufferEnd());
    llvm::sys::fs::remove(path);
  }
  for (int fd : fds) close(fd);
  if (!status) return status.takeError();
  return out;
}

} // namespace neso::cpu
