/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/move.c, coll/host/reduce.c, coll/lane/pipeline.c, coll/lane/fifo.c,
 * coll/lane/cma.c */
/*
 * Errors in the middle of an operation: every rank's call must end with one.  A status that an inner
 * step returns and its caller drops would be a success here.
 *
 * The pipeline: one rank stops at a page of its operand, in the first piece, a middle one, the last,
 * until the others have given up.  CMA: the kernel refuses one of its copies, or the rest of one.
 * Ranks are processes; the time of those who wait stands still until the situation is there.
 */
#include "jobs.h"
#include "wire.h"

#include "base/os/os.h"
#include "coll/lane/lane.h"
#include "fabric/group/group.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
    RANKS = 3,
    VICTIM = 1,
    PART = 80000,      /* floats: several chunks */
    FIFO_PART = 12000, /* what goes through fifos on every machine */
    LIMIT_MS = 30
};
static int64_t part = PART;
static bool one_way; /* operands are small enough to be sent eagerly */

/* Which ranks read their input, and which write their output. */
enum {
    READS = 1,
    ROOT_READS = 2,
    WRITES = 4,
    ROOT_WRITES = 8,
    ROOTED = ROOT_READS | ROOT_WRITES | 16,
    STREAM = 32,  /* who takes last keeps nobody waiting */
    COLLECTS = 64 /* nor who copies results out last */
};

typedef enum op {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    ALL_TO_ALL_SPLITS,
    ALL_TO_ALL_LIST,
    ALL_REDUCE_LIST,
    ALL_GATHER_LIST,
    REDUCE_SCATTER_LIST,
    ALL_GATHER_PARTS,
    REDUCE_SCATTER_PARTS,
    ALL_GATHER_OBJECT,
    OPS
} op;

static const struct {
    const char *name, *tuned; /* by whose threshold */
    int facts, ins, outs;     /* parts of the operands */
} ops[OPS] = {
    [ALL_REDUCE] = {"all_reduce", "all_reduce", READS | WRITES | COLLECTS, 1, 1},
    [REDUCE] = {"reduce", "reduce", READS | ROOT_WRITES | COLLECTS, 1, 1},
    [BROADCAST] = {"broadcast", "broadcast", READS | 16, 1, 1},
    [ALL_GATHER] = {"all_gather", "all_gather", READS | WRITES, 1, RANKS},
    [GATHER] = {"gather", "gather", READS | ROOT_WRITES, 1, RANKS},
    [SCATTER] = {"scatter", "scatter", ROOT_READS | WRITES, RANKS, 1},
    [REDUCE_SCATTER] = {"reduce_scatter", "reduce_scatter", READS | WRITES, RANKS, 1},
    [ALL_TO_ALL] = {"all_to_all", "all_to_all", READS | WRITES, RANKS, RANKS},
    [ALL_TO_ALL_SPLITS] = {"all_to_all by splits", "all_to_all", READS | WRITES, RANKS, RANKS},
    [ALL_TO_ALL_LIST] = {"all_to_all_list", NULL, READS | WRITES, RANKS, RANKS},
    [ALL_REDUCE_LIST] = {"all_reduce_list", NULL, READS | WRITES | COLLECTS, RANKS, RANKS},
    [ALL_GATHER_LIST] = {"all_gather_list", NULL, READS | WRITES, 1, RANKS},
    [REDUCE_SCATTER_LIST] = {"reduce_scatter_list", NULL, READS | WRITES, RANKS, 1},
    [ALL_GATHER_PARTS] = {"all_gather_parts", NULL, READS | WRITES | STREAM, 1, RANKS},
    [REDUCE_SCATTER_PARTS] = {"reduce_scatter_parts", NULL, READS | WRITES | STREAM, RANKS, 1},
    [ALL_GATHER_OBJECT] = {"all_gather_object", NULL, READS | STREAM, 1, 1},
};

/* ---- operands and calls ---- */

typedef struct operands {
    char *in_data, *out_data;
    weft_tensor *in, *out;
    weft_tensor *ins[RANKS], *outs[RANKS];
} operands;

static weft_tensor *wrap(char *data, int64_t count)
{
    weft_tensor *x = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), data, NULL, NULL);
    CHECK(x);
    return x;
}

static char *room(void)
{
    size_t bytes = (size_t)RANKS * PART * sizeof(float);
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    return data;
}

