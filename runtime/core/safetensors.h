// Reads the header of a .safetensors file where it lies in memory: eight bytes of length, then JSON, then the tensors' bytes. Nothing is
// copied but names; every malformed file gives a named status.
#pragma once
#include "core/plan.h"

namespace neso_rt {

struct safetensors_entry {
  const char *name; // terminated, UTF-8
  neso_dtype dtype;
  int32_t rank;
  int64_t sizes[kMaxRank];
  const uint8_t *data; // as many bytes as dtype and sizes say
};

class safetensors {
public:
  /// bytes: the whole file; borrowed. path: for messages.
  neso_status open(const uint8_t *bytes, size_t size, const char *path);
  /// The next tensor; *out_more false: there was none. The name is valid until the next call.
  neso_status next(safetensors_entry *out, bool *out_more);

private:
  neso_status malformed(const char *why) const;
  void skip_space();
  bool take(char c);
  neso_status read_string(char *out, size_t capacity);
  neso_status read_number(int64_t *out);
  neso_status read_numbers(int64_t *out, int32_t capacity, int32_t *out_count);
  neso_status skip_value(int depth);
  neso_status read_entry(safetensors_entry *out);

  const char *path_ = "", *at_ = nullptr, *end_ = nullptr;
  const uint8_t *data_ = nullptr;
  int64_t data_size_ = 0;
  bool first_ = true;
  char name_[1024];
};

} // namespace neso_rt
