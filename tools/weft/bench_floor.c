/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prototypes of the floor; see bench_floor.h.  Every flag has one writer and counts the calls,
 * so nothing is ever reset.  Three ways recur:
 *
 *   line    data and flag in one cache line, two lines by turns: one hop, nothing else
 *   staged  into a stage of one's own (two by turns), one flag, out of the others' stages: no
 *           closing sync, because a rank that is at call t + 1 has finished call t
 *   direct  straight between the buffers, after an opening and before a closing sync
 */
#include "bench_floor.h"

#include <sched.h>
#include <sys/mman.h>

enum { LINE = 56, STAGE = 256 << 10, KIB = 1024 };

typedef struct line {
    _Alignas(128) uint64_t turn;
    unsigned char data[LINE];
} line;

typedef struct flag {
    _Alignas(128) uint64_t turn;
} flag;

/* One rank's area: written by that rank alone, but for `out` when others push into it. */
typedef struct area {
    line lines[2];
    flag entered, left;
    _Alignas(4096) unsigned char stage[2][STAGE];
    _Alignas(4096) unsigned char in[];
} area;

typedef struct call {
    const bench_floor_rank *me;
    const plan_case *what;
    uint64_t turn;
    int rank, ranks, root;
    unsigned char *in, *out;
} call;

static area *area_of(const call *c, int rank)
{
    return (area *)(c->me->floor->base + (size_t)rank * c->me->floor->stride);
}

static unsigned char *out_of(const call *c, int rank)
{
    return c->me->floor->base + (size_t)rank * c->me->floor->stride + c->me->floor->out_at;
}

/* Waits until another's flag has come to this call.  Acquire: pairs with the release in tell(). */
static void await(const call *c, const uint64_t *turn)
{
    for (int looks = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) < c->turn; looks++) {
        if (c->me->floor->crowded && looks > 8)
            sched_yield();
        else if (looks > 256)
            meter_pause();
    }
}

/* Release: what this rank wrote before is seen by whoever awaits it. */
static void tell(uint64_t *turn, uint64_t value)
{
    __atomic_store_n(turn, value, __ATOMIC_RELEASE);
}

static void await_all(const call *c, size_t flag_at)
{
    for (int i = 1; i < c->ranks; i++)
        await(c, (const uint64_t *)((char *)area_of(c, (c->rank + i) % c->ranks) + flag_at));
}

static void enter(const call *c)
{
    tell(&area_of(c, c->rank)->entered.turn, c->turn);
}

static void leave(const call *c)
{
    tell(&area_of(c, c->rank)->left.turn, c->turn);
}

static void enter_together(const call *c)
{
    enter(c);
    await_all(c, offsetof(area, entered.turn));
}

static void leave_together(const call *c)
{
    leave(c);
    await_all(c, offsetof(area, left.turn));
}

/* Before a root overwrites what it wrote two calls ago: all have read that. */
static void await_readers(const call *c)
{
    call before = *c;
    before.turn = c->turn < 2 ? 0 : c->turn - 2;
    await_all(&before, offsetof(area, left.turn));
}

/* ---- what a rank shows to the others: its line, or its stage ---- */

typedef enum show { BY_LINE, BY_STAGE } show;

static const unsigned char *shown(const call *c, show how, int rank)
{
    area *a = area_of(c, rank);
    return how == BY_LINE ? a->lines[c->turn & 1].data : a->stage[c->turn & 1];
}

static void put(const call *c, show how, size_t bytes)
{
    area *mine = area_of(c, c->rank);
    if (how == BY_LINE) {
        line *l = &mine->lines[c->turn & 1];
        memcpy(l->data, c->in, bytes);
        tell(&l->turn, c->turn);
    } else {
        memcpy(mine->stage[c->turn & 1], c->in, bytes);
        enter(c);
    }
}

static const unsigned char *await_shown(const call *c, show how, int rank)
{
    area *a = area_of(c, rank);
    await(c, how == BY_LINE ? &a->lines[c->turn & 1].turn : &a->entered.turn);
    return shown(c, how, rank);
}

/* ---- sums ---- */

static void fold(const call *c, void *const *out, int outs, const void *const *in, size_t bytes)
{
    c->me->fold(out, outs, in, c->ranks, bytes / plan_dtype_size(c->what->dtype));
}