static float value_of(int rank, size_t i)
{
    return (float)(rank * 1000 + (int)(i % 97));
}

static void fill(operands *o, int rank)
{
    float *in = (float *)(void *)o->in_data;
    for (size_t i = 0; i < (size_t)RANKS * PART; i++)
        in[i] = value_of(rank, i);
    memset(o->out_data, 0xee, (size_t)RANKS * PART * sizeof(float));
}

/* Of the calling rank, in the current scope, on the memory it has. */
static operands operands_of(op what, char *in, char *out)
{
    operands o = {in,  out, wrap(in, ops[what].ins * part), wrap(out, ops[what].outs * part),
                  {0}, {0}};
    for (int i = 0; i < RANKS; i++) {
        o.ins[i] = wrap(in + (size_t)(i * part) * sizeof(float), part);
        o.outs[i] = wrap(out + (size_t)(i * part) * sizeof(float), part);
    }
    return o;
}

static bool is_intact(const operands *o, int rank)
{
    const float *in = (const float *)(const void *)o->in_data;
    for (size_t i = 0; i < (size_t)RANKS * PART; i++)
        if (in[i] != value_of(rank, i))
            return false;
    return true;
}

static weft_status run_object(const operands *o, weft_group *group)
{
    weft_bytes mine = {o->in_data, (size_t)part * sizeof(float)};
    weft_blobs *all = weft_all_gather_object(mine, group);
    weft_status status = all ? WEFT_OK : weft_last_status();
    weft_release(all);
    return status;
}

static weft_status run_lists(op what, const operands *o, weft_group *group)
{
    switch (what) {
    case ALL_TO_ALL_LIST:
        return weft_all_to_all_list_into(o->outs, o->ins, group);
    case ALL_REDUCE_LIST:
        return weft_all_reduce_list_into(o->outs, o->ins, RANKS, WEFT_SUM, group);
    case ALL_GATHER_LIST:
        return weft_all_gather_list_into(&o->out, &o->in, 1, group);
    case REDUCE_SCATTER_LIST:
        return weft_reduce_scatter_list_into(&o->out, &o->in, 1, WEFT_SUM, group);
    case ALL_GATHER_PARTS:
        return weft_all_gather_parts_into(o->outs, o->in, group);
    case REDUCE_SCATTER_PARTS:
        return weft_reduce_scatter_parts_into(o->out, o->ins, WEFT_SUM, group);
    default:
        return run_object(o, group);
    }
}

static weft_status run(op what, const operands *o, int root, int rank, weft_group *group)
{
    int64_t splits[RANKS] = {part, part, part};
    bool is_root = rank == root;
    switch (what) {
    case ALL_REDUCE:
        return weft_all_reduce_into(o->out, o->in, WEFT_SUM, group);
    case REDUCE:
        return weft_reduce_into(is_root ? o->out : NULL, o->in, WEFT_SUM, root, group);
    case BROADCAST:
        return weft_broadcast_in_place(o->in, root, group);
    case ALL_GATHER:
        return weft_all_gather_into(o->out, o->in, group);
    case GATHER:
        return weft_gather_into(is_root ? o->out : NULL, o->in, root, group);
    case SCATTER:
        return weft_scatter_into(o->out, is_root ? o->in : NULL, root, group);
    case REDUCE_SCATTER:
        return weft_reduce_scatter_into(o->out, o->in, WEFT_SUM, group);
    case ALL_TO_ALL:
        return weft_all_to_all_into(o->out, o->in, NULL, NULL, group);
    case ALL_TO_ALL_SPLITS:
        return weft_all_to_all_into(o->out, o->in, splits, splits, group);
    default:
        return run_lists(what, o, group);
    }
}

/* The same in symmetric memory of the group: others reach it where it lies. */
static operands symmetric_of(op what, int rank, weft_group *group)
{
    operands o = {0};
    o.in = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ops[what].ins * part));
    o.out = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ops[what].outs * part));
    CHECK(weft_symm_rendezvous(o.in, group) && weft_symm_rendezvous(o.out, group));
    o.in_data = weft_tensor_data(o.in);
    o.out_data = weft_tensor_data(o.out);
    weft_fill(o.in, rank + 1);
    return o;
}

/* ---- a rank that stops in the middle ---- */

static int trips; /* so far, on all ranks: each has made a mark for each */

