#include "core/weight_file.h"

#include <stdio.h>

namespace neso_rt {

neso_status weight_file::open(const char *name) {
  if (is_open() || left_out()) return NESO_OK;
  if (!*name || *name == '/') return fail(NESO_PACKAGE_MALFORMED, "the package's file of weights has no relative path");
  if (!given_ && !package_)
    return fail(NESO_FILE_UNREADABLE,
                "the weights of the package lie in '%s', and a package in memory has no folder; say where it is "
                "(neso_model_options.weights_path)",
                name);
  char path[4096];
  const char *slash = given_ ? nullptr : strrchr(package_, '/');
  const int written = given_ ? snprintf(path, sizeof path, "%s", given_)
                             : snprintf(path, sizeof path, "%.*s%s", slash ? int(slash + 1 - package_) : 0, package_, name);
  if (written < 0 || size_t(written) >= sizeof path)
    return fail(NESO_FILE_UNREADABLE, "the path of the file of weights is too long: '%s'", name);
  NESO_TRY(file_.open(path));
  if (file_.size == 0) return fail(NESO_NOT_A_PACKAGE, "the file of weights '%s' is empty", path);
  return files_.open(file_.bytes, file_.size);
}

} // namespace neso_rt
