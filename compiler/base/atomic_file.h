// Writing a result so that it is there whole or not at all: into a file beside the target, renamed onto it at the end.
//
//     AtomicFile file;
//     if (Status s = file.open(path); !s) return s;
//     if (Status s = file.write(bytes, size); !s) return s;
//     return file.commit();
//
// Without commit() nothing remains. A full disk, a missing folder or lacking permission gives FileUnwritable. Targets that are not
// regular files (/dev/stdout, pipes) are written directly, and "-" is standard output. Not thread-safe.
#pragma once
#include <cstddef>
#include <string>

#include "base/diagnostics.h"

namespace neso {

class AtomicFile {
public:
  AtomicFile() = default;
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;
  ~AtomicFile();
  Status open(const std::string &path);
  Status write(const void *bytes, size_t size);
  Status commit();

private:
  Status failed(int error);
  std::string path_, temporary_; // temporary_ is empty when path_ is written directly
  std::string pending_;          // small writes, gathered
  int file_ = -1;
  Status flush(const void *bytes, size_t size);
};

/// The whole of `text` to `path`.
Status writeFileAtomically(const std::string &path, const std::string &text);

} // namespace neso