/* The victim tells that it stands in the middle, and goes on when all others have come out. */
static void trip(void)
{
    harness_mark();
    for (int rank = 0; rank < RANKS; rank++)
        harness_await(rank, trips + 1);
}

typedef struct place {
    bool out;
    size_t at; /* byte */
    int root;
} place;

/* The victim's call has met the wire, and has failed as well. */
static void be_victim(op what, const operands *o, place p, weft_group *group, bool others_may)
{
    wire_stretch(p.out ? o->out_data : o->in_data, p.at, trip);
    weft_status status = run(what, o, p.root, VICTIM, group);
    signal(SIGSEGV, SIG_DFL);
    if (harness_marks_of(VICTIM) != trips + 1)
        FAIL("%s, root %d, %s byte %zu: nobody came there", ops[what].name, p.root,
             p.out ? "output" : "input", p.at);
    if (status != WEFT_ERR_REVOKED && !(others_may && status == WEFT_OK))
        FAIL("%s, root %d, %s byte %zu: the victim's call gives %d", ops[what].name, p.root,
             p.out ? "output" : "input", p.at, (int)status);
}

/* The others wait for it in vain. */
static void be_other(op what, const operands *o, place p, int rank, weft_group *group, bool may)
{
    CHECK_OK(weft_group_set_timeout(group, LIMIT_MS));
    wire_freeze(VICTIM, trips + 1);
    weft_status status = run(what, o, p.root, rank, group);
    weft_i_os_now = &weft_i_os_linux;
    bool told = status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_REVOKED || (may && !status);
    if (!told)
        FAIL("%s, root %d, %s byte %zu: rank %d gets %d: %.200s", ops[what].name, p.root,
             p.out ? "output" : "input", p.at, rank, (int)status, weft_last_error());
    if (status) /* one that was at its entry still could go on */
        CHECK_OK(weft_group_revoke(group));
    harness_mark();
}

/* Small operands go one way: who gives goes on, who takes waits for the giver alone. */
static bool needs_victim(op what, int root, int rank)
{
    return what == REDUCE || what == GATHER ? rank == root : root == VICTIM;
}

static void run_place(op what, place p, char *in, char *out, int rank, weft_group *world)
{
    weft_scope_open();
    operands o = operands_of(what, in, out);
    fill(&o, rank);
    weft_group *group = fresh_group(world);
    bool last = p.at + 1 == (size_t)(ops[what].outs * part) * sizeof(float);
    bool may = p.out && (ops[what].facts & STREAM || (ops[what].facts & COLLECTS && last));
    if (one_way)
        may = rank == VICTIM || !needs_victim(what, p.root, rank);
    if (rank == VICTIM)
        be_victim(what, &o, p, group, may);
    else
        be_other(what, &o, p, rank, group, may);
    CHECK(what == BROADCAST || is_intact(&o, rank));
    weft_clear_error();
    trips++;
    weft_scope_close();
}

/* Others read the victim's input without it, so that it stops in the part that is its own. */
static void run_symmetric(op what, bool out, int root, int rank, weft_group *world)
{
    weft_scope_open();
    weft_group *group = fresh_group(world);
    operands o = symmetric_of(what, rank, group);
    size_t bytes = (size_t)((out ? ops[what].outs : ops[what].ins) * part) * sizeof(float);
    bool gives_last = what == BROADCAST && root == VICTIM; /* the others take the rest themselves */
    place p = {out, gives_last ? bytes - 1 : bytes / 2, root};
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    if (rank == VICTIM)
        be_victim(what, &o, p, group, false);
    else
        be_other(what, &o, p, rank, group, false);
    weft_clear_error();
    trips++;
    weft_scope_close();
}

static bool touches(op what, bool out, int root)
{
    int facts = ops[what].facts, all = out ? WRITES : READS,
        at_root = out ? ROOT_WRITES : ROOT_READS;
    return facts & all || (facts & at_root && root == VICTIM);
}

static void run_places(op what, char *in, char *out, int rank, weft_group *world)
{
    for (int root = 0; root < 2; root++) /* the victim, or another */
        for (int side = 0; side < 2; side++) {
            int parts = side ? ops[what].outs : ops[what].ins;
            size_t bytes = (size_t)(parts * part) * sizeof(float);
            size_t places[3] = {0, bytes / 2, bytes - 1};
            if ((root && !(ops[what].facts & ROOTED)) || !touches(what, side, root))
                continue;
            for (int i = 0; i < 3; i++)
                run_place(what, (place){side, places[i], root}, in, out, rank, world);
        }
}

