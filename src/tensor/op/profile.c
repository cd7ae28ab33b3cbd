/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: see profile.h.  Rows are found by a table of their addresses; names are copied. */
#include "tensor/op/profile.h"

#include "base/os/os.h"
#include "base/report/opts.h"
#include "base/report/text.h"
#include "tensor/object/device.h"
#include "tensor/object/eye.h"
#include "tensor/op/profile_trace.h"
#include "weft/stream.h"

#include <stdlib.h>
#include <string.h>

_Thread_local weft_profile *weft_i_profile_now;

/* Each that is open calls the one around it. */
enum { BUCKETS = 1024, OPEN_MOST = 16, DEVICE_LIMIT_MS = 60000 };

struct weft_profile {
    weft_i_object head;
    weft_i_mode mode; /* as handle() finds it */
    weft_profile *outer;
    weft_profile_opts opts;
    char *path;           /* of the trace, expanded; NULL: none */
    int64_t began, ended; /* ended 0: it is open */
    weft_i_profile_rows rows;
    int buckets[BUCKETS]; /* 1 + the first row of each; 0: none */
    weft_i_profile_events events;
    bool short_of_memory; /* some operations are missing */
};

static weft_profile *of_mode(weft_i_mode *mode)
{
    return (weft_profile *)(void *)((char *)mode - offsetof(weft_profile, mode));
}

/* ---- noting ---- */

/* The row of an operation on a device; -1: there is no memory. */
static int row_of(weft_profile *p, const weft_i_op *op, weft_device device)
{
    unsigned bucket = (unsigned)((uintptr_t)op * 0x9e3779b97f4a7c15u >> 54) % BUCKETS;
    for (int i = p->buckets[bucket] - 1; i >= 0; i = p->rows.at[i].next - 1)
        if (p->rows.at[i].op == op && p->rows.at[i].row.device == device)
            return i;
    int i = weft_i_profile_rows_add(&p->rows, op, device);
    if (i >= 0) {
        p->rows.at[i].next = p->buckets[bucket];
        p->buckets[bucket] = i + 1;
    }
    return i;
}

static void note(weft_profile *p, const weft_i_op *op, weft_device device, uint64_t bytes,
                 double flops, int64_t began, int64_t returned, int64_t done)
{
    int i = row_of(p, op, device);
    if (i < 0) {
        p->short_of_memory = true;
        return;
    }
    weft_profile_row *row = &p->rows.at[i].row;
    row->calls++;
    row->host_ns += returned - began;
    row->device_ns += weft_i_device_is_host(device) ? 0 : done - began;
    row->bytes += bytes;
    row->flops += flops;
    if (p->path && p->events.count + p->events.dropped < p->opts.events)
        p->short_of_memory |= !weft_i_profile_events_add(
            &p->events, (weft_i_profile_event){i, bytes, began, returned, done});
    else
        p->events.dropped += p->path != NULL;
}

static bool is_waited_for(const weft_profile *p, weft_device device)
{
    return !p->opts.overlapped && device != WEFT_META && !weft_i_device_is_host(device);
}

/* Until the device has done what the thread's stream has; a stream that is captured has nothing to do. */
static void await(weft_device device)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    if (weft_stream_sync(weft_stream_current(device), DEVICE_LIMIT_MS) < 0)
        weft_i_errors_restore(&before);
}

/* Bytes of the call's tensors, and its device: the first that is not the host's. */
static uint64_t look_at(const weft_i_op_call *call, weft_device *device)
{
    uint64_t bytes = 0;
    for (int i = 0; i < call->op->arity; i++) {
        const weft_i_arg *arg = &call->args[i];
        size_t count = arg->kind == WEFT_I_ARG_TENSORS  ? arg->count
                       : arg->kind == WEFT_I_ARG_TENSOR ? 1
                                                        : 0;
        for (size_t k = 0; k < count; k++) {
            const weft_tensor *x = arg->kind == WEFT_I_ARG_TENSOR ? arg->tensor : arg->tensors[k];
            if (!x)
                continue;
            bytes += (uint64_t)x->numel * weft_i_dtype_size(x->dtype);
            if (weft_i_device_is_host(*device))
                *device = weft_i_tensor_device(x);
        }
    }
    return bytes;
}

static uint64_t bytes_made(const weft_i_op_call *call, const weft_tensor *out)
{
    uint64_t bytes = 0;
    size_t count = call->outs ? weft_i_op_result_count(call) : 1;
    for (size_t i = 0; i < count; i++) {
        const weft_tensor *x = call->outs ? call->outs[i] : out;
        if (x)
            bytes += (uint64_t)x->numel * weft_i_dtype_size(x->dtype);
    }
    return bytes;
}

