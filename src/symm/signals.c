/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers and signals on a handle, and 32-bit writes.  The protocol itself is in base/share/signal.h. */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "fabric/group/exchange.h"
#include "symm/remote_moves.h"
#include "tensor/object/stream.h"

#include <stdio.h>
#include <string.h>

enum { BARRIER_DIGEST = 0x62617272 }; /* even: a first meeting, see base/share/signal.h */

static weft_status check(const weft_symm *mem, const char *what, int rank, int channel,
                         int64_t timeout_ms)
{
    if (!mem)
        return weft_i_missing("%s: the handle is NULL", what);
    if (channel < 0 || channel >= mem->registration->pads.channels)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: channel %d exceeds the maximum supported channel: must be in "
                           "[0, %d) for a pad of %zu bytes and %d ranks",
                           what, channel, mem->registration->pads.channels,
                           mem->registration->pads.pad_bytes, mem->group->size);
    if (rank < 0 || rank >= mem->group->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: rank %d must be in [0, %d)", what, rank,
                           mem->group->size);
    WEFT_TRY(weft_i_group_check_limit(what, timeout_ms));
    return weft_i_group_usable(mem->group);
}

static weft_i_point point_of(const weft_symm *mem, int channel)
{
    const weft_i_pads *pads = &mem->registration->pads;
    WEFT_ASSERT(channel >= 0 && channel < pads->channels);
    return (weft_i_point){
        .me = mem->group->rank,
        .size = mem->group->size,
        .words = pads->segment->base + pads->words_at + (size_t)channel * sizeof(uint64_t),
        .passes = pads->segment->base + pads->passes_at + (size_t)channel * sizeof(uint64_t),
        .bells = pads->segment->base,
        .gave_up = pads->segment->base + sizeof(uint64_t), /* in the line of the bell */
        .tag = (uint32_t)channel,
        .stride = pads->stride,
        .mode = mem->group->world->mode};
}

static const weft_i_record_name barrier_name = {"barrier"};

/* On a device: given to the current stream.  Its record ends when it has been given. */
static weft_status enqueue(const weft_symm *mem, weft_i_signal_kind kind, const char *op, int rank,
                           int channel, int64_t timeout_ms)
{
    weft_group *group = mem->group;
    weft_i_label label = {group, op, channel};
    const weft_i_registration *registration = mem->registration;
    WEFT_TRY(weft_i_group_check_revoked(&label));
    if (group->world->fake)
        return WEFT_OK;
    weft_stream *stream = weft_i_stream_current(mem->block->device);
    if (!stream)
        return weft_last_status();
    weft_i_record *record = weft_i_group_record(group);
    uint64_t number = weft_i_record_begin(record, op, group->id, 0,
                                          kind == WEFT_I_SIGNAL_BARRIER ? -1 : rank, channel);
    weft_status status =
        registration->memory->signal(registration->joined, stream->own, kind, rank, channel,
                                     weft_i_group_limit(group, timeout_ms));
    weft_i_record_end(record, number, status);
    return status;
}

weft_status weft_symm_barrier(weft_symm *mem, int channel, int64_t timeout_ms)
{
    WEFT_TRY(check(mem, "weft_symm_barrier", 0, channel, timeout_ms));
    if (mem->registration->memory)
        return enqueue(mem, WEFT_I_SIGNAL_BARRIER, "barrier", 0, channel, timeout_ms);
    weft_group *group = mem->group;
    weft_i_label label = {group, "barrier", channel};
    weft_i_point point = point_of(mem, channel);
    weft_i_meeting meeting;
    weft_i_record *record = weft_i_group_record(group);
    int64_t limit = weft_i_group_limit(group, timeout_ms);
    uint64_t number = weft_i_record_begin_named(record, &barrier_name, group->id, 0, -1, channel);
    weft_status status = mem->registration->far
                             ? weft_i_hosts_pads_meet(&label, &mem->registration->far->pads,
                                                      BARRIER_DIGEST, limit, &meeting)
                             : weft_i_group_meet(&label, &point, BARRIER_DIGEST, limit, &meeting);
    weft_i_record_end(record, number, status);
    return status == WEFT_ERR_MISMATCH ? weft_i_group_mismatch(&label, &meeting) : status;
}

/* ---- semaphores ---- */

typedef struct semaphore {
    weft_i_label label;
    _Atomic uint32_t *word;
    int peer;
    const weft_symm *mem;
    const weft_i_copy *copy;             /* goes before the signal; NULL: nothing does */
    bool (*act)(_Atomic uint32_t *word); /* put or take */
    int64_t late;                        /* of weft_i_world_is_late */
    bool far;                            /* the peer is on another host */
} semaphore;

