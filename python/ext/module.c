/* SPDX-License-Identifier: Apache-2.0 */
/* The module _weft: types, exceptions, and what signals do to a thread that waits. */
#include "weft_python.h"

bool weft_py_ending;

/* Asked while a call waits, without the GIL.  Only Python's main thread has signals to look at. */
static bool asked(void *argument)
{
    (void)argument;
    if (weft_py_ending)
        return false;
    PyGILState_STATE state = PyGILState_Ensure();
    bool raised = PyErr_Occurred() || PyErr_CheckSignals() < 0;
    PyGILState_Release(state);
    return raised;
}

void weft_py_heed_signals(void)
{
    static _Thread_local bool heeds;
    if (!heeds)
        weft_limit_interrupt(asked, NULL);
    heeds = true;
}

static PyObject *version(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyUnicode_FromString(weft_version());
}

static PyObject *end(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    weft_py_ending = true;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"init", (PyCFunction)(void (*)(void))weft_py_init, METH_FASTCALL | METH_KEYWORDS,
     "init(store=None, *, rank=None, size=None, timeout=None, meet_timeout=None)"},
    {"symm_empty", weft_py_symm_empty, METH_VARARGS, NULL},
    {"version", version, METH_NOARGS, "The version of libweft."},
    {"_end", end, METH_NOARGS, NULL},
    {0}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "weft._weft", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__weft(void);
PyMODINIT_FUNC PyInit__weft(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && (weft_py_add_errors(module) < 0 || weft_py_add_group(module) < 0 ||
                   weft_py_add_work(module) < 0 || weft_py_add_symm(module) < 0))
        Py_CLEAR(module);
    return module;
}
