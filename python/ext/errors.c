/* SPDX-License-Identifier: Apache-2.0 */
/* Exceptions: a class for each status that a program may want to catch, all of them weft.Error. */
#include "weft_python.h"

static PyObject *base;

typedef struct row {
    weft_status status;
    const char *name, *doc;
    PyObject **also; /* a class of Python's that it is as well */
    PyObject *type;
} row;

static row rows[] = {
    {WEFT_ERR_TIMEOUT, "TimeoutError", "A limit passed; the text names the missing ranks.",
     &PyExc_TimeoutError, NULL},
    {WEFT_ERR_PEER_DEAD, "PeerDeadError", "A rank died.", NULL, NULL},
    {WEFT_ERR_PEER_LEFT, "PeerLeftError", "A rank left the job before this call.", NULL, NULL},
    {WEFT_ERR_MISMATCH, "MismatchError", "The ranks called different things.", NULL, NULL},
    {WEFT_ERR_REVOKED, "RevokedError", "The group was revoked.", NULL, NULL},
    {WEFT_ERR_CANCELLED, "CancelledError", "The operation was cancelled.", NULL, NULL},
    {WEFT_ERR_MISSING, "MissingError", "Ranks did not come; nobody has a group.", NULL, NULL},
    {WEFT_ERR_INVALID_ARG, "ArgumentError", "A value is out of its range; nothing happened.",
     &PyExc_ValueError, NULL},
};

enum { ROWS = sizeof rows / sizeof *rows };

int weft_py_add_errors(PyObject *module)
{
    base =
        PyErr_NewExceptionWithDoc("weft.Error",
                                  "An error of weft.  `status` is its name, `scope` says what is "
                                  "still usable: call, op, group, start or bug.",
                                  PyExc_RuntimeError, NULL);
    if (!base || PyModule_AddObject(module, "Error", Py_NewRef(base)) < 0)
        return -1;
    for (int i = 0; i < ROWS; i++) {
        char name[64];
        PyOS_snprintf(name, sizeof name, "weft.%s", rows[i].name);
        PyObject *bases =
            rows[i].also ? PyTuple_Pack(2, base, *rows[i].also) : PyTuple_Pack(1, base);
        rows[i].type = bases ? PyErr_NewExceptionWithDoc(name, rows[i].doc, bases, NULL) : NULL;
        Py_XDECREF(bases);
        if (!rows[i].type || PyModule_AddObject(module, rows[i].name, Py_NewRef(rows[i].type)) < 0)
            return -1;
    }
    return 0;
}

static PyObject *type_of(weft_status status)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].status == status)
            return rows[i].type;
    return base;
}

static int describe(PyObject *error, weft_status status)
{
    static const char *const scopes[] = {"none", "call", "op", "group", "start", "bug"};
    PyObject *name = PyUnicode_FromString(weft_status_name(status));
    PyObject *scope = PyUnicode_FromString(scopes[weft_status_scope(status)]);
    int bad = !name || !scope || PyObject_SetAttrString(error, "status", name) < 0 ||
              PyObject_SetAttrString(error, "scope", scope) < 0;
    Py_XDECREF(name);
    Py_XDECREF(scope);
    return bad ? -1 : 0;
}

PyObject *weft_py_raise_as(weft_status status, const char *text)
{
    PyObject *type = type_of(status);
    PyObject *error = PyObject_CallFunction(type, "s", *text ? text : weft_strerror(status));
    if (error && describe(error, status) == 0)
        PyErr_SetObject(type, error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *weft_py_raise(void)
{
    if (!PyErr_Occurred())
        weft_py_raise_as(weft_last_status(), weft_last_error());
    weft_clear_error();
    return NULL;
}
