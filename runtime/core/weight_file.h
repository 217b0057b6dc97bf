// The file of weights of a package that does not hold them itself (plan.fbs, weight_file). An archive as the package is; several packages may
// share one. Mapped, not read.
#pragma once
#include "core/archive.h"
#include "core/mapped_file.h"

namespace neso_rt {

class weight_file {
public:
  /// package: its path, nullptr when it was loaded from memory. given: where the caller says that the file is; nullptr: beside the package;
  /// empty: nowhere, weights come by neso_weights.
  weight_file(const char *package, const char *given) : package_(package), given_(given) {}
  /// name: as the package calls it.
  neso_status open(const char *name);
  bool is_open() const { return file_.bytes != nullptr; }
  /// Does the caller do without it?
  bool left_out() const { return given_ && !*given_; }
  const archive &files() const { return files_; }

private:
  const char *package_, *given_;
  mapped_file file_;
  archive files_;
};

} // namespace neso_rt
