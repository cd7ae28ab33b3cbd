/* SPDX-License-Identifier: Apache-2.0 */
/* What is carried by NCCL, by weft's own kernels, or by neither; see carrier.h. */
#include "carrier.h"

#include "backends/cuda/device/stream.h"
#include "backends/cuda/ranks/carrier.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/log.h"
#include "base/report/status.h"

typedef struct carrier {
    weft_i_nccl_comm *comm;    /* NULL: NCCL cannot serve this group */
    void *site;                /* of weft's own kernels; NULL: they cannot */
    bool always;               /* whatever NCCL can carry goes there */
    bool cold;                 /* NCCL carried the last call: its threads may have moved the data */
    weft_i_nccl_result result; /* of what was started */
} carrier;

static void give_up(carrier *c)
{
    if (c->comm)
        weft_i_nccl_comm_close(c->comm);
    if (c->site)
        weft_i_cuda_carrier_close(c->site);
}

/* One rank alone gains nothing from it. */
static weft_status open_comm(const weft_i_circle *circle, carrier *out)
{
    if (circle->size == 1 && !out->always)
        return WEFT_ERR_UNSUPPORTED;
    weft_status status = weft_i_nccl_comm_open(circle, WEFT_I_NCCL_COLLECTIVES, &out->comm);
    if (status < 0)
        weft_i_log(WEFT_LOG_INFO, "group \"%s\": no NCCL: %s", circle->name, weft_last_error());
    return status;
}

weft_status weft_i_nccl_carrier_open(const weft_i_circle *circle, void **out)
{
    carrier opened = {.always = weft_i_nccl_is_always()};
    weft_status comm = open_comm(circle, &opened);
    weft_status site = weft_i_cuda_carrier_open(circle, &opened.site);
    if (comm < 0 && site < 0)
        return site;
    carrier *made = WEFT_OS->alloc(sizeof *made);
    if (!made) {
        give_up(&opened);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the carrier of group \"%s\"",
                           circle->name);
    }
    *made = opened;
    *out = made;
    return WEFT_OK;
}

void weft_i_nccl_carrier_close(void *what)
{
    give_up(what);
    WEFT_OS->free(what);
}

weft_i_nccl_comm *weft_i_nccl_carrier_comm(void *what)
{
    return ((carrier *)what)->comm;
}

weft_status weft_i_nccl_carrier_check(void *what)
{
    carrier *c = what;
    if (c->comm)
        WEFT_TRY(weft_i_nccl_comm_ask(c->comm));
    return c->site ? weft_i_cuda_carrier_check(c->site) : WEFT_OK;
}

/* With a communicator some calls go by NCCL, which is not captured. */
bool weft_i_nccl_carrier_captures(const void *what)
{
    return !((const carrier *)what)->comm;
}

WEFT_I_HOT bool weft_i_nccl_carrier_takes(const weft_i_request *request)
{
    return weft_i_cuda_carrier_takes(request) || weft_i_nccl_has(request);
}

/* Bytes that the choice goes by: all members have the same there. */
static size_t bytes_of(const weft_i_request *request)
{
    size_t bytes = 0;
    bool parts =
        weft_i_kind_is(weft_i_kinds[request->kind].as, WEFT_I_HAS_PARTS | WEFT_I_PLACES_PARTS);
    if (!weft_i_kind_is(request->kind, WEFT_I_IS_LIST))
        return request->count * request->item * (parts ? (size_t)request->size : 1);
    for (size_t i = 0; i < request->items_count; i++)
        bytes += request->items[i].in_bytes > request->items[i].out_bytes
                     ? request->items[i].in_bytes
                     : request->items[i].out_bytes;
    return bytes;
}

/* Only what all members know alike decides. */
WEFT_I_HOT static bool prefers_nccl(const carrier *c, const weft_i_request *request)
{
    return c->always || bytes_of(request) >= request->library_from || !c->site ||
           !weft_i_cuda_carrier_takes(request);
}

/* ---- the fast path ---- */

WEFT_I_HOT static bool is_cold(const void *what)
{
    return ((const carrier *)what)->cold;
}

static bool list(const void *what, const void *stream, weft_i_lines read, weft_i_lines written,
                 weft_i_lines back)
{
    const weft_i_nccl_comm *comm = ((const carrier *)what)->comm;
    weft_i_lines_add(read, what);
    weft_i_lines_add(read, comm);
    weft_i_lines_add(read, &comm->device->ctx);
    weft_i_lines_add(read, stream);
    weft_i_lines_add(read, weft_i_nccl_library());
    weft_i_lines_add(written, &comm->lock);
    weft_i_lines_add(written, &comm->inside);
    weft_i_lines_add(back, &comm->due);
    weft_i_lines_add(back, comm->post);
    return ((const carrier *)what)->always || !((const carrier *)what)->site;
}

WEFT_I_FAST static weft_status start(void *what, const weft_i_plain *plain)
{
    carrier *c = what;
    weft_i_nccl_comm *comm = c->comm;
    const weft_i_cuda_stream *stream = plain->stream;
    bool fine = comm && stream->device == comm->device && weft_i_cuda_is_used(comm->device) &&
                !weft_i_cuda_is_captured(stream);
    return fine ? weft_i_nccl_start(comm, plain, &c->result) : WEFT_ERR_UNSUPPORTED;
}

WEFT_I_BACK static weft_status finish(void *what, int64_t limit_ms)
{
    carrier *c = what;
    return weft_i_nccl_comm_leave(c->comm, c->result, limit_ms);
}

const weft_i_fast_path weft_i_nccl_fast_path = {start, finish, is_cold, list};

/* ---- the long way ---- */

/* NCCL's threads would break a capture; weft's own kernels do not. */
WEFT_I_APART static weft_status run_captured(carrier *c, const weft_i_request *request)
{
    if (c->site && weft_i_cuda_carrier_takes(request))
        return weft_i_cuda_carrier_run(c->site, request);
    return weft_i_fail(
        WEFT_ERR_STATE,
        "%s: it would go by NCCL, which weft does not capture; end the capture first", request->op);
}

WEFT_I_HOT weft_status weft_i_nccl_carrier_run(void *what, const weft_i_request *request)
{
    carrier *c = what;
    weft_i_cuda_stream *stream = request->stream;
    if (c->comm)
        WEFT_TRY(weft_i_nccl_comm_check(c->comm));
    if (c->comm && weft_i_nccl_has(request) && prefers_nccl(c, request)) {
        if (__builtin_expect(stream->capture != NULL, 0))
            return run_captured(c, request);
        c->cold = true;
        return weft_i_nccl_run(c->comm, request);
    }
    c->cold = false;
    return c->site ? weft_i_cuda_carrier_run(c->site, request) : WEFT_ERR_UNSUPPORTED;
}
