// Tensors of the goldens: a reader and a writer of .safetensors that share no code with the program under test, and the comparison.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "neso/neso.h"

namespace neso::e2e {

/// A dense row-major tensor in its own memory, aligned to 64 bytes.
struct Tensor {
  neso_dtype dtype = NESO_F32;
  std::vector<int64_t> sizes;
  std::vector<char> storage;
  char *data();
  size_t bytes = 0;
  /// Elements as they lie in memory.
  void fill(std::string_view elements);
  /// Borrows this tensor, which must outlive the view.
  neso_tensor view();
};

using Tensors = std::map<std::string, Tensor>;

/// False, and why in *error, if the file cannot be read.
bool readSafetensors(const std::string &path, Tensors *out, std::string *error);

/// False if it cannot be written. Names are plain: no quotes.
bool writeSafetensors(const std::string &path, Tensors &tensors);

/// |got - want| <= absolute + relative * |want|; both 0: equal, for floating point too (NaN equals NaN, and -0 equals
/// 0).
struct Tolerance {
  double relative = 0, absolute = 0;
};

/// "" when `got` (any strides) is `want`, else what differs, in one line. values = false: dtype and shape alone.
std::string compare(const neso_tensor &got, Tensor &want, Tolerance tolerance, bool values = true);

/// Whether two tensors of the same shape hold the same bits.
bool sameBits(const neso_tensor &a, const neso_tensor &b);

/// A copy of the elements, row-major.
std::vector<char> dense(const neso_tensor &tensor);

} // namespace neso::e2e
