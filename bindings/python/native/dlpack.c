/* SPDX-License-Identifier: Apache-2.0
 * DLPack, as _dlpack.py reads it: where the elements of a foreign tensor lie. The capsule is
 * never marked as consumed; it owns the tensor, and is what a loan keeps. */
#include "native.h"

enum { kReadOnly = 1, kMajor = 1 };
/* Of DLDeviceType: what is the host's, and what is CUDA's. */
enum { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

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

static bool is_host(long type) { return type == kCpu || type == kCudaHost; }

/* Calls __dlpack__, with its max_version and, of a tensor on a device, the stream. */
static PyObject *ask(PyObject *method, bool versioned, bool on_device, long long stream) {
  static PyObject *nothing, *version;
  if (nothing == NULL) nothing = PyTuple_New(0);
  if (version == NULL) version = Py_BuildValue("{s(ii)}", "max_version", (int)kMajor, 0);
  if (nothing == NULL || version == NULL) return NULL;
  if (!on_device) return PyObject_Call(method, nothing, versioned ? version : NULL);
  PyObject *named = versioned ? PyDict_Copy(version) : PyDict_New();
  PyObject *number = PyLong_FromLongLong(stream);
  PyObject *capsule = NULL;
  if (named != NULL && number != NULL && PyDict_SetItemString(named, "stream", number) == 0) {
    capsule = PyObject_Call(method, nothing, named);
  }
  Py_XDECREF(number);
  Py_XDECREF(named);
  return capsule;
}

/* Where the tensor lies: the type and the number of __dlpack_device__. */
static bool device_of(PyObject *given, long *type, long *number) {
  PyObject *told = PyObject_CallMethod(given, "__dlpack_device__", NULL);
  if (told == NULL) return false;
  bool known = PyTuple_Check(told) && PyTuple_Size(told) == 2;
  if (known) {
    *type = PyLong_AsLong(PyTuple_GetItem(told, 0));
    *number = PyLong_AsLong(PyTuple_GetItem(told, 1));
    known = PyErr_Occurred() == NULL && *number >= 0 && *number <= INT32_MAX;
  }
  Py_DECREF(told);
  return known && (is_host(*type) || *type == kCuda || *type == kCudaManaged);
}

static PyObject *capsule_of(PyObject *given, bool on_device, long long stream) {
  PyObject *method = PyObject_GetAttrString(given, "__dlpack__");
  if (method == NULL) return NULL;
  PyObject *capsule = NULL;
  if ((PyObject *)Py_TYPE(given) == old_producer) {
    capsule = ask(method, false, on_device, stream);
  } else {
    capsule = ask(method, true, on_device, stream);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      capsule = ask(method, false, on_device, stream);
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

bool borrow_tensor(PyObject *given, bool writable, long long stream, Loan *loan) {
  long type = 0, number = 0;
  bool read_only;
  PyObject *capsule = NULL;
  if (device_of(given, &type, &number)) capsule = capsule_of(given, !is_host(type), stream);
  const DLTensor *tensor = capsule == NULL ? NULL : tensor_of(capsule, &read_only);
  if (tensor == NULL || is_host(tensor->device_type) != is_host(type) || tensor->lanes != 1 ||
      tensor->bits % 8 != 0 || (writable && read_only) || !is_contiguous(tensor)) {
    Py_XDECREF(capsule);
    PyErr_Clear();
    return false;
  }
  loan->on_device = !is_host(type);
  loan->device = (uint32_t)number;
  loan->owner = capsule;
  loan->address = (char *)tensor->data + tensor->byte_offset;
  loan->items = 1;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) loan->items *= (uint64_t)tensor->shape[axis];
  loan->item_bytes = tensor->bits / 8;
  loan->kind = kind_of_code(tensor->code);
  return true;
}
