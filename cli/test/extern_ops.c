// The operators of tools/golden_extern.py and tools/golden_objects.py, as somebody who runs a package brings them: with the C interface alone.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "neso/neso.h"

static const neso_op_argument *argument(const neso_op_call *call, const char *name) {
  for (int32_t i = 0; i < call->argument_count; ++i)
    if (strcmp(call->arguments[i].name, name) == 0) return &call->arguments[i];
  return NULL;
}

static float at(const neso_tensor *t, int64_t i, int64_t j) {
  return ((const float *)t->data)[i * t->strides[0] + j * t->strides[1]];
}

static neso_status mix(void *user, const neso_op_call *call) {
  const neso_op_argument *n = argument(call, "n"), *f = argument(call, "f"), *b = argument(call, "b"), *s = argument(call, "s"), *t = argument(call, "t");
  const neso_op_argument *ints = argument(call, "ints"), *floats = argument(call, "floats"), *bools = argument(call, "bools");
  const neso_op_argument *x = argument(call, "x"), *y = argument(call, "y"), *more = argument(call, "more"), *absent = argument(call, "absent");
  if (!n || n->kind != NESO_OP_INT || !f || f->kind != NESO_OP_FLOAT || !b || b->kind != NESO_OP_BOOL || !s || s->kind != NESO_OP_TEXT || !t ||
      t->kind != NESO_OP_DTYPE || !ints || ints->kind != NESO_OP_INTS || !floats || floats->kind != NESO_OP_FLOATS || !bools ||
      bools->kind != NESO_OP_BOOLS || !more || more->kind != NESO_OP_TENSORS || !x || x->kind != NESO_OP_TENSOR)
    return call->fail(call, "an argument is missing, or of another kind");
  ++*(int *)user;
  const neso_tensor *in = &call->inputs[x->ints[0]], *out = &call->outputs[0], *seen = &call->outputs[1];
  const int has_y = y && y->kind == NESO_OP_TENSOR;
  for (int64_t i = 0; i < out->sizes[0]; ++i)
    for (int64_t j = 0; j < out->sizes[1]; ++j) {
      float v = at(in, i, j) * (float)n->ints[0] + (float)f->floats[0];
      if (has_y) v += at(&call->inputs[y->ints[0]], j, i);
      for (int32_t k = 0; k < more->count; ++k) v += at(&call->inputs[more->ints[k]], i, j);
      ((float *)out->data)[i * out->strides[0] + j * out->strides[1]] = v;
    }
  float *to = seen->data;
  *to++ = (float)n->ints[0], *to++ = (float)f->floats[0], *to++ = (float)b->ints[0], *to++ = (float)strlen(s->texts[0]);
  *to++ = t->ints[0] == NESO_F32 ? 16 : -1;
  for (int32_t k = 0; k < ints->count; ++k) *to++ = (float)ints->ints[k];
  for (int32_t k = 0; k < floats->count; ++k) *to++ = (float)floats->floats[k];
  for (int32_t k = 0; k < bools->count; ++k) *to++ = (float)bools->ints[k];
  *to++ = (float)more->count, *to++ = (float)has_y, *to++ = absent && absent->kind == NESO_OP_TENSOR;
  return NESO_OK;
}

static neso_status total(void *user, const neso_op_call *call) {
  const neso_tensor *x = &call->inputs[0];
  double sum = 0;
  for (int64_t i = 0; i < x->sizes[0]; ++i)
    for (int64_t j = 0; j < x->sizes[1]; ++j) sum += at(x, i, j);
  if (!(fabs(sum) < 1e6)) return call->fail(call, "the total is too large");
  *(float *)call->outputs[0].data = (float)sum;
  return NESO_OK;
}