static void run_pipelines(int rank, const char *wait, const op *which, size_t count)
{
    if (harness_in_threads)
        SKIP("threads have no bounce buffers");
    setenv("WEFT_CMA", "off", 1);
    setenv("WEFT_WAIT", wait, 1);
    weft_group *world = join(20000);
    char *in = room(), *out = room();
    for (size_t i = 0; i < count; i++)
        run_places(which ? which[i] : (op)i, in, out, rank, world);
    munmap(in, (size_t)RANKS * PART * sizeof(float));
    munmap(out, (size_t)RANKS * PART * sizeof(float));
    finish(world);
}

RANKS_TEST(test_middle_of_pipelines, RANKS)
{
    run_pipelines(rank, "sleep", NULL, OPS);
}

/* Ranks that spin use fifos where others use pipelines. */
static const op flowing[] = {REDUCE, BROADCAST, GATHER, SCATTER, ALL_GATHER};

RANKS_TEST(test_middle_of_fifos, RANKS)
{
    part = FIFO_PART;
    one_way = true;
    for (int i = 0; i < 4; i++) /* on every machine */
        CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, ops[flowing[i]].tuned, RANKS, 64 << 10));
    run_pipelines(rank, "spin", flowing, 4);
}

/* The same after a rendezvous: all wait for each other at the end. */
RANKS_TEST(test_middle_of_rendezvous_fifos, RANKS)
{
    part = FIFO_PART;
    for (int i = 1; i < 4; i++) /* a reduction goes through a pipeline then */
        CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, ops[flowing[i]].tuned, RANKS, 4096));
    run_pipelines(rank, "spin", flowing + 1, 3);
}

/* Long ones, on machines where that pays. */
RANKS_TEST(test_middle_of_long_fifos, RANKS)
{
#if defined(__aarch64__)
    SKIP("long operands go through pipelines on this machine");
#endif
    run_pipelines(rank, "spin", flowing, 5);
}

RANKS_TEST(test_middle_of_zero_copy, RANKS)
{
    if (harness_in_threads)
        SKIP("threads stop each other's copies");
    part = FIFO_PART;
    weft_group *world = join(20000);
    for (int what = 0; what <= ALL_TO_ALL_SPLITS; what++) {
        if (what != ALL_TO_ALL_SPLITS) { /* by the ranks themselves: the kernel meets no wire */
            CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, ops[what].tuned, RANKS, 4096));
            CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, ops[what].tuned, RANKS, SIZE_MAX));
        }
        for (int root = 0; root < 2; root++)
            for (int out = 0; out < 2; out++)
                if ((!root || ops[what].facts & ROOTED) && touches((op)what, out, root) &&
                    (what != GATHER || root == VICTIM)) /* the root takes the others' parts */
                    run_symmetric((op)what, out, root, rank, world);
    }
    finish(world);
}

/* ---- copies that the kernel refuses ---- */

typedef enum refusal {
    DENIED, /* from the n-th copy on */
    HALVED, /* the same, after the first half of that one */
    GONE,   /* there is no such process any more */
    SHORT,  /* nothing is refused, but no copy is as long as it was asked for */
    FALSE   /* as long as asked for, but of something else: another process has the number */
} refusal;

static struct {
    refusal how;
    int left; /* copies that succeed */
    bool fired;
    int64_t
        offset; /* ns by which this rank's time is ahead: it need not wait for a death to show */
    weft_i_os table;
} kernel;

static ssize_t refuse(void)
{
    kernel.fired = true;
    kernel.offset += 200000000;
    errno = kernel.how == GONE ? ESRCH : EPERM;
    return -1;
}

static ssize_t refusing_read(pid_t process, void *to, uint64_t from, size_t bytes)
{
    if (kernel.how == SHORT) {
        kernel.fired = true;
        return weft_i_os_linux.read_process(process, to, from, bytes > 999 ? bytes / 2 : bytes);
    }
    if (kernel.left-- > 0)
        return weft_i_os_linux.read_process(process, to, from, bytes);
    if (kernel.how == FALSE) {
        kernel.fired = true;
        memset(to, 0x5a, bytes);
        return (ssize_t)bytes;
    }
    if (kernel.how == HALVED && kernel.left == -1)
        return weft_i_os_linux.read_process(process, to, from, bytes / 2);
    return refuse();
}

