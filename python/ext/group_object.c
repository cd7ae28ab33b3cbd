/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of a group that move objects of Python, as pickles.  Whoever can send a pickle can run
 * code in the receiver: these are for the ranks of one job, which run one program anyway.
 */
#include "weft_python.h"

#include <stdlib.h>

static PyObject *dumps, *loads;

static int learn_pickle(void)
{
    if (loads)
        return 0;
    PyObject *pickle = PyImport_ImportModule("pickle");
    dumps = pickle ? PyObject_GetAttrString(pickle, "dumps") : NULL;
    loads = dumps ? PyObject_GetAttrString(pickle, "loads") : NULL;
    Py_XDECREF(pickle);
    return loads ? 0 : -1;
}

/* The pickle of an object, held by `*held`. */
static int pack(PyObject *object, PyObject **held, weft_bytes *out)
{
    PyObject *protocol = learn_pickle() < 0 ? NULL : PyLong_FromLong(-1);
    *held = protocol ? PyObject_CallFunctionObjArgs(dumps, object, protocol, NULL) : NULL;
    Py_XDECREF(protocol);
    char *data;
    Py_ssize_t length;
    if (!*held || PyBytes_AsStringAndSize(*held, &data, &length) < 0)
        return -1;
    *out = (weft_bytes){data, (size_t)length};
    return 0;
}

static PyObject *unpack(weft_bytes bytes)
{
    if (learn_pickle() < 0)
        return NULL;
    PyObject *pickle = PyBytes_FromStringAndSize(bytes.data, (Py_ssize_t)bytes.length);
    PyObject *object = pickle ? PyObject_CallFunctionObjArgs(loads, pickle, NULL) : NULL;
    Py_XDECREF(pickle);
    return object;
}

/* A list of all, or the only one. */
static PyObject *unpack_all(const weft_blobs *blobs, bool list)
{
    if (!list)
        return unpack(weft_blobs_get(blobs, 0));
    PyObject *objects = PyList_New(0);
    for (int i = 0; objects && i < weft_blobs_count(blobs); i++) {
        PyObject *object = unpack(weft_blobs_get(blobs, i));
        if (!object || PyList_Append(objects, object) < 0)
            Py_CLEAR(objects);
        Py_XDECREF(object);
    }
    return objects;
}

typedef enum kind { ALL_GATHER, GATHER, BROADCAST, SCATTER } kind;

static weft_blobs *run(kind what, const weft_bytes *mine, int root, weft_group *group,
                       int64_t limit)
{
    if (limit != WEFT_DEFAULT)
        weft_limit_open(limit);
    weft_blobs *blobs = what == ALL_GATHER  ? weft_all_gather_object(*mine, group)
                        : what == GATHER    ? weft_gather_object(*mine, root, group)
                        : what == BROADCAST ? weft_broadcast_object(mine, mine ? 1 : 0, root, group)
                                            : weft_scatter_object(mine, root, group);
    blobs = weft_keep(blobs);
    if (limit != WEFT_DEFAULT)
        weft_limit_close();
    return blobs;
}

/* `mine` is NULL where this rank gives nothing. */
static PyObject *exchange(PyObject *self, kind what, const weft_bytes *mine, int root,
                          PyObject *timeout)
{
    int64_t limit;
    weft_group *group = weft_py_group_of(self);
    if (!group || weft_py_timeout(timeout, &limit) < 0)
        return NULL;
    weft_blobs *blobs;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS blobs = run(what, mine, root, group, limit);
    Py_END_ALLOW_THREADS if (!blobs || PyErr_Occurred())
    {
        weft_release(blobs);
        return weft_py_raise();
    }
    bool none = what == GATHER && root != weft_rank(group);
    PyObject *result =
        none ? Py_NewRef(Py_None) : unpack_all(blobs, what == ALL_GATHER || what == GATHER);
    weft_release(blobs);
    return result;
}

