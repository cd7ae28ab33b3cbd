/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands.  The buffer protocol comes first, because NumPy's is the quickest way to an address.  A
 * tensor of PyTorch is asked for its address, count and dtype: that takes a tenth of the time of its
 * __dlpack__, which is there for all others.
 */
#include "weft_python.h"

#include <string.h>

static int refuse(PyObject *object, const char *why)
{
    PyErr_Format(PyExc_TypeError, "weft: an operand of type %R %s", (PyObject *)Py_TYPE(object),
                 why);
    return -1;
}

/* ---- buffers ---- */

/* One letter of the struct module, or Z and a letter for complex numbers of NumPy. */
static bool read_format(const char *format, Py_ssize_t item, weft_dtype *out, bool *pairs)
{
    static const char letters[] = "?bBhHiIlLqQnNefd";
    if (*format == '<' || *format == '=' || *format == '@' || *format == '|')
        format++;
    *pairs = *format == 'Z';
    format += *pairs;
    if (!*format || format[1] || !strchr(letters, *format))
        return false;
    bool whole = strchr("bhilqn", *format), natural = strchr("BHILQN", *format);
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        const char *name = weft_dtype_name((weft_dtype)i);
        bool fits = *format == '?' ? !strcmp(name, "bool")
                    : whole        ? *name == 'i'
                    : natural      ? *name == 'u'
                                   : *name == 'f' && name[1] != '8';
        if (fits && (Py_ssize_t)weft_dtype_size((weft_dtype)i) * (1 + *pairs) == item) {
            *out = (weft_dtype)i;
            return !*pairs || *name == 'f';
        }
    }
    return false;
}

static weft_dtype quick_dtype(const char *format)
{
    if (!format || !*format || format[1])
        return WEFT_DTYPE_COUNT;
    return *format == 'f' ? WEFT_F32 : *format == 'd' ? WEFT_F64 : WEFT_DTYPE_COUNT;
}

static int take_buffer(PyObject *object, int how, weft_py_operand *out)
{
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (how & WEFT_PY_WRITE ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &out->view, flags) < 0) {
        PyErr_Clear();
        return refuse(object, how & WEFT_PY_WRITE ? "is not contiguous or cannot be written"
                                                  : "is not contiguous");
    }
    const char *format = out->view.format ? out->view.format : "B";
    out->data = out->view.buf;
    out->dtype = quick_dtype(format);
    size_t item = out->view.itemsize ? (size_t)out->view.itemsize : 1;
    if (out->dtype == WEFT_DTYPE_COUNT &&
        !read_format(format, out->view.itemsize, &out->dtype, &out->pairs)) {
        out->pairs = false;
        if (!(how & WEFT_PY_MOVE)) {
            PyErr_Format(PyExc_TypeError, "weft cannot reduce elements of format '%s'", format);
            PyBuffer_Release(&out->view);
            return -1;
        }
        out->dtype = WEFT_U8;
        item = 1;
    }
    out->count = (size_t)out->view.len / item << out->pairs;
    return 0;
}

/* ---- tensors of PyTorch ---- */

static PyObject *torch_tensor, *torch_dtypes, *s_data_ptr, *s_numel, *s_dtype, *s_contiguous,
    *s_cpu, *s_grad;

static int add_dtype(PyObject *torch, const char *theirs, int ours)
{
    PyObject *type = PyObject_GetAttrString(torch, theirs);
    if (!type) { /* an older release has fewer */
        PyErr_Clear();
        return 0;
    }
    PyObject *number = PyLong_FromLong(ours);
    int bad = !number || PyDict_SetItem(torch_dtypes, type, number) < 0;
    Py_DECREF(type);
    Py_XDECREF(number);
    return bad ? -1 : 0;
}

enum { PAIRS = 1000 }; /* added to a dtype: complex numbers of it */

