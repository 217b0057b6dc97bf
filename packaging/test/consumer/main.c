/* Runs a model of one vector of floats and prints the result. */
#include <stdio.h>

#include <neso/neso.h>

#ifdef EMBEDDED
extern const unsigned char inside_neso[];
extern const unsigned long inside_neso_size;
#endif

int main(int argc, char **argv) {
  neso_model *model;
  neso_context *context;
#ifdef EMBEDDED
  neso_status status = neso_model_load_memory(inside_neso, inside_neso_size, NULL, &model);
#else
  neso_status status = neso_model_load(argc > 1 ? argv[1] : "tiny.neso", NULL, &model);
#endif
  float x[] = {1, 2, 3, 4};
  int64_t sizes[] = {4};
  neso_tensor in = {.data = x, .dtype = NESO_F32, .rank = 1, .sizes = sizes}, out = {0};
  if (status || neso_context_create(model, NULL, &context) || neso_run(context, &in, 1, &out, 1)) {
    puts(neso_error_text());
    return 1;
  }
  for (int64_t i = 0; i < out.sizes[0]; ++i) printf("%g ", ((float *)out.data)[i]);
  neso_context_free(context);
  neso_model_free(model);
  return 0;
}
