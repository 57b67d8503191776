/* SPDX-License-Identifier: Apache-2.0
 * DLPack, as _dlpack.py reads it: where the elements of a foreign CPU tensor lie. The capsule is
 * never marked as consumed; it owns the tensor, and is what a loan keeps. */
#include "native.h"

enum { kCpu = 1, kReadOnly = 1, kMajor = 1 };

typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct {
  uint32_t major, minor;
  void *manager, *deleter;
  uint64_t flags;
  DLTensor tensor;
} DLManagedTensorVersioned;

/* The last class that knew no max_version, so that it is not asked at each call. */
static PyObject *old_producer;

static PyObject *ask_for_version(PyObject *method) {
  static PyObject *nothing, *named;
  if (nothing == NULL) nothing = PyTuple_New(0);
  if (named == NULL) named = Py_BuildValue("{s(ii)}", "max_version", (int)kMajor, 0);
  return nothing == NULL || named == NULL ? NULL : PyObject_Call(method, nothing, named);
}

static PyObject *capsule_of(PyObject *given) {
  PyObject *method = PyObject_GetAttrString(given, "__dlpack__");
  if (method == NULL) return NULL;
  PyObject *capsule = NULL;
  if ((PyObject *)Py_TYPE(given) == old_producer) {
    capsule = PyObject_CallObject(method, NULL);
  } else {
    capsule = ask_for_version(method);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      capsule = PyObject_CallObject(method, NULL);
      PyObject *former = old_producer;
      if (capsule != NULL) old_producer = Py_NewRef((PyObject *)Py_TYPE(given));
      if (capsule != NULL) Py_XDECREF(former);
    }
  }
  Py_DECREF(method);
  return capsule;
}

static bool is_contiguous(const DLTensor *tensor) {
  if (tensor->strides == NULL) return true;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
    if (tensor->shape[axis] == 0) return true;
  }
  int64_t expected = 1;
  for (int32_t axis = tensor->ndim - 1; axis >= 0; --axis) {
    if (tensor->shape[axis] != 1 && tensor->strides[axis] != expected) return false;
    expected *= tensor->shape[axis];
  }
  return true;
}

static const DLTensor *tensor_of(PyObject *capsule, bool *read_only) {
  *read_only = false;
  if (PyCapsule_IsValid(capsule, "dltensor")) return PyCapsule_GetPointer(capsule, "dltensor");
  if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return NULL;
  const DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  *read_only = (managed->flags & kReadOnly) != 0;
  return managed->major == kMajor ? &managed->tensor : NULL;
}

static char kind_of_code(uint8_t code) {
  static const char kinds[] = {'i', 'u', 'f', '?', 'b'};
  return code < sizeof kinds ? kinds[code] : '?';
}

bool borrow_tensor(PyObject *given, bool writable, Loan *loan) {
  PyObject *capsule = capsule_of(given);
  bool read_only;
  const DLTensor *tensor = capsule == NULL ? NULL : tensor_of(capsule, &read_only);
  if (tensor == NULL || tensor->device_type != kCpu || tensor->lanes != 1 ||
      tensor->bits % 8 != 0 || (writable && read_only) || !is_contiguous(tensor)) {
    Py_XDECREF(capsule);
    PyErr_Clear();
    return false;
  }
  loan->owner = capsule;
  loan->address = (char *)tensor->data + tensor->byte_offset;
  loan->items = 1;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) loan->items *= (uint64_t)tensor->shape[axis];
  loan->item_bytes = tensor->bits / 8;
  loan->kind = kind_of_code(tensor->code);
  return true;
}
