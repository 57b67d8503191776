/* SPDX-License-Identifier: Apache-2.0
 * The module libparallax._native. */
#include "native.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define VERSION \
  TEXT(PARALLAX_VERSION_MAJOR) "." TEXT(PARALLAX_VERSION_MINOR) "." TEXT(PARALLAX_VERSION_PATCH)

Bound bound;

/* The address of a function of the library; *complete is false if it was not given. */
static uintptr_t address_of_function(PyObject *addresses, const char *name, bool *complete) {
  PyObject *number = PyDict_GetItemString(addresses, name);
  const unsigned long long address = number == NULL ? 0 : PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred() != NULL || address == 0) *complete = false;
  return (uintptr_t)address;
}

/* bind(addresses, variable_type, invalid_state): before anything else is called. */
static PyObject *native_bind(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *addresses, *variable_type, *invalid_state;
  if (!PyArg_ParseTuple(arguments, "O!OO", &PyDict_Type, &addresses, &variable_type,
                        &invalid_state)) {
    return NULL;
  }
  bool complete = true;
  const Bound given = {
      .pull = (SliceCall)address_of_function(addresses, "parallax_pull", &complete),
      .push = (SliceCall)address_of_function(addresses, "parallax_push", &complete),
      .reduce = (SliceCall)address_of_function(addresses, "parallax_reduce", &complete),
      .wait = (WaitCall)address_of_function(addresses, "parallax_wait", &complete),
      .stream_wait =
          (StreamWaitCall)address_of_function(addresses, "parallax_stream_wait", &complete),
      .request_release =
          (ReleaseCall)address_of_function(addresses, "parallax_request_release", &complete),
      .last_error = (ErrorCall)address_of_function(addresses, "parallax_last_error", &complete),
      .last_error_info =
          (ErrorInfoCall)address_of_function(addresses, "parallax_last_error_info", &complete),
      .variable_type = variable_type,
      .invalid_state = invalid_state,
  };
  if (!complete) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_ValueError, "bind: an address is missing");
    return NULL;
  }
  PyObject *former[] = {bound.variable_type, bound.invalid_state};
  bound = given;
  Py_INCREF(variable_type);
  Py_INCREF(invalid_state);
  Py_XDECREF(former[0]);
  Py_XDECREF(former[1]);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"bind", native_bind, METH_VARARGS, NULL},
    {"post", native_post, METH_VARARGS, NULL},
    {"stream_wait", native_stream_wait, METH_VARARGS, NULL},
    {"traits", native_traits, METH_VARARGS, NULL},
    {"wait", native_wait, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "libparallax._native",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  if (!make_handle_types(module) || !make_loans_type(module) ||
      PyModule_AddStringConstant(module, "VERSION", VERSION) != 0 ||
      PyModule_AddIntConstant(module, "SLICE_BYTES", (long)sizeof(parallax_slice_t)) != 0 ||
      PyModule_AddIntConstant(module, "ERROR_BYTES", (long)sizeof(parallax_error_info_t)) != 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
