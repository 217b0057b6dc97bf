// Kernels in the calling convention of abi/kernel_abi.h, written by hand for the tests. Each program handles one
// element, or 16.
#include <string.h>

#include "abi/kernel_abi.h"

// out[i] = a[i] + b[i] for program i
void test_add(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
              const struct neso_kernel_env *env) {
  const float *a = args[0].ptr, *b = args[1].ptr;
  float *out = args[2].ptr;
  for (uint64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
}

// x[i] = x[i] * 2 in place
void test_double(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                 const struct neso_kernel_env *env) {
  float *x = args[0].ptr;
  for (uint64_t i = begin; i < end; ++i) x[i] *= 2;
}

// out[i] = x[i] + value, through scratch memory; value is an i64
void test_add_scalar(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                     const struct neso_kernel_env *env) {
  const float *x = args[0].ptr;
  float *out = args[1].ptr, *scratch = env->scratch;
  for (uint64_t i = begin; i < end; ++i) {
    scratch[0] = (float)args[2].i64;
    out[i] = x[i] + scratch[0];
  }
}

// fails in program 3; prints in program 1
void test_report(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                 const struct neso_kernel_env *env) {
  for (uint64_t i = begin; i < end; ++i) {
    double value = 2.5;
    int64_t index[2] = {7, 4};
    if (i == 1) env->report(env->report_data, NESO_KERNEL_PRINT, i, "x: ", 10, &value, 1, 1);
    if (i == 3 && args[0].i64 == 0)
      env->report(env->report_data, NESO_KERNEL_ASSERT, i, "x must be positive", 12, 0, 0, 0);
    if (i == 3 && args[0].i64 == 1) env->report(env->report_data, NESO_KERNEL_INDEX, i, "", 0, index, 2, 0);
  }
}

// does nothing
void test_nothing(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                  const struct neso_kernel_env *env) {}

// sizes[0] = number of non-zero elements of x (n of them), as an i64; one program
void test_count(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                const struct neso_kernel_env *env) {
  const float *x = args[0].ptr;
  int64_t n = 0;
  for (int64_t i = 0; i < args[2].i64; ++i) n += x[i] != 0;
  *(int64_t *)args[1].ptr = n;
}

// flag = a < b, of i64; a byte
void test_less(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
               const struct neso_kernel_env *env) {
  *(uint8_t *)args[2].ptr = *(int64_t *)args[0].ptr < *(int64_t *)args[1].ptr;
}

// a += b, of i64
void test_increase(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                   const struct neso_kernel_env *env) {
  *(int64_t *)args[0].ptr += *(int64_t *)args[1].ptr;
}

// a = 0, an i64
void test_zero(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
               const struct neso_kernel_env *env) {
  *(int64_t *)args[0].ptr = 0;
}

// out[i] = x[i] + value, whose arguments lie apart: x at byte 0, value (an i64) at 64, out at 192. -1 where the memory
// of the arguments does not begin at a multiple of 64.
void test_spread(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                 const struct neso_kernel_env *env) {
  const float *x = args[0].ptr;
  float *out = args[24].ptr;
  for (uint64_t i = begin; i < end; ++i)
    out[i] = (uintptr_t)args % NESO_ARGS_ALIGN ? -1 : x[i] + (float)args[8].i64;
}
