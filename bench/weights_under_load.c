/* What swaps of weights cost runs that are under way: threads run a model, another makes a set of weights each millisecond and gives it to them.
 *
 *     cc -O2 -I runtime/include bench/weights_under_load.c -o weights_under_load -L build/release/lib -lneso -lpthread
 *     weights_under_load MODEL.neso NAME SECONDS [THREADS]
 *
 * MODEL has one input of fixed size and one output, both float32; NAME is its weight, which a set fills with one number, so that all elements of an output of ones are
 * equal: one that differs was computed from two sets. Prints the runs, those that failed or were torn, the 50th, 99th and 99.9th hundredth of their time without
 * swaps, with them and without again, and what making a set and neso_model_use take. Fails when a run did, or was torn. */
#include <neso/neso.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kMost = 64, kTimes = 1 << 22 };

static neso_model *model;
static int64_t inputElements = 1, outputElements = 1;
static int64_t inputSizes[8];
static int32_t inputRank;
static atomic_int stop;
typedef struct {
  double *times;
  int64_t count, torn, failed;
} Runner;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
static void check(neso_status s) {
  if (s == NESO_OK) return;
  fprintf(stderr, "%s\n", neso_error_text());
  exit(1);
}

static void *runAll(void *data) {
  Runner *r = data;
  neso_context_options options = {.struct_size = sizeof options, .threads = 1};
  neso_context *context;
  check(neso_context_create(model, &options, &context));
  float *x = malloc(inputElements * sizeof *x);
  for (int64_t i = 0; i < inputElements; ++i) x[i] = 1;
  neso_tensor in = {x, inputSizes, NULL, inputRank, NESO_F32, NESO_CPU, 0}, out = {0};
  while (!stop) {
    const double begun = now();
    if (neso_run(context, &in, 1, &out, 1) != NESO_OK) {
      ++r->failed;
      continue;
    }
    const double spent = now() - begun;
    if (r->count < kTimes) r->times[r->count++] = spent;
    const float *y = out.data;
    for (int64_t i = 1; i < outputElements; ++i) r->torn += y[i] != y[0];
  }
  neso_context_free(context);
  free(x);
  return NULL;
}

static int byTime(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

/* Runs for so long; with `weight` swaps go on meanwhile. Returns how many runs failed or were torn. */
static int64_t phase(const char *what, double seconds, int threads, const char *name, const neso_tensor *weight) {
  static Runner runners[kMost];
  static pthread_t ids[kMost];
  stop = 0;
  for (int k = 0; k < threads; ++k) {
    if (!runners[k].times) runners[k].times = malloc(kTimes * sizeof(double));
    runners[k].count = runners[k].torn = runners[k].failed = 0;
    pthread_create(&ids[k], NULL, runAll, &runners[k]);
  }
  const double end = now() + seconds * 1e6;
  double making = 0, using = 0, next = now();
  int64_t swaps = 0, elements = 1;
  float *values = NULL;
  if (weight) {
    for (int d = 0; d < weight->rank; ++d) elements *= weight->sizes[d];
    values = malloc(elements * sizeof *values);
  }
  while (now() < end) {
    next += 1000;
    if (weight) {
      for (int64_t i = 0; i < elements; ++i) values[i] = (float)(swaps % 1000);
      neso_tensor value = {values, weight->sizes, NULL, weight->rank, NESO_F32, NESO_CPU, 0};
      neso_weights *set;
      const double begun = now();
      check(neso_weights_create(model, NULL, &set));
      check(neso_weights_set(set, name, &value, NESO_WEIGHTS_COPY));
      check(neso_weights_seal(set));
      const double made = now();
      check(neso_model_use(model, set));
      using += now() - made, making += made - begun;
      neso_weights_free(set);
      ++swaps;
    }
    const double wait = next - now();
    if (wait > 0) nanosleep(&(struct timespec){0, (long)(wait * 1000)}, NULL);
  }
  stop = 1;
  int64_t runs = 0, torn = 0, failed = 0;
  for (int k = 0; k < threads; ++k) {
    pthread_join(ids[k], NULL);
    runs += runners[k].count, torn += runners[k].torn, failed += runners[k].failed;
  }
  double *all = malloc((runs + 1) * sizeof *all);
  int64_t at = 0;
  for (int k = 0; k < threads; ++k)
    for (int64_t i = 0; i < runners[k].count; ++i) all[at++] = runners[k].times[i];
  qsort(all, runs, sizeof *all, byTime);
  printf("%-13s %9lld runs, %lld failed, %lld torn elements; us: p50 %.2f, p99 %.2f, p99.9 %.2f", what, (long long)runs, (long long)failed, (long long)torn, all[runs / 2],
         all[runs * 99 / 100], all[runs * 999 / 1000]);
  if (swaps) printf("; %lld swaps, a set made in %.1f us, neso_model_use %.3f us", (long long)swaps, making / swaps, using / swaps);
  printf("\n");
  free(all), free(values);
  return failed + torn;
}

int main(int argc, char **argv) {
  if (argc < 4) return fprintf(stderr, "usage: weights_under_load MODEL.neso NAME SECONDS [THREADS]\n"), 2;
  const double seconds = atof(argv[3]);
  const int threads = argc > 4 ? atoi(argv[4]) : 4;
  if (threads < 1 || threads > kMost) return fprintf(stderr, "1 to %d threads\n", kMost), 2;
  check(neso_model_load(argv[1], NULL, &model));
  neso_value_info input, output;
  check(neso_model_input(model, 0, &input));
  check(neso_model_output(model, 0, &output));
  for (inputRank = 0; inputRank < input.rank && inputRank < 8; ++inputRank) inputElements *= inputSizes[inputRank] = input.dims[inputRank].min;
  for (int d = 0; d < output.rank; ++d) outputElements *= output.dims[d].min;
  neso_constant_info weight;
  int found = 0;
  for (int k = 0; k < neso_model_constant_count(model) && !found; ++k) {
    check(neso_model_constant(model, k, &weight));
    const char *a = weight.name, *b = argv[2];
    while (*a && *a == *b) ++a, ++b;
    found = !*a && !*b;
  }
  if (!found) return fprintf(stderr, "%s has no weight '%s'\n", argv[1], argv[2]), 1;
  /* The package's values are no single number: runs are compared from the first set on. */
  phase("(first)", 0.2, threads, argv[2], &weight.tensor);
  int64_t bad = phase("alone", seconds / 4, threads, NULL, NULL);
  bad += phase("with swaps", seconds, threads, argv[2], &weight.tensor);
  bad += phase("alone", seconds / 4, threads, NULL, NULL);
  neso_model_free(model);
  return bad != 0;
}