static int64_t offset_clock(void)
{
    return weft_i_os_linux.clock_ns() + kernel.offset;
}

static void replace_kernel(refusal how, int n)
{
    kernel.how = how;
    kernel.left = n - 1;
    kernel.fired = false;
    kernel.table = weft_i_os_linux;
    kernel.table.read_process = refusing_read;
    kernel.table.clock_ns = offset_clock;
    weft_i_os_now = &kernel.table;
}

/* On how many ranks something was refused, and how many calls failed. */
static void tell_all(weft_group *world, int *fired, int *failed)
{
    weft_tensor *told = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    float *mine = (float *)weft_tensor_data(told);
    mine[0] = (float)*fired;
    mine[1] = (float)*failed;
    CHECK_OK(weft_all_reduce_into(told, told, WEFT_SUM, world));
    *fired = (int)weft_item(told, 0);
    *failed = (int)weft_item(told, 1);
}

static void check_message(op what, refusal how, int rank, weft_status status)
{
    const char *text = weft_last_error();
    if (rank == VICTIM && how == GONE)
        CHECK(status == WEFT_ERR_PEER_DEAD && strstr(text, "is gone"));
    else if (rank == VICTIM)
        CHECK_CONTAINS(text, "bytes between this rank's memory and that of rank");
    else if (status != WEFT_ERR_REVOKED && status != WEFT_ERR_PEER_DEAD)
        FAIL("%s: rank %d gets %d: %.300s", ops[what].name, rank, (int)status, text);
}

/* All calls fail, or none; and those that do not are right.  False if there was no n-th copy. */
static bool run_refused(op what, refusal how, int n, const operands *o, const char *right, int root,
                        int rank, weft_group *world)
{
    weft_scope_open();
    weft_group *group = fresh_group(world);
    memset(o->out_data, 0xee, (size_t)RANKS * PART * sizeof(float));
    if (rank == VICTIM)
        replace_kernel(how, n);
    weft_status status = run(what, o, root, rank, group);
    weft_i_os_now = &weft_i_os_linux;
    int fired = rank == VICTIM && kernel.fired, failed = status < 0;
    if (failed)
        check_message(what, how, rank, status);
    weft_clear_error();
    tell_all(world, &fired, &failed);
    if (failed != (fired && how != SHORT ? RANKS : 0))
        FAIL("%s, refusal %d at copy %d: %d of %d ranks failed", ops[what].name, (int)how, n,
             failed, RANKS);
    if (!failed)
        CHECK(!memcmp(o->out_data, right, (size_t)RANKS * PART * sizeof(float)));
    CHECK(is_intact(o, rank));
    weft_scope_close();
    return fired;
}

/* For every n; `copies` is how many there are. */
static int run_refusals(op what, char *in, char *out, int rank, weft_group *world)
{
    int copies = 0, root = what == GATHER ? VICTIM : 0; /* the victim takes */
    weft_scope_open();
    operands o = operands_of(what, in, out);
    fill(&o, rank);
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, ops[what].tuned, RANKS, 1));
    CHECK_OK(run(what, &o, root, rank, world));
    char *right = WEFT_OS->alloc((size_t)RANKS * PART * sizeof(float));
    CHECK(right);
    memcpy(right, out, (size_t)RANKS * PART * sizeof(float));
    for (int n = 1; run_refused(what, DENIED, n, &o, right, root, rank, world); n++)
        copies = n;
    for (int n = 1; n <= copies; n += copies > 1 ? copies - 1 : 1)
        run_refused(what, HALVED, n, &o, right, root, rank, world);
    run_refused(what, GONE, 1, &o, right, root, rank, world);
    CHECK(run_refused(what, SHORT, 1, &o, right, root, rank, world));
    WEFT_OS->free(right);
    weft_scope_close();
    return copies;
}

/* The ranks may be denied each other's memory. */
static void need_cma(weft_group *world)
{
    weft_scope_open();
    weft_group *first = fresh_group(world);
    bool has_it = ((weft_i_lane *)first->lane)->cma == WEFT_I_CMA_KERNEL;
    weft_scope_close();
    if (has_it)
        return;
    finish(world);
    SKIP("this system does not let ranks read each other's memory");
}

