#include "core/dtypes.h"

#include <math.h>
#include <string.h>

#include "abi/plan_generated.h"

namespace neso_rt {
namespace {
const dtype_row dtype_rows[] = {
#define NESO_DTYPE(name, NAME, text, kind, bits, part, torch, number, safetensors, numpy, buffer, dlpack, triton)                                     \
  {text, dtype_kind::kind, bits / 8, neso_dtype(neso::fbs::DType::part), safetensors},
#include "abi/dtypes.def"
};
constexpr int kDTypes = sizeof dtype_rows / sizeof dtype_rows[0];
const float_format float_rows[] = {
#define NESO_FLOAT(name, mlir, tile, mantissa, exponent, largest, infinity, nan, zeros)                                                               \
  {NESO_##name, mantissa, exponent, largest, infinity, nan, zeros},
#include "abi/dtypes.def"
};

// The bit of the sign; 0: it has none.
uint64_t sign_of(const float_format &f) { return f.zeros ? uint64_t(1) << (item_size(f.dtype) * 8 - 1) : 0; }
} // namespace

const dtype_row *row_of_dtype(int dtype) { return dtype < 0 || dtype >= kDTypes ? nullptr : &dtype_rows[dtype]; }

int dtype_of_safetensors(const char *name) {
  for (int i = 0; i < kDTypes && *name; ++i)
    if (strcmp(dtype_rows[i].safetensors, name) == 0) return i;
  return -1;
}

size_t item_size(int dtype) {
  const dtype_row *row = row_of_dtype(dtype);
  return row ? row->bytes : 0;
}

const float_format *format_of(int dtype) {
  for (const float_format &f : float_rows)
    if (int(f.dtype) == dtype) return &f;
  return nullptr;
}

bool is_nan(const float_format &f, uint64_t bits) {
  if (f.zeros < 2) return bits == f.nan;
  return (bits & ~sign_of(f)) > (f.infinity ? f.infinity : f.largest);
}

double float_of(const float_format &f, uint64_t bits) {
  if (is_nan(f, bits)) return NAN;
  const uint64_t sign = sign_of(f), code = bits & ~sign, one = uint64_t(1) << f.mantissa;
  const uint64_t exponent = code >> f.mantissa, fraction = code & (one - 1);
  double v;
  if (f.infinity && code == f.infinity)
    v = INFINITY;
  else if (!f.zeros)
    v = ldexp(1, int(exponent) + f.least_exponent);
  else if (exponent == 0)
    v = ldexp(double(fraction), f.least_exponent - f.mantissa);
  else
    v = ldexp(double(one | fraction), f.least_exponent - f.mantissa + int(exponent) - 1);
  return bits & sign ? -v : v;
}

} // namespace neso_rt

extern "C" {
size_t neso_dtype_size(neso_dtype dtype) { return neso_rt::item_size(dtype); }
const char *neso_dtype_name(neso_dtype dtype) {
  const neso_rt::dtype_row *row = neso_rt::row_of_dtype(dtype);
  return row ? row->name : "?";
}
}
