/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of a group that move data.  The four most common ones take the short way of
 * weft/pointer.h, if their operands are ordinary memory; all others wrap their operands.
 */
#include "weft_python.h"

#include <stdlib.h>
#include <string.h>

/* ---- a call ---- */

enum { OPERANDS = 2 }; /* of a plain call; lists bring their own */

typedef struct call {
    weft_group *group;
    weft_py_operand *operands; /* `few`, or memory of its own */
    int count;
    weft_py_operand few[OPERANDS];
    weft_reduction op;
    int64_t limit;
    bool wait, limited;
} call;

static void end(call *c)
{
    for (int i = 0; i < c->count; i++)
        weft_py_drop(&c->operands[i]);
    if (c->operands != c->few)
        free(c->operands);
}

static int begin(call *c, PyObject *self, PyObject *timeout, PyObject *wait, int count)
{
    c->group = weft_py_group_of(self);
    c->operands = c->few;
    c->count = 0;
    if (!c->group || weft_py_timeout(timeout, &c->limit) < 0 ||
        weft_py_truth(wait, true, &c->wait) < 0)
        return -1;
    c->limited = c->limit != WEFT_DEFAULT;
    if (count > OPERANDS && !(c->operands = calloc((size_t)count, sizeof *c->operands))) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int take(call *c, PyObject *object, int how)
{
    if (weft_py_take(object, how, &c->operands[c->count]) < 0)
        return -1;
    c->count++;
    return 0;
}

/* Complex numbers are pairs of reals, for which only sums mean what they should. */
static int check_reduction(const call *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->operands[i].pairs && c->op != WEFT_SUM && c->op != WEFT_AVG) {
            PyErr_Format(PyExc_TypeError, "weft: complex numbers have sum and avg, not %s",
                         weft_reduction_name(c->op));
            return -1;
        }
    return 0;
}

static int check_same(const char *method, const weft_py_operand *out, const weft_py_operand *in,
                      size_t parts_out, size_t parts_in)
{
    if (out->dtype == in->dtype && out->count * parts_in == in->count * parts_out)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "%s: the output has %zu elements of %s, the input %zu of %s; with %zu ranks it "
                 "needs %zu of %s",
                 method, out->count, weft_dtype_name(out->dtype), in->count,
                 weft_dtype_name(in->dtype), parts_out * parts_in, in->count * parts_out / parts_in,
                 weft_dtype_name(in->dtype));
    return -1;
}

/* Before and after weft is called, without the GIL. */
static void open_limit(const call *c)
{
    if (c->limited)
        weft_limit_open(c->limit);
}

static void close_limit(const call *c)
{
    if (c->limited)
        weft_limit_close();
}

/* What a blocking call returns: `result`, or the exception. */
static PyObject *finish(call *c, weft_status status, PyObject *result)
{
    end(c);
    if (status < 0 || PyErr_Occurred())
        return weft_py_raise();
    return Py_NewRef(result);
}

/* A step of weft on wrapped operands: posts if `work` is given. */
typedef weft_status (*step)(const call *c, weft_tensor *const *x, const void *details,
                            weft_work **work);

static weft_status run_step(const call *c, step run, const void *details, weft_work **work)
{
    weft_tensor *few[OPERANDS],
        **x = c->count > OPERANDS ? calloc((size_t)c->count, sizeof *x) : few;
    if (!x)
        return WEFT_ERR_NO_MEMORY;
    open_limit(c);
    weft_scope_open();
    weft_status status = WEFT_OK;
    for (int i = 0; i < c->count && status >= 0; i++)
        if (!(x[i] = weft_py_wrap(&c->operands[i])))
            status = weft_last_status();
    if (status >= 0)
        status = run(c, x, details, work);
    if (work && status >= 0)
        status = (*work = weft_keep(*work)) ? WEFT_OK : weft_last_status();
    weft_scope_close();
    close_limit(c);
    if (x != few)
        free(x);
    return status;
}

/* Runs it, or posts it and returns the work. */
static PyObject *go(call *c, step run, const void *details, PyObject *result)
{
    weft_work *posted = NULL;
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS status = run_step(c, run, details, c->wait ? NULL : &posted);
    Py_END_ALLOW_THREADS if (c->wait || status < 0) return finish(c, status, result);
    PyObject *work = weft_py_work_new(posted, c->operands, c->count);
    if (c->operands != c->few)
        free(c->operands);
    return work;
}