RANKS_TEST(test_middle_of_cma, RANKS)
{
    static const op pulled[] = {ALL_REDUCE,     ALL_GATHER, GATHER,           SCATTER,
                                REDUCE_SCATTER, ALL_TO_ALL, ALL_TO_ALL_SPLITS};
    if (harness_in_threads)
        SKIP("threads copy for themselves");
    weft_group *world = join(20000);
    need_cma(world);
    char *in = room(), *out = room();
    for (size_t i = 0; i < sizeof pulled / sizeof *pulled; i++)
        if (!run_refusals(pulled[i], in, out, rank, world))
            FAIL("%s copies nothing", ops[pulled[i]].name);
    munmap(in, (size_t)RANKS * PART * sizeof(float));
    munmap(out, (size_t)RANKS * PART * sizeof(float));
    finish(world);
}

/* Broadcasts overwrite their operand, so theirs is a test of its own. */
RANKS_TEST(test_middle_of_cma_broadcast, RANKS)
{
    if (harness_in_threads)
        SKIP("threads copy for themselves");
    weft_group *world = join(20000);
    need_cma(world);
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "broadcast", RANKS, 1));
    for (int how = DENIED; how <= SHORT; how++) {
        weft_scope_open();
        weft_group *group = fresh_group(world);
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(PART), rank);
        if (rank == VICTIM)
            replace_kernel((refusal)how, 1);
        weft_status status = weft_broadcast_in_place(x, 2, group);
        weft_i_os_now = &weft_i_os_linux;
        int fired = rank == VICTIM && kernel.fired, failed = status < 0;
        weft_clear_error();
        tell_all(world, &fired, &failed);
        CHECK(fired);
        CHECK_INT(failed, how == SHORT ? 0 : RANKS);
        if (how == SHORT)
            CHECK(weft_item(x, 0) == 2 && weft_item(x, PART - 1) == 2);
        weft_scope_close();
    }
    finish(world);
}

/* The receiver of a long message is refused the copy: it is told, and so is the sender. */
RANKS_TEST(test_middle_of_cma_messages, RANKS)
{
    if (harness_in_threads)
        SKIP("threads copy for themselves");
    weft_group *world = join(20000);
    need_cma(world);
    for (int how = DENIED; how <= SHORT; how++) {
        weft_scope_open();
        weft_group *group = fresh_group(world);
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20 * PART), rank);
        weft_status status = WEFT_OK;
        if (rank == VICTIM)
            replace_kernel((refusal)how, 1);
        if (rank != 2)
            status = rank == VICTIM ? weft_recv(x, 0, group) : weft_send(x, VICTIM, group);
        weft_i_os_now = &weft_i_os_linux;
        int fired = rank == VICTIM && kernel.fired, failed = status < 0;
        weft_clear_error();
        tell_all(world, &fired, &failed);
        CHECK(fired);
        CHECK_INT(failed, how == SHORT ? 0 : 2);
        if (how == SHORT && rank == VICTIM)
            CHECK(weft_item(x, 0) == 0 && weft_item(x, 20 * PART - 1) == 0);
        weft_scope_close();
    }
    finish(world);
}

/* If one rank may not read another's memory when their lane is made, none of them uses CMA; and if
 * one sleeps while it waits, all do. */
RANKS_TEST(test_middle_of_cma_agreement, RANKS)
{
    if (harness_in_threads)
        SKIP("threads copy for themselves");
    setenv("WEFT_WAIT", rank == VICTIM ? "sleep" : "yield", 1);
    weft_group *world = join(20000);
    need_cma(world);
    static const refusal hows[] = {DENIED, HALVED, FALSE};
    for (int i = 0; i < 6; i++) {
        weft_scope_open();
        if (rank == VICTIM)
            replace_kernel(hows[i / 2], 1 + i % 2);
        weft_group *group = fresh_group(world);
        weft_i_os_now = &weft_i_os_linux;
        const weft_i_lane *lane = group->lane;
        CHECK(lane->cma == WEFT_I_CMA_NONE);
        CHECK(lane->mode == WEFT_I_WAIT_SLEEP); /* of the most patient rank */
        CHECK(rank != VICTIM || kernel.fired || hows[i / 2] == HALVED);
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(PART), rank + 1);
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        CHECK(weft_item(x, 0) == 6 && weft_item(x, PART - 1) == 6);
        weft_scope_close();
    }
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
