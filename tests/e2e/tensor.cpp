// Tensors in memory, with nothing but the runtime's types: for processors too that have no other library.
#include <cstring>

#include "e2e/tensors.h"

namespace neso::e2e {

static constexpr size_t kAlignment = 64;

void Tensor::fill(std::string_view elements) {
  bytes = elements.size();
  storage.assign(bytes + kAlignment, 0);
  std::memcpy(data(), elements.data(), bytes);
}

char *Tensor::data() {
  uintptr_t address = reinterpret_cast<uintptr_t>(storage.data());
  return storage.data() + (kAlignment - address % kAlignment) % kAlignment;
}

neso_tensor Tensor::view() {
  neso_tensor t{};
  t.data = data();
  t.dtype = dtype;
  t.rank = static_cast<int32_t>(sizes.size());
  t.sizes = sizes.data();
  return t;
}

std::vector<char> dense(const neso_tensor &t) {
  size_t rank = static_cast<size_t>(t.rank), item = neso_dtype_size(t.dtype);
  size_t n = 1;
  for (size_t d = 0; d < rank; ++d) n *= static_cast<size_t>(t.sizes[d]);
  std::vector<char> out(n * item);
  std::vector<int64_t> index(rank), strides(rank);
  int64_t stride = 1;
  for (size_t d = rank; d-- > 0; stride *= t.sizes[d]) strides[d] = t.strides ? t.strides[d] : stride;
  int64_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(out.data() + i * item, static_cast<const char *>(t.data) + at * static_cast<int64_t>(item), item);
    for (size_t d = rank; d-- > 0;) {
      at += strides[d];
      if (++index[d] < t.sizes[d]) break;
      at -= strides[d] * t.sizes[d];
      index[d] = 0;
    }
  }
  return out;
}

bool sameBits(const neso_tensor &a, const neso_tensor &b) { return dense(a) == dense(b); }

} // namespace neso::e2e