/* Sums `bytes` at `at` of what all ranks show into `to`. */
static void fold_shown(const call *c, show how, size_t at, void *to, size_t bytes)
{
    const void *in[BENCH_FOLD_MAX];
    for (int i = 1; i <= c->ranks; i++) {
        int r = (c->rank + i) % c->ranks;
        in[r] = await_shown(c, how, r) + at;
    }
    fold(c, &to, 1, in, bytes);
}

/* Sums `bytes` at `at` of all inputs into `to`. */
static void fold_inputs(const call *c, size_t at, void *to, size_t bytes)
{
    const void *in[BENCH_FOLD_MAX];
    for (int r = 0; r < c->ranks; r++)
        in[r] = area_of(c, r)->in + at;
    fold(c, &to, 1, in, bytes);
}

/* Where slice `rank` of a vector begins: whole cache lines, so that no two ranks write one. */
static size_t slice_at(const call *c, int rank)
{
    size_t lines = (c->what->bytes + 63) / 64;
    size_t at = lines * (size_t)rank / (size_t)c->ranks * 64;
    return at < c->what->bytes ? at : c->what->bytes;
}

/* Sums this rank's slice of all inputs and stores it to the outputs of ranks `first` on, `outs` of
 * them. */
static void fold_slice(const call *c, int first, int outs)
{
    const void *in[BENCH_FOLD_MAX];
    void *out[BENCH_FOLD_MAX];
    size_t at = slice_at(c, c->rank), bytes = slice_at(c, c->rank + 1) - at;
    for (int r = 0; r < c->ranks; r++)
        in[r] = area_of(c, r)->in + at;
    for (int i = 0; i < outs; i++)
        out[i] = out_of(c, first + i) + at;
    fold(c, out, outs, in, bytes);
}

/* The same block by block: summed to one output, copied to the others while it is in the cache. */
static void fold_slice_by_blocks(const call *c, int first, int outs)
{
    enum { BLOCK = 4 * KIB };
    size_t end = slice_at(c, c->rank + 1);
    for (size_t at = slice_at(c, c->rank); at < end; at += BLOCK) {
        size_t bytes = end - at < BLOCK ? end - at : BLOCK;
        unsigned char *sum = out_of(c, first) + at;
        fold_inputs(c, at, sum, bytes);
        for (int i = 1; i < outs; i++)
            memcpy(out_of(c, first + i) + at, sum, bytes);
    }
}

/* ---- the prototypes ---- */

static void all_reduce_line(const call *c)
{
    put(c, BY_LINE, c->what->bytes);
    fold_shown(c, BY_LINE, 0, c->out, c->what->bytes);
}

static void all_reduce_staged(const call *c)
{
    put(c, BY_STAGE, c->what->bytes);
    fold_shown(c, BY_STAGE, 0, c->out, c->what->bytes);
}

static void all_reduce_one_shot(const call *c)
{
    enter_together(c);
    fold_inputs(c, 0, c->out, c->what->bytes);
    leave_together(c);
}

static void all_reduce_two_shot(const call *c)
{
    enter_together(c);
    fold_slice(c, 0, c->ranks);
    leave_together(c);
}

static void all_reduce_blocks(const call *c)
{
    enter_together(c);
    fold_slice_by_blocks(c, 0, c->ranks);
    leave_together(c);
}

/* Part `from_part` of what each rank shows, gathered. */
static void gather_shown(const call *c, show how, size_t at)
{
    size_t part = c->what->part;
    for (int i = 1; i <= c->ranks; i++) {
        int r = (c->rank + i) % c->ranks;
        memcpy(c->out + (size_t)r * part, await_shown(c, how, r) + at, part);
    }
}

static void all_gather_line(const call *c)
{
    put(c, BY_LINE, c->what->part);
    gather_shown(c, BY_LINE, 0);
}

static void all_gather_staged(const call *c)
{
    put(c, BY_STAGE, c->what->part);
    gather_shown(c, BY_STAGE, 0);
}

static void all_to_all_line(const call *c)
{
    put(c, BY_LINE, c->what->bytes);
    gather_shown(c, BY_LINE, (size_t)c->rank * c->what->part);
}

