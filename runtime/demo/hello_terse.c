/* The shortest program that runs a model: hello_terse MODEL.neso. The model takes one float32 tensor, which is filled with ones; sizes that
 * may vary are 2. See hello_explained.c for what each line means. */
#include <stdio.h>
#include <stdlib.h>

#include "neso/neso.h"

int main(int argc, char **argv) {
  neso_model *model;
  neso_context *context;
  neso_value_info info;
  int64_t sizes[64], n = 1;
  if (argc != 2) return puts("usage: hello_terse MODEL.neso"), 2;
  if (neso_model_load(argv[1], NULL, &model) || neso_context_create(model, NULL, &context))
    return puts(neso_error_text()), 1;
  if (neso_model_input(model, 0, &info) || neso_model_solve_sizes(model, NULL, NULL, 0, sizes))
    return puts(neso_error_text()), 1;
  for (int d = 0; d < info.rank; ++d) n *= sizes[d];
  float *data = malloc(sizeof(float) * (size_t)n);
  for (int64_t i = 0; i < n; ++i) data[i] = 1;
  neso_tensor in = {.data = data, .sizes = sizes, .rank = info.rank, .dtype = NESO_F32}, out = {0};
  if (neso_run(context, &in, 1, &out, 1)) return puts(neso_error_text()), 1;
  printf("%g\n", ((float *)out.data)[0]);
  neso_context_free(context);
  neso_model_free(model);
  free(data);
}
