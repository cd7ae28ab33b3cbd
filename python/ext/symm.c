/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory: a Symm is an array that every rank of a group has and that all of them can
 * touch; a Memory is the part of one rank, for NumPy by the buffer protocol and for others by DLPack.
 */
#include "weft_python.h"

#include <stdlib.h>
#include <string.h>

PyObject *weft_py_symm_type, *weft_py_memory_type;

/* ---- memory ---- */

typedef struct memory {
    PyObject_HEAD weft_tensor *tensor; /* kept */
    Py_ssize_t shape[WEFT_MAX_DIMS], strides[WEFT_MAX_DIMS];
} memory;

weft_tensor *weft_py_memory_tensor(PyObject *object)
{
    if (Py_TYPE(object) == (PyTypeObject *)weft_py_memory_type)
        return ((memory *)object)->tensor;
    if (Py_TYPE(object) != (PyTypeObject *)weft_py_symm_type)
        return NULL;
    PyObject *own = PyObject_GetAttrString(object, "memory"); /* the symm holds it */
    weft_tensor *tensor = own ? ((memory *)own)->tensor : NULL;
    Py_XDECREF(own);
    return tensor;
}

/* Takes the tensor over; NULL is weft's error. */
static PyObject *memory_new(weft_tensor *tensor)
{
    if (!tensor)
        return weft_py_raise();
    memory *self = (memory *)PyType_GenericAlloc((PyTypeObject *)weft_py_memory_type, 0);
    if (!self) {
        weft_release(tensor);
        return NULL;
    }
    self->tensor = tensor;
    Py_ssize_t item = (Py_ssize_t)weft_dtype_size(weft_tensor_dtype(tensor));
    for (int i = 0; i < weft_tensor_ndim(tensor); i++) {
        self->shape[i] = weft_tensor_size(tensor, i);
        self->strides[i] = weft_tensor_stride(tensor, i) * item;
    }
    return (PyObject *)self;
}

static void memory_dealloc(memory *self)
{
    PyTypeObject *type = Py_TYPE(self);
    weft_tensor *tensor = self->tensor;
    Py_BEGIN_ALLOW_THREADS weft_release(tensor);
    Py_END_ALLOW_THREADS PyObject_Free(self);
    Py_DECREF(type);
}

/* The struct module's letter; NULL: it has none. */
static const char *format_of(weft_dtype dtype)
{
    switch ((int)dtype) {
    case WEFT_F64:
        return "d";
    case WEFT_F32:
        return "f";
    case WEFT_F16:
        return "e";
    case WEFT_I8:
        return "b";
    case WEFT_I16:
        return "h";
    case WEFT_I32:
        return "i";
    case WEFT_I64:
        return "q";
    case WEFT_U8:
        return "B";
    case WEFT_U16:
        return "H";
    case WEFT_U32:
        return "I";
    case WEFT_U64:
        return "Q";
    case WEFT_BOOL:
        return "?";
    default:
        return NULL;
    }
}

static int get_buffer(memory *self, Py_buffer *view, int flags)
{
    weft_dtype dtype = weft_tensor_dtype(self->tensor);
    const char *format = format_of(dtype);
    if (!format) {
        PyErr_Format(PyExc_BufferError, "buffers have no format for %s; use torch.from_dlpack",
                     weft_dtype_name(dtype));
        return -1;
    }
    static char nothing[64];
    void *data = weft_tensor_data(self->tensor);
    *view = (Py_buffer){.buf = data ? data : nothing,
                        .obj = Py_NewRef((PyObject *)self),
                        .len = (Py_ssize_t)weft_tensor_bytes(self->tensor),
                        .itemsize = (Py_ssize_t)weft_dtype_size(dtype),
                        .ndim = weft_tensor_ndim(self->tensor),
                        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL};
    view->shape = flags & PyBUF_ND ? self->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL;
    return 0;
}

static void delete_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return; /* it has a new owner */
    weft_dlpack *d = PyCapsule_GetPointer(capsule, "dltensor");
    if (d->deleter)
        d->deleter(d);
}

static PyObject *dlpack(memory *self, PyObject *args, PyObject *named)
{
    (void)args;
    (void)
        named; /* streams and versions change nothing: this is memory of the CPU, in the first form */
    weft_dlpack *description = weft_dlpack_export(self->tensor);
    return description ? PyCapsule_New(description, "dltensor", delete_capsule) : weft_py_raise();
}

static PyObject *dlpack_device(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return Py_BuildValue("(ii)", WEFT_DLPACK_CPU, 0);
}

static PyObject *get_dtype(memory *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(weft_dtype_name(weft_tensor_dtype(self->tensor)));
}

static PyObject *get_shape(memory *self, void *closure)
{
    (void)closure;
    int ndim = weft_tensor_ndim(self->tensor);
    PyObject *shape = PyTuple_New(ndim);
    for (int i = 0; shape && i < ndim; i++)
        PyTuple_SetItem(shape, i, PyLong_FromSsize_t(self->shape[i]));
    return shape;
}

