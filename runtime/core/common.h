// Small things that every file of the runtime uses: failing with a status and a text, arrays without exceptions,
// aligned memory.
//
// The runtime links against nothing but the C library: no C++ standard library code, so that a C program can link
// libneso.a with cc.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <utility>

#include "core/dtypes.h"
#include "neso/neso.h"

namespace neso_rt {

/// Stores the formatted text for neso_error_text() of this thread and returns `status`.
neso_status fail(neso_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define NESO_TRY(expression)                                                                                           \
  do {                                                                                                                 \
    neso_status try_status_ = (expression);                                                                            \
    if (try_status_ != NESO_OK) return try_status_;                                                                    \
  } while (false)

/// A fixed-size array of plain values, zeroed, owned. A failed allocation leaves it empty.
template <typename T> class array {
public:
  array() = default;
  array(const array &) = delete;
  array &operator=(const array &) = delete;
  ~array() { free(data_); }
  neso_status resize(size_t n) {
    free(data_);
    data_ = nullptr;
    size_ = 0;
    if (n == 0) return NESO_OK;
    data_ = static_cast<T *>(calloc(n, sizeof(T)));
    if (!data_) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes", n * sizeof(T));
    size_ = n;
    return NESO_OK;
  }
  T *data() { return data_; }
  const T *data() const { return data_; }
  size_t size() const { return size_; }
  T &operator[](size_t i) { return data_[i]; }
  const T &operator[](size_t i) const { return data_[i]; }
  T *begin() { return data_; }
  T *end() { return data_ + size_; }
  const T *begin() const { return data_; }
  const T *end() const { return data_ + size_; }

private:
  T *data_ = nullptr;
  size_t size_ = 0;
};

inline constexpr size_t kAlign = 64;

/// Bytes that begin at a multiple of kAlign, zeroed, owned.
class aligned_bytes {
public:
  aligned_bytes() = default;
  aligned_bytes(const aligned_bytes &) = delete;
  aligned_bytes &operator=(const aligned_bytes &) = delete;
  ~aligned_bytes() { free(data_); }
  neso_status resize(size_t bytes) {
    free(data_);
    data_ = nullptr;
    if (bytes == 0) return NESO_OK;
    const size_t whole = (bytes + kAlign - 1) / kAlign * kAlign;
    data_ = static_cast<char *>(aligned_alloc(kAlign, whole));
    if (!data_) return fail(NESO_OUT_OF_MEMORY, "out of memory: %zu bytes", whole);
    memset(data_, 0, whole);
    return NESO_OK;
  }
  char *data() { return data_; }
  const char *data() const { return data_; }

private:
  char *data_ = nullptr;
};

/// Largest size of a memory block or extent that the runtime accepts: keeps all address arithmetic within int64.
inline constexpr int64_t kMaxBytes = int64_t(1) << 47;

double now_ms();
/// Processors that this process may run on.
int usable_cores();

} // namespace neso_rt
