// Tensors in files: .safetensors and .npy.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/dtype.h"

namespace neso::cli {

/// A dense tensor in host memory, row-major. Bytes are little-endian; their address is aligned to 64.
struct HostTensor {
  std::string name; // "" from a .npy
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  std::shared_ptr<uint8_t> storage; // copies of a HostTensor share it
  size_t bytes = 0;
  uint8_t *data() const { return storage.get(); }
  /// Storage for `sizes` and `dtype`, zeroed; E0820 when there is none.
  Status allocate();
};

/// Elements of a shape; -1 when a size is negative or the product does not fit.
int64_t elementCount(const std::vector<int64_t> &sizes);

/// By the file's ending; a .npy gives one tensor. TensorFileMalformed or FileUnreadable on bad files.
Result<std::vector<HostTensor>> readTensorFile(const std::string &path);

/// complex128 is written as F64 with a last dimension of 2, complex32 likewise as F16. Order of the file: as given.
Status writeSafetensors(const std::string &path, const std::vector<HostTensor> &tensors,
                        const std::map<std::string, std::string> &metadata);

/// The same bytes in memory, and back. path: what they are called in messages.
std::string safetensorsText(const std::vector<HostTensor> &tensors);
Result<std::vector<HostTensor>> readSafetensors(const std::string &path, const std::string &file);

/// One tensor; E0815 for a dtype that NumPy lacks.
Status writeNpy(const std::string &path, const HostTensor &tensor);

} // namespace neso::cli