static int learn_torch(PyObject *torch)
{
    static const struct {
        const char *theirs;
        int ours;
    } names[] = {{"float64", WEFT_F64},
                 {"float32", WEFT_F32},
                 {"float16", WEFT_F16},
                 {"bfloat16", WEFT_BF16},
                 {"float8_e4m3fn", WEFT_F8E4M3},
                 {"float8_e5m2", WEFT_F8E5M2},
                 {"int8", WEFT_I8},
                 {"int16", WEFT_I16},
                 {"int32", WEFT_I32},
                 {"int64", WEFT_I64},
                 {"uint8", WEFT_U8},
                 {"uint16", WEFT_U16},
                 {"uint32", WEFT_U32},
                 {"uint64", WEFT_U64},
                 {"bool", WEFT_BOOL},
                 {"complex64", WEFT_F32 + PAIRS},
                 {"complex128", WEFT_F64 + PAIRS}};
    PyObject *type = PyObject_GetAttrString(torch, "Tensor");
    torch_dtypes = type ? PyDict_New() : NULL;
    if (!torch_dtypes)
        return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (add_dtype(torch, names[i].theirs, names[i].ours) < 0)
            return -1;
    s_data_ptr = PyUnicode_InternFromString("data_ptr");
    s_numel = PyUnicode_InternFromString("numel");
    s_dtype = PyUnicode_InternFromString("dtype");
    s_contiguous = PyUnicode_InternFromString("is_contiguous");
    s_cpu = PyUnicode_InternFromString("is_cpu");
    s_grad = PyUnicode_InternFromString("requires_grad");
    torch_tensor = type;
    return s_grad && s_cpu && s_contiguous && s_dtype && s_numel && s_data_ptr ? 0 : -1;
}

/* PyTorch is never imported here: a tensor of it can only come from a program that has done so. */
static int is_torch(PyObject *object)
{
    if (!torch_tensor) {
        PyObject *modules = PyImport_GetModuleDict();
        PyObject *torch = PyDict_GetItemString(modules, "torch");
        if (!torch || !PyObject_HasAttrString(torch, "Tensor"))
            return 0;
        if (learn_torch(torch) < 0)
            return -1;
    }
    return PyObject_IsInstance(object, torch_tensor);
}

static int ask_truth(PyObject *value)
{
    int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

/* Is it dense, on the CPU and without a history? */
static int check_torch(PyObject *object)
{
    int cpu = ask_truth(PyObject_GetAttr(object, s_cpu));
    if (cpu <= 0)
        return cpu ? -1 : refuse(object, "is not on the CPU");
    int grad = ask_truth(PyObject_GetAttr(object, s_grad));
    if (grad)
        return grad < 0 ? -1 : refuse(object, "requires a gradient; give its detach()");
    int contiguous = ask_truth(PyObject_CallMethodObjArgs(object, s_contiguous, NULL));
    if (contiguous <= 0)
        return contiguous ? -1 : refuse(object, "is not contiguous");
    return 0;
}

static int read_torch_dtype(PyObject *object, int how, weft_py_operand *out)
{
    PyObject *dtype = PyObject_GetAttr(object, s_dtype);
    PyObject *number = dtype ? PyDict_GetItemWithError(torch_dtypes, dtype) : NULL;
    Py_XDECREF(dtype);
    if (PyErr_Occurred())
        return -1;
    if (number) {
        long ours = PyLong_AsLong(number);
        out->pairs = ours >= PAIRS;
        out->dtype = (weft_dtype)(ours % PAIRS);
        out->count <<= out->pairs;
        return 0;
    }
    if (!(how & WEFT_PY_MOVE))
        return refuse(object, "has elements that weft cannot reduce");
    PyObject *item = PyObject_CallMethod(object, "element_size", NULL);
    if (!item)
        return -1;
    out->dtype = WEFT_U8;
    out->count *= PyLong_AsSize_t(item);
    Py_DECREF(item);
    return PyErr_Occurred() ? -1 : 0;
}

static int take_torch(PyObject *object, int how, weft_py_operand *out)
{
    if (check_torch(object) < 0)
        return -1;
    PyObject *address = PyObject_CallMethodObjArgs(object, s_data_ptr, NULL);
    PyObject *count = address ? PyObject_CallMethodObjArgs(object, s_numel, NULL) : NULL;
    if (count) {
        out->data = PyLong_AsVoidPtr(address);
        out->count = PyLong_AsSize_t(count);
    }
    Py_XDECREF(address);
    Py_XDECREF(count);
    if (PyErr_Occurred() || read_torch_dtype(object, how, out) < 0)
        return -1;
    out->holder = Py_NewRef(object);
    return 0;
}

/* ---- DLPack ---- */

static bool read_code(const weft_dlpack_tensor *t, weft_dtype *out, bool *pairs)
{
    enum { INT, UINT, FLOAT, BFLOAT = 4, COMPLEX, BOOL };
    static const char *const kinds[] = {[INT] = "i",     [UINT] = "u",    [FLOAT] = "f",
                                        [BFLOAT] = "bf", [COMPLEX] = "f", [BOOL] = "bool"};
    *pairs = t->code == COMPLEX;
    if (t->lanes != 1 || t->code > BOOL || !kinds[t->code])
        return false;
    char name[16];
    if (t->code == BOOL)
        PyOS_snprintf(name, sizeof name, "bool");
    else
        PyOS_snprintf(name, sizeof name, "%s%d", kinds[t->code], t->bits >> *pairs);
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++)
        if (!strcmp(weft_dtype_name((weft_dtype)i), name)) {
            *out = (weft_dtype)i;
            return true;
        }
    return false;
}