static bool try_act(void *arg)
{
    const semaphore *box = arg;
    return box->act(box->word);
}

/* `ready` is tried once more after `lost`, so it may act there: it is never called again once it
 * has acted.  Hence without a message. */
static weft_status peer_fate(void *arg)
{
    semaphore *box = arg;
    const weft_group *group = box->label.group;
    if (group->hosts)
        weft_i_hosts_look(group, box->peer);
    weft_status fate = weft_i_group_fate(group, box->peer);
    if (fate == WEFT_OK && weft_i_world_is_late(group->world, &box->late, WEFT_OS->clock_ns())) {
        char who[640];
        weft_i_world_describe(group->world, group->members[box->peer], who, sizeof who);
        weft_i_log(WEFT_LOG_WARN,
                   "rank %d of %d in group \"%s\", %s on channel %d: has waited "
                   "%.3g s for %s",
                   group->rank, group->size, group->name, box->label.op, box->label.channel,
                   (double)group->world->warn_ns * 1e-9, who);
    }
    return fate;
}

static weft_status fail_timeout(const semaphore *box, int64_t timeout_ms)
{
    const weft_group *group = box->label.group;
    char who[640];
    const char *wanted = box->act == weft_i_signal_put ? "to take its last signal" : "to signal";
    if (timeout_ms == 0) /* a try: nothing was promised */
        return weft_i_miss(WEFT_ERR_TIMEOUT, "%s on channel %d: not yet: rank %d has %s",
                           box->label.op, box->label.channel, group->members[box->peer], wanted);
    weft_i_world_describe(group->world, group->members[box->peer], who, sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT,
                       "rank %d of %d in group \"%s\", %s on channel %d: waited %lld ms for %s %s",
                       group->rank, group->size, group->name, box->label.op, box->label.channel,
                       (long long)timeout_ms, who, wanted);
}

/* The peer holds the line of the word, as it does those that are copied to.  It is asked for first,
 * so that the two travel at the same time. */
static void copy(const semaphore *box)
{
    WEFT_ASSERT(!box->far);
    __builtin_prefetch((const void *)box->word, 1);
    if (box->copy->bytes)
        memmove(box->copy->to, box->copy->from, box->copy->bytes); /* perhaps to ourselves */
}

/* To another host: with the signal, if the data fit into a message and the word is empty. */
static weft_status copy_far(const semaphore *box, int64_t limit, bool *signalled)
{
    WEFT_ASSERT(box->far && box->act == weft_i_signal_put);
    const weft_i_copy *what = box->copy;
    *signalled = what->bytes && what->bytes <= WEFT_I_FAR_PIECE && weft_i_signal_put(box->word);
    weft_status status = weft_i_far_put(&box->label, box->mem, box->peer, what->at, what->from,
                                        what->bytes, *signalled, limit);
    if (status < 0 && *signalled)
        weft_i_signal_take(box->word); /* nobody has seen it */
    return status;
}

static weft_status await(const semaphore *box, int64_t limit)
{
    const weft_group *group = box->label.group;
    weft_i_wait wait = {.ready = try_act,
                        .lost = peer_fate,
                        .arg = (void *)(uintptr_t)box,
                        .bell = box->far ? NULL
                                         : (_Atomic uint32_t *)(void *)weft_i_pads_part(
                                               &box->mem->registration->pads, group->rank),
                        .wheel = group->hosts ? weft_i_remote_wheel(group->world->remote) : NULL,
                        .deadline = weft_i_os_deadline(limit),
                        .mode = group->world->mode};
    return weft_i_wait_for(&wait);
}

/* The peer may wait for this. */
static void ring_peer(const semaphore *box)
{
    /* Pairs with the fence of a sleeper; ranks that spin rarely sleep, see weft_i_wait_ring. */
    if (box->label.group->world->mode != WEFT_I_WAIT_SPIN)
        atomic_thread_fence(memory_order_seq_cst);
    weft_i_wait_ring(
        (_Atomic uint32_t *)(void *)weft_i_pads_part(&box->mem->registration->pads, box->peer));
}

/* The word has changed: so does that of the other host, or it is changed back. */
static weft_status tell_far(const semaphore *box)
{
    WEFT_ASSERT(box->far);
    bool puts = box->act == weft_i_signal_put;
    weft_status status = puts ? weft_i_far_tell_signal(box->mem, box->peer, box->label.channel)
                              : weft_i_far_tell_taken(box->mem, box->peer, box->label.channel);
    if (status < 0 && puts)
        weft_i_signal_take(box->word);
    else if (status < 0)
        weft_i_signal_put(box->word);
    return status;
}

