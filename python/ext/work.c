/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posted work.  It holds its operands until the operation is over, also when the program has dropped
 * it: then the thread of weft that ends the operation gives them back.
 */
#include "weft_python.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

PyObject *weft_py_work_type;

typedef struct held {
    int count;
    weft_py_operand operands[];
} held;

typedef struct work {
    PyObject_HEAD weft_work *work; /* kept */
    held *held;
    PyObject *callbacks; /* a list, while the end is still to be told; it keeps the work alive */
} work;

static held *hold(const weft_py_operand *operands, int count)
{
    held *h = malloc(sizeof *h + (size_t)count * sizeof *operands);
    if (!h)
        return NULL;
    h->count = count;
    if (count)
        memcpy(h->operands, operands, (size_t)count * sizeof *operands);
    return h;
}

static void let_go(held *h)
{
    for (int i = 0; h && i < h->count; i++)
        weft_py_drop(&h->operands[i]);
    free(h);
}

PyObject *weft_py_work_new(weft_work *posted, weft_py_operand *operands, int count)
{
    work *self = (work *)PyType_GenericAlloc((PyTypeObject *)weft_py_work_type, 0);
    self = self && (self->held = hold(operands, count)) ? self : NULL;
    if (!self) { /* the memory must stay until the operation is over */
        Py_BEGIN_ALLOW_THREADS weft_work_wait(posted, WEFT_FOREVER);
        Py_END_ALLOW_THREADS weft_release(posted);
        for (int i = 0; i < count; i++)
            weft_py_drop(&operands[i]);
        return PyErr_NoMemory();
    }
    self->work = posted;
    return (PyObject *)self;
}

/* ---- the end ---- */

/* In a thread of weft, for work that nobody has any more. */
static void end_dropped(void *argument, weft_status status)
{
    (void)status;
    if (weft_py_ending)
        return; /* the process gives it back */
    PyGILState_STATE state = PyGILState_Ensure();
    let_go(argument);
    PyGILState_Release(state);
}

static void dealloc(work *self)
{
    PyTypeObject *type = Py_TYPE(self);
    held *h = self->held;
    if (self->work && weft_work_status(self->work) == WEFT_IN_PROGRESS && h && h->count) {
        weft_status status;
        Py_BEGIN_ALLOW_THREADS status = weft_work_on_done(self->work, end_dropped, h);
        Py_END_ALLOW_THREADS if (status >= 0) /* otherwise it is over, and was told of before */
            h = NULL;
    }
    let_go(h);
    Py_XDECREF(self->callbacks);
    weft_work *posted = self->work;
    Py_BEGIN_ALLOW_THREADS weft_release(posted);
    Py_END_ALLOW_THREADS PyObject_Free(self);
    Py_DECREF(type);
}

static void tell(void *argument, weft_status status)
{
    (void)status;
    if (weft_py_ending)
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    work *self = argument;
    PyObject *callbacks = self->callbacks;
    self->callbacks = NULL;
    Py_ssize_t count = callbacks ? PyList_Size(callbacks) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *result =
            PyObject_CallFunctionObjArgs(PyList_GetItem(callbacks, i), (PyObject *)self, NULL);
        if (!result)
            PyErr_WriteUnraisable((PyObject *)self);
        Py_XDECREF(result);
    }
    Py_XDECREF(callbacks);
    Py_DECREF(self);
    PyGILState_Release(state);
}

static PyObject *add_done_callback(work *self, PyObject *function)
{
    if (!PyCallable_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback() takes a function of the work");
        return NULL;
    }
    if (self->callbacks) /* not told yet */
        return PyList_Append(self->callbacks, function) < 0 ? NULL : Py_NewRef(Py_None);
    if (weft_work_status(self->work) != WEFT_IN_PROGRESS) {
        PyObject *result = PyObject_CallFunctionObjArgs(function, (PyObject *)self, NULL);
        Py_XDECREF(result);
        return result ? Py_NewRef(Py_None) : NULL;
    }
    self->callbacks = PyList_New(0);
    if (!self->callbacks || PyList_Append(self->callbacks, function) < 0)
        return NULL;
    Py_INCREF(self);
    weft_status status;
    Py_BEGIN_ALLOW_THREADS status = weft_work_on_done(self->work, tell, self);
    Py_END_ALLOW_THREADS if (status >= 0) Py_RETURN_NONE;
    Py_DECREF(self);
    Py_CLEAR(self->callbacks);
    return weft_py_raise();
}