static void all_to_all_staged(const call *c)
{
    put(c, BY_STAGE, c->what->bytes);
    gather_shown(c, BY_STAGE, (size_t)c->rank * c->what->part);
}

/* One's own part is copied while the others arrive. */
static void pull(const call *c, size_t at)
{
    size_t part = c->what->part;
    enter(c);
    memcpy(c->out + (size_t)c->rank * part, c->in + at, part);
    for (int i = 1; i < c->ranks; i++) {
        int r = (c->rank + i) % c->ranks;
        await(c, &area_of(c, r)->entered.turn);
        memcpy(c->out + (size_t)r * part, area_of(c, r)->in + at, part);
    }
    leave_together(c);
}

static void push(const call *c, int same)
{
    size_t part = c->what->part, mine = (size_t)c->rank * part;
    enter(c);
    memcpy(c->out + mine, c->in + (same ? 0 : mine), part);
    for (int i = 1; i < c->ranks; i++) {
        int r = (c->rank + i) % c->ranks;
        await(c, &area_of(c, r)->entered.turn);
        memcpy(out_of(c, r) + mine, c->in + (same ? 0 : (size_t)r * part), part);
    }
    leave_together(c);
}

static void all_gather_pull(const call *c)
{
    pull(c, 0);
}

static void all_gather_push(const call *c)
{
    push(c, 1);
}

static void all_to_all_pull(const call *c)
{
    pull(c, (size_t)c->rank * c->what->part);
}

static void all_to_all_push(const call *c)
{
    push(c, 0);
}

static void reduce_scatter_line(const call *c)
{
    put(c, BY_LINE, c->what->bytes);
    fold_shown(c, BY_LINE, (size_t)c->rank * c->what->part, c->out, c->what->part);
}

static void reduce_scatter_staged(const call *c)
{
    put(c, BY_STAGE, c->what->bytes);
    fold_shown(c, BY_STAGE, (size_t)c->rank * c->what->part, c->out, c->what->part);
}

static void reduce_scatter_direct(const call *c)
{
    enter_together(c);
    fold_inputs(c, (size_t)c->rank * c->what->part, c->out, c->what->part);
    leave_together(c);
}

/* The root shows all of its input, the others take `bytes` at `at`; the root does not wait for
 * them. */
static void spread(const call *c, show how, size_t at, size_t bytes)
{
    if (c->rank == c->root) {
        await_readers(c);
        put(c, how, c->what->in_bytes);
        if (c->out != c->in)
            memcpy(c->out, c->in + at, bytes);
    } else {
        memcpy(c->out, await_shown(c, how, c->root) + at, bytes);
    }
    leave(c);
}

static void spread_direct(const call *c, size_t at, size_t bytes)
{
    if (c->rank == c->root) {
        enter(c);
        if (c->out != c->in)
            memcpy(c->out, c->in + at, bytes);
        await_all(c, offsetof(area, left.turn));
    } else {
        await(c, &area_of(c, c->root)->entered.turn);
        memcpy(c->out, area_of(c, c->root)->in + at, bytes);
        leave(c);
    }
}

static void broadcast_line(const call *c)
{
    spread(c, BY_LINE, 0, c->what->bytes);
}

static void broadcast_staged(const call *c)
{
    spread(c, BY_STAGE, 0, c->what->bytes);
}

static void broadcast_pull(const call *c)
{
    spread_direct(c, 0, c->what->bytes);
}

static void scatter_line(const call *c)
{
    spread(c, BY_LINE, (size_t)c->rank * c->what->part, c->what->part);
}

static void scatter_staged(const call *c)
{
    spread(c, BY_STAGE, (size_t)c->rank * c->what->part, c->what->part);
}

static void scatter_pull(const call *c)
{
    spread_direct(c, (size_t)c->rank * c->what->part, c->what->part);
}

/* All show, the root takes; who shows again two calls later waits for that call's root. */
static void collect(const call *c, show how)
{
    await_readers(c);
    put(c, how, c->what->in_bytes);
    if (c->rank == c->root && c->what->op == PLAN_GATHER)
        gather_shown(c, how, 0);
    else if (c->rank == c->root)
        fold_shown(c, how, 0, c->out, c->what->bytes);
    leave(c);
}

