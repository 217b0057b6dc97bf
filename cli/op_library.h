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
  /// Script objects: the library's array neso_objects, which it need not have.
  const neso_object *objects() const { return objects_; }
  size_t objectCount() const { return objectCount_; }

private:
  const neso_op *ops_ = nullptr;
  size_t count_ = 0;
  const neso_object *objects_ = nullptr;
  size_t objectCount_ = 0;
};

} // namespace neso::cli
