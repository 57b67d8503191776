/* SPDX-License-Identifier: Apache-2.0
 * Gate and Handle, as _handle.py has them; what each method promises is said there. */
#include "native.h"

#include <structmember.h>
#include <unistd.h>

PyTypeObject *gate_type;
PyTypeObject *handle_type;

/* ---- Gate --------------------------------------------------------------------------------- */

static int gate_init(PyObject *self, PyObject *arguments, PyObject *named) {
  Gate *gate = (Gate *)self;
  unsigned long long address = 0;
  PyObject *idle = NULL, *orphans = NULL;
  if (named != NULL && PyDict_Size(named) != 0) {
    PyErr_SetString(PyExc_TypeError, "Gate takes no arguments by name");
    return -1;
  }
  if (!PyArg_ParseTuple(arguments, "KOO", &address, &idle, &orphans)) return -1;
  if (gate->idle != NULL) {
    PyErr_SetString(PyExc_TypeError, "a Gate is made once");
    return -1;
  }
  gate->job = (parallax_job_t *)(uintptr_t)address;
  gate->pid = (long)getpid();
  gate->idle = Py_NewRef(idle);
  gate->orphans = Py_NewRef(orphans);
  return 0;
}

static int gate_traverse(PyObject *self, visitproc visit, void *arg) {
  Gate *gate = (Gate *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(gate->idle);
  Py_VISIT(gate->orphans);
  return 0;
}

static int gate_clear(PyObject *self) {
  Gate *gate = (Gate *)self;
  Py_CLEAR(gate->idle);
  Py_CLEAR(gate->orphans);
  return 0;
}

static void free_object(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  freefunc free_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
  free_memory(self);
  Py_DECREF(type);
}

static void gate_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  if (((Gate *)self)->weak_references != NULL) PyObject_ClearWeakRefs(self);
  gate_clear(self);
  free_object(self);
}

bool gate_is_open(const Gate *gate) {
  return !gate->closing && gate->job != NULL && gate->pid == (long)getpid();
}

void gate_leave(Gate *gate) {
  if (--gate->calls != 0 || !gate->closing || gate->idle == NULL) return;
  PyObject *kind, *value, *trace; /* the caller's exception is not to be lost */
  PyErr_Fetch(&kind, &value, &trace);
  PyObject *told = PyObject_CallObject(gate->idle, NULL);
  if (told == NULL) PyErr_WriteUnraisable(gate->idle);
  Py_XDECREF(told);
  PyErr_Restore(kind, value, trace);
}

static PyObject *gate_enter(PyObject *self, PyObject *nothing) {
  (void)nothing;
  Gate *gate = (Gate *)self;
  if (gate->closing) Py_RETURN_FALSE;
  ++gate->calls;
  Py_RETURN_TRUE;
}

static PyObject *gate_leave_method(PyObject *self, PyObject *nothing) {
  (void)nothing;
  gate_leave((Gate *)self);
  Py_RETURN_NONE;
}

static PyObject *gate_shut(PyObject *self, PyObject *nothing) {
  (void)nothing;
  Gate *gate = (Gate *)self;
  const bool first = !gate->closing;
  gate->closing = true;
  return PyBool_FromLong(first);
}

static PyObject *gate_take(PyObject *self, PyObject *nothing) {
  (void)nothing;
  Gate *gate = (Gate *)self;
  const unsigned long long address = (uintptr_t)gate->job;
  gate->job = NULL;
  return PyLong_FromUnsignedLongLong(address);
}

static PyObject *gate_pointer(PyObject *self, void *nothing) {
  (void)nothing;
  const Gate *gate = (const Gate *)self;
  if (gate->job == NULL) Py_RETURN_NONE;
  return PyLong_FromUnsignedLongLong((uintptr_t)gate->job);
}