/* What was put to others is there before the peer can tell them of this signal. */
static weft_status settle_others(const semaphore *box, int64_t limit)
{
    return box->act == weft_i_signal_put ? weft_i_hosts_settle(&box->label, box->peer, limit)
                                         : WEFT_OK;
}

static weft_status act(semaphore *box, int64_t limit)
{
    bool signalled = false;
    WEFT_TRY(settle_others(box, limit));
    if (box->copy && box->far)
        WEFT_TRY(copy_far(box, limit, &signalled));
    else if (box->copy)
        copy(box);
    if (signalled)
        return WEFT_OK;
    if (!box->act(box->word)) {
        weft_status status = await(box, limit);
        if (status < 0)
            return status == WEFT_ERR_TIMEOUT ? fail_timeout(box, limit)
                                              : weft_i_group_lost(&box->label, box->peer);
    }
    if (box->far)
        return tell_far(box);
    if (box->peer != box->label.group->rank)
        ring_peer(box);
    return WEFT_OK;
}

static weft_status act_or_wait(semaphore *box, int64_t timeout_ms)
{
    const weft_group *group = box->label.group;
    WEFT_TRY(weft_i_group_check_revoked(&box->label));
    if (group->world->fake && box->copy)
        copy(box);
    if (group->world->fake)
        return WEFT_OK;
    weft_i_record *record = weft_i_group_record(group);
    uint64_t number =
        weft_i_record_begin(record, box->label.op, group->id, box->copy ? box->copy->bytes : 0,
                            box->peer, box->label.channel);
    weft_status status = act(box, weft_i_group_limit(group, timeout_ms));
    weft_i_record_end(record, number, status);
    return status;
}

static _Atomic uint32_t *word_of(const weft_symm *mem, int to, int from, int channel)
{
    WEFT_ASSERT(to >= 0 && to < mem->group->size && from >= 0 && from < mem->group->size);
    char *pad = weft_i_pads_of(&mem->registration->pads, to);
    return (_Atomic uint32_t *)(void *)pad + (size_t)mem->group->size * (size_t)channel +
           (size_t)from;
}

weft_status weft_symm_put_signal(weft_symm *mem, int rank, int channel, int64_t timeout_ms)
{
    WEFT_TRY(check(mem, "weft_symm_put_signal", rank, channel, timeout_ms));
    if (mem->registration->memory)
        return enqueue(mem, WEFT_I_SIGNAL_PUT, "put_signal", rank, channel, timeout_ms);
    semaphore box = {.label = {mem->group, "put_signal", channel},
                     .mem = mem,
                     .word = word_of(mem, rank, mem->group->rank, channel),
                     .peer = rank,
                     .act = weft_i_signal_put,
                     .far = weft_i_far_is(mem, rank)};
    return act_or_wait(&box, timeout_ms);
}

weft_status weft_i_symm_copy_and_signal(weft_symm *mem, int peer, int channel,
                                        const weft_i_copy *what, int64_t timeout_ms)
{
    semaphore box = {.label = {mem->group, "put_with_signal", channel},
                     .mem = mem,
                     .word = word_of(mem, peer, mem->group->rank, channel),
                     .peer = peer,
                     .copy = what,
                     .act = weft_i_signal_put,
                     .far = weft_i_far_is(mem, peer)};
    return act_or_wait(&box, timeout_ms);
}

weft_status weft_symm_wait_signal(weft_symm *mem, int rank, int channel, int64_t timeout_ms)
{
    WEFT_TRY(check(mem, "weft_symm_wait_signal", rank, channel, timeout_ms));
    if (mem->registration->memory)
        return enqueue(mem, WEFT_I_SIGNAL_WAIT, "wait_signal", rank, channel, timeout_ms);
    semaphore box = {.label = {mem->group, "wait_signal", channel},
                     .mem = mem,
                     .word = word_of(mem, mem->group->rank, rank, channel),
                     .peer = rank,
                     .act = weft_i_signal_take,
                     .far = weft_i_far_is(mem, rank)};
    return act_or_wait(&box, timeout_ms);
}

/* ---- after a failure ---- */

/* Members meet on the host: what they say does not matter, that they come does. */
static weft_status meet(weft_group *group, bool later, int32_t *all, int64_t deadline)
{
    int32_t mine = 0;
    int64_t left = weft_i_os_ms_until(deadline);
    return later ? weft_i_group_exchange_later(group, "reset", &mine, sizeof mine, all, left)
                 : weft_i_group_exchange(group, "reset", &mine, sizeof mine, all, left);
}