/* ---- methods ---- */

static PyObject *outcome(work *self, weft_status status)
{
    if (PyErr_Occurred()) { /* a signal ended the wait */
        weft_clear_error();
        return NULL;
    }
    if (status < 0)
        return weft_py_raise();
    let_go(self->held);
    self->held = NULL;
    Py_RETURN_NONE;
}

static PyObject *wait_for(work *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"wait", 0, 1, 1, {"timeout"}, {0}};
    PyObject *values[WEFT_PY_ARGUMENTS];
    int64_t limit;
    if (weft_py_parse(&signature, args, count, names, values) < 0 ||
        weft_py_timeout(values[0], &limit) < 0)
        return NULL;
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS status = weft_work_wait(self->work, limit);
    Py_END_ALLOW_THREADS return outcome(self, status);
}

static PyObject *test(work *self, PyObject *none)
{
    (void)none;
    weft_status status;
    Py_BEGIN_ALLOW_THREADS status = weft_work_test(self->work);
    Py_END_ALLOW_THREADS if (status == WEFT_IN_PROGRESS) Py_RETURN_FALSE;
    PyObject *result = outcome(self, status);
    Py_XDECREF(result);
    return result ? Py_NewRef(Py_True) : NULL;
}

static PyObject *cancel(work *self, PyObject *none)
{
    (void)none;
    weft_status status;
    Py_BEGIN_ALLOW_THREADS status = weft_work_cancel(self->work);
    Py_END_ALLOW_THREADS return status < 0 ? weft_py_raise() : Py_NewRef(Py_None);
}

static PyObject *done(work *self, PyObject *none)
{
    (void)none;
    return PyBool_FromLong(weft_work_status(self->work) != WEFT_IN_PROGRESS);
}

static PyObject *get_source(work *self, void *closure)
{
    (void)closure;
    int source = weft_work_source(self->work);
    return source < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(source);
}

static PyObject *get_sequence(work *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(weft_work_sequence(self->work));
}

static PyObject *repr(work *self)
{
    char text[512];
    return PyUnicode_FromFormat("<weft.Work: %s>",
                                weft_work_describe(self->work, text, sizeof text));
}

static PyMethodDef methods[] = {
    {"wait", (PyCFunction)(void (*)(void))wait_for, METH_FASTCALL | METH_KEYWORDS,
     "wait(timeout=None)\n\nBlocks until the operation is done; raises what it failed with."},
    {"test", (PyCFunction)test, METH_NOARGS,
     "Whether the operation is done; helps it along, and raises what it failed with."},
    {"done", (PyCFunction)done, METH_NOARGS, "Whether the operation is over.  Only looks."},
    {"cancel", (PyCFunction)cancel, METH_NOARGS,
     "Ends a send or receive that has not met its counterpart."},
    {"add_done_callback", (PyCFunction)add_done_callback, METH_O,
     "add_done_callback(f)\n\nCalls f(work) once, when the operation is over, in the thread that "
     "ends it; at once if it is over."},
    {0}};

static PyGetSetDef getset[] = {
    {"source", (getter)get_source, NULL, "the rank whose message was received, or None", NULL},
    {"sequence", (getter)get_sequence, NULL, "the number of the operation in its group", NULL},
    {0}};

static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc},
                              {Py_tp_repr, (void *)repr},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_doc, (void *)"An operation that was posted."},
                              {0}};

static PyType_Spec spec = {"weft.Work", sizeof(work), 0, Py_TPFLAGS_DEFAULT, slots};

int weft_py_add_work(PyObject *module)
{
    weft_py_work_type = PyType_FromSpec(&spec);
    return weft_py_work_type ? PyModule_AddObject(module, "Work", Py_NewRef(weft_py_work_type))
                             : -1;
}