static PyMethodDef gate_methods[] = {
    {"enter", gate_enter, METH_NOARGS, NULL},
    {"leave", gate_leave_method, METH_NOARGS, NULL},
    {"shut", gate_shut, METH_NOARGS, NULL},
    {"take", gate_take, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef gate_getters[] = {
    {"pointer", gate_pointer, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef gate_members[] = {
    {"pid", T_LONG, offsetof(Gate, pid), READONLY, NULL},
    {"calls", T_PYSSIZET, offsetof(Gate, calls), READONLY, NULL},
    {"closed", T_BOOL, offsetof(Gate, closing), READONLY, NULL},
    {"orphans", T_OBJECT_EX, offsetof(Gate, orphans), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Gate, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot gate_slots[] = {
    {Py_tp_init, gate_init},         {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, gate_dealloc},
    {Py_tp_traverse, gate_traverse}, {Py_tp_clear, gate_clear},      {Py_tp_methods, gate_methods},
    {Py_tp_getset, gate_getters},    {Py_tp_members, gate_members},  {0, NULL},
};

static PyType_Spec gate_spec = {
    .name = "libparallax._native.Gate",
    .basicsize = sizeof(Gate),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = gate_slots,
};

/* ---- Handle ------------------------------------------------------------------------------- */

static bool is_foreign(const Handle *handle) { return handle->gate->pid != (long)getpid(); }

/* Adds (request, what it borrows, handle or None) to those that later calls sweep. */
static void add_orphan(Handle *handle, parallax_request_t *request, PyObject *owner) {
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  PyObject *added = NULL;
  if (handle->gate->orphans != NULL) {
    added = PyObject_CallMethod(handle->gate->orphans, "append", "((KOO))",
                                (unsigned long long)(uintptr_t)request,
                                handle->keep != NULL ? handle->keep : Py_None, owner);
  }
  /* No memory: what it borrows is written by the library still, so it is never freed. */
  if (added == NULL) Py_XINCREF(handle->keep);
  Py_XDECREF(added);
  PyErr_Clear();
  PyErr_Restore(kind, value, trace);
}

/* Gives the request back, or leaves it to the sweep; `owner` is the handle while it is used. */
static void give_back(Handle *handle, PyObject *owner) {
  parallax_request_t *request = handle->request;
  if (request == NULL || handle->gate == NULL || is_foreign(handle)) return;
  handle->request = NULL;
  parallax_status_t status = PARALLAX_STATE;
  if (handle->users == 0) {
    Py_BEGIN_ALLOW_THREADS
    status = bound.request_release(request);
    Py_END_ALLOW_THREADS
  }
  if (status != PARALLAX_OK) add_orphan(handle, request, owner);
  Py_CLEAR(handle->keep);
}

PyObject *new_handle(Gate *gate, parallax_request_t *request, PyObject *keep) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(handle_type, Py_tp_alloc);
  Handle *handle = (Handle *)allocate(handle_type, 0);
  if (handle == NULL) return NULL;
  handle->gate = (Gate *)Py_NewRef((PyObject *)gate);
  handle->request = request;
  handle->keep = Py_NewRef(keep);
  return (PyObject *)handle;
}

static PyObject *handle_new(PyTypeObject *type, PyObject *arguments, PyObject *named) {
  (void)type;
  PyObject *gate = NULL, *keep = NULL;
  unsigned long long address = 0;
  if (named != NULL && PyDict_Size(named) != 0) {
    PyErr_SetString(PyExc_TypeError, "Handle takes no arguments by name");
    return NULL;
  }
  if (!PyArg_ParseTuple(arguments, "O!KO", gate_type, &gate, &address, &keep)) return NULL;
  return new_handle((Gate *)gate, (parallax_request_t *)(uintptr_t)address, keep);
}

static int handle_traverse(PyObject *self, visitproc visit, void *arg) {
  Handle *handle = (Handle *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)handle->gate);
  Py_VISIT(handle->keep);
  return 0;
}

/* Of a cycle that is collected: the request is given back before what it borrows is let go. */
static int handle_clear(PyObject *self) {
  Handle *handle = (Handle *)self;
  give_back(handle, Py_None);
  Py_CLEAR(handle->keep);
  Py_CLEAR(handle->gate);
  return 0;
}

static void handle_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  if (((Handle *)self)->weak_references != NULL) PyObject_ClearWeakRefs(self);
  handle_clear(self);
  free_object(self);
}

static PyObject *handle_enter(PyObject *self, PyObject *nothing) {
  (void)nothing;
  Handle *handle = (Handle *)self;
  if (handle->gate != NULL && is_foreign(handle)) {
    PyObject *checked = PyObject_CallMethod((PyObject *)handle->gate, "check_process", NULL);
    Py_XDECREF(checked);
    if (PyErr_Occurred() != NULL) return NULL;
  }
  if (handle->gate == NULL || handle->request == NULL || handle->given_back) {
    PyErr_SetString(bound.invalid_state,
                    "the request is released, by release() or at the end of its `with`; "
                    "call wait() before that");
    return NULL;
  }
  ++handle->users;
  return PyLong_FromUnsignedLongLong((uintptr_t)handle->request);
}

static PyObject *handle_leave(PyObject *self, PyObject *nothing) {
  (void)nothing;
  --((Handle *)self)->users;
  Py_RETURN_NONE;
}

static PyObject *handle_release(PyObject *self, PyObject *nothing) {
  (void)nothing;
  Handle *handle = (Handle *)self;
  if (handle->gate == NULL || is_foreign(handle)) Py_RETURN_NONE;
  handle->given_back = true;
  if (!handle->shared) give_back(handle, self);
  Py_RETURN_NONE;
}

static PyObject *handle_pointer(PyObject *self, void *nothing) {
  (void)nothing;
  const Handle *handle = (const Handle *)self;
  if (handle->request == NULL) Py_RETURN_NONE;
  return PyLong_FromUnsignedLongLong((uintptr_t)handle->request);
}

static PyObject *handle_used(PyObject *self, void *nothing) {
  (void)nothing;
  return PyBool_FromLong(((const Handle *)self)->users > 0);
}

static PyMethodDef handle_methods[] = {
    {"enter", handle_enter, METH_NOARGS, NULL},
    {"leave", handle_leave, METH_NOARGS, NULL},
    {"release", handle_release, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef handle_getters[] = {
    {"pointer", handle_pointer, NULL, NULL, NULL},
    {"used", handle_used, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef handle_members[] = {
    {"core", T_OBJECT_EX, offsetof(Handle, gate), READONLY, NULL},
    {"keep", T_OBJECT, offsetof(Handle, keep), READONLY, NULL},
    {"shared", T_BOOL, offsetof(Handle, shared), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Handle, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_new, handle_new},           {Py_tp_dealloc, handle_dealloc},
    {Py_tp_traverse, handle_traverse}, {Py_tp_clear, handle_clear},
    {Py_tp_methods, handle_methods},   {Py_tp_getset, handle_getters},
    {Py_tp_members, handle_members},   {0, NULL},
};

static PyType_Spec handle_spec = {
    .name = "libparallax._native.Handle",
    .basicsize = sizeof(Handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = handle_slots,
};

bool make_handle_types(PyObject *module) {
  gate_type = (PyTypeObject *)PyType_FromSpec(&gate_spec);
  handle_type = (PyTypeObject *)PyType_FromSpec(&handle_spec);
  return gate_type != NULL && handle_type != NULL &&
         PyModule_AddObjectRef(module, "Gate", (PyObject *)gate_type) == 0 &&
         PyModule_AddObjectRef(module, "Handle", (PyObject *)handle_type) == 0;
}
