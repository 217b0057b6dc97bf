// Machine code of a package on this CPU: which targets it can run, and loading a shared object from memory.
#pragma once
#include "core/common.h"

namespace neso_rt {

/// Can this machine run code for `arch`, a row of abi/cpu_levels.def? For code with matrix tiles the process asks the system for their use, which may be refused.
bool cpu_supports(const char *arch);

/// An ELF shared object, loaded from memory without touching a file system.
class cpu_code {
public:
  cpu_code() = default;
  cpu_code(const cpu_code &) = delete;
  cpu_code &operator=(const cpu_code &) = delete;
  ~cpu_code();
  neso_status load(const uint8_t *bytes, size_t size);
  /// nullptr: no such symbol.
  void *symbol(const char *name) const;

private:
  void *handle_ = nullptr;
  int file_ = -1; // kept open: the loader tells objects apart by their path, which holds this number
};

} // namespace neso_rt