static void collect_line(const call *c)
{
    collect(c, BY_LINE);
}

static void collect_staged(const call *c)
{
    collect(c, BY_STAGE);
}

static void reduce_by_root(const call *c)
{
    enter(c);
    if (c->rank == c->root) {
        await_all(c, offsetof(area, entered.turn));
        fold_inputs(c, 0, c->out, c->what->bytes);
        leave(c);
    } else {
        await(c, &area_of(c, c->root)->left.turn);
    }
}

static void reduce_by_all(const call *c)
{
    enter_together(c);
    fold_slice(c, c->root, 1);
    leave_together(c);
}

static void gather_push(const call *c)
{
    enter(c);
    await(c, &area_of(c, c->root)->entered.turn);
    memcpy(out_of(c, c->root) + (size_t)c->rank * c->what->part, c->in, c->what->part);
    leave(c);
    if (c->rank == c->root)
        await_all(c, offsetof(area, left.turn));
}

static int last_of(const call *c)
{
    return (c->rank + c->ranks - 1) % c->ranks;
}

/* The reader of two calls ago is the next rank. */
static void pass(const call *c, show how)
{
    call before = *c;
    before.turn = c->turn < 2 ? 0 : c->turn - 2;
    await(&before, &area_of(c, (c->rank + 1) % c->ranks)->left.turn);
    put(c, how, c->what->bytes);
    memcpy(c->out, await_shown(c, how, last_of(c)), c->what->bytes);
    leave(c);
}

static void send_recv_line(const call *c)
{
    pass(c, BY_LINE);
}

static void send_recv_staged(const call *c)
{
    pass(c, BY_STAGE);
}

static void send_recv_pull(const call *c)
{
    enter(c);
    await(c, &area_of(c, last_of(c))->entered.turn);
    memcpy(c->out, area_of(c, last_of(c))->in, c->what->bytes);
    leave(c);
    await(c, &area_of(c, (c->rank + 1) % c->ranks)->left.turn);
}

/* For which sizes (of what a rank shows) a prototype is worth trying. */
static const struct bench_prototype {
    int op;
    const char *name;
    uint64_t least, most;
    void (*run)(const call *c);
} prototypes[] = {
    {PLAN_ALL_REDUCE, "line", 0, LINE, all_reduce_line},
    {PLAN_ALL_REDUCE, "eager", 16, 64 * KIB, all_reduce_staged},
    {PLAN_ALL_REDUCE, "one-shot", 512, 128 * KIB, all_reduce_one_shot},
    {PLAN_ALL_REDUCE, "two-shot", 512, UINT64_MAX, all_reduce_two_shot},
    {PLAN_ALL_REDUCE, "blocks", 8 * KIB, UINT64_MAX, all_reduce_blocks},
    {PLAN_ALL_GATHER, "line", 0, LINE, all_gather_line},
    {PLAN_ALL_GATHER, "eager", 16, 64 * KIB, all_gather_staged},
    {PLAN_ALL_GATHER, "pull", 512, UINT64_MAX, all_gather_pull},
    {PLAN_ALL_GATHER, "push", 4 * KIB, UINT64_MAX, all_gather_push},
    {PLAN_REDUCE_SCATTER, "line", 0, LINE, reduce_scatter_line},
    {PLAN_REDUCE_SCATTER, "eager", 16, 64 * KIB, reduce_scatter_staged},
    {PLAN_REDUCE_SCATTER, "zero-copy", 512, UINT64_MAX, reduce_scatter_direct},
    {PLAN_ALL_TO_ALL, "line", 0, LINE, all_to_all_line},
    {PLAN_ALL_TO_ALL, "eager", 16, 64 * KIB, all_to_all_staged},
    {PLAN_ALL_TO_ALL, "pull", 512, UINT64_MAX, all_to_all_pull},
    {PLAN_ALL_TO_ALL, "push", 4 * KIB, UINT64_MAX, all_to_all_push},
    {PLAN_BROADCAST, "line", 0, LINE, broadcast_line},
    {PLAN_BROADCAST, "eager", 16, 256 * KIB, broadcast_staged},
    {PLAN_BROADCAST, "pull", 512, UINT64_MAX, broadcast_pull},
    {PLAN_REDUCE, "line", 0, LINE, collect_line},
    {PLAN_REDUCE, "eager", 16, 64 * KIB, collect_staged},
    {PLAN_REDUCE, "by root", 512, 256 * KIB, reduce_by_root},
    {PLAN_REDUCE, "by all", 2 * KIB, UINT64_MAX, reduce_by_all},
    {PLAN_GATHER, "line", 0, LINE, collect_line},
    {PLAN_GATHER, "eager", 16, 64 * KIB, collect_staged},
    {PLAN_GATHER, "push", 512, UINT64_MAX, gather_push},
    {PLAN_SCATTER, "line", 0, LINE, scatter_line},
    {PLAN_SCATTER, "eager", 16, 64 * KIB, scatter_staged},
    {PLAN_SCATTER, "pull", 512, UINT64_MAX, scatter_pull},
    {PLAN_SEND_RECV, "line", 0, LINE, send_recv_line},
    {PLAN_SEND_RECV, "eager", 16, 64 * KIB, send_recv_staged},
    {PLAN_SEND_RECV, "pull", 512, UINT64_MAX, send_recv_pull},
    {PLAN_BARRIER, "flags", 0, UINT64_MAX, enter_together},
};

