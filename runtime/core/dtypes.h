// Element types: the rows of abi/dtypes.def as values. A type is a neso_dtype, whose numbers are those of plan.fbs; int where the number may be
// out of the enumeration.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "neso/neso.h"

namespace neso_rt {

enum class dtype_kind : uint8_t { BOOL, UNSIGNED, SIGNED, FLOAT, COMPLEX };
struct dtype_row {
  const char *name;
  dtype_kind kind;
  uint8_t bytes;
  // Of a complex type: its parts' type; else the type itself.
  neso_dtype part;
  // "": safetensors does not have it.
  const char *safetensors;
};
/// NULL if out of the enumeration.
const dtype_row *row_of_dtype(int dtype);
/// By the name that safetensors uses; -1: there is none.
int dtype_of_safetensors(const char *name);
/// Bytes of `dtype`, 0 if out of the enumeration.
size_t item_size(int dtype);

/// How a float's bits are read; dtypes.def says what each field means.
struct float_format {
  neso_dtype dtype;
  int mantissa, least_exponent;
  uint64_t largest, infinity, nan;
  int zeros;
};
/// NULL for what is no float.
const float_format *format_of(int dtype);
bool is_nan(const float_format &f, uint64_t bits);
/// Exact; slow, for single elements.
double float_of(const float_format &f, uint64_t bits);

} // namespace neso_rt
