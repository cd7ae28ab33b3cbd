/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of methods, without a tuple or a dictionary in between. */
#include "weft_python.h"

#include <math.h>
#include <string.h>

static int intern(weft_py_signature *signature)
{
    for (int i = 0; i < signature->count && !signature->interned[i]; i++)
        if (!(signature->interned[i] = PyUnicode_InternFromString(signature->names[i])))
            return -1;
    return 0;
}

static int place_of(const weft_py_signature *signature, PyObject *name)
{
    for (int i = 0; i < signature->count; i++)
        if (signature->interned[i] == name)
            return i;
    for (int i = 0; i < signature->count; i++)
        if (PyUnicode_Compare(signature->interned[i], name) == 0)
            return i;
    return -1;
}

static int take_named(const weft_py_signature *signature, PyObject *name, PyObject *value,
                      PyObject **out)
{
    int place = place_of(signature, name);
    if (place < 0) {
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
                     signature->method, name);
        return -1;
    }
    if (out[place]) {
        PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
                     signature->method, name);
        return -1;
    }
    out[place] = value;
    return 0;
}

int weft_py_parse(weft_py_signature *signature, PyObject *const *args, Py_ssize_t count,
                  PyObject *names, PyObject **out)
{
    if (intern(signature) < 0)
        return -1;
    if (count > signature->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments (%zd given)",
                     signature->method, signature->positional, count);
        return -1;
    }
    memset(out, 0, WEFT_PY_ARGUMENTS * sizeof *out);
    for (Py_ssize_t i = 0; i < count; i++)
        out[i] = args[i];
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++)
        if (take_named(signature, PyTuple_GetItem(names, i), args[count + i], out) < 0)
            return -1;
    for (int i = 0; i < signature->required; i++)
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", signature->method,
                         signature->names[i]);
            return -1;
        }
    return 0;
}

int weft_py_reduction(PyObject *value, weft_reduction *out)
{
    *out = WEFT_SUM;
    if (!value)
        return 0;
    PyObject *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8String(value) : NULL;
    if (PyErr_Occurred())
        return -1;
    for (int i = 0; text && i < WEFT_REDUCTIONS; i++)
        if (i != WEFT_PREMUL_SUM &&
            !strcmp(PyBytes_AsString(text), weft_reduction_name((weft_reduction)i))) {
            Py_DECREF(text);
            *out = (weft_reduction)i;
            return 0;
        }
    Py_XDECREF(text);
    PyErr_Format(PyExc_ValueError,
                 "%R is no reduction; there are sum, avg, product, min, max, band, bor and bxor",
                 value);
    return -1;
}

int weft_py_int(PyObject *value, const char *name, int fallback, int *out)
{
    *out = fallback;
    if (!value || value == Py_None)
        return 0;
    long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < INT32_MIN || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s: %ld is out of range", name, number);
        return -1;
    }
    *out = (int)number;
    return 0;
}

int weft_py_truth(PyObject *value, bool fallback, bool *out)
{
    int truth = value ? PyObject_IsTrue(value) : fallback;
    *out = truth > 0;
    return truth < 0 ? -1 : 0;
}

int weft_py_timeout(PyObject *value, int64_t *out)
{
    *out = WEFT_DEFAULT;
    if (!value || value == Py_None)
        return 0;
    double seconds = PyFloat_AsDouble(value);
    if (seconds == -1 && PyErr_Occurred())
        return -1;
    if (!(seconds >= 0)) {
        PyErr_Format(PyExc_ValueError, "timeout: %R is no number of seconds", value);
        return -1;
    }
    *out = seconds > 1e12 ? WEFT_FOREVER : seconds < 1e-3 ? 1 : (int64_t)ceil(seconds * 1e3);
    return 0;
}