// What it is given is changed, as the operator's schema says.
static neso_status scale(void *user, const neso_op_call *call) {
  const neso_op_argument *x = argument(call, "x"), *f = argument(call, "_f");
  if (!x || x->kind != NESO_OP_TENSOR || !f || call->output_count != 0) return call->fail(call, "not called as its schema says");
  const neso_tensor *t = &call->inputs[x->ints[0]];
  for (int64_t i = 0; i < t->sizes[0]; ++i)
    for (int64_t j = 0; j < t->sizes[1]; ++j) ((float *)t->data)[i * t->strides[0] + j * t->strides[1]] *= (float)f->floats[0];
  return NESO_OK;
}

static neso_status push(void *user, const neso_op_call *call) {
  const neso_op_argument *x = argument(call, "x"), *y = argument(call, "y"), *sum = argument(call, "total");
  if (!x || !y || !sum) return call->fail(call, "not called as its schema says");
  const neso_tensor *to = &call->inputs[x->ints[0]], *from = &call->inputs[y->ints[0]], *out = &call->outputs[0];
  for (int64_t i = 0; i < from->sizes[0]; ++i)
    for (int64_t j = 0; j < from->sizes[1]; ++j) {
      const float v = at(from, i, j);
      ((float *)to->data)[i * to->strides[0] + j * to->strides[1]] += v;
      ((float *)out->data)[i * out->strides[0] + j * out->strides[1]] = 2 * v;
      if (sum->kind == NESO_OP_TENSOR) ((float *)call->inputs[sum->ints[0]].data)[j * call->inputs[sum->ints[0]].strides[0]] += v;
    }
  return NESO_OK;
}

// Rows whose sum is above a bound, and where they stand, twice each.
static int is_over(const neso_op_call *call, int64_t i) {
  const neso_op_argument *bound = argument(call, "bound");
  double sum = 0;
  for (int64_t j = 0; j < call->inputs[0].sizes[1]; ++j) sum += at(&call->inputs[0], i, j);
  return sum > bound->floats[0];
}

static neso_status over_sizes(void *user, const neso_op_call *call) {
  int64_t *sizes = call->outputs[0].data;
  if (call->output_count != 1 || call->outputs[0].dtype != NESO_I64 || call->outputs[0].sizes[0] != 2) return call->fail(call, "two sizes were expected");
  sizes[0] = 0;
  for (int64_t i = 0; i < call->inputs[0].sizes[0]; ++i) sizes[0] += is_over(call, i);
  sizes[1] = 2 * sizes[0];
  return NESO_OK;
}

static neso_status over(void *user, const neso_op_call *call) {
  const neso_tensor *rows = &call->outputs[0], *places = &call->outputs[1];
  int64_t k = 0;
  for (int64_t i = 0; i < call->inputs[0].sizes[0]; ++i) {
    if (!is_over(call, i)) continue;
    if (k == rows->sizes[0]) return call->fail(call, "there are more rows than were asked for");
    for (int64_t j = 0; j < rows->sizes[1]; ++j) ((float *)rows->data)[k * rows->strides[0] + j * rows->strides[1]] = at(&call->inputs[0], i, j);
    ((int64_t *)places->data)[2 * k * places->strides[0]] = ((int64_t *)places->data)[(2 * k + 1) * places->strides[0]] = i;
    ++k;
  }
  return NESO_OK;
}

// A script object: each call of one of its methods counts.
typedef struct tally {
  double scale;
  int64_t calls;
} tally;
static tally inner = {2.0, 0}, given = {0.5, 0};
#define TALLY "__torch__.torch.classes.neso_test_objects.Tally"

static tally *object(const neso_op_call *call, const char *name) {
  const neso_op_argument *a = argument(call, name);
  if (!a || a->kind != NESO_OP_OBJECT || a->count != 1 || strcmp(a->texts[0], TALLY) != 0 || a->ints[0] >= call->object_count) return NULL;
  return call->objects[a->ints[0]].object;
}

// out (op)= x * factor + number
static void scaled(const neso_tensor *x, const neso_tensor *out, double factor, double number, int add) {
  for (int64_t i = 0; i < out->sizes[0]; ++i)
    for (int64_t j = 0; j < out->sizes[1]; ++j) {
      float *to = (float *)out->data + i * out->strides[0] + j * out->strides[1];
      *to = (float)((add ? *to : 0) + at(x, i, j) * factor + number);
    }
}

