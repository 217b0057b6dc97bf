#include "op_library.h"

#include <dlfcn.h>

#include "base/diagnostics/cli.h"

namespace neso::cli {

Status OpLibrary::open(const std::string &path) {
  // Without a folder the system would look elsewhere than here.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    return fail(diag::OpLibraryUnusable, {}, path, why ? why : "it cannot be opened");
  }
  ops_ = static_cast<const neso_op *>(dlsym(library, "neso_ops"));
  if (!ops_) return fail(diag::OpLibraryUnusable, {}, path, "it has no array neso_ops");
  for (count_ = 0; ops_[count_].name;) ++count_;
  objects_ = static_cast<const neso_object *>(dlsym(library, "neso_objects"));
  for (objectCount_ = 0; objects_ && objects_[objectCount_].name;) ++objectCount_;
  return Status::ok();
}

} // namespace neso::cli