weft_status weft_symm_reset(weft_symm *mem, int64_t timeout_ms)
{
    WEFT_TRY(check(mem, "weft_symm_reset", 0, 0, timeout_ms));
    weft_group *group = mem->group;
    const weft_i_registration *registration = mem->registration;
    int64_t limit = weft_i_group_limit(group, timeout_ms), deadline = weft_i_os_deadline(limit);
    int32_t *all = WEFT_OS->alloc((size_t)group->size * sizeof *all);
    if (!all)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_symm_reset: no memory for %d ranks",
                           group->size);
    /* Nobody clears anything before everybody's work has ended, and nobody begins anew before all
     * have cleared. */
    weft_status status =
        registration->memory ? registration->memory->await(registration->joined, limit) : WEFT_OK;
    if (status == WEFT_OK)
        status = meet(group, false, all, deadline);
    if (status == WEFT_OK && registration->memory) {
        weft_i_errors reason;
        status = registration->memory->reset(registration->joined);
        weft_i_errors_save(&reason);
        weft_status met = meet(group, true, all, deadline);
        if (status < 0)
            weft_i_errors_restore(&reason); /* of this, not of whoever did not come then */
        status = status < 0 ? status : met;
    }
    WEFT_OS->free(all);
    return status;
}

/* ---- 32-bit writes ---- */

static weft_status check_words(const char *what, const weft_tensor *tensor, int64_t offset,
                               int64_t value, int64_t count)
{
    if (!tensor)
        return weft_i_missing("%s: the tensor is NULL", what);
    if (tensor->dtype != WEFT_U32 || tensor->ndim != 1 || !weft_i_tensor_is_contiguous(tensor))
        return weft_i_fail(WEFT_ERR_TYPE,
                           "%s: wants a flat, contiguous uint32 tensor, not %d dimensions of %s",
                           what, tensor->ndim, weft_dtype_name(tensor->dtype));
    if (offset < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the offset must be greater than or equal to 0, not %lld", what,
                           (long long)offset);
    if (count <= 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the count must be a positive integer, not %lld", what,
                           (long long)count);
    if (value < 0 || value > UINT32_MAX)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the value %lld is outside the uint32 range",
                           what, (long long)value);
    if (offset > tensor->dim[0] || count > tensor->dim[0] - offset)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: offset %lld and count %lld exceeded the numel of the tensor, %lld",
                           what, (long long)offset, (long long)count, (long long)tensor->dim[0]);
    if (tensor->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE, "%s: the tensor is read-only memory", what);
    WEFT_TRY(weft_i_storage_ready(tensor->storage, true));
    return weft_i_tensor_check_fits(what, tensor);
}

/* On a device, by the backend for its memory; the words need not be symmetric. */
static weft_status write_there(weft_tensor *tensor, int64_t offset, int64_t value, int64_t count,
                               bool ordered)
{
    weft_device device = weft_i_tensor_device(tensor);
    weft_stream *stream = weft_i_stream_current(device);
    const weft_i_backend *backend = stream ? weft_i_backend_for(device) : NULL;
    if (!backend)
        return weft_last_status();
    if (!backend->device_memory) {
        char name[16];
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "words on %s cannot be written by a stream",
                           weft_device_name(device, name));
    }
    uint32_t *words = (uint32_t *)(void *)weft_i_tensor_data(tensor) + offset;
    weft_status status =
        backend->device_memory->write(stream->own, words, (uint32_t)value, (size_t)count, ordered);
    if (status == WEFT_OK)
        weft_i_tensor_bump(tensor);
    return status;
}

weft_status weft_symm_memset32(weft_tensor *tensor, int64_t offset, int64_t value, int64_t count)
{
    WEFT_TRY(check_words("weft_symm_memset32", tensor, offset, value, count));
    if (!weft_i_device_is_host(weft_i_tensor_device(tensor)))
        return write_there(tensor, offset, value, count, false);
    uint32_t *words = (uint32_t *)(void *)weft_i_tensor_data(tensor) + offset;
    for (int64_t i = 0; i < count; i++)
        words[i] = (uint32_t)value;
    weft_i_tensor_bump(tensor);
    return WEFT_OK;
}

weft_status weft_symm_stream_write_value32(weft_tensor *tensor, int64_t offset, int64_t value)
{
    WEFT_TRY(check_words("weft_symm_stream_write_value32", tensor, offset, value, 1));
    if (!weft_i_device_is_host(weft_i_tensor_device(tensor)))
        return write_there(tensor, offset, value, 1, true);
    _Atomic uint32_t *word = (_Atomic uint32_t *)(void *)weft_i_tensor_data(tensor) + offset;
    /* Pairs with the acquire load of whoever polls this word. */
    atomic_store_explicit(word, (uint32_t)value, memory_order_release);
    weft_i_tensor_bump(tensor);
    return WEFT_OK;
}