/* Of products: two for each element of the result and of the dimension that goes. */
static double flops_of(const weft_i_op_call *call, const weft_tensor *out)
{
    const char *name = call->op->name;
    if (!out || (strcmp(name, "mm") && strcmp(name, "bmm") && strcmp(name, "linear")))
        return 0;
    const weft_tensor *a = call->args[0].tensor;
    return 2.0 * (double)out->numel * (double)a->dim[a->ndim - 1];
}

static weft_tensor *handle(weft_i_mode *mode, const weft_i_op_call *call)
{
    weft_profile *p = of_mode(mode);
    weft_device device = WEFT_CPU;
    if (call->fake)
        return weft_i_op_pass_on(call);
    uint64_t bytes = look_at(call, &device);
    if (is_waited_for(p, device))
        await(device);
    int64_t began = WEFT_OS->clock_ns();
    weft_tensor *out = weft_i_op_pass_on(call);
    int64_t returned = WEFT_OS->clock_ns(), done = returned;
    if (!out)
        return NULL;
    if (call->op->flags & WEFT_I_OP_VIEW)
        bytes = 0;
    else
        bytes += bytes_made(call, out);
    if (weft_i_device_is_host(device))
        device = weft_i_tensor_device(out); /* of what is made from nothing */
    if (is_waited_for(p, device)) {
        await(device);
        done = WEFT_OS->clock_ns();
    }
    note(p, call->op, device, bytes, flops_of(call, out), began, returned, done);
    return out;
}

int64_t weft_i_profile_begin(weft_device device)
{
    if (!weft_i_profile_now)
        return -1;
    if (is_waited_for(weft_i_profile_now, device))
        await(device);
    return WEFT_OS->clock_ns();
}

void weft_i_profile_end(const weft_i_op *op, weft_device device, uint64_t bytes, int64_t began)
{
    if (began < 0 || !weft_i_profile_now)
        return;
    int64_t returned = WEFT_OS->clock_ns(), done = returned;
    if (is_waited_for(weft_i_profile_now, device)) {
        await(device);
        done = WEFT_OS->clock_ns();
    }
    for (weft_profile *p = weft_i_profile_now; p; p = p->outer)
        note(p, op, device, bytes, 0, began, returned, done);
}

/* ---- opening and closing ---- */

/* Out of the thread's lists; false if it is another thread's. */
static bool stop(weft_profile *p)
{
    weft_profile **at = &weft_i_profile_now;
    while (*at && *at != p)
        at = &(*at)->outer;
    if (!*at)
        return false;
    *at = p->outer;
    weft_i_mode_remove(&p->mode);
    p->ended = WEFT_OS->clock_ns();
    return true;
}

static void destroy(weft_i_object *object)
{
    weft_profile *p = (weft_profile *)object;
    if (!p->ended && !stop(p))
        return; /* another thread goes on writing to it */
    weft_i_profile_rows_clear(&p->rows);
    WEFT_OS->free(p->events.at);
    WEFT_OS->free(p->path);
    weft_i_object_free(object);
}

weft_profile *weft_profile_open(const weft_profile_opts *given)
{
    weft_profile_opts opts = WEFT_PROFILE_OPTS;
    if (weft_i_not_captured("weft_profile_open") < 0 ||
        weft_i_opts_copy(&opts, sizeof opts, given,
                         "weft_profile_open (start from WEFT_PROFILE_OPTS)") < 0)
        return NULL;
    int open = 0;
    for (const weft_profile *p = weft_i_profile_now; p; p = p->outer)
        open++;
    if (open == OPEN_MOST)
        return weft_i_null(WEFT_ERR_LIMIT, "weft_profile_open: %d profiles are open in this thread",
                           open);
    weft_profile *p = weft_i_object_new(WEFT_I_PROFILE, sizeof *p, destroy);
    if (!p)
        return NULL;
    p->ended = 1; /* until it is in force */
    p->opts = opts;
    if (opts.trace && !(p->path = weft_i_profile_path(opts.trace))) {
        weft_release(p);
        return NULL;
    }
    p->mode.handle = handle;
    weft_i_mode_push(&p->mode);
    p->outer = weft_i_profile_now;
    weft_i_profile_now = p;
    p->ended = 0;
    p->began = WEFT_OS->clock_ns();
    return p;
}