static bool is_row_major(const weft_dlpack_tensor *t, size_t *count)
{
    int64_t next = 1;
    bool packed = true;
    for (int i = t->ndim - 1; i >= 0; i--) {
        packed &= !t->strides || t->shape[i] == 1 || t->strides[i] == next;
        next *= t->shape[i];
    }
    *count = (size_t)next;
    return packed || !next;
}

static int read_dlpack(PyObject *object, int how, const weft_dlpack_tensor *t, bool read_only,
                       weft_py_operand *out)
{
    if (t->device_type != WEFT_DLPACK_CPU)
        return refuse(object, "is not on the CPU");
    if (read_only && (how & WEFT_PY_WRITE))
        return refuse(object, "cannot be written");
    if (!is_row_major(t, &out->count))
        return refuse(object, "is not contiguous");
    if (!read_code(t, &out->dtype, &out->pairs)) {
        out->pairs = false;
        if (!(how & WEFT_PY_MOVE))
            return refuse(object, "has elements that weft cannot reduce");
        out->dtype = WEFT_U8;
        out->count *= (size_t)(t->bits + 7) / 8 * t->lanes;
    }
    out->count <<= out->pairs;
    out->data = t->data ? (char *)t->data + t->byte_offset : NULL;
    return 0;
}

/* Asks for the form that can say "read-only"; older libraries have only the first one. */
static PyObject *ask_dlpack(PyObject *method)
{
    PyObject *empty = PyTuple_New(0), *version = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    PyObject *capsule = empty && version ? PyObject_Call(method, empty, version) : NULL;
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_CallObject(method, NULL);
    }
    Py_XDECREF(empty);
    Py_XDECREF(version);
    return capsule;
}

static int take_dlpack(PyObject *object, PyObject *method, int how, weft_py_operand *out)
{
    PyObject *capsule = ask_dlpack(method);
    if (!capsule)
        return -1;
    int status = -1;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        weft_dlpack_versioned *v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        status = read_dlpack(object, how, &v->tensor, v->flags & WEFT_DLPACK_READ_ONLY, out);
    } else {
        weft_dlpack *d = PyCapsule_GetPointer(capsule, "dltensor");
        status = d ? read_dlpack(object, how, &d->tensor, false, out) : -1;
    }
    if (status < 0)
        Py_DECREF(capsule); /* its destructor calls the deleter: nobody has taken it over */
    else
        out->holder = capsule;
    return status;
}

/* ---- all of them ---- */

static int take_memory(PyObject *object, weft_tensor *tensor, weft_py_operand *out)
{
    out->tensor = tensor;
    out->data = weft_tensor_data(tensor);
    out->count = (size_t)weft_tensor_numel(tensor);
    out->dtype = weft_tensor_dtype(tensor);
    out->holder = Py_NewRef(object);
    return 0;
}

int weft_py_take(PyObject *object, int how, weft_py_operand *out)
{
    *out = (weft_py_operand){.dtype = WEFT_DTYPE_COUNT};
    weft_tensor *tensor = weft_py_memory_tensor(object);
    if (tensor)
        return take_memory(object, tensor, out);
    if (PyObject_CheckBuffer(object))
        return take_buffer(object, how, out);
    int torch = is_torch(object);
    if (torch)
        return torch < 0 ? -1 : take_torch(object, how, out);
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (!method) {
        PyErr_Clear();
        return refuse(object, "is no array: it has neither a buffer nor __dlpack__");
    }
    int status = take_dlpack(object, method, how, out);
    Py_DECREF(method);
    return status;
}

void weft_py_drop(weft_py_operand *operand)
{
    if (operand->holder)
        Py_CLEAR(operand->holder);
    else if (operand->view.obj)
        PyBuffer_Release(&operand->view);
}

weft_tensor *weft_py_wrap(const weft_py_operand *operand)
{
    static char nothing[64];
    if (operand->tensor)
        return operand->tensor;
    return weft_tensor_wrap(operand->dtype, WEFT_CPU, WEFT_SHAPE(operand->count),
                            operand->data ? operand->data : nothing, NULL, NULL);
}
