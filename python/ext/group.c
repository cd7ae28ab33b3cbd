/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: meeting, leaving, making others, and what a group knows of itself. */
#include "weft_python.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

PyObject *weft_py_group_type;

weft_group *weft_py_group_of(PyObject *object)
{
    if (!PyObject_TypeCheck(object, (PyTypeObject *)weft_py_group_type)) {
        PyErr_Format(PyExc_TypeError, "weft: %R is no group", object);
        return NULL;
    }
    weft_group *group = ((weft_py_group *)object)->group;
    if (!group)
        weft_py_raise_as(WEFT_ERR_STATE, "the group was finished");
    return group;
}

static PyObject *wrap(weft_group *group, weft_store *store, bool is_world)
{
    weft_py_group *self =
        (weft_py_group *)PyType_GenericAlloc((PyTypeObject *)weft_py_group_type, 0);
    if (!self) {
        weft_release(group);
        weft_release(store);
        return NULL;
    }
    self->group = group;
    self->store = store;
    self->is_world = is_world;
    return (PyObject *)self;
}

PyObject *weft_py_group_new(weft_group *group)
{
    if (group)
        return wrap(group, NULL, false);
    if (weft_last_status() < 0 || PyErr_Occurred())
        return weft_py_raise();
    Py_RETURN_NONE;
}

/* ---- meeting ---- */

/* A store by its name: file:PATH, unix:NAME or tcp:HOST:PORT; rank 0 serves the latter two. */
static weft_store *open_store(const char *name, int rank, int64_t limit)
{
    const char *rest = strchr(name, ':');
    if (rest && !strncmp(name, "file:", 5))
        return weft_store_file(rest + 1, 0);
    if (rest && !strncmp(name, "unix:", 5))
        return rank ? weft_store_unix_connect(rest + 1, limit) : weft_store_unix_serve(rest + 1);
    const char *colon = strrchr(name, ':');
    char host[256];
    if (rest && !strncmp(name, "tcp:", 4) && colon > rest && (size_t)(colon - rest) < sizeof host) {
        PyOS_snprintf(host, sizeof host, "%.*s", (int)(colon - rest - 1), rest + 1);
        int port = atoi(colon + 1);
        return rank ? weft_store_tcp_connect(host, port, NULL, limit)
                    : weft_store_tcp_serve(host, port, NULL);
    }
    return NULL;
}

static int read_init(PyObject *const *v, weft_init_opts *opts, PyObject **store)
{
    int64_t limit, meet;
    if (weft_py_int(v[1], "rank", 0, &opts->rank) < 0 ||
        weft_py_int(v[2], "size", 0, &opts->world_size) < 0 || weft_py_timeout(v[3], &limit) < 0 ||
        weft_py_timeout(v[4], &meet) < 0)
        return -1;
    opts->timeout_ms = limit == WEFT_DEFAULT ? 0 : limit;
    opts->meet_timeout_ms = meet == WEFT_DEFAULT ? 0 : meet;
    *store = NULL;
    if (!v[0] || v[0] == Py_None)
        return 0;
    *store = PyUnicode_Check(v[0]) ? PyUnicode_AsUTF8String(v[0]) : NULL;
    if (*store)
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError,
                        "init: a store is a text, file:PATH, unix:NAME or tcp:HOST:PORT");
    return -1;
}

