/* SPDX-License-Identifier: Apache-2.0
 * Loans: memory of Python objects, held while a request borrows them. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *loans_type;

/* Loans are cleared by nobody but the handle that keeps them: a collector that cleared them first
 * would let buffers go which the library still writes. */
static int loans_traverse(PyObject *self, visitproc visit, void *arg) {
  Loans *loans = (Loans *)self;
  Py_VISIT(Py_TYPE(self));
  for (Py_ssize_t i = 0; i < loans->count; ++i) {
    Py_VISIT(loans->loans[i].buffer.obj);
    Py_VISIT(loans->loans[i].owner);
  }
  return 0;
}

static void loans_dealloc(PyObject *self) {
  Loans *loans = (Loans *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  for (Py_ssize_t i = 0; i < loans->count; ++i) {
    PyBuffer_Release(&loans->loans[i].buffer);
    Py_XDECREF(loans->loans[i].owner);
  }
  PyMem_Free(loans->loans);
  freefunc free_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
  free_memory(self);
  Py_DECREF(type);
}

Loans *new_loans(Py_ssize_t most) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(loans_type, Py_tp_alloc);
  Loans *loans = (Loans *)allocate(loans_type, 0);
  if (loans == NULL) return NULL;
  loans->loans = PyMem_Calloc((size_t)most, sizeof(Loan));
  if (loans->loans == NULL) {
    Py_DECREF((PyObject *)loans);
    PyErr_NoMemory();
    return NULL;
  }
  return loans;
}

/* As _KIND_OF_FORMAT of _buffers.py: one character, after a mark of native byte order. */
static char kind_of(const char *format) {
  if (format == NULL) return 'u';
  if (strchr("@=<", format[0]) != NULL && format[0] != '\0') ++format;
  if (format[0] == '\0' || format[1] != '\0') return '?';
  if (strchr("efdg", format[0]) != NULL) return 'f';
  if (strchr("bhilqn", format[0]) != NULL) return 'i';
  if (strchr("BHILQN", format[0]) != NULL) return 'u';
  return '?';
}

static bool borrow_buffer(PyObject *given, bool writable, Loan *loan) {
  Py_buffer *buffer = &loan->buffer;
  if (PyObject_GetBuffer(given, buffer, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    buffer->obj = NULL;
    return false;
  }
  if ((writable && buffer->readonly) || !PyBuffer_IsContiguous(buffer, 'C') ||
      buffer->itemsize < 1) {
    PyBuffer_Release(buffer);
    return false;
  }
  loan->address = buffer->buf;
  loan->items = (uint64_t)(buffer->len / buffer->itemsize);
  loan->item_bytes = (size_t)buffer->itemsize;
  loan->kind = kind_of(buffer->format);
  return true;
}

const Loan *borrow(Loans *loans, PyObject *given, bool writable, long long stream) {
  Loan *loan = &loans->loans[loans->count];
  const bool lent = PyObject_CheckBuffer(given) ? borrow_buffer(given, writable, loan)
                                                : borrow_tensor(given, writable, stream, loan);
  if (!lent) return NULL;
  ++loans->count;                             /* given back with the others from here on */
  if (loan->items == 0) loan->address = NULL; /* that of nothing may be any, even unaligned */
  return loan;
}

/* Of the first on one; None: all are in host memory. As Borrowed of _slices.py. */
static PyObject *loans_device(PyObject *self, void *nothing) {
  (void)nothing;
  const Loans *loans = (const Loans *)self;
  for (Py_ssize_t i = 0; i < loans->count; ++i) {
    if (loans->loans[i].on_device) return PyLong_FromUnsignedLong(loans->loans[i].device);
  }
  Py_RETURN_NONE;
}

static PyGetSetDef loans_getters[] = {
    {"device", loans_device, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot loans_slots[] = {
    {Py_tp_dealloc, loans_dealloc},
    {Py_tp_traverse, loans_traverse},
    {Py_tp_getset, loans_getters},
    {0, NULL},
};

static PyType_Spec loans_spec = {
    .name = "libparallax._native.Loans",
    .basicsize = sizeof(Loans),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = loans_slots,
};

bool make_loans_type(PyObject *module) {
  loans_type = (PyTypeObject *)PyType_FromSpec(&loans_spec);
  return loans_type != NULL && PyModule_AddObjectRef(module, "Loans", (PyObject *)loans_type) == 0;
}
