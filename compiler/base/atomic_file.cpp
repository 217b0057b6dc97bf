#include "base/atomic_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace neso {
namespace {
constexpr size_t kGather = 1 << 20;
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status AtomicFile::failed(int error) {
  if (file_ >= 0) close(file_);
  file_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  return fail(diag::FileUnwritable, {}, path_, std::strerror(error));
}

Status AtomicFile::open(const std::string &path) {
  path_ = path;
  struct stat info;
  if (path == "-") {
    path_ = "standard output";
    file_ = dup(STDOUT_FILENO);
  } else if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    file_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    // The process number keeps two compilations onto one path apart; the later rename wins.
    temporary_ = path + fmt::format(".{}.part", getpid());
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (file_ >= 0) return Status::ok();
  int error = errno;
  temporary_.clear();
  return failed(error);
}

Status AtomicFile::flush(const void *bytes, size_t size) {
  const char *p = static_cast<const char *>(bytes);
  while (size) {
    ssize_t n = ::write(file_, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed(n < 0 ? errno : ENOSPC);
    p += n;
    size -= static_cast<size_t>(n);
  }
  return Status::ok();
}

Status AtomicFile::write(const void *bytes, size_t size) {
  if (pending_.size() + size < kGather) {
    pending_.append(static_cast<const char *>(bytes), size);
    return Status::ok();
  }
  if (Status s = flush(pending_.data(), pending_.size()); !s) return s;
  pending_.clear();
  return flush(bytes, size);
}

Status AtomicFile::commit() {
  if (Status s = flush(pending_.data(), pending_.size()); !s) return s;
  pending_.clear();
  int file = file_;
  file_ = -1;
  // Some file systems report a full disk only here.
  if (close(file) != 0) return failed(errno);
  if (temporary_.empty()) return Status::ok();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return failed(errno);
  temporary_.clear();
  return Status::ok();
}

Status writeFileAtomically(const std::string &path, const std::string &text) {
  AtomicFile file;
  if (Status s = file.open(path); !s) return s;
  if (Status s = file.write(text.data(), text.size()); !s) return s;
  return file.commit();
}

} // namespace neso
