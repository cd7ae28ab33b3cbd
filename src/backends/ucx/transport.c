/* SPDX-License-Identifier: Apache-2.0 */
/* The table of src/transport, filled by UCX: opening a wire, moving it, and its end. */
#include "transport/transport.h"

#include "base/os/assert.h"
#include "base/os/environ.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "settings.h"
#include "ucx.h"
#include "wire.h"

#include <stdio.h>
#include <string.h>

enum { CLOSE_MS = 1000 };
static const int64_t REST_NS = 5000000000;

int weft_i_ucx_probe(char *reason, size_t bytes)
{
    const weft_i_ucx *ucx;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = weft_i_ucx_load(&ucx);
    if (status == WEFT_OK)
        snprintf(reason, bytes, "UCX %u.%u.%u, messages between hosts by %s", ucx->major,
                 ucx->minor, ucx->release, weft_i_ucx_has_rdma() ? "RDMA" : "TCP");
    else
        snprintf(reason, bytes, "%.180s", weft_last_error());
    weft_i_errors_restore(&before); /* a machine without it is no error */
    return status == WEFT_OK ? 10 : 0;
}

static weft_status make_library(weft_i_ucx_wire *wire)
{
    const weft_i_ucp_params params = {
        .mask = WEFT_I_UCP_PARAM_FIELD_FEATURES | WEFT_I_UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = WEFT_I_UCP_FEATURE_AM | WEFT_I_UCP_FEATURE_RMA | WEFT_I_UCP_FEATURE_WAKEUP,
        .endpoints = (size_t)wire->opts.ranks};
    weft_i_ucp_config config;
    weft_i_ucs_status status = wire->ucx->ucp_config_read(NULL, NULL, &config);
    if (status)
        return weft_i_ucx_fail(status, "reading UCX's settings");
    weft_status set = weft_i_ucx_set(wire->ucx, config, wire->opts.interface, wire->rdma);
    if (set == WEFT_OK)
        status = wire->ucx->ucp_init_version(WEFT_I_UCX_MAJOR, WEFT_I_UCX_MINOR, &params, config,
                                             &wire->library);
    wire->ucx->ucp_config_release(config);
    if (set == WEFT_OK && status) {
        wire->library = NULL;
        set = weft_i_ucx_fail(status, "opening UCX%s%s", wire->opts.interface ? " on " : "",
                              wire->opts.interface ? wire->opts.interface : "");
    }
    return set;
}

static weft_status make_worker(weft_i_ucx_wire *wire)
{
    const weft_i_ucp_worker_params params = {
        .mask = WEFT_I_UCP_WORKER_PARAM_FIELD_THREAD_MODE | WEFT_I_UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = WEFT_I_UCS_THREAD_MODE_SERIALIZED,
        /* When a peer is dropped in the middle of a get, UCX loses its own answer, and would warn. */
        .flags = WEFT_I_UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK};
    weft_i_ucp_worker_attr attr = {.mask = WEFT_I_UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    weft_i_ucs_status status = wire->ucx->ucp_worker_create(wire->library, &params, &wire->worker);
    if (status) {
        wire->worker = NULL;
        return weft_i_ucx_fail(status, "a worker of UCX");
    }
    status = wire->ucx->ucp_worker_query(wire->worker, &attr);
    if (!status && attr.am_head_bytes < WEFT_I_HEAD_BYTES)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "messages of this UCX begin with at most %zu bytes; weft needs %d",
                           attr.am_head_bytes, WEFT_I_HEAD_BYTES);
    if (!status)
        status = wire->ucx->ucp_worker_get_efd(wire->worker, &wire->door);
    return status ? weft_i_ucx_fail(status, "the descriptor of UCX's worker") : WEFT_OK;
}

