/* SPDX-License-Identifier: Apache-2.0 */
/* Python's lock and its signals. */
#include "backend.h"

#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft_torch
{

WithoutGil::WithoutGil() : saved(nullptr)
{
    if (Py_IsInitialized() && PyGILState_Check())
        saved = PyEval_SaveThread();
}

WithoutGil::~WithoutGil()
{
    if (saved)
        PyEval_RestoreThread((PyThreadState *)saved);
}

static thread_local bool interrupted;

/* Asked while the thread waits.  An exception that a signal's function raised stays set. */
static bool asked(void *)
{
    if (interrupted || !Py_IsInitialized())
        return interrupted;
    PyGILState_STATE state = PyGILState_Ensure();
    interrupted = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return interrupted;
}

void heed_signals()
{
    static thread_local bool heeds;
    if (!heeds && getpid() == (pid_t)syscall(SYS_gettid))
        weft_limit_interrupt(asked, nullptr);
    heeds = true;
}

void raise_interrupt()
{
    if (!interrupted)
        return;
    interrupted = false;
    weft_clear_error();
    pybind11::gil_scoped_acquire gil;
    if (PyErr_Occurred())
        throw pybind11::error_already_set();
}

} // namespace weft_torch