static bool is_plain(const call *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->operands[i].tensor)
            return false;
    return c->wait;
}

/* ---- lists ---- */

/* Is it a list of arrays rather than one? */
static bool is_list(PyObject *object)
{
    return object && (PyList_Check(object) || PyTuple_Check(object));
}

static Py_ssize_t length(PyObject *list)
{
    return PyList_Check(list) ? PyList_Size(list) : PyTuple_Size(list);
}

static PyObject *item(PyObject *list, Py_ssize_t i)
{
    return PyList_Check(list) ? PyList_GetItem(list, i) : PyTuple_GetItem(list, i);
}

static int take_list(call *c, const char *method, PyObject *list, int how)
{
    if (length(list) != weft_size(c->group)) {
        PyErr_Format(PyExc_ValueError, "%s: a list has an array for each of %d ranks, not %zd",
                     method, weft_size(c->group), length(list));
        return -1;
    }
    for (Py_ssize_t i = 0; i < length(list); i++)
        if (take(c, item(list, i), how) < 0)
            return -1;
    return 0;
}

/* Room for these two operands, each an array, a list or nothing. */
static int room_for(PyObject *self, PyObject *a, PyObject *b)
{
    weft_group *group = weft_py_group_of(self);
    int size = group ? weft_size(group) : 0;
    return (is_list(a) ? size : 1) + (is_list(b) ? size : 1);
}

/* ---- all_reduce ---- */

static weft_status step_all_reduce(const call *c, weft_tensor *const *x, const void *details,
                                   weft_work **work)
{
    (void)details;
    weft_tensor *out = x[c->count - 1];
    if (!work)
        return weft_all_reduce_into(out, x[0], c->op, c->group);
    *work = weft_all_reduce_start(out, x[0], c->op, c->group);
    return *work ? WEFT_OK : weft_last_status();
}

