/* What a package says of itself, as Python's lists and dictionaries. */
#include "core.h"

static const char *const kinds[] = {"tensor", "int", "float", "bool", "text", "none"};
static const char *const constant_kinds[] = {"parameter", "buffer", "constant", "folded"};

static PyObject *size_or_none(int64_t value) { return value == INT64_MAX ? Py_NewRef(Py_None) : PyLong_FromLongLong(value); }

static PyObject *value_row(const neso_value_info *v) {
  PyObject *dims = PyList_New(0);
  for (int32_t d = 0; dims && d < v->rank; ++d) {
    PyObject *dim = Py_BuildValue("(LNz)", (long long)v->dims[d].min, size_or_none(v->dims[d].max), v->dims[d].symbol);
    if (dim) PyList_Append(dims, dim);
    Py_XDECREF(dim);
  }
  return Py_BuildValue("{sssssssNsOsO}", "name", v->name, "kind", kinds[v->kind], "dtype", neso_dtype_name(v->dtype), "dims", dims, "mutated", v->mutated ? Py_True : Py_False, "optional",
                       v->optional ? Py_True : Py_False);
}

static PyObject *input_row(const neso_model *m, int32_t i) {
  neso_value_info info;
  neso_model_input(m, i, &info);
  return value_row(&info);
}
static PyObject *output_row(const neso_model *m, int32_t i) {
  neso_value_info info;
  neso_model_output(m, i, &info);
  return value_row(&info);
}

static PyObject *constant_row(const neso_model *m, int32_t i) {
  neso_constant_info c;
  neso_model_constant(m, i, &c);
  PyObject *shape = PyTuple_New(c.tensor.rank);
  for (int32_t d = 0; shape && d < c.tensor.rank; ++d) PyTuple_SetItem(shape, d, PyLong_FromLongLong(c.tensor.sizes[d]));
  return Py_BuildValue("{sssssssNsOsO}", "name", c.name, "kind", constant_kinds[c.kind], "dtype", neso_dtype_name(c.tensor.dtype), "shape", shape, "mutated", c.mutated ? Py_True : Py_False, "given",
                       c.tensor.data ? Py_True : Py_False);
}

static PyObject *kernel_row(const neso_model *m, int32_t i) {
  neso_kernel_info k;
  neso_model_kernel(m, i, &k);
  PyObject *sources = PyList_New(0);
  for (int32_t line = 0; sources && line < k.source_count; ++line) {
    PyObject *text = PyUnicode_FromString(neso_model_kernel_source(m, i, line));
    if (text) PyList_Append(sources, text);
    Py_XDECREF(text);
  }
  return Py_BuildValue("{sssssisLsN}", "name", k.name, "doc", k.doc, "arguments", k.arg_count, "scratch_bytes", (long long)k.scratch_bytes, "sources", sources);
}

static PyObject *target_row(const neso_model *m, int32_t i) {
  neso_target_info t;
  neso_model_target(m, i, &t);
  return Py_BuildValue("{sssssnsO}", "device", t.kind == NESO_CUDA ? "cuda" : "cpu", "arch", t.arch, "code_bytes", (Py_ssize_t)t.code_bytes, "chosen", t.chosen ? Py_True : Py_False);
}

static PyObject *symbol_row(const neso_model *m, int32_t i) {
  neso_symbol_info s;
  neso_model_symbol(m, i, &s);
  return Py_BuildValue("{sssLsNsL}", "name", s.name, "min", (long long)s.min, "max", size_or_none(s.max), "hint", (long long)s.hint);
}

static PyObject *rows(const neso_model *m, int32_t count, PyObject *(*row)(const neso_model *, int32_t)) {
  PyObject *out = PyList_New(0);
  for (int32_t i = 0; out && i < count; ++i) {
    PyObject *one = row(m, i);
    if (!one || PyList_Append(out, one)) {
      Py_XDECREF(one);
      Py_DECREF(out);
      return NULL;
    }
    Py_DECREF(one);
  }
  return out;
}

static int add_text(PyObject *out, const char *key, const char *text) {
  PyObject *value = PyUnicode_FromString(text ? text : "");
  const int failed = !value || PyDict_SetItemString(out, key, value);
  Py_XDECREF(value);
  return failed;
}

static PyObject *metadata_of(const neso_model *m) {
  PyObject *out = PyDict_New();
  for (int32_t i = 0; out && neso_model_metadata_key(m, i); ++i) {
    const char *key = neso_model_metadata_key(m, i);
    if (add_text(out, key, neso_model_metadata(m, key))) Py_CLEAR(out);
  }
  return out;
}

static PyObject *operator_row(const neso_model *m, int32_t i) { return PyUnicode_FromString(neso_model_op(m, i)); }

static PyObject *object_row(const neso_model *m, int32_t i) {
  neso_object_info object;
  return neso_model_object(m, i, &object) == NESO_OK ? Py_BuildValue("{ssss}", "name", object.name, "class", object.class_name) : NULL;
}

PyObject *describe_model(PyObject *object, PyObject *unused) {
  const neso_model *m = ((model_object *)object)->model;
  if (!m) return PyErr_SetString(PyExc_RuntimeError, "the model is not loaded"), NULL;
  neso_model_stats stats;
  neso_model_get_stats(m, &stats);
  PyObject *out = Py_BuildValue("{sNsNsNsNsNsNsNsNsNsLsLsnsnsnsd}", "inputs", rows(m, neso_model_input_count(m), input_row), "outputs", rows(m, neso_model_output_count(m), output_row), "constants",
                                rows(m, neso_model_constant_count(m), constant_row), "kernels", rows(m, neso_model_kernel_count(m), kernel_row), "targets",
                                rows(m, neso_model_target_count(m), target_row), "dims", rows(m, neso_model_symbol_count(m), symbol_row), "operators", rows(m, neso_model_op_count(m), operator_row), "objects", rows(m, neso_model_object_count(m), object_row), "metadata", metadata_of(m), "steps",
                                (long long)stats.step_count, "launches", (long long)stats.launch_count, "package_bytes", (Py_ssize_t)stats.package_bytes, "plan_bytes",
                                (Py_ssize_t)stats.plan_bytes, "constant_bytes", (Py_ssize_t)stats.constant_bytes, "load_ms", stats.load_ms);
  const char *const texts[] = {"model", "producer", "in_spec", "out_spec"};
  for (int i = 0; out && i < 4; ++i)
    if (add_text(out, texts[i], neso_model_metadata(m, texts[i]))) Py_CLEAR(out);
  return out;
}
