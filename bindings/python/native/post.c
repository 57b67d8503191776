/* SPDX-License-Identifier: Apache-2.0
 * Posting slices and waiting. Both answer "not here" for all but the usual case: then the caller
 * goes the way of ctypes, which does it, or says what is wrong. */
#include "native.h"

#include <string.h>

enum { kSlicesOnStack = 8, kLoansOfSlice = 3 /* ids, values, into */ };

PyObject *native_traits(PyObject *module, PyObject *arguments) {
  (void)module;
  unsigned long long rows, row_elements;
  unsigned int id, item_bytes;
  int kind;
  if (!PyArg_ParseTuple(arguments, "IKKCI", &id, &rows, &row_elements, &kind, &item_bytes)) {
    return NULL;
  }
  if (row_elements == 0) {
    PyErr_SetString(PyExc_ValueError, "traits: row_elements is 0");
    return NULL;
  }
  Traits traits;
  memset(&traits, 0, sizeof traits); /* its padding too: equal variables have equal bytes */
  traits.rows = rows;
  traits.row_elements = row_elements;
  traits.id = id;
  traits.item_bytes = item_bytes;
  traits.kind = (char)kind;
  return PyBytes_FromStringAndSize((const char *)&traits, sizeof traits);
}

/* The traits of a variable of this job. False, without an exception, if it is something else. */
static bool read_traits(PyObject *variable, const Gate *gate, Traits *traits) {
  if ((PyObject *)Py_TYPE(variable) != bound.variable_type) return false;
  PyObject *core = PyObject_GetAttrString(variable, "_core");
  PyObject *packed = PyObject_GetAttrString(variable, "_traits");
  const bool fits = core == (PyObject *)gate && packed != NULL && PyBytes_Check(packed) &&
                    PyBytes_Size(packed) == (Py_ssize_t)sizeof *traits;
  if (fits) memcpy(traits, PyBytes_AsString(packed), sizeof *traits);
  Py_XDECREF(core);
  Py_XDECREF(packed);
  PyErr_Clear();
  return fits;
}

/* What all slices of a call have in common. */
typedef struct {
  const Gate *gate;
  SliceCall call;
  Loans *loans;
  long long stream; /* by DLPack's number */
} Posting;

static const Loan *borrow_ids(const Posting *posting, PyObject *given, parallax_slice_t *slice) {
  const Loan *ids = borrow(posting->loans, given, false, posting->stream);
  if (ids == NULL || ids->kind != 'i' || (ids->item_bytes != 8 && ids->item_bytes != 4)) {
    return NULL;
  }
  slice->form = PARALLAX_FORM_ROWS;
  slice->row_count = ids->items;
  if (ids->item_bytes == 8) {
    slice->ids = ids->address;
  } else {
    slice->ids_i32 = ids->address;
  }
  return ids;
}

/* Borrows what holds `count` numbers of the variable. */
static const Loan *borrow_values(const Posting *posting, PyObject *given, bool writes,
                                 const Traits *traits, uint64_t count) {
  const Loan *values = borrow(posting->loans, given, writes, posting->stream);
  if (values == NULL || values->item_bytes != traits->item_bytes) return NULL;
  /* bfloat16 has no format of its own as a buffer: its bits come as uint16. */
  if (values->kind != traits->kind && !(traits->kind == 'b' && values->kind == 'u')) return NULL;
  return values->items == count ? values : NULL;
}

/* Says where the buffers of a slice lie: all of it in host memory, or on one device but for ids. */
static bool place(const Posting *posting, const Loan *values, const Loan *ids, const Loan *into,
                  parallax_slice_t *slice) {
  const Loan *others[] = {ids, into};
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
    if (others[i] == NULL || (others[i] == ids && !ids->on_device)) continue;
    if (others[i]->on_device != values->on_device) return false;
    if (others[i]->device != values->device) return false;
  }
  if (!values->on_device) return true;
  slice->memory = PARALLAX_MEMORY_CUDA;
  slice->device = values->device;
  /* 1 is the legacy default stream, -1 none: what is ready waits for nothing of this thread's. */
  const long long stream = posting->stream == -1 ? 2 : posting->stream;
  slice->stream = stream == 1 ? NULL : (void *)(uintptr_t)stream;
  return true;
}