weft_status weft_profile_close(weft_profile *p)
{
    if (!p)
        return weft_i_missing("weft_profile_close: the profile is NULL");
    if (p->ended)
        return WEFT_OK;
    WEFT_TRY(weft_i_not_captured("weft_profile_close"));
    if (!stop(p))
        return weft_i_fail(WEFT_ERR_STATE,
                           "weft_profile_close: the profile was opened by another thread");
    if (p->path)
        WEFT_TRY(weft_i_profile_write(p->path, &p->rows, &p->events));
    return p->short_of_memory
               ? weft_i_fail(WEFT_ERR_NO_MEMORY,
                             "weft_profile_close: memory ran out; some operations are missing")
               : WEFT_OK;
}

/* ---- reading ---- */

int64_t weft_profile_ns(const weft_profile *p)
{
    if (!p)
        return weft_i_missing("weft_profile_ns: the profile is NULL");
    return (p->ended ? p->ended : WEFT_OS->clock_ns()) - p->began;
}

static int64_t time_of(const weft_profile_row *row)
{
    return row->device_ns > row->host_ns ? row->device_ns : row->host_ns;
}

static int longest_first(const void *a, const void *b)
{
    int64_t x = time_of(a), y = time_of(b);
    return x < y ? 1
           : x > y
               ? -1
               : strcmp(((const weft_profile_row *)a)->name, ((const weft_profile_row *)b)->name);
}

int weft_profile_rows(const weft_profile *p, weft_profile_row *out, int room)
{
    if (!p)
        return weft_i_missing("weft_profile_rows: the profile is NULL");
    if (room < 0 || (room && !out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_profile_rows: %d rows at %p", room,
                           (void *)out);
    int count = p->rows.count;
    weft_profile_row *all = WEFT_OS->alloc(((size_t)count + 1) * sizeof *all);
    if (!all)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_profile_rows: no memory for %d rows", count);
    for (int i = 0; i < count; i++)
        all[i] = p->rows.at[i].row;
    qsort(all, (size_t)count, sizeof *all, longest_first);
    for (int i = 0; i < count && i < room; i++)
        out[i] = all[i];
    WEFT_OS->free(all);
    return count;
}

static void put_row(weft_i_text *s, const weft_profile_row *row, double all)
{
    char device[16];
    double ns = (double)time_of(row);
    weft_i_text_put(s, "%-24.24s %-7s %7llu %10.3f %10.3f %6.1f %8.2f", row->name,
                    weft_device_name(row->device, device), (unsigned long long)row->calls,
                    (double)row->host_ns / 1e6, (double)row->device_ns / 1e6,
                    all > 0 ? 100 * ns / all : 0, ns > 0 ? (double)row->bytes / ns : 0);
    if (row->flops > 0 && ns > 0)
        weft_i_text_put(s, " %8.1f", row->flops / ns);
    weft_i_text_put(s, "%s%s\n", row->about[0] ? "  " : "", row->about);
}

int weft_profile_text(const weft_profile *p, char *out, size_t bytes)
{
    weft_i_text s = {.out = out, .room = bytes};
    if (!p || (bytes && !out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_profile_text: %s is NULL",
                           p ? "the text" : "the profile");
    int count = p->rows.count;
    weft_profile_row *rows = WEFT_OS->alloc(((size_t)count + 1) * sizeof *rows);
    if (!rows)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_profile_text: no memory for %d rows", count);
    if (bytes)
        out[0] = 0;
    weft_profile_rows(p, rows, count);
    double all = (double)weft_profile_ns(p), inside = 0;
    weft_i_text_put(&s, "%-24s %-7s %7s %10s %10s %6s %8s %8s\n", "operation", "device", "calls",
                    "host ms", "device ms", "%", "GB/s", "GFLOP/s");
    for (int i = 0; i < count; i++) {
        inside += (double)time_of(&rows[i]);
        put_row(&s, &rows[i], all);
    }
    weft_i_text_put(&s, "%-24s %-7s %7s %10.3f %10s %6.1f\n", "between operations", "", "",
                    (all - inside) / 1e6, "", all > 0 ? 100 * (all - inside) / all : 0);
    weft_i_text_put(&s, "%-24s %-7s %7s %10.3f %10s %6.1f\n", "all", "", "", all / 1e6, "", 100.0);
    WEFT_OS->free(rows);
    return (int)s.used;
}

weft_status weft_profile_print(const weft_profile *p, FILE *stream)
{
    int length = weft_profile_text(p, NULL, 0);
    if (length < 0)
        return (weft_status)length;
    if (!stream)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_profile_print: the stream is NULL");
    char *text = WEFT_OS->alloc((size_t)length + 1);
    if (!text)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_profile_print: no memory for %d bytes",
                           length);
    weft_profile_text(p, text, (size_t)length + 1);
    bool whole = fputs(text, stream) >= 0;
    WEFT_OS->free(text);
    return whole ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_IO, "weft_profile_print: the stream takes nothing");
}
