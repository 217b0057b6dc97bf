// Where the bytes of a model's weights are.
#pragma once
#include <cstdint>
#include <string>

namespace neso {

struct WeightPlace {
  /// None: the caller of the runtime gives them. What the compiler computed, constants without a name and buffers that runs change are
  /// in the package all the same, and what cannot be put together from the model's own tensors.
  enum Kind : uint8_t { Package, File, None } kind = Package;
  /// File: its path. Members that an earlier file has there are kept: packages may share one.
  std::string path;
  /// File: what the package calls it, as seen from the package's folder.
  std::string name;
};

} // namespace neso