static PyObject *all_gather_object(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names)
{
    static weft_py_signature signature = {"all_gather_object", 1, 1, 2, {"object", "timeout"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS], *held = NULL, *result = NULL;
    weft_bytes mine;
    if (weft_py_parse(&signature, args, count, names, v) == 0 && pack(v[0], &held, &mine) == 0)
        result = exchange(self, ALL_GATHER, &mine, 0, v[1]);
    Py_XDECREF(held);
    return result;
}

static PyObject *gather_object(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *names)
{
    static weft_py_signature signature = {
        "gather_object", 1, 2, 3, {"object", "root", "timeout"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS], *held = NULL, *result = NULL;
    weft_bytes mine;
    int root;
    if (weft_py_parse(&signature, args, count, names, v) == 0 &&
        weft_py_int(v[1], "root", 0, &root) == 0 && pack(v[0], &held, &mine) == 0)
        result = exchange(self, GATHER, &mine, root, v[2]);
    Py_XDECREF(held);
    return result;
}

static PyObject *broadcast_object(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *names)
{
    static weft_py_signature signature = {
        "broadcast_object", 0, 2, 3, {"object", "root", "timeout"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS], *held = NULL, *result = NULL;
    weft_bytes mine;
    int root;
    weft_group *group = weft_py_group_of(self);
    if (!group || weft_py_parse(&signature, args, count, names, v) < 0 ||
        weft_py_int(v[1], "root", 0, &root) < 0)
        return NULL;
    bool gives = root == weft_rank(group);
    if (!gives || pack(v[0] ? v[0] : Py_None, &held, &mine) == 0)
        result = exchange(self, BROADCAST, gives ? &mine : NULL, root, v[2]);
    Py_XDECREF(held);
    return result;
}

/* The pickles of root's list; both are for the caller to give back. */
static weft_bytes *pack_list(PyObject *list, int size, PyObject **held)
{
    if (!list || PySequence_Size(list) != size) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "scatter_object: the root gives a list of %d", size);
        return NULL;
    }
    *held = PyList_New(0);
    weft_bytes *all = *held ? calloc((size_t)size, sizeof *all) : NULL;
    for (int i = 0; all && i < size; i++) {
        PyObject *object = PySequence_GetItem(list, i), *pickle = NULL;
        bool bad =
            !object || pack(object, &pickle, &all[i]) < 0 || PyList_Append(*held, pickle) < 0;
        Py_XDECREF(object);
        Py_XDECREF(pickle);
        if (bad) {
            free(all);
            return NULL;
        }
    }
    if (!all && !PyErr_Occurred())
        PyErr_NoMemory();
    return all;
}

static PyObject *scatter_object(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    static weft_py_signature signature = {
        "scatter_object", 0, 2, 3, {"objects", "root", "timeout"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS], *held = NULL, *result = NULL;
    weft_bytes *all = NULL;
    int root;
    weft_group *group = weft_py_group_of(self);
    if (!group || weft_py_parse(&signature, args, count, names, v) < 0 ||
        weft_py_int(v[1], "root", 0, &root) < 0)
        return NULL;
    bool gives = root == weft_rank(group);
    if (!gives || (all = pack_list(v[0], weft_size(group), &held)))
        result = exchange(self, SCATTER, all, root, v[2]);
    free(all);
    Py_XDECREF(held);
    return result;
}

#define METHOD(name_, doc_)                                                             \
    {                                                                                   \
#name_, (PyCFunction)(void (*)(void))name_, METH_FASTCALL | METH_KEYWORDS, doc_ \
    }

PyMethodDef weft_py_group_objects[] = {
    METHOD(all_gather_object, "all_gather_object(object, *, timeout=None)\n\nThe objects of all "
                              "ranks, as a list.  By pickle: never for data of strangers."),
    METHOD(gather_object,
           "gather_object(object, root=0, *, timeout=None)\n\nThe same on root; None "
           "elsewhere."),
    METHOD(broadcast_object, "broadcast_object(object=None, root=0, *, timeout=None)\n\nThe object "
                             "of root, on every rank."),
    METHOD(scatter_object, "scatter_object(objects=None, root=0, *, timeout=None)\n\nRank r gets "
                           "object r of root's list."),
    {0}};