PyObject *weft_py_init(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {
        "init", 0, 1, 5, {"store", "rank", "size", "timeout", "meet_timeout"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS], *name;
    weft_init_opts opts = WEFT_INIT_OPTS;
    (void)module;
    if (weft_py_parse(&signature, args, count, names, v) < 0 || read_init(v, &opts, &name) < 0)
        return NULL;
    const char *address = name ? PyBytes_AsString(name) : NULL;
    weft_group *group = NULL;
    weft_store *store = NULL;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS weft_clear_error();
    if (address)
        opts.store = store = weft_keep(open_store(
            address, opts.rank, opts.meet_timeout_ms ? opts.meet_timeout_ms : WEFT_DEFAULT));
    if (!address || store)
        group = weft_keep(weft_init(&opts));
    Py_END_ALLOW_THREADS if (!group)
    {
        if (address && !store && weft_last_status() == WEFT_OK)
            PyErr_Format(PyExc_ValueError, "init: %R is no store", v[0]);
        weft_release(store);
        Py_XDECREF(name);
        return weft_py_raise();
    }
    Py_XDECREF(name);
    return wrap(group, store, true);
}

/* ---- leaving ---- */

static weft_status leave(weft_py_group *self)
{
    weft_group *group = self->group;
    weft_store *store = self->store;
    self->group = NULL;
    self->store = NULL;
    weft_status status = WEFT_OK;
    Py_BEGIN_ALLOW_THREADS if (self->is_world)
    {
        weft_clear_error(); /* what was raised has been told */
        status = weft_finish(group);
    }
    else if (group)
    {
        weft_group_destroy(group);
        weft_clear_error(); /* its world may be gone */
    }
    weft_release(group);
    weft_release(store);
    Py_END_ALLOW_THREADS return status;
}

static PyObject *finish(weft_py_group *self, PyObject *none)
{
    (void)none;
    return self->group && leave(self) < 0 ? weft_py_raise() : Py_NewRef(Py_None);
}

static void dealloc(weft_py_group *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->weak)
        PyObject_ClearWeakRefs((PyObject *)self);
    if (self->group && self->is_world)
        leave(self);
    else if (self->group) { /* its memory; posted work may still need the group */
        weft_group *group = self->group;
        Py_BEGIN_ALLOW_THREADS weft_release(group);
        Py_END_ALLOW_THREADS
    }
    weft_clear_error();
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *enter(PyObject *self, PyObject *none)
{
    (void)none;
    return Py_NewRef(self);
}

/* What ends the block is the program's error, not what leaving says. */
static PyObject *leave_block(weft_py_group *self, PyObject *args)
{
    bool raised = PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
    if (self->group && leave(self) < 0 && !raised)
        return weft_py_raise();
    weft_clear_error();
    Py_RETURN_FALSE;
}

/* ---- barriers ---- */

static PyObject *ended(weft_status status)
{
    return status < 0 || PyErr_Occurred() ? weft_py_raise() : Py_NewRef(Py_None);
}

static PyObject *barrier(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"barrier", 0, 1, 2, {"timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    weft_group *group = weft_py_group_of(self);
    int64_t limit;
    bool wait;
    if (!group || weft_py_parse(&signature, args, count, names, v) < 0 ||
        weft_py_timeout(v[0], &limit) < 0 || weft_py_truth(v[1], true, &wait) < 0)
        return NULL;
    weft_status status = WEFT_OK;
    weft_work *work = NULL;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS if (wait) status = weft_group_barrier(group, limit);
    else if (!(work = weft_keep(weft_barrier_start(group)))) status = weft_last_status();
    Py_END_ALLOW_THREADS return work ? weft_py_work_new(work, NULL, 0) : ended(status);
}

static PyObject *monitored_barrier(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names)
{
    static weft_py_signature signature = {"monitored_barrier",     0,  1, 2,
                                          {"timeout", "wait_all"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    weft_group *group = weft_py_group_of(self);
    int64_t limit;
    bool all;
    if (!group || weft_py_parse(&signature, args, count, names, v) < 0 ||
        weft_py_timeout(v[0], &limit) < 0 || weft_py_truth(v[1], false, &all) < 0)
        return NULL;
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS status = weft_monitored_barrier(group, limit, all);
    Py_END_ALLOW_THREADS return ended(status);
}

/* ---- other groups ---- */

static PyObject *split(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"split", 1, 2, 2, {"color", "key"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    weft_group *group = weft_py_group_of(self), *made;
    int color, key;
    if (!group || weft_py_parse(&signature, args, count, names, v) < 0 ||
        weft_py_int(v[0], "color", -1, &color) < 0 || weft_py_int(v[1], "key", 0, &key) < 0)
        return NULL;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS weft_clear_error();
    made = weft_keep(weft_group_split(group, color, key));
    Py_END_ALLOW_THREADS return weft_py_group_new(made);
}

/* The numbers of a sequence; the caller frees them. */
static int *read_ranks(PyObject *list, int *count)
{
    Py_ssize_t length = PySequence_Size(list);
    int *ranks = length < 0 ? NULL : calloc((size_t)length + 1, sizeof *ranks);
    for (Py_ssize_t i = 0; ranks && i < length; i++) {
        PyObject *number = PySequence_GetItem(list, i);
        int bad = !number || weft_py_int(number, "ranks", 0, &ranks[i]) < 0;
        Py_XDECREF(number);
        if (bad) {
            free(ranks);
            return NULL;
        }
    }
    if (!ranks && !PyErr_Occurred())
        PyErr_NoMemory();
    *count = (int)length;
    return ranks;
}

static PyObject *make_new(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"new", 0, 1, 3, {"ranks", "name", "timeout"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS], *name = NULL;
    weft_group *group = weft_py_group_of(self), *made;
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    int64_t limit;
    int *ranks = NULL, members = 0;
    if (!group || weft_py_parse(&signature, args, count, names, v) < 0 ||
        weft_py_timeout(v[2], &limit) < 0 ||
        (v[1] && v[1] != Py_None && !(name = PyUnicode_AsUTF8String(v[1]))))
        return NULL;
    if (v[0] && v[0] != Py_None && !(ranks = read_ranks(v[0], &members))) {
        Py_XDECREF(name);
        return NULL;
    }
    opts.timeout_ms = limit == WEFT_DEFAULT ? 0 : limit;
    opts.name = name ? PyBytes_AsString(name) : NULL;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS weft_clear_error();
    made = weft_keep(weft_group_new_with(group, ranks, members, &opts));
    Py_END_ALLOW_THREADS free(ranks);
    Py_XDECREF(name);
    return weft_py_group_new(made);
}

static PyObject *shrink(PyObject *self, PyObject *none)
{
    (void)none;
    weft_group *group = weft_py_group_of(self), *made;
    if (!group)
        return NULL;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS weft_clear_error();
    made = weft_keep(weft_group_shrink(group));
    Py_END_ALLOW_THREADS return weft_py_group_new(made);
}

static PyObject *revoke_group(PyObject *self, PyObject *none)
{
    (void)none;
    weft_group *group = weft_py_group_of(self);
    return group ? ended(weft_group_revoke(group)) : NULL;
}

static PyObject *agree(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"agree", 1, 2, 2, {"flags", "timeout"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    weft_group *group = weft_py_group_of(self);
    int64_t limit;
    if (!group || weft_py_parse(&signature, args, count, names, v) < 0 ||
        weft_py_timeout(v[1], &limit) < 0)
        return NULL;
    uint64_t flags = PyLong_AsUnsignedLongLong(v[0]);
    if (PyErr_Occurred())
        return NULL;
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS status = weft_group_agree(group, &flags, limit);
    Py_END_ALLOW_THREADS
        /* With members lost the flags are agreed all the same. */
        if (PyErr_Occurred() || (status < 0 && status != WEFT_ERR_PEER_DEAD &&
                                 status != WEFT_ERR_PEER_LEFT)) return weft_py_raise();
    weft_clear_error();
    return Py_BuildValue("(KO)", (unsigned long long)flags, status < 0 ? Py_False : Py_True);
}

/* ---- properties ---- */

#define NUMBER(name_, call_)                                    \
    static PyObject *get_##name_(PyObject *self, void *closure) \
    {                                                           \
        (void)closure;                                          \
        weft_group *group = weft_py_group_of(self);             \
        return group ? call_ : NULL;                            \
    }

NUMBER(rank, PyLong_FromLong(weft_rank(group)))
NUMBER(size, PyLong_FromLong(weft_size(group)))
NUMBER(local_rank, PyLong_FromLong(weft_local_rank(group)))
NUMBER(local_size, PyLong_FromLong(weft_local_size(group)))
NUMBER(name, PyUnicode_FromString(weft_group_name(group)))
NUMBER(sequence, PyLong_FromUnsignedLongLong(weft_group_sequence(group)))
NUMBER(handle, PyLong_FromVoidPtr(group))

static PyObject *get_ranks(PyObject *self, void *closure)
{
    (void)closure;
    weft_group *group = weft_py_group_of(self);
    PyObject *list = group ? PyList_New(weft_size(group)) : NULL;
    for (int i = 0; list && i < weft_size(group); i++)
        PyList_SetItem(list, i, PyLong_FromLong(weft_group_ranks(group)[i]));
    return list;
}

static PyObject *get_timeout(PyObject *self, void *closure)
{
    (void)closure;
    weft_group *group = weft_py_group_of(self);
    if (!group)
        return NULL;
    int64_t ms = weft_group_timeout(group);
    return PyFloat_FromDouble(ms < 0 ? Py_HUGE_VAL : (double)ms / 1e3);
}

static int set_timeout(PyObject *self, PyObject *value, void *closure)
{
    (void)closure;
    int64_t limit;
    weft_group *group = weft_py_group_of(self);
    if (!group || !value || weft_py_timeout(value, &limit) < 0 || limit == WEFT_DEFAULT) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "timeout: a number of seconds");
        return -1;
    }
    return weft_group_set_timeout(group, limit) < 0 ? (weft_py_raise(), -1) : 0;
}

static PyObject *repr(weft_py_group *self)
{
    return self->group ? PyUnicode_FromFormat("<weft.Group \"%s\": rank %d of %d>",
                                              weft_group_name(self->group), weft_rank(self->group),
                                              weft_size(self->group))
                       : PyUnicode_FromString("<weft.Group: finished>");
}

/* ---- the type ---- */

#define METHOD(name_, function_, doc_)                                                     \
    {                                                                                      \
        name_, (PyCFunction)(void (*)(void))function_, METH_FASTCALL | METH_KEYWORDS, doc_ \
    }

static PyMethodDef own[] = {
    {"finish", (PyCFunction)finish, METH_NOARGS, "Leaves the job (the world), or ends the group."},
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)leave_block, METH_VARARGS, NULL},
    METHOD("barrier", barrier, "barrier(timeout=None, wait=True)"),
    METHOD("monitored_barrier", monitored_barrier,
           "monitored_barrier(timeout=None, wait_all=False)\n\nA barrier whose error says which "
           "ranks did not come, and what they do instead."),
    METHOD("split", split,
           "split(color, key=0)\n\nA group of the ranks that give the same color; "
           "None for a negative one."),
    METHOD("new", make_new,
           "new(ranks=None, name=None, timeout=None)\n\nA group of these ranks of "
           "this group; None for others."),
    {"shrink", shrink, METH_NOARGS, "A group of the members that live."},
    {"revoke", revoke_group, METH_NOARGS, "Ends every wait in this group, on every rank."},
    METHOD("agree", agree,
           "agree(flags, timeout=None) -> (flags, whole)\n\nThe bitwise and of the "
           "flags of all living members, and whether all members took part."),
    {0}};

static PyGetSetDef getset[] = {
    {"rank", get_rank, NULL, "the number of this rank in the group", NULL},
    {"size", get_size, NULL, "how many ranks the group has", NULL},
    {"local_rank", get_local_rank, NULL, "the number of this rank on its host", NULL},
    {"local_size", get_local_size, NULL, "how many ranks are on this host", NULL},
    {"name", get_name, NULL, "the name of the group, the same on all members", NULL},
    {"ranks", get_ranks, NULL, "the world ranks of the members", NULL},
    {"sequence", get_sequence, NULL, "how many collectives this rank has begun", NULL},
    {"timeout", get_timeout, set_timeout, "the limit of operations, in seconds", NULL},
    {"_handle", get_handle, NULL, "the address of the weft_group", NULL},
    {0}};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(weft_py_group, weak), READONLY, NULL}, {0}};

/* A type takes one table of methods: those of all files. */
static PyMethodDef *join_methods(void)
{
    PyMethodDef *const tables[] = {own, weft_py_group_data, weft_py_group_objects};
    static PyMethodDef all[64];
    size_t n = 0;
    for (int t = 0; t < 3; t++)
        for (PyMethodDef *m = tables[t]; m->ml_name && n < 63; m++)
            all[n++] = *m;
    return all;
}

int weft_py_add_group(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc},
                           {Py_tp_repr, (void *)repr},
                           {Py_tp_methods, join_methods()},
                           {Py_tp_getset, getset},
                           {Py_tp_members, members},
                           {Py_tp_doc, (void *)"A group of ranks."},
                           {0}};
    PyType_Spec spec = {"weft.Group", sizeof(weft_py_group), 0, Py_TPFLAGS_DEFAULT, slots};
    weft_py_group_type = PyType_FromSpec(&spec);
    return weft_py_group_type ? PyModule_AddObject(module, "Group", Py_NewRef(weft_py_group_type))
                              : -1;
}