static neso_status next(void *user, const neso_op_call *call) {
  tally *self = object(call, "self");
  const neso_op_argument *x = argument(call, "1");
  if (!self || !x || x->kind != NESO_OP_TENSOR || call->argument_count != 2) return call->fail(call, "not called as the method is declared");
  return scaled(&call->inputs[x->ints[0]], call->outputs, self->scale, (double)++self->calls, 0), NESO_OK;
}

static neso_status add(void *user, const neso_op_call *call) {
  tally *self = object(call, "self");
  const neso_op_argument *n = argument(call, "1");
  if (!self || !n || n->kind != NESO_OP_INT || call->output_count != 0) return call->fail(call, "not called as the method is declared");
  self->calls += n->ints[0];
  return NESO_OK;
}

static neso_status both(void *user, const neso_op_call *call) {
  tally *self = object(call, "self");
  const neso_op_argument *x = argument(call, "1"), *n = argument(call, "2"), *f = argument(call, "3"), *word = argument(call, "4"), *y = argument(call, "5");
  if (!self || !x || !n || !f || !word || !y || y->kind != NESO_OP_TENSOR || call->output_count != 2) return call->fail(call, "not called as the method is declared");
  ++self->calls;
  scaled(&call->inputs[x->ints[0]], &call->outputs[0], (double)n->ints[0], 0, 0);
  scaled(&call->inputs[y->ints[0]], &call->outputs[0], 1, 0, 1);
  scaled(&call->inputs[x->ints[0]], &call->outputs[1], 1, (double)strlen(word->texts[0]), 0);
  return NESO_OK;
}

static neso_status tallied(void *user, const neso_op_call *call) {
  tally *t = object(call, "t");
  if (!t) return call->fail(call, "there is no object");
  return scaled(call->inputs, call->outputs, t->scale - 1, (double)++t->calls, 0), NESO_OK;
}

static neso_status tally_into(void *user, const neso_op_call *call) {
  tally *t = object(call, "t");
  const neso_op_argument *x = argument(call, "x");
  if (!t || !x) return call->fail(call, "there is no object");
  return scaled(&call->inputs[x->ints[0]], &call->inputs[x->ints[0]], 1, (double)++t->calls, 0), NESO_OK;
}

static neso_status two(void *user, const neso_op_call *call) {
  tally *a = object(call, "a"), *b = object(call, "b");
  if (!a || !b || call->object_count != 2) return call->fail(call, "there are not two objects");
  const double first = (double)++a->calls, second = (double)++b->calls;
  return scaled(call->inputs, call->outputs, a->scale + b->scale, first + second, 0), NESO_OK;
}

const neso_object neso_objects[] = {{"inner.tally", &inner}, {"t", &given}, {NULL, NULL}};

static int mixed;
const neso_op neso_ops[] = {{"neso_test::mix", mix, &mixed, NESO_CPU},
                            {"neso_test::total", total, NULL, NESO_CPU},
                            {"neso_test::scale_", scale, NULL, NESO_CPU},
                            {"neso_test::push", push, NULL, NESO_CPU},
                            {"neso_test::over", over, NULL, NESO_CPU},
                            {"neso_test::over:sizes", over_sizes, NULL, NESO_CPU},
                            {TALLY "::next", next, NULL, NESO_CPU},
                            {TALLY "::add", add, NULL, NESO_CPU},
                            {TALLY "::both", both, NULL, NESO_CPU},
                            {"neso_test_objects::tallied", tallied, NULL, NESO_CPU},
                            {"neso_test_objects::tally_into", tally_into, NULL, NESO_CPU},
                            {"neso_test_objects::two", two, NULL, NESO_CPU},
                            {NULL, NULL, NULL, NESO_CPU}};
