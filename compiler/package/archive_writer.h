// Writes the container of a package: a zip file with stored members, each starting at a multiple of 64 (abi/archive.h).
// Members are borrowed until write() has run; zip64 fields appear where sizes ask for them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/diagnostics.h"

namespace neso {

class ArchiveWriter {
public:
  /// name: below the root. Members appear in the order of the calls.
  void add(std::string name, const void *bytes, size_t size) {
    members_.push_back({std::move(name), bytes, size, 0, 0});
  }
  /// Hands the whole file to `sink`, piece by piece in order; stops at its first failure.
  Status write(const std::function<Status(const void *, size_t)> &sink);

private:
  struct Member {
    std::string name;
    const void *bytes;
    size_t size;
    uint32_t crc;
    uint64_t offset; // of the local header
  };
  std::vector<Member> members_;
};

} // namespace neso