/* entry: (variable, values), (variable, ids, values) or, of a reduce, (variable, ids, values,
 * into); ids may be None, and `into` too. */
static bool fill_slice(PyObject *entry, const Posting *posting, parallax_slice_t *slice) {
  const SliceCall call = posting->call;
  const Py_ssize_t parts = PyTuple_Check(entry) ? PyTuple_Size(entry) : 0;
  Traits traits;
  if (parts < 2 || parts > (call == bound.reduce ? 4 : 3)) return false;
  if (!read_traits(PyTuple_GetItem(entry, 0), posting->gate, &traits)) return false;
  memset(slice, 0, sizeof *slice);
  slice->size = sizeof *slice;
  slice->variable = traits.id;
  slice->form = PARALLAX_FORM_DENSE;
  uint64_t rows = traits.rows;
  const bool has_ids = parts > 2 && PyTuple_GetItem(entry, 1) != Py_None;
  const Loan *ids = NULL, *aggregate = NULL;
  if (has_ids) {
    ids = borrow_ids(posting, PyTuple_GetItem(entry, 1), slice);
    if (ids == NULL) return false;
    rows = slice->row_count;
  }
  if (rows > UINT64_MAX / traits.row_elements) return false;
  const uint64_t count = rows * traits.row_elements;
  PyObject *into = parts == 4 ? PyTuple_GetItem(entry, 3) : Py_None;
  if (into != Py_None) {
    aggregate = has_ids ? NULL : borrow_values(posting, into, true, &traits, count);
    if (aggregate == NULL) return false;
    slice->into = aggregate->address;
  }
  /* The library writes what a pull gives, and what a dense reduce gives in place. */
  const bool writes = call == bound.pull || (call == bound.reduce && !has_ids && into == Py_None);
  PyObject *given = PyTuple_GetItem(entry, parts == 2 ? 1 : 2);
  const Loan *values = borrow_values(posting, given, writes, &traits, count);
  if (values == NULL) return false;
  slice->values = values->address;
  return place(posting, values, ids, aggregate, slice);
}

/* (status, sentence, bytes of the parallax_error_info_t) of this thread's last failure. */
static PyObject *failure_of(parallax_status_t status) {
  parallax_error_info_t info;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  bound.last_error_info(&info);
  const char *sentence = bound.last_error();
  PyObject *text = PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace");
  PyObject *facts = PyBytes_FromStringAndSize((const char *)&info, sizeof info);
  PyObject *failure = NULL;
  if (text != NULL && facts != NULL) failure = Py_BuildValue("(iOO)", (int)status, text, facts);
  Py_XDECREF(text);
  Py_XDECREF(facts);
  return failure;
}

/* Makes the call, and the handle of its request; or says the failure. */
static PyObject *post_slices(Gate *gate, SliceCall call, uint64_t step,
                             const parallax_slice_t *slices, size_t count, Loans *loans) {
  parallax_request_t *request = NULL;
  parallax_job_t *job = gate->job;
  parallax_status_t status;
  ++gate->calls;
  Py_BEGIN_ALLOW_THREADS
  status = call(job, step, slices, count, &request);
  Py_END_ALLOW_THREADS
  PyObject *result = status < 0 ? failure_of(status) : new_handle(gate, request, (PyObject *)loans);
  gate_leave(gate);
  return result;
}

static SliceCall call_named(int letter) {
  return letter == 'l' ? bound.pull : letter == 's' ? bound.push : bound.reduce;
}

/* post(call, core, step, entries, more, stream): call is "l", "s" or "r" for pull, push and reduce;
 * entries is a list of tuples; stream is DLPack's number of the one that tensors on a device are to
 * be ready in. A Handle; or failure_of(); or None: not here. */
