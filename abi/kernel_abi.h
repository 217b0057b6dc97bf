/* What compiled CPU kernels and the runtime agree on. Plain C; no dependencies.
 *
 * A kernel is one tile program compiled for one CPU level. The runtime calls it for a range [begin, end) of linear program numbers;
 * program p of a grid (X, Y, Z) has ids x = p % X, y = p / X % Y, z = p / (X * Y). Ranges of one launch may run on several threads at
 * once; the kernel keeps no state but what env->scratch holds. */
#ifndef NESO_ABI_KERNEL_ABI_H
#define NESO_ABI_KERNEL_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NESO_KERNEL_ABI_VERSION 1

/* Where an argument lies in the memory of a kernel's arguments, which begins at a multiple of NESO_ARGS_ALIGN when an
 * argument has more than 8 bytes. Arguments lie in the order of the tile function's parameters, each behind the one before
 * at a multiple of 8 and of its own alignment; pointers and numbers have 8 bytes, so that where there is nothing else the
 * memory is an array of neso_arg. */
struct neso_arg_place {
  int32_t offset, bytes;
};
#define NESO_ARGS_ALIGN 64

/* An argument that is a pointer or a number. Integers of any width are sign- or zero-extended to i64 by their own
 * signedness; floats narrower than f64 are passed as f32 (tile functions take f32 or f64 scalars); a bool is 0 or 1. */
union neso_arg {
  void *ptr;
  int64_t i64;
  double f64;
  float f32;
};

/* What a kernel can report while it runs; the runtime turns it into a status of the run. */
enum neso_kernel_event {
  NESO_KERNEL_ASSERT = 1, /* tt.assert failed: text is the message, values are empty */
  NESO_KERNEL_PRINT = 2,  /* tt.print: text is the prefix, values are the elements (in order) of one operand */
  NESO_KERNEL_INDEX = 3   /* an index of the model is out of range: values[0] the index, values[1] the size */
};

struct neso_kernel_env {
  void *scratch;     /* at least the kernel's scratch bytes, 64-byte aligned, private to the calling thread */
  void *report_data; /* for report */
  /* program: linear program number; text: NUL-terminated, lives as long as the kernel's code; values: n elements, as doubles or int64
   * (is_float). May be called from several threads at once. Never null. */
  void (*report)(void *report_data, enum neso_kernel_event event, uint64_t program, const char *text, int line,
                 const void *values, int64_t n, int is_float);
};

/* args: the memory of the arguments. */
typedef void (*neso_cpu_kernel_fn)(const union neso_arg *args, const uint32_t grid[3], uint64_t begin, uint64_t end,
                                   const struct neso_kernel_env *env);

#ifdef __cplusplus
}
#endif
#endif
