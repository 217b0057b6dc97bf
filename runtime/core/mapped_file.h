// A file mapped for reading.
#pragma once
#include "core/common.h"

namespace neso_rt {

struct mapped_file {
  const uint8_t *bytes = nullptr;
  size_t size = 0;

  mapped_file() = default;
  mapped_file(const mapped_file &) = delete;
  mapped_file &operator=(const mapped_file &) = delete;
  /// Unmaps.
  ~mapped_file();
  /// NESO_FILE_UNREADABLE; an empty file has no bytes.
  neso_status open(const char *path);
};

} // namespace neso_rt