PyObject *native_post(PyObject *module, PyObject *arguments) {
  (void)module;
  int letter, more;
  PyObject *core, *entries;
  unsigned long long step;
  long long stream;
  if (!PyArg_ParseTuple(arguments, "CO!KO!pL", &letter, gate_type, &core, &step, &PyList_Type,
                        &entries, &more, &stream)) {
    return NULL;
  }
  Gate *gate = (Gate *)core;
  const Py_ssize_t count = PyList_Size(entries);
  if (bound.variable_type == NULL || count < 1 || count > PARALLAX_SLICES_MAX) Py_RETURN_NONE;
  if (stream == 0 || stream < -1) Py_RETURN_NONE;
  const Py_ssize_t orphans = PyObject_Size(gate->orphans);
  if (orphans != 0 || !gate_is_open(gate)) Py_RETURN_NONE; /* that way sweeps, and says why not */
  parallax_slice_t few[kSlicesOnStack];
  parallax_slice_t *slices = few;
  if (count > kSlicesOnStack) slices = PyMem_Calloc((size_t)count, sizeof *slices);
  Loans *loans = slices == NULL ? NULL : new_loans(kLoansOfSlice * count);
  PyObject *result = NULL;
  if (loans != NULL) {
    const SliceCall call = call_named(letter);
    const Posting posting = {.gate = gate, .call = call, .loans = loans, .stream = stream};
    bool usual = true;
    for (Py_ssize_t i = 0; usual && i < count; ++i) {
      PyObject *entry = PyList_GetItem(entries, i);
      usual = fill_slice(entry, &posting, &slices[i]);
      slices[i].more = (uint32_t)more;
    }
    result = usual && gate_is_open(gate)
                 ? post_slices(gate, call, step, slices, (size_t)count, loans)
                 : Py_NewRef(Py_None);
  } else if (slices == NULL) {
    PyErr_NoMemory();
  }
  Py_XDECREF((PyObject *)loans);
  if (slices != few) PyMem_Free(slices);
  return result;
}

/* Enters all handles, as Handle.enter does, and lists their requests; how many it entered. */
static Py_ssize_t enter_all(PyObject *handles, parallax_request_t **requests) {
  const Py_ssize_t count = PyTuple_Size(handles);
  for (Py_ssize_t i = 0; i < count; ++i) {
    Handle *handle = (Handle *)PyTuple_GetItem(handles, i);
    if (Py_TYPE((PyObject *)handle) != handle_type || handle->request == NULL ||
        handle->given_back || !gate_is_open(handle->gate)) {
      return i;
    }
    ++handle->users;
    requests[i] = handle->request;
  }
  return count;
}

/* What the requests are waited for by, in the place of no stream, or of one. */
typedef struct {
  bool of_stream;
  uint32_t device;
  void *stream;
  long long timeout_ms;
} Wait;

static PyObject *wait_for(PyObject *handles, const Wait *wait) {
  const Py_ssize_t count = PyTuple_Size(handles);
  parallax_request_t *few[kSlicesOnStack];
  parallax_request_t **requests = few;
  if (count > kSlicesOnStack) requests = PyMem_Calloc((size_t)count, sizeof *requests);
  if (requests == NULL) return PyErr_NoMemory();
  const Py_ssize_t entered = enter_all(handles, requests);
  parallax_status_t status = PARALLAX_STATE;
  if (entered == count) {
    Py_BEGIN_ALLOW_THREADS
    status = wait->of_stream ? bound.stream_wait(requests, (size_t)count, wait->device,
                                                 wait->stream, wait->timeout_ms)
                             : bound.wait(requests, (size_t)count, wait->timeout_ms);
    Py_END_ALLOW_THREADS
  }
  for (Py_ssize_t i = 0; i < entered; ++i) --((Handle *)PyTuple_GetItem(handles, i))->users;
  if (requests != few) PyMem_Free(requests);
  return PyBool_FromLong(status == PARALLAX_OK);
}

/* wait(handles, timeout_ms), handles a tuple: True when all completed OK, False: not here, or not
 * yet, or failed. */
PyObject *native_wait(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *handles;
  Wait wait = {.of_stream = false};
  if (!PyArg_ParseTuple(arguments, "O!L", &PyTuple_Type, &handles, &wait.timeout_ms)) return NULL;
  return wait_for(handles, &wait);
}

/* stream_wait(handles, device, stream, timeout_ms): True when the stream waits, or need not. */
PyObject *native_stream_wait(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *handles;
  unsigned device;
  unsigned long long stream;
  Wait wait = {.of_stream = true};
  if (!PyArg_ParseTuple(arguments, "O!IKL", &PyTuple_Type, &handles, &device, &stream,
                        &wait.timeout_ms)) {
    return NULL;
  }
  wait.device = device;
  wait.stream = (void *)(uintptr_t)stream;
  return wait_for(handles, &wait);
}
