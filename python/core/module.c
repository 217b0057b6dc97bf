/* The module itself: errors, and what is made when it is imported. */
#include <stdarg.h>
#include <stdio.h>

#include "core.h"

PyObject *model_type, *memory_type;

PyObject *call_hook(const char *name, PyObject *argument) {
  PyObject *hooks = PyImport_ImportModule("neso._hooks");
  if (!hooks) return NULL;
  PyObject *function = PyObject_GetAttrString(hooks, name), *out = NULL;
  if (function) out = argument ? PyObject_CallFunctionObjArgs(function, argument, NULL) : PyObject_CallNoArgs(function);
  Py_XDECREF(function);
  Py_DECREF(hooks);
  return out;
}

static void raise_error(const char *name, const char *code, const char *text) {
  PyObject *what = Py_BuildValue("(sss)", name, code, text), *error = NULL;
  if (what) error = call_hook("error", what);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(what);
  Py_XDECREF(error);
}

PyObject *raise_status(neso_status status) {
  raise_error(neso_status_name(status), neso_status_code(status), neso_error_text());
  return NULL;
}

int refuse(neso_status status, const char *format, ...) {
  char text[600];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  raise_error(neso_status_name(status), neso_status_code(status), text);
  return -1;
}

static PyMethodDef functions[] = {
    {"profile", set_profile, METH_O, "profile(sink): runs are told to sink(model, begin, end, steps) from now on; None: to nobody"},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "neso._core", "Neso's runtime: see the package neso.", -1,
                                    functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void) {
  PyObject *self = PyModule_Create(&module), *kernel = PyType_FromSpec(&kernel_spec);
  model_type = PyType_FromSpec(&model_spec);
  memory_type = PyType_FromSpec(&memory_spec);
  if (!self || !kernel || !model_type || !memory_type) return NULL;
  char version[32];
  snprintf(version, sizeof version, "%d.%d", NESO_VERSION_MAJOR, NESO_VERSION_MINOR);
  if (PyModule_AddObjectRef(self, "Model", model_type) < 0 || PyModule_AddObjectRef(self, "Kernel", kernel) < 0 ||
      PyModule_AddStringConstant(self, "version", version) < 0)
    return NULL;
  Py_DECREF(kernel);
  return self;
}
