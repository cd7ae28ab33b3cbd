/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension from the inside.  It uses CPython's limited API of 3.9, so that one binary serves
 * every later version.  Buffers joined that API in 3.11 as they had been since 3.3; what the headers
 * of an older limited API leave out is declared here.
 */
#ifndef WEFT_PYTHON_H
#define WEFT_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <weft/weft.h>

#include <stdbool.h>

#if Py_LIMITED_API + 0 < 0x030b0000
typedef struct bufferinfo {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject *object);
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
enum {
    PyBUF_WRITABLE = 0x1,
    PyBUF_FORMAT = 0x4,
    PyBUF_ND = 0x8,
    PyBUF_STRIDES = 0x10 | PyBUF_ND,
    PyBUF_C_CONTIGUOUS = 0x20 | PyBUF_STRIDES
};
#endif
#ifndef Py_bf_getbuffer
#define Py_bf_getbuffer     1
#define Py_bf_releasebuffer 2
#endif
#if PY_VERSION_HEX < 0x030a0000
static inline PyObject *Py_NewRef(PyObject *object)
{
    Py_INCREF(object);
    return object;
}
#endif
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

/* ---- errors: errors.c ---- */

int weft_py_add_errors(PyObject *module);

/* Raises what the thread's last error says, unless a signal has raised something while the call
 * waited; then weft's error is cleared, because it has been told.  Returns NULL. */
PyObject *weft_py_raise(void);

/* The same with a status and text that are known. */
PyObject *weft_py_raise_as(weft_status status, const char *text);

/* ---- arguments: arguments.c ---- */

enum { WEFT_PY_ARGUMENTS = 8 };

/* What a method takes: `required` of the `positional` names must be there, all may have names. */
typedef struct weft_py_signature {
    const char *method;
    int required, positional, count;
    const char *names[WEFT_PY_ARGUMENTS];
    PyObject *interned[WEFT_PY_ARGUMENTS];
} weft_py_signature;

/* Sorts the arguments of a fast call into `out`, NULL or None where there is none; -1: raised. */
int weft_py_parse(weft_py_signature *signature, PyObject *const *args, Py_ssize_t count,
                  PyObject *names, PyObject **out);

/* Each returns -1 and raises if the value is no such thing; NULL gives the default. */
int weft_py_reduction(PyObject *value, weft_reduction *out);
int weft_py_int(PyObject *value, const char *name, int fallback, int *out);
int weft_py_truth(PyObject *value, bool fallback, bool *out);

/* Seconds as a number, or None for the group's own limit: milliseconds, at least 1. */
int weft_py_timeout(PyObject *value, int64_t *out);

/* ---- operands: operand.c ---- */

/* Memory of a caller: it holds whatever keeps that in place. */
typedef struct weft_py_operand {
    void *data;
    size_t count; /* elements of weft's dtype */
    weft_dtype dtype;
    weft_tensor *tensor; /* in symmetric memory; NULL: ordinary */
    bool pairs;          /* complex numbers, as pairs of reals */
    PyObject *holder;    /* a tensor or capsule; NULL: the buffer below holds it */
    Py_buffer view;
} weft_py_operand;

enum {
    WEFT_PY_READ = 0,
    WEFT_PY_WRITE = 1,
    WEFT_PY_MOVE = 2 /* only moved: elements that weft lacks are bytes */
};

/* Fills `out` from anything with the buffer protocol, a tensor of PyTorch, what has __dlpack__, or
 * symmetric memory; -1: raised. */
int weft_py_take(PyObject *object, int how, weft_py_operand *out);
void weft_py_drop(weft_py_operand *operand);

/* A tensor over the operand, in the current scope; NULL with weft's error. */
weft_tensor *weft_py_wrap(const weft_py_operand *operand);

/* ---- types ---- */

typedef struct weft_py_group {
    PyObject_HEAD weft_group *group; /* kept; NULL: finished */
    bool is_world;
    weft_store *store; /* kept: the one it met through; may be NULL */
    PyObject *weak;    /* references that do not keep it */
} weft_py_group;

extern PyObject *weft_py_group_type, *weft_py_work_type, *weft_py_symm_type, *weft_py_memory_type;

int weft_py_add_group(PyObject *module);
int weft_py_add_work(PyObject *module);
int weft_py_add_symm(PyObject *module);

PyObject *weft_py_init(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *weft_py_symm_empty(PyObject *module, PyObject *args);

/* The group of an object; NULL: raised. */
weft_group *weft_py_group_of(PyObject *object);

/* A Group for what weft made; None for NULL without an error.  Takes over the group. */
PyObject *weft_py_group_new(weft_group *group);

/* Work for what weft posted, with the operands it needs until then; takes both over. */
PyObject *weft_py_work_new(weft_work *work, weft_py_operand *operands, int count);

/* The methods of groups that move data: group_data.c, group_object.c. */
extern PyMethodDef weft_py_group_data[], weft_py_group_objects[];

/* The tensor of a Memory; NULL if the object is none. */
weft_tensor *weft_py_memory_tensor(PyObject *object);

/* Is the interpreter about to end?  Then threads of weft leave Python alone. */
extern bool weft_py_ending;

/* Lets signals end the waits of this thread. */
void weft_py_heed_signals(void);

#endif