static weft_status read_address(weft_i_ucx_wire *wire)
{
    size_t bytes;
    void *address;
    weft_i_ucs_status status = wire->ucx->ucp_worker_get_address(wire->worker, &address, &bytes);
    if (status)
        return weft_i_ucx_fail(status, "the address of UCX's worker");
    wire->mine = WEFT_OS->alloc(bytes);
    wire->mine_bytes = bytes;
    if (wire->mine)
        memcpy(wire->mine, address, bytes);
    wire->ucx->ucp_worker_release_address(wire->worker, address);
    return wire->mine ? WEFT_OK : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an address");
}

static void ask_memory(weft_i_ucx_wire *wire)
{
    weft_i_ucp_library_attr attr = {.mask = WEFT_I_UCP_ATTR_FIELD_MEMORY_TYPES};
    if (!wire->ucx->ucp_context_query(wire->library, &attr))
        wire->cuda = attr.memory_types >> WEFT_I_UCS_MEMORY_TYPE_CUDA & 1;
}

static weft_status make(weft_i_ucx_wire *wire)
{
    const char *list[WEFT_I_UCX_LENT];
    if (!weft_i_ucx_lend(list))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the settings of UCX");
    weft_status status = make_library(wire);
    if (status == WEFT_OK)
        status = make_worker(wire);
    weft_i_environ_restore();
    return status;
}

/* UCX 1.13 falls over messages that come before the worker knows what to do with them, so nobody
 * learns the address before. */
static weft_status start(weft_i_ucx_wire *wire)
{
    WEFT_TRY(make(wire));
    ask_memory(wire);
    WEFT_TRY(weft_i_ucx_listen(wire));
    return read_address(wire);
}

/*
 * Wires that are closed, but whose workers still have to rest.  UCX 1.13 ends the process by an assertion
 * when a worker is destroyed while a peer is connecting to it, and nothing tells whether one is.  So a
 * worker is destroyed by whoever opens a wire later, when no peer can be in the middle of that, and else
 * goes with the process.
 */
static pthread_mutex_t resting_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static weft_i_ucx_wire *resting;

static void rest(weft_i_ucx_wire *wire)
{
    WEFT_ASSERT(wire->shown && !wire->far);
    wire->rested_at = WEFT_OS->clock_ns();
    wire->generation = weft_i_os_generation();
    pthread_mutex_lock(&resting_lock);
    wire->next = resting;
    resting = wire;
    pthread_mutex_unlock(&resting_lock);
}

static void free_wire(weft_i_ucx_wire *wire)
{
    WEFT_ASSERT(!wire->inside && !wire->far);
    if (wire->worker)
        wire->ucx->ucp_worker_destroy(wire->worker);
    if (wire->library)
        wire->ucx->ucp_cleanup(wire->library);
    WEFT_OS->free(wire->mine);
    pthread_mutex_destroy(&wire->lock);
    WEFT_OS->free(wire);
}

/* One that has rested; a forked child leaves alone those of its parent. */
static weft_i_ucx_wire *take_rested(int64_t now)
{
    pthread_mutex_lock(&resting_lock);
    weft_i_ucx_wire **at = &resting;
    while (*at && (now - (*at)->rested_at < REST_NS || (*at)->generation != weft_i_os_generation()))
        at = &(*at)->next;
    weft_i_ucx_wire *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&resting_lock);
    return found;
}

static void free_rested(void)
{
    for (weft_i_ucx_wire *wire; (wire = take_rested(WEFT_OS->clock_ns()));)
        free_wire(wire);
}

static void close_wire(void *of)
{
    weft_i_ucx_wire *wire = of;
    for (int rank = 0; rank < wire->opts.ranks; rank++)
        weft_i_ucx_drop(wire, rank);
    int64_t deadline = weft_i_os_deadline(CLOSE_MS);
    while (wire->closing && WEFT_OS->clock_ns() < deadline)
        wire->ucx->ucp_worker_progress(wire->worker);
    for (weft_i_ucx_far *far = wire->far, *next; far; far = next) {
        next = far->next;
        WEFT_OS->free(far);
    }
    wire->far = NULL;
    if (wire->shown)
        rest(wire);
    else
        free_wire(wire);
}

