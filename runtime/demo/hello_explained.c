/* Runs a model with one float32 input on ones, step by step: hello_explained MODEL.neso. The same as hello_terse.c, with every decision
 * said aloud. Build: cc hello_explained.c libneso.a -lpthread -ldl -lm */
#include <stdio.h>
#include <stdlib.h>

#include "neso/neso.h"

/* Every call says how it went; the text of the last failure is kept per thread. */
static void check(neso_status status, const char *what) {
  if (status == NESO_OK) return;
  fprintf(stderr, "%s failed: error[%s]: %s\n", what, neso_status_code(status), neso_error_text());
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL.neso\n", argv[0]);
    return 2;
  }

  /* A model is the package, mapped and checked. It never changes, and all threads of the program may share it. The options say that
   * every byte is to be checked, constants included; without them large constants are trusted, so that loading stays instant. */
  neso_model_options model_options = {.struct_size = sizeof model_options, .check = NESO_CHECK_ALL};
  neso_model *model = NULL;
  check(neso_model_load(argv[1], &model_options, &model), "loading");

  /* A context is one run at a time: intermediate memory, threads, and the model's own copies of buffers that runs change. Make one for
   * each thread of the program that calls neso_run. */
  neso_context_options context_options = {.struct_size = sizeof context_options, .threads = 2};
  neso_context *context = NULL;
  check(neso_context_create(model, &context_options, &context), "creating a context");

  /* What does the model take? Sizes have ranges; where minimum and maximum differ, each run may choose. */
  neso_value_info info;
  check(neso_model_input(model, 0, &info), "asking for input 0");
  printf("input 0 '%s': %s [", info.name, neso_dtype_name(info.dtype));
  for (int d = 0; d < info.rank; ++d)
    printf("%s%lld..%lld", d ? ", " : "", (long long)info.dims[d].min, (long long)info.dims[d].max);
  printf("]\n");
  if (neso_model_input_count(model) != 1 || info.kind != NESO_VALUE_TENSOR || info.dtype != NESO_F32 ||
      info.rank > 64) {
    fprintf(stderr, "this demo is for models with one float32 input\n");
    return 1;
  }

  /* Sizes that satisfy all of the model's conditions. To choose one: names = {"s0"}, values = {17}, count = 1. */
  int64_t sizes[64];
  check(neso_model_solve_sizes(model, NULL, NULL, 0, sizes), "choosing sizes");
  size_t count = 1;
  for (int d = 0; d < info.rank; ++d) count *= (size_t)sizes[d];

  /* Inputs are the caller's memory; no strides means contiguous. Other layouts are accepted, at the cost of a copy. */
  float *data = malloc(count * sizeof(float) + 1);
  for (size_t i = 0; i < count; ++i) data[i] = 1;
  neso_tensor input = {.data = data, .sizes = sizes, .rank = info.rank, .dtype = NESO_F32};

  /* An output without data comes in the context's memory, valid until its next run; give it data, sizes, rank and dtype to have the
   * result written where you want it. */
  int32_t output_count = neso_model_output_count(model);
  neso_tensor *outputs = calloc((size_t)output_count + 1, sizeof *outputs);
  check(neso_run(context, &input, 1, outputs, (size_t)output_count), "running");
  for (int32_t i = 0; i < output_count; ++i) {
    printf("output %d: %s [", i, neso_dtype_name(outputs[i].dtype));
    for (int d = 0; d < outputs[i].rank; ++d) printf("%s%lld", d ? ", " : "", (long long)outputs[i].sizes[d]);
    printf("]");
    if (outputs[i].dtype == NESO_F32 && outputs[i].data) printf(" starts with %g", ((const float *)outputs[i].data)[0]);
    printf("\n");
  }

  /* Contexts go before their model. */
  neso_context_free(context);
  neso_model_free(model);
  free(outputs);
  free(data);
  return 0;
}