static PyObject *all_reduce(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *names)
{
    static weft_py_signature signature = {
        "all_reduce", 1, 2, 5, {"x", "op", "out", "timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    if (weft_py_parse(&signature, args, count, names, v) < 0 || begin(&c, self, v[3], v[4], 2) < 0)
        return NULL;
    bool other = v[2] && v[2] != Py_None;
    if (weft_py_reduction(v[1], &c.op) < 0 ||
        take(&c, v[0], other ? WEFT_PY_READ : WEFT_PY_WRITE) < 0 ||
        (other && take(&c, v[2], WEFT_PY_WRITE) < 0) || check_reduction(&c) < 0 ||
        (other && check_same("all_reduce", &c.operands[1], &c.operands[0], 1, 1) < 0))
        return end(&c), NULL;
    PyObject *result = other ? v[2] : v[0];
    if (!is_plain(&c))
        return go(&c, step_all_reduce, NULL, result);
    const weft_py_operand *in = &c.operands[0], *out = &c.operands[c.count - 1];
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS open_limit(&c);
    status = weft_all_reduce_ptr(out->data, in->data, in->count, in->dtype, c.op, c.group);
    close_limit(&c);
    Py_END_ALLOW_THREADS return finish(&c, status, result);
}

/* ---- broadcast ---- */

static weft_status step_broadcast(const call *c, weft_tensor *const *x, const void *details,
                                  weft_work **work)
{
    int root = *(const int *)details;
    if (!work)
        return weft_broadcast_in_place(x[0], root, c->group);
    *work = weft_broadcast_start(x[0], root, c->group);
    return *work ? WEFT_OK : weft_last_status();
}

static PyObject *broadcast(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"broadcast", 1, 2, 4, {"x", "root", "timeout", "wait"},
                                          {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    int root;
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[2], v[3], 1) < 0 || weft_py_int(v[1], "root", 0, &root) < 0)
        return NULL;
    /* The root only reads; a rank's number is known before the call. */
    int how = WEFT_PY_MOVE | (root == weft_rank(c.group) ? WEFT_PY_READ : WEFT_PY_WRITE);
    if (take(&c, v[0], how) < 0)
        return end(&c), NULL;
    if (!is_plain(&c))
        return go(&c, step_broadcast, &root, v[0]);
    const weft_py_operand *x = &c.operands[0];
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS open_limit(&c);
    status = weft_broadcast_ptr(x->data, x->count, x->dtype, root, c.group);
    close_limit(&c);
    Py_END_ALLOW_THREADS return finish(&c, status, v[0]);
}

/* ---- all_gather ---- */

static weft_status step_all_gather(const call *c, weft_tensor *const *x, const void *details,
                                   weft_work **work)
{
    bool parts = *(const bool *)details;
    weft_tensor *in = x[c->count - 1];
    if (parts && !work)
        return weft_all_gather_parts_into(x, in, c->group);
    if (!work)
        return weft_all_gather_into(x[0], in, c->group);
    *work = parts ? weft_all_gather_parts_start(x, in, c->group)
                  : weft_all_gather_start(x[0], in, c->group);
    return *work ? WEFT_OK : weft_last_status();
}

static PyObject *all_gather(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *names)
{
    static weft_py_signature signature = {"all_gather", 2, 2, 4, {"out", "x", "timeout", "wait"},
                                          {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[2], v[3], room_for(self, v[0], v[1])) < 0)
        return NULL;
    bool parts = is_list(v[0]);
    int how = WEFT_PY_MOVE | WEFT_PY_WRITE;
    size_t size = (size_t)weft_size(c.group);
    if ((parts ? take_list(&c, "all_gather", v[0], how) : take(&c, v[0], how)) < 0 ||
        take(&c, v[1], WEFT_PY_MOVE) < 0 ||
        (!parts && check_same("all_gather", &c.operands[0], &c.operands[1], size, 1) < 0))
        return end(&c), NULL;
    if (parts || !is_plain(&c))
        return go(&c, step_all_gather, &parts, v[0]);
    const weft_py_operand *out = &c.operands[0], *in = &c.operands[1];
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS open_limit(&c);
    status = weft_all_gather_ptr(out->data, in->data, in->count, in->dtype, c.group);
    close_limit(&c);
    Py_END_ALLOW_THREADS return finish(&c, status, v[0]);
}

/* ---- reduce_scatter ---- */

static weft_status step_reduce_scatter(const call *c, weft_tensor *const *x, const void *details,
                                       weft_work **work)
{
    bool parts = *(const bool *)details;
    if (parts && !work)
        return weft_reduce_scatter_parts_into(x[0], x + 1, c->op, c->group);
    if (!work)
        return weft_reduce_scatter_into(x[0], x[1], c->op, c->group);
    *work = parts ? weft_reduce_scatter_parts_start(x[0], x + 1, c->op, c->group)
                  : weft_reduce_scatter_start(x[0], x[1], c->op, c->group);
    return *work ? WEFT_OK : weft_last_status();
}

static PyObject *reduce_scatter(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    static weft_py_signature signature = {
        "reduce_scatter", 2, 3, 5, {"out", "x", "op", "timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[3], v[4], room_for(self, v[0], v[1])) < 0)
        return NULL;
    bool parts = is_list(v[1]);
    size_t size = (size_t)weft_size(c.group);
    if (weft_py_reduction(v[2], &c.op) < 0 || take(&c, v[0], WEFT_PY_WRITE) < 0 ||
        (parts ? take_list(&c, "reduce_scatter", v[1], WEFT_PY_READ)
               : take(&c, v[1], WEFT_PY_READ)) < 0 ||
        check_reduction(&c) < 0 ||
        (!parts && check_same("reduce_scatter", &c.operands[0], &c.operands[1], 1, size) < 0))
        return end(&c), NULL;
    if (parts || !is_plain(&c))
        return go(&c, step_reduce_scatter, &parts, v[0]);
    const weft_py_operand *out = &c.operands[0], *in = &c.operands[1];
    weft_status status;
    weft_py_heed_signals();
    Py_BEGIN_ALLOW_THREADS open_limit(&c);
    status = weft_reduce_scatter_ptr(out->data, in->data, out->count, in->dtype, c.op, c.group);
    close_limit(&c);
    Py_END_ALLOW_THREADS return finish(&c, status, v[0]);
}

/* ---- reduce, gather, scatter ---- */

static weft_status step_reduce(const call *c, weft_tensor *const *x, const void *details,
                               weft_work **work)
{
    int root = *(const int *)details;
    weft_tensor *out = root == weft_rank(c->group) ? x[c->count - 1] : NULL;
    if (!work)
        return weft_reduce_into(out, x[0], c->op, root, c->group);
    *work = weft_reduce_start(out, x[0], c->op, root, c->group);
    return *work ? WEFT_OK : weft_last_status();
}

static PyObject *reduce(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {
        "reduce", 1, 3, 6, {"x", "root", "op", "out", "timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    int root;
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[4], v[5], 2) < 0 || weft_py_int(v[1], "root", 0, &root) < 0 ||
        weft_py_reduction(v[2], &c.op) < 0)
        return NULL;
    bool mine = root == weft_rank(c.group), other = mine && v[3] && v[3] != Py_None;
    if (take(&c, v[0], mine && !other ? WEFT_PY_WRITE : WEFT_PY_READ) < 0 ||
        (other && take(&c, v[3], WEFT_PY_WRITE) < 0) || check_reduction(&c) < 0)
        return end(&c), NULL;
    return go(&c, step_reduce, &root, other ? v[3] : v[0]);
}

typedef struct rooted {
    int root;
    bool mine, parts;
} rooted;

static weft_status step_gather(const call *c, weft_tensor *const *x, const void *details,
                               weft_work **work)
{
    const rooted *r = details;
    weft_tensor *in = x[c->count - 1];
    weft_group *group = c->group;
    if (!work)
        return r->parts ? weft_gather_parts_into(r->mine ? x : NULL, in, r->root, group)
                        : weft_gather_into(r->mine ? x[0] : NULL, in, r->root, group);
    *work = r->parts ? weft_gather_parts_start(r->mine ? x : NULL, in, r->root, group)
                     : weft_gather_start(r->mine ? x[0] : NULL, in, r->root, group);
    return *work ? WEFT_OK : weft_last_status();
}

/* Lists and single arrays are different calls to weft, so ranks that give nothing are told which by
 * `parts`. */
static int read_rooted(const call *c, PyObject *root, PyObject *parts, PyObject *given, rooted *r)
{
    if (weft_py_int(root, "root", 0, &r->root) < 0 ||
        weft_py_truth(parts, is_list(given), &r->parts) < 0)
        return -1;
    r->mine = r->root == weft_rank(c->group);
    if (r->mine && (!given || given == Py_None || r->parts != is_list(given))) {
        PyErr_SetString(PyExc_TypeError,
                        r->parts ? "weft: the root gives a list, one array for each rank"
                                 : "weft: the root gives one array");
        return -1;
    }
    return 0;
}

static PyObject *gather(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {
        "gather", 2, 3, 6, {"out", "x", "root", "parts", "timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    rooted r;
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[4], v[5], room_for(self, v[0], v[1])) < 0)
        return NULL;
    int how = WEFT_PY_MOVE | WEFT_PY_WRITE;
    if (read_rooted(&c, v[2], v[3], v[0], &r) < 0 ||
        (r.mine && (r.parts ? take_list(&c, "gather", v[0], how) : take(&c, v[0], how)) < 0) ||
        take(&c, v[1], WEFT_PY_MOVE) < 0)
        return end(&c), NULL;
    return go(&c, step_gather, &r, r.mine ? v[0] : Py_None);
}

static weft_status step_scatter(const call *c, weft_tensor *const *x, const void *details,
                                weft_work **work)
{
    const rooted *r = details;
    weft_group *group = c->group;
    if (!work)
        return r->parts ? weft_scatter_parts_into(x[0], r->mine ? x + 1 : NULL, r->root, group)
                        : weft_scatter_into(x[0], r->mine ? x[1] : NULL, r->root, group);
    *work = r->parts ? weft_scatter_parts_start(x[0], r->mine ? x + 1 : NULL, r->root, group)
                     : weft_scatter_start(x[0], r->mine ? x[1] : NULL, r->root, group);
    return *work ? WEFT_OK : weft_last_status();
}

static PyObject *scatter(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {
        "scatter", 1, 3, 6, {"out", "x", "root", "parts", "timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    rooted r;
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[4], v[5], room_for(self, v[0], v[1])) < 0)
        return NULL;
    if (read_rooted(&c, v[2], v[3], v[1], &r) < 0 ||
        take(&c, v[0], WEFT_PY_MOVE | WEFT_PY_WRITE) < 0 ||
        (r.mine && (r.parts ? take_list(&c, "scatter", v[1], WEFT_PY_MOVE)
                            : take(&c, v[1], WEFT_PY_MOVE)) < 0))
        return end(&c), NULL;
    return go(&c, step_scatter, &r, v[0]);
}

/* ---- all_to_all ---- */

typedef struct splits {
    int64_t *out, *in; /* in elements; NULL: equal parts */
    bool parts;
} splits;

static weft_status step_all_to_all(const call *c, weft_tensor *const *x, const void *details,
                                   weft_work **work)
{
    const splits *s = details;
    int half = c->count / 2;
    if (!work)
        return s->parts ? weft_all_to_all_list_into(x, x + half, c->group)
                        : weft_all_to_all_into(x[0], x[1], s->out, s->in, c->group);
    *work = s->parts ? weft_all_to_all_list_start(x, x + half, c->group)
                     : weft_all_to_all_start(x[0], x[1], s->out, s->in, c->group);
    return *work ? WEFT_OK : weft_last_status();
}

/* Splits of rows, as numbers of weft's elements; `*out` is NULL without any. */
static int read_splits(PyObject *list, PyObject *array, const weft_py_operand *x, int size,
                       int64_t **out)
{
    if (!list || list == Py_None)
        return 0;
    Py_ssize_t rows = PyObject_Size(array);
    int64_t row = rows > 0 ? (int64_t)x->count / rows : 0;
    if (rows < 0 || !(*out = calloc((size_t)size, sizeof **out)))
        return rows < 0 ? -1 : (PyErr_NoMemory(), -1);
    if (PySequence_Size(list) != size) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "all_to_all: there are %d splits, one for each rank",
                         size);
        return -1;
    }
    for (int i = 0; i < size; i++) {
        PyObject *number = PySequence_GetItem(list, i);
        (*out)[i] = number ? PyLong_AsLongLong(number) * row : 0;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *all_to_all(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *names)
{
    static weft_py_signature signature = {
        "all_to_all", 2, 4, 6, {"out", "x", "out_splits", "in_splits", "timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS], *result = NULL;
    call c;
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[4], v[5], room_for(self, v[0], v[1])) < 0)
        return NULL;
    splits s = {.parts = is_list(v[0])};
    int out = WEFT_PY_MOVE | WEFT_PY_WRITE, size = weft_size(c.group);
    bool fine;
    if (s.parts != is_list(v[1])) {
        PyErr_SetString(PyExc_TypeError, "all_to_all: two arrays, or two lists of them");
        fine = false;
    } else if (s.parts) {
        fine = take_list(&c, "all_to_all", v[0], out) == 0 &&
               take_list(&c, "all_to_all", v[1], WEFT_PY_MOVE) == 0;
    } else {
        fine = take(&c, v[0], out) == 0 && take(&c, v[1], WEFT_PY_MOVE) == 0 &&
               read_splits(v[2], v[0], &c.operands[0], size, &s.out) == 0 &&
               read_splits(v[3], v[1], &c.operands[1], size, &s.in) == 0;
    }
    if (fine)
        result = go(&c, step_all_to_all, &s, v[0]);
    else
        end(&c);
    free(s.out);
    free(s.in);
    return result;
}

/* ---- messages ---- */

typedef struct letter {
    int peer, tag;
    int source; /* of what was received */
} letter;

static weft_status step_send(const call *c, weft_tensor *const *x, const void *details,
                             weft_work **work)
{
    const letter *l = details;
    if (!work)
        return weft_send_tag(x[0], l->peer, l->tag, c->group);
    *work = weft_send_tag_start(x[0], l->peer, l->tag, c->group);
    return *work ? WEFT_OK : weft_last_status();
}

static PyObject *send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {"send", 2, 3, 5, {"x", "to", "tag", "timeout", "wait"},
                                          {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    letter l = {0};
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[3], v[4], 1) < 0 || weft_py_int(v[1], "to", 0, &l.peer) < 0 ||
        weft_py_int(v[2], "tag", 0, &l.tag) < 0)
        return NULL;
    if (take(&c, v[0], WEFT_PY_MOVE) < 0)
        return end(&c), NULL;
    return go(&c, step_send, &l, Py_None);
}

static weft_status step_recv(const call *c, weft_tensor *const *x, const void *details,
                             weft_work **work)
{
    letter *l = (letter *)(uintptr_t)details;
    if (work) {
        *work = weft_recv_tag_start(x[0], l->peer, l->tag, c->group);
        return *work ? WEFT_OK : weft_last_status();
    }
    l->source = l->peer;
    return l->peer == WEFT_ANY ? weft_recv_any(x[0], l->tag, c->group, &l->source)
                               : weft_recv_tag(x[0], l->peer, l->tag, c->group);
}

static PyObject *recv(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static weft_py_signature signature = {
        "recv", 1, 3, 5, {"x", "source", "tag", "timeout", "wait"}, {0}};
    PyObject *v[WEFT_PY_ARGUMENTS];
    call c;
    letter l = {0};
    if (weft_py_parse(&signature, args, count, names, v) < 0 ||
        begin(&c, self, v[3], v[4], 1) < 0 || weft_py_int(v[1], "source", WEFT_ANY, &l.peer) < 0 ||
        weft_py_int(v[2], "tag", 0, &l.tag) < 0)
        return NULL;
    if (take(&c, v[0], WEFT_PY_MOVE | WEFT_PY_WRITE) < 0)
        return end(&c), NULL;
    bool wait = c.wait;
    PyObject *result = go(&c, step_recv, &l, Py_None);
    if (!result || !wait)
        return result;
    Py_DECREF(result);
    return PyLong_FromLong(l.source);
}

#define METHOD(name_, doc_)                                                             \
    {                                                                                   \
#name_, (PyCFunction)(void (*)(void))name_, METH_FASTCALL | METH_KEYWORDS, doc_ \
    }

PyMethodDef weft_py_group_data[] = {
    METHOD(all_reduce,
           "all_reduce(x, op='sum', *, out=None, timeout=None, wait=True)\n\nEvery rank "
           "gets the reduction of all x: in x itself, or in out."),
    METHOD(broadcast,
           "broadcast(x, root=0, *, timeout=None, wait=True)\n\nCopies x of root to x of "
           "all others."),
    METHOD(all_gather, "all_gather(out, x, *, timeout=None, wait=True)\n\nPuts the x of all ranks "
                       "into out: one array, or a list of one for each rank."),
    METHOD(reduce_scatter, "reduce_scatter(out, x, op='sum', *, timeout=None, wait=True)\n\nRank r "
                           "gets part r of the reduction of all x: one array, or a list."),
    METHOD(reduce, "reduce(x, root=0, op='sum', *, out=None, timeout=None, wait=True)\n\nThe root "
                   "gets the reduction of all x: in x itself, or in out."),
    METHOD(gather,
           "gather(out, x, root=0, *, parts=None, timeout=None, wait=True)\n\nThe root gets "
           "the x of all ranks in out: one array, or a list.  Others give None, and "
           "parts=True where the root gives a list."),
    METHOD(scatter,
           "scatter(out, x=None, root=0, *, parts=None, timeout=None, wait=True)\n\nRank r "
           "gets part r of the root's x: one array, or a list.  Others give None, and "
           "parts=True where the root gives a list."),
    METHOD(all_to_all, "all_to_all(out, x, out_splits=None, in_splits=None, *, timeout=None, "
                       "wait=True)\n\nPart q of x goes to rank q, part q of out comes from it.  "
                       "Splits count rows; or both are lists."),
    METHOD(send, "send(x, to, tag=0, *, timeout=None, wait=True)"),
    METHOD(recv, "recv(x, source=-1, tag=0, *, timeout=None, wait=True) -> rank\n\nReceives from "
                 "that rank, or from the first rank to send (-1)."),
    {0}};
