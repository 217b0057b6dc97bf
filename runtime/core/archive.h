// Reads the container of a package (abi/archive.h) where it lies in memory: finds the members, checks that each lies
// inside the file and is stored, and checks their checksums on demand. Nothing is copied. Every malformed input gives a
// named status.
#pragma once
#include "core/common.h"

namespace neso_rt {

struct member {
  const char *name; // not terminated; the root folder is cut off
  size_t name_size;
  const uint8_t *data;
  size_t size;
  uint32_t crc;
};

class archive {
public:
  /// bytes: the whole file; borrowed as long as the archive lives.
  neso_status open(const uint8_t *bytes, size_t size);
  /// nullptr: no such member. `name` is below the root folder.
  const member *find(const char *name) const;
  const member *find(const char *name, size_t name_size) const;
  static neso_status verify(const member &m);
  const array<member> &members() const { return members_; }

private:
  array<member> members_; // sorted by name
};

} // namespace neso_rt