static PyMethodDef memory_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, NULL},
    {0}};
static PyGetSetDef memory_getset[] = {{"dtype", (getter)get_dtype, NULL, "weft's name", NULL},
                                      {"shape", (getter)get_shape, NULL, NULL, NULL},
                                      {0}};
static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, (void *)memory_dealloc},
    {Py_tp_methods, memory_methods},
    {Py_tp_getset, memory_getset},
    {Py_bf_getbuffer, (void *)get_buffer},
    {Py_tp_doc, (void *)"Symmetric memory of one rank: np.asarray(m), torch.from_dlpack(m)."},
    {0}};
static PyType_Spec memory_spec = {"weft.Memory", sizeof(memory), 0, Py_TPFLAGS_DEFAULT,
                                  memory_slots};

/* ---- the handle ---- */

typedef struct symm {
    PyObject_HEAD weft_symm *mem; /* kept */
    PyObject *memory;
    PyObject *group;
} symm;

static int read_shape(PyObject *object, weft_shape *out)
{
    *out = (weft_shape){0};
    if (PyLong_Check(object)) {
        *out = WEFT_SHAPE(PyLong_AsLongLong(object));
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_ssize_t ndim = PySequence_Size(object);
    if (ndim < 0 || ndim > WEFT_MAX_DIMS) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "a shape has at most %d dimensions", WEFT_MAX_DIMS);
        return -1;
    }
    out->ndim = (int)ndim;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        PyObject *number = PySequence_GetItem(object, i);
        out->dim[i] = number ? PyLong_AsLongLong(number) : 0;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int read_dtype(PyObject *object, weft_dtype *out)
{
    PyObject *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8String(object) : NULL;
    *out = WEFT_DTYPE_COUNT;
    for (int i = 0; text && i < WEFT_DTYPE_COUNT; i++)
        if (!strcmp(weft_dtype_name((weft_dtype)i), PyBytes_AsString(text)))
            *out = (weft_dtype)i;
    Py_XDECREF(text);
    if (*out == WEFT_DTYPE_COUNT && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%R is no dtype of weft", object);
    return *out == WEFT_DTYPE_COUNT ? -1 : 0;
}

PyObject *weft_py_symm_empty(PyObject *module, PyObject *args)
{
    PyObject *group_object, *shape_object, *dtype_object;
    weft_shape shape;
    weft_dtype dtype;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &group_object, &shape_object, &dtype_object) ||
        read_shape(shape_object, &shape) < 0 || read_dtype(dtype_object, &dtype) < 0)
        return NULL;
    weft_group *group = weft_py_group_of(group_object);
    symm *self = group ? (symm *)PyType_GenericAlloc((PyTypeObject *)weft_py_symm_type, 0) : NULL;
    if (!self)
        return NULL;
    weft_tensor *tensor;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS weft_clear_error();
    tensor = weft_keep(weft_symm_empty(dtype, WEFT_CPU, shape));
    self->mem = weft_keep(weft_symm_rendezvous(tensor, group)); /* the others learn of a failure */
    Py_END_ALLOW_THREADS self->group = Py_NewRef(group_object);
    if (!self->mem || PyErr_Occurred()) {
        weft_release(tensor);
        weft_py_raise();
    } else {
        self->memory = memory_new(tensor);
    }
    if (self->memory)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void symm_dealloc(symm *self)
{
    PyTypeObject *type = Py_TYPE(self);
    weft_symm *mem = self->mem;
    Py_XDECREF(self->memory);
    Py_BEGIN_ALLOW_THREADS weft_release(mem);
    Py_END_ALLOW_THREADS Py_XDECREF(self->group);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *peer_memory(symm *self, PyObject *rank)
{
    int peer;
    if (weft_py_int(rank, "rank", 0, &peer) < 0)
        return NULL;
    return memory_new(weft_keep(weft_symm_tensor(self->mem, peer)));
}

/* ---- signals ---- */

typedef struct where {
    int rank, channel;
    int64_t limit;
} where;

static int read_where(weft_py_signature *signature, PyObject *const *args, Py_ssize_t count,
                      PyObject *names, bool ranked, where *out)
{
    PyObject *v[WEFT_PY_ARGUMENTS];
    if (weft_py_parse(signature, args, count, names, v) < 0)
        return -1;
    PyObject **rest = v + ranked;
    out->rank = 0;
    return (ranked && weft_py_int(v[0], "rank", 0, &out->rank) < 0) ||
                   weft_py_int(rest[0], "channel", 0, &out->channel) < 0 ||
                   weft_py_timeout(rest[1], &out->limit) < 0
               ? -1
               : 0;
}

static PyObject *ended(weft_status status)
{
    return status < 0 || PyErr_Occurred() ? weft_py_raise() : Py_NewRef(Py_None);
}

static PyObject *symm_barrier(symm *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"barrier", 0, 2, 2, {"channel", "timeout"}, {0}};
    where w;
    if (read_where(&signature, args, count, names, false, &w) < 0)
        return NULL;
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS status = weft_symm_barrier(self->mem, w.channel, w.limit);
    Py_END_ALLOW_THREADS return ended(status);
}