static void make_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
}

static weft_status open_wire(const weft_i_transport_opts *opts, void **out)
{
    const weft_i_ucx *ucx;
    *out = NULL;
    if (opts->ranks < 1 || opts->rank < 0 || opts->rank >= opts->ranks || !opts->on_message ||
        !opts->on_fault)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d of %d cannot open a wire", opts->rank,
                           opts->ranks);
    if (opts->interface && !weft_i_ucx_has_interface(opts->interface))
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "this machine has no network interface \"%s\"",
                           opts->interface);
    WEFT_TRY(weft_i_ucx_load(&ucx));
    free_rested();
    weft_i_ucx_wire *wire =
        WEFT_OS->alloc(sizeof *wire + (size_t)opts->ranks * sizeof *wire->peers);
    if (!wire)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a wire to %d ranks", opts->ranks);
    wire->ucx = ucx;
    wire->opts = *opts;
    wire->door = -1;
    wire->rdma = weft_i_ucx_has_rdma();
    for (int i = 0; i < WEFT_I_UCX_PIECES; i++)
        wire->slices[i] = (weft_i_ucx_slice){
            .wire = wire, .next = i + 1 < WEFT_I_UCX_PIECES ? &wire->slices[i + 1] : NULL};
    wire->free = wire->slices;
    make_lock(&wire->lock);
    weft_status status = start(wire);
    if (status < 0)
        close_wire(wire);
    else
        *out = wire;
    return status;
}

static int progress(void *of)
{
    weft_i_ucx_wire *wire = of;
    int moved = 0;
    if (pthread_mutex_trylock(&wire->lock))
        return 0;
    if (!wire->inside) {
        wire->inside = true;
        moved = (int)wire->ucx->ucp_worker_progress(wire->worker);
        moved += weft_i_ucx_pump(wire);
        moved += weft_i_ucx_tell_faults(wire);
        wire->inside = false;
    }
    pthread_mutex_unlock(&wire->lock);
    return moved;
}

static int door(void *of)
{
    return ((weft_i_ucx_wire *)of)->door;
}

static bool arm(void *of)
{
    weft_i_ucx_wire *wire = of;
    if (pthread_mutex_trylock(&wire->lock))
        return false;
    bool armed =
        !wire->inside && !wire->faults && wire->ucx->ucp_worker_arm(wire->worker) == WEFT_I_UCS_OK;
    pthread_mutex_unlock(&wire->lock);
    return armed;
}

static void facts(void *of, weft_i_transport_facts *out)
{
    weft_i_ucx_wire *wire = of;
    *out = (weft_i_transport_facts){
        .rdma = wire->rdma, .cuda = wire->cuda, .segment = WEFT_I_PIECE_BYTES};
}

static uint64_t strays(void *of)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_enter(wire);
    uint64_t count = wire->strays;
    weft_i_ucx_leave(wire);
    return count;
}

const weft_i_transport weft_i_ucx_transport = {
    .name = "ucx",
    .probe = weft_i_ucx_probe,
    .open = open_wire,
    .address = weft_i_ucx_address,
    .connect = weft_i_ucx_connect,
    .send = weft_i_ucx_send,
    .expect = weft_i_ucx_expect,
    .stream = weft_i_ucx_stream,
    .map = weft_i_ucx_map,
    .unmap = weft_i_ucx_unmap,
    .reach = weft_i_ucx_far_reach,
    .leave = weft_i_ucx_far_leave,
    .put = weft_i_ucx_put,
    .get = weft_i_ucx_get,
    .flush = weft_i_ucx_flush,
    .drop = weft_i_ucx_drop,
    .progress = progress,
    .door = door,
    .arm = arm,
    .facts = facts,
    .strays = strays,
    .close = close_wire,
};
