/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's collectives: every rank shows chunks of its input in its slot, and takes from the
 * slots of all. */
#include "standin_parts.h"

#include "fold_reference.h"
#include "twin_pause.h"

#include <stdlib.h>

static const struct {
    weft_dtype dtype;
    size_t size;
} types[] = {{WEFT_I8, 1},  {WEFT_U8, 1},  {WEFT_I32, 4}, {WEFT_U32, 4}, {WEFT_I64, 8},
             {WEFT_U64, 8}, {WEFT_F16, 2}, {WEFT_F32, 4}, {WEFT_F64, 8}, {WEFT_BF16, 2}};

size_t standin_type_size(int dtype)
{
    return types[dtype].size;
}

static weft_i_fold_op fold_of(int op)
{
    static const weft_i_fold_op ops[] = {WEFT_I_FOLD_SUM, WEFT_I_FOLD_PRODUCT, WEFT_I_FOLD_MAX,
                                         WEFT_I_FOLD_MIN, WEFT_I_FOLD_AVG};
    return op >= PREMUL ? WEFT_I_FOLD_PREMUL_SUM : ops[op];
}

/* Waits until all have come so far; false if that will never be. */
static bool await(standin_comm *comm, size_t at, uint64_t value)
{
    for (int rank = 0; rank < comm->size; rank++) {
        const char *line = (const char *)&comm->with->rank[rank];
        while (atomic_load_explicit((const _Atomic uint64_t *)(const void *)(line + at),
                                    memory_order_acquire) < value) {
            if (atomic_load(&comm->aborted))
                return false;
            if (atomic_load(&comm->with->rank[rank].left)) /* told, but a kernel waits on */
                atomic_store(&comm->failed, WEFT_I_ncclRemoteError);
            twin_pause();
        }
    }
    return true;
}

static bool has_parts(standin_kind kind)
{
    return kind == REDUCE_SCATTER || kind == ALL_TO_ALL || kind == SCATTER;
}

static bool folds(standin_kind kind)
{
    return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER;
}

static void fold(const standin_comm *comm, const standin_op *op, size_t from, char *out,
                 size_t bytes)
{
    const void *in[RANKS_MOST];
    double factors[RANKS_MOST];
    void *outs[] = {out};
    for (int rank = 0; rank < comm->size; rank++) {
        in[rank] = comm->with->rank[rank].slot + from;
        factors[rank] = comm->with->rank[rank].factor;
    }
    fold_reference(types[op->dtype].dtype, fold_of(op->op), outs, 1, in, comm->size,
                   bytes / types[op->dtype].size, factors);
}

/* What this rank wants of the chunk that lies at `at` of everybody's input. */
static void take(const standin_comm *comm, const standin_op *op, size_t at, size_t bytes)
{
    size_t part = op->count * types[op->dtype].size, mine = 0, end = part;
    if (has_parts(op->kind)) {
        mine = (size_t)comm->rank * part;
        end = mine + part;
    }
    size_t from = at > mine ? at : mine, to = at + bytes < end ? at + bytes : end;
    bool roots = op->kind == REDUCE || op->kind == GATHER;
    if (from >= to || (roots && comm->rank != op->peer))
        return;
    if (folds(op->kind)) {
        fold(comm, op, from - at, op->out + (from - mine), to - from);
        return;
    }
    bool one = op->kind == BROADCAST || op->kind == SCATTER;
    for (int rank = 0; rank < comm->size; rank++)
        if (!one || rank == op->peer)
            memmove(op->out + (one ? 0 : (size_t)rank * part) + (from - mine),
                    comm->with->rank[rank].slot + (from - at), to - from);
}

static bool run_collective(standin_comm *comm, const standin_op *op)
{
    standin_place *mine = &comm->with->rank[comm->rank];
    size_t part = op->count * types[op->dtype].size;
    size_t whole = part * (has_parts(op->kind) ? (size_t)comm->size : 1);
    bool shows = (op->kind != BROADCAST && op->kind != SCATTER) || comm->rank == op->peer;
    mine->factor = op->factor;
    for (size_t at = 0; at < whole; at += CHUNK) {
        size_t bytes = whole - at < CHUNK ? whole - at : CHUNK;
        if (shows)
            memcpy(mine->slot, op->in + at, bytes);
        comm->shown++;
        atomic_store_explicit(&mine->shown, comm->shown, memory_order_release);
        if (!await(comm, offsetof(standin_place, shown), comm->shown))
            return false;
        take(comm, op, at, bytes);
        atomic_store_explicit(&mine->taken, comm->shown, memory_order_release);
        if (!await(comm, offsetof(standin_place, taken), comm->shown))
            return false;
    }
    return true;
}

/* A letter more of a send or receive, if there is one; is it over? */
static bool push(standin_comm *comm, standin_op *op)
{
    size_t whole = op->count * types[op->dtype].size, left = whole - op->done;
    bool sends = op->kind == SEND;
    letter *box =
        sends ? &comm->with->box[comm->rank][op->peer] : &comm->with->box[op->peer][comm->rank];
    uint32_t there = atomic_load_explicit(&box->bytes, memory_order_acquire);
    if (left == 0 || (there != 0) == sends)
        return left == 0;
    uint32_t bytes = sends ? (uint32_t)(left < LETTER ? left : LETTER) : there;
    if (sends)
        memcpy(box->data, op->in + op->done, bytes);
    else
        memcpy(op->out + op->done, box->data, bytes);
    atomic_store_explicit(&box->bytes, sends ? bytes : 0, memory_order_release);
    op->done += bytes;
    return op->done == whole;
}

static bool run_exchange(standin_job *job)
{
    for (bool over = false; !over;) {
        over = true;
        for (int i = 0; i < job->count; i++)
            if (job->ops[i].kind >= SEND)
                over &= push(job->comm, &job->ops[i]);
        if (atomic_load(&job->comm->aborted))
            return false;
        twin_pause();
    }
    return true;
}

void standin_run(void *what)
{
    standin_job *job = what;
    standin_comm *comm = job->comm;
    bool fine = !atomic_load(&comm->aborted);
    for (int i = 0; fine && i < job->count; i++)
        if (job->ops[i].kind < SEND)
            fine = run_collective(comm, &job->ops[i]);
    if (fine)
        run_exchange(job);
    while (atomic_load(&standin.held) == 1 + comm->rank && !atomic_load(&comm->aborted))
        twin_pause();                 /* as a GPU that other processes have their turn on */
    atomic_fetch_sub(&comm->jobs, 1); /* from here on it may be gone */
}