static PyObject *put_signal(symm *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"put_signal", 1, 3, 3, {"rank", "channel", "timeout"},
                                          {0}};
    where w;
    if (read_where(&signature, args, count, names, true, &w) < 0)
        return NULL;
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS status = weft_symm_put_signal(self->mem, w.rank, w.channel, w.limit);
    Py_END_ALLOW_THREADS return ended(status);
}

static PyObject *wait_signal(symm *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {
        "wait_signal", 1, 3, 3, {"rank", "channel", "timeout"}, {0}};
    where w;
    if (read_where(&signature, args, count, names, true, &w) < 0)
        return NULL;
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS status = weft_symm_wait_signal(self->mem, w.rank, w.channel, w.limit);
    Py_END_ALLOW_THREADS return ended(status);
}

/* ---- one-sided ---- */

static weft_status copy(const symm *self, int rank, const weft_py_operand *x, int64_t offset,
                        bool put)
{
    weft_scope_open();
    weft_tensor *tensor = weft_py_wrap(x);
    weft_status status = !tensor ? weft_last_status()
                         : put   ? weft_symm_put(self->mem, rank, tensor, offset)
                                 : weft_symm_get(tensor, self->mem, rank, offset);
    weft_scope_close();
    return status;
}

static PyObject *transfer(symm *self, weft_py_signature *signature, PyObject *const *args,
                          Py_ssize_t count, PyObject *names, bool put)
{
    PyObject *v[WEFT_PY_ARGUMENTS];
    weft_py_operand x;
    int rank, offset;
    if (weft_py_parse(signature, args, count, names, v) < 0 ||
        weft_py_int(v[0], "rank", 0, &rank) < 0 || weft_py_int(v[2], "offset", 0, &offset) < 0 ||
        weft_py_take(v[1], put ? WEFT_PY_READ : WEFT_PY_WRITE, &x) < 0)
        return NULL;
    weft_status status;
    Py_BEGIN_ALLOW_THREADS status = copy(self, rank, &x, offset, put);
    Py_END_ALLOW_THREADS weft_py_drop(&x);
    return status < 0 ? weft_py_raise() : Py_NewRef(put ? Py_None : v[1]);
}

static PyObject *symm_put(symm *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"put", 2, 3, 3, {"rank", "x", "offset"}, {0}};
    return transfer(self, &signature, args, count, names, true);
}

static PyObject *symm_get(symm *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"get", 2, 3, 3, {"rank", "x", "offset"}, {0}};
    return transfer(self, &signature, args, count, names, false);
}

/* ---- properties ---- */

static PyObject *get_memory(symm *self, void *closure)
{
    (void)closure;
    return Py_NewRef(self->memory);
}

static PyObject *get_group(symm *self, void *closure)
{
    (void)closure;
    return Py_NewRef(self->group);
}

static PyObject *get_channels(symm *self, void *closure)
{
    (void)closure;
    weft_symm_info info;
    return weft_symm_describe(self->mem, &info) < 0 ? weft_py_raise()
                                                    : PyLong_FromLong(info.channels);
}

#define METHOD(name_, function_, doc_)                                                     \
    {                                                                                      \
        name_, (PyCFunction)(void (*)(void))function_, METH_FASTCALL | METH_KEYWORDS, doc_ \
    }

static PyMethodDef methods[] = {
    {"peer_memory", (PyCFunction)peer_memory, METH_O, "The memory of a rank."},
    METHOD("barrier", symm_barrier, "barrier(channel=0, timeout=None)"),
    METHOD("put_signal", put_signal, "put_signal(rank, channel=0, timeout=None)"),
    METHOD("wait_signal", wait_signal, "wait_signal(rank, channel=0, timeout=None)"),
    METHOD("put", symm_put, "put(rank, x, offset=0)\n\nCopies x into the memory of a rank."),
    METHOD("get", symm_get, "get(rank, x, offset=0)\n\nCopies the memory of a rank into x."),
    {0}};

static PyGetSetDef getset[] = {
    {"memory", (getter)get_memory, NULL, "this rank's part", NULL},
    {"group", (getter)get_group, NULL, NULL, NULL},
    {"channels", (getter)get_channels, NULL, "how many channels there are", NULL},
    {0}};

static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)symm_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_doc, (void *)"An array in memory that the ranks share."},
                              {0}};

static PyType_Spec spec = {"weft.Symm", sizeof(symm), 0, Py_TPFLAGS_DEFAULT, slots};

int weft_py_add_symm(PyObject *module)
{
    weft_py_memory_type = PyType_FromSpec(&memory_spec);
    weft_py_symm_type = PyType_FromSpec(&spec);
    if (!weft_py_memory_type || !weft_py_symm_type)
        return -1;
    return PyModule_AddObject(module, "Memory", Py_NewRef(weft_py_memory_type)) < 0 ||
                   PyModule_AddObject(module, "Symm", Py_NewRef(weft_py_symm_type)) < 0
               ? -1
               : 0;
}