enum { PROTOTYPES = sizeof prototypes / sizeof *prototypes };

static const struct bench_prototype *find(int op, int which)
{
    for (int i = 0; i < PROTOTYPES; i++)
        if (prototypes[i].op == op && which-- == 0)
            return &prototypes[i];
    return NULL;
}

int bench_floor_count(int op)
{
    int count = 0;
    while (find(op, count))
        count++;
    return count;
}

const char *bench_floor_name(int op, int prototype)
{
    const struct bench_prototype *p = find(op, prototype);
    return p ? p->name : "?";
}

int bench_floor_fits(const plan_case *what, int prototype)
{
    const struct bench_prototype *p = find(what->op, prototype);
    if (!p || what->ranks > BENCH_FOLD_MAX || what->in_bytes < p->least || what->in_bytes > p->most)
        return 0;
    return !plan_op_reduces(what->op) ||
           (what->reduction == WEFT_SUM && bench_fold_find(what->dtype) != NULL);
}

int bench_floor_open(bench_floor *floor, int ranks, uint64_t in_bytes, uint64_t out_bytes,
                     int crowded)
{
    floor->ranks = ranks;
    floor->crowded = crowded;
    floor->out_at = sizeof(area) + (in_bytes + 4095) / 4096 * 4096;
    floor->stride = floor->out_at + (out_bytes + 4095) / 4096 * 4096;
    floor->bytes = floor->stride * (size_t)ranks;
    void *at = mmap(NULL, floor->bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    floor->base = at == MAP_FAILED ? NULL : at;
    if (floor->base)
        madvise(floor->base, floor->bytes, MADV_HUGEPAGE); /* where the system offers them */
    return floor->base ? 0 : -1;
}

void bench_floor_close(bench_floor *floor)
{
    if (floor->base)
        munmap(floor->base, floor->bytes);
    floor->base = NULL;
}

static int prepare(void *self, const plan_case *what, void **in, void **out)
{
    bench_floor_rank *me = self;
    unsigned char *mine = me->floor->base + (size_t)me->rank * me->floor->stride;
    me->what = *what;
    me->fold = bench_fold_find(what->dtype);
    *in = ((area *)mine)->in;
    *out = what->op == PLAN_BROADCAST ? *in : mine + me->floor->out_at;
    me->found = find(what->op, me->prototype);
    /* Whatever the prototype before this one told or did not tell: all its calls are over. */
    tell(&((area *)mine)->entered.turn, me->turn);
    tell(&((area *)mine)->left.turn, me->turn);
    return !bench_floor_fits(what, me->prototype);
}

static int run(void *self, void *in, void *out, int root)
{
    bench_floor_rank *me = self;
    call c = {me, &me->what, ++me->turn, me->rank, me->floor->ranks, root, in, out};
    me->found->run(&c);
    return 0;
}

meter_contender bench_floor_contender(bench_floor_rank *rank)
{
    meter_contender who = {rank, prepare, run, NULL};
    return who;
}
