/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiled core of the Python package, on CPython's stable ABI of 3.11 (which is the first with
 * the buffer protocol): one file serves that version and every later one.
 *
 * It holds what each call of a step passes through: the handle of a job (Gate), those of its
 * requests (Handle), the buffers that a request borrows (Loans), posting slices, and waiting. Only
 * the usual case is here. What is not, and whatever is wrong, is handed back to the Python code,
 * which does it again by ctypes and says the sentence; so _handle.py and _step.py are the
 * reference, and the same tests run over both.
 *
 * The library's functions are given as addresses by bind(): this module does not link libparallax,
 * so that it calls the very library that ctypes has loaded.
 *
 * Threads: the objects are guarded by the GIL, which is released around every call of the library
 * and never within a change of an object; none takes a lock. */
#ifndef PARALLAX_BINDINGS_PYTHON_NATIVE_NATIVE_H_
#define PARALLAX_BINDINGS_PYTHON_NATIVE_NATIVE_H_

#include <Python.h>
#include <stdbool.h>

#include "parallax/parallax.h"

typedef parallax_status_t (*SliceCall)(parallax_job_t *, uint64_t, const parallax_slice_t *, size_t,
                                       parallax_request_t **);

typedef parallax_status_t (*WaitCall)(parallax_request_t *const *, size_t, int64_t);
typedef parallax_status_t (*StreamWaitCall)(parallax_request_t *const *, size_t, uint32_t, void *,
                                            int64_t);
typedef parallax_status_t (*ReleaseCall)(parallax_request_t *);
typedef const char *(*ErrorCall)(void);
typedef parallax_status_t (*ErrorInfoCall)(parallax_error_info_t *);

/* What bind() was given. */
typedef struct {
  SliceCall pull, push, reduce;
  WaitCall wait;
  StreamWaitCall stream_wait;
  ReleaseCall request_release;
  ErrorCall last_error;
  ErrorInfoCall last_error_info;
  PyObject *variable_type; /* the class of variables */
  PyObject *invalid_state; /* the exception of a request that is released */
} Bound;

extern Bound bound;

extern PyTypeObject *gate_type;
extern PyTypeObject *handle_type;
extern PyTypeObject *loans_type;

/* The handle of an open job: counts the calls that run on it. */
typedef struct {
  PyObject ob_base;
  parallax_job_t *job; /* NULL once taken by close */
  long pid;            /* the process that opened it */
  Py_ssize_t calls;    /* that run */
  bool closing;        /* no more are let in */
  PyObject *idle;      /* called when the last one has left */
  PyObject *orphans;   /* deque of (request, what it borrows, handle or None) */
  PyObject *weak_references;
} Gate;

/* A request, with what it borrows. */
typedef struct {
  PyObject ob_base;
  Gate *gate;
  parallax_request_t *request; /* NULL once given back */
  PyObject *keep;
  Py_ssize_t users; /* threads that are in a call on it */
  bool given_back;
  bool shared; /* its memory is viewed: released only when dropped */
  PyObject *weak_references;
} Handle;

/* Memory of a Python object: by the buffer protocol, else by DLPack. */
typedef struct {
  Py_buffer buffer; /* obj is NULL where it came by DLPack */
  PyObject *owner;  /* a capsule of DLPack, or NULL */
  void *address;
  uint64_t items;
  size_t item_bytes;
  char kind;       /* f, i, u, b (bfloat16) or ? */
  bool on_device;  /* of CUDA */
  uint32_t device; /* its number */
} Loan;

/* What a request borrows, until this is dropped. */
typedef struct {
  PyObject ob_base;
  Py_ssize_t count;
  Loan *loans;
} Loans;

/* What posting needs of a variable, as the bytes that traits() makes. */
typedef struct {
  uint64_t rows, row_elements;
  uint32_t id, item_bytes;
  char kind;
} Traits;

/* Makes the types: handles.c and loans.c. False with an exception set. */
bool make_handle_types(PyObject *module);
bool make_loans_type(PyObject *module);

/* Whether this process opened the job and nobody closes it. */
bool gate_is_open(const Gate *gate);
void gate_leave(Gate *gate);

/* A new handle; NULL with an exception set, and then the request is still the caller's. */
PyObject *new_handle(Gate *gate, parallax_request_t *request, PyObject *keep);

/* Room for `most` loans. */
Loans *new_loans(Py_ssize_t most);

/* Borrows the memory of `given`, if it is contiguous in C order and of native byte order, and
 * writable if asked for. stream: what DLPack calls the one that the producer of a tensor on a CUDA
 * device orders its work before. NULL, without an exception, where that cannot be. */
const Loan *borrow(Loans *loans, PyObject *given, bool writable, long long stream);

/* The same by DLPack alone; fills in all but the buffer. */
bool borrow_tensor(PyObject *given, bool writable, long long stream, Loan *loan);

/* post(call, core, step, entries, more, stream) and wait(handles, timeout_ms): post.c. */
PyObject *native_post(PyObject *module, PyObject *arguments);
PyObject *native_wait(PyObject *module, PyObject *arguments);
PyObject *native_stream_wait(PyObject *module, PyObject *arguments);
PyObject *native_traits(PyObject *module, PyObject *arguments);

#endif /* PARALLAX_BINDINGS_PYTHON_NATIVE_NATIVE_H_ */
