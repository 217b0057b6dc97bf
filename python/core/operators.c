/* Operators of the caller's as Python functions: what a run calls where no library of C functions was given. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of the maker's kind that borrows the runtime's memory for the call. */
static PyObject *lend(const neso_tensor *t, const result_maker *maker) {
  neso_dl_versioned *memory = lend_memory(t);
  return memory ? wrap_result(memory, t->dtype, maker) : PyErr_NoMemory();
}

static PyObject *lend_all(const neso_tensor *tensors, int32_t count, const result_maker *maker) {
  PyObject *out = PyList_New(0);
  for (int32_t i = 0; out && i < count; ++i) {
    PyObject *one = lend(&tensors[i], maker);
    if (!one || PyList_Append(out, one)) Py_CLEAR(out);
    Py_XDECREF(one);
  }
  return out;
}

/* Element k of an argument. `inputs`: the call's, as Python has them. */
static PyObject *element(const neso_op_call *call, const neso_op_argument *a, int32_t k, PyObject *inputs) {
  switch (a->kind) {
  case NESO_OP_NONE: return Py_NewRef(Py_None);
  case NESO_OP_TENSOR:
  case NESO_OP_TENSORS: {
    PyObject *tensor = a->ints[k] < 0 ? Py_None : PyList_GetItem(inputs, (Py_ssize_t)a->ints[k]);
    return Py_XNewRef(tensor);
  }
  case NESO_OP_FLOAT:
  case NESO_OP_FLOATS: return PyFloat_FromDouble(a->floats[k]);
  case NESO_OP_BOOL:
  case NESO_OP_BOOLS: return PyBool_FromLong(a->ints[k] != 0);
  case NESO_OP_TEXT:
  case NESO_OP_TEXTS:
  case NESO_OP_DEVICE: return PyUnicode_FromString(a->texts[k]);
  case NESO_OP_INT:
  case NESO_OP_INTS:
  case NESO_OP_DTYPE:
  case NESO_OP_LAYOUT:
  case NESO_OP_MEMORY_FORMAT: return PyLong_FromLongLong((long long)a->ints[k]);
  /* Those of a model whose operators are Python's are Python's too. */
  case NESO_OP_OBJECT: return Py_NewRef((PyObject *)call->objects[a->ints[k]].object);
  }
  return PyErr_Format(PyExc_TypeError, "argument '%s' is of a kind that is not known here", a->name);
}

static int is_list(neso_op_argument_kind kind) {
  return kind == NESO_OP_TENSORS || kind == NESO_OP_INTS || kind == NESO_OP_FLOATS || kind == NESO_OP_BOOLS || kind == NESO_OP_TEXTS;
}

static PyObject *value(const neso_op_call *call, const neso_op_argument *a, PyObject *inputs) {
  if (!is_list(a->kind)) return element(call, a, 0, inputs);
  PyObject *out = PyList_New(0);
  for (int32_t k = 0; out && k < a->count; ++k) {
    PyObject *one = element(call, a, k, inputs);
    if (!one || PyList_Append(out, one)) Py_CLEAR(out);
    Py_XDECREF(one);
  }
  return out;
}

/* What Python has objects of its own for. */
static const char *special(neso_op_argument_kind kind) {
  return kind == NESO_OP_DTYPE ? "dtype" : kind == NESO_OP_LAYOUT ? "layout" : kind == NESO_OP_MEMORY_FORMAT ? "memory_format" : "";
}

/* [(name, special kind or "", value), ...] */
static PyObject *arguments_of(const neso_op_call *call, PyObject *inputs) {
  PyObject *out = PyList_New(0);
  for (int32_t i = 0; out && i < call->argument_count; ++i) {
    const neso_op_argument *a = &call->arguments[i];
    PyObject *v = value(call, a, inputs), *row = v ? Py_BuildValue("ssO", a->name, special(a->kind), v) : NULL;
    if (!row || PyList_Append(out, row)) Py_CLEAR(out);
    Py_XDECREF(row);
    Py_XDECREF(v);
  }
  return out;
}

/* The exception's type and text, for the run's message. */
static neso_status fail_by_exception(const neso_op_call *call) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject *text = value ? call_hook("exception_text", value) : NULL;
  const char *line = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  const neso_status status = call->fail(call, line ? line : "a Python exception without a text");
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  PyErr_Clear();
  return status;
}

/* [(result, dimension), ...]: what a call for sizes is asked. */
static PyObject *asked_of(const neso_op_call *call) {
  PyObject *out = PyList_New(0);
  for (int32_t i = 0; out && i < call->asked_count; ++i) {
    PyObject *one = Py_BuildValue("ii", (int)call->asked[i].result, (int)call->asked[i].dim);
    if (!one || PyList_Append(out, one)) Py_CLEAR(out);
    Py_XDECREF(one);
  }
  return out;
}

/* neso_op::run; user: function(arguments, outputs, asked, stream), which fills the outputs. On any thread, without the interpreter's lock. */
static neso_status run_python(void *user, const neso_op_call *call) {
  const PyGILState_STATE gil = PyGILState_Ensure();
  result_maker maker = {NULL, MAKER_NONE, NULL, GRAD_UNKNOWN};
  PyObject *type = call_hook("tensor_type", NULL);
  PyObject *inputs = type && maker_of_type(type, &maker) == 0 ? lend_all(call->inputs, call->input_count, &maker) : NULL;
  PyObject *outputs = inputs ? lend_all(call->outputs, call->output_count, &maker) : NULL, *arguments = outputs ? arguments_of(call, inputs) : NULL;
  PyObject *asked = arguments ? asked_of(call) : NULL;
  PyObject *done = asked ? PyObject_CallFunction((PyObject *)user, "OOOK", arguments, outputs, asked, (unsigned long long)(uintptr_t)call->stream) : NULL;
  const neso_status status = done ? NESO_OK : fail_by_exception(call);
  Py_XDECREF(done);
  Py_XDECREF(asked);
  Py_XDECREF(arguments);
  Py_XDECREF(outputs);
  Py_XDECREF(inputs);
  Py_XDECREF(type);
  PyGILState_Release(gil);
  return status;
}

int give_operators(model_object *self, PyObject *resolver) {
  const int32_t count = neso_model_op_count(self->model);
  if (!count || resolver == Py_None) return 0;
  self->operators = calloc((size_t)count, sizeof *self->operators);
  if (!self->operators) return PyErr_NoMemory(), -1;
  for (int32_t i = 0; i < count; ++i) {
    const char *name = neso_model_op(self->model, i);
    PyObject *function = PyObject_CallFunction(resolver, "s", name);
    if (!function) return -1;
    if (function == Py_None) {
      Py_DECREF(function);
      continue;
    }
    self->operators[self->operator_count++] = (neso_op){name, run_python, function, self->device};
  }
  neso_model_set_ops(self->model, self->operators, (size_t)self->operator_count);
  return 0;
}

void free_operators(model_object *self) {
  for (int32_t i = 0; i < self->operator_count; ++i) Py_DECREF((PyObject *)self->operators[i].user);
  free(self->operators);
}
