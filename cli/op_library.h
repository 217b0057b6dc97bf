// A library of operators that a model calls: --op-library.
#pragma once
#include <string>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace neso::cli {

/// Stays loaded until the process ends: models borrow its rows.
class OpLibrary {
public:
  /// OpLibraryUnusable.
  Status open(const std::string &path);
  const neso_op *ops() const { return ops_; }
  size_t count() const { return count_; }

private:
  const neso_op *ops_ = nullptr;
  size_t count_ = 0;
};

} // namespace neso::cli
