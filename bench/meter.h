/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an operation is timed; the same for weft, for its floor and for every peer.  Before each call
 * every rank rewrites its input; all meet at a barrier of the meter's own; the time of the call
 * runs from the last entry to the last exit; then each reads its output and compares it.  A
 * repetition gives the median and the 99th percentile of its calls.
 *
 * The ranks share a board: one mapping that holds the plan, the meter's barrier and the results. So
 * a peer's program needs no options and prints nothing.  Every rank writes to its own lane only;
 * rank 0 also writes the results.  C and C++ (GNU atomics on plain words serve both).
 */
#ifndef WEFT_BENCH_METER_H
#define WEFT_BENCH_METER_H

#include "pattern.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    METER_MAGIC = 0x7765667c, /* a board of another build is not taken for ours */
    METER_RANKS = 64,
    METER_CALLS = 2000, /* of a repetition, at most */
    METER_ROWS = 64,
    METER_LIBRARY = 96,
    METER_COLUMNS = 16, /* contenders that are measured side by side on one board */
    METER_REPEATS = 9
};

/* How ranks wait at the meter's barrier: each has a core; they share cores; the contender has
 * threads of its own that need the cores meanwhile. */
typedef enum meter_wait { METER_SPIN, METER_YIELD, METER_SLEEP } meter_wait;

typedef struct meter_result {
    double p50, p99, least; /* us */
    uint64_t wrong;         /* elements */
    uint32_t calls;         /* 0: not measured */
    uint32_t note;          /* the contender's own, e.g. which prototype it was */
} meter_result;

typedef struct meter_row {
    plan_case what;
    meter_result result[METER_COLUMNS][METER_REPEATS];
} meter_row;

/* Written by one rank alone; what others spin on has a pair of cache lines to itself. */
typedef struct meter_lane {
    uint64_t arrived; /* epoch of the last barrier this rank came to */
    unsigned char gap[248];
    uint64_t wrong;
    int64_t enter[METER_CALLS], leave[METER_CALLS];
} meter_lane;

typedef struct meter_board {
    uint32_t magic, bytes;
    int32_t ranks, rows, repeats;
    int32_t warmup, calls;       /* calls before timing; calls of a repetition at most */
    int32_t wait;                /* meter_wait */
    int32_t bind;                /* one core a rank, counted round */
    int64_t budget_ns;           /* of a repetition */
    uint32_t failed;             /* a rank gave up: nobody waits any longer */
    uint32_t stop;               /* rank 0: this call was the last */
    uint32_t done;               /* rows finished, for who watches */
    char problem[256];           /* what the first rank that gave up has to say */
    char library[METER_LIBRARY]; /* what the contender's library calls itself, if it says so */
    meter_row row[METER_ROWS];
    meter_lane lane[1]; /* `ranks` of them */
} meter_board;

/* One contender: how it gets its buffers and makes a call.  Both return 0, or anything else if it
 * cannot. */
typedef struct meter_contender {
    void *self;
    int (*prepare)(void *self, const plan_case *what, void **in, void **out);
    int (*call)(void *self, void *in, void *out, int root);
    void (*finish)(void *self);
} meter_contender;

/* One rank's hold on the board. */
typedef struct meter {
    meter_board *board;
    int rank, ranks;
    uint64_t epoch; /* barriers so far */
    uint64_t calls; /* so far: numbers the calls */
} meter;

static inline int64_t meter_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void meter_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static inline size_t meter_board_bytes(int ranks)
{
    return sizeof(meter_board) + (size_t)(ranks - 1) * sizeof(meter_lane);
}

/* Maps the board of a file; NULL if it is none. */
static inline meter_board *meter_board_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size < (off_t)sizeof(meter_board)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    void *at = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    meter_board *board = at == MAP_FAILED ? NULL : (meter_board *)at;
    if (!board || board->magic != METER_MAGIC || board->bytes != sizeof(meter_board) ||
        board->ranks < 1 || meter_board_bytes(board->ranks) > (size_t)info.st_size)
        return NULL;
    return board;
}

/* Gives up for all ranks. */
static inline int meter_fail(meter *m, const char *problem)
{
    uint32_t none = 0;
    /* Release: pairs with the acquire in meter_meet and with the exit of the ranks. */
    if (__atomic_compare_exchange_n(&m->board->failed, &none, 1, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        snprintf(m->board->problem, sizeof m->board->problem, "rank %d: %s", m->rank, problem);
    return -1;
}

static inline void meter_rest(const meter_board *board, int looks)
{
    if (looks < 8 || board->wait == METER_SPIN) {
        meter_pause();
    } else if (board->wait == METER_YIELD || looks < 64) {
        sched_yield();
    } else {
        struct timespec moment = {0, 20000};
        nanosleep(&moment, NULL);
    }
}

/* The meter's barrier; 0, or -1 if a rank has given up. */
static inline int meter_meet(meter *m)
{
    uint64_t epoch = ++m->epoch;
    /* Release: what this rank wrote is seen by those whose acquire below reads it. */
    __atomic_store_n(&m->board->lane[m->rank].arrived, epoch, __ATOMIC_RELEASE);
    for (int i = 1; i < m->ranks; i++) {
        const uint64_t *other = &m->board->lane[(m->rank + i) % m->ranks].arrived;
        for (int looks = 0; __atomic_load_n(other, __ATOMIC_ACQUIRE) < epoch; looks++) {
            if ((looks & 63) == 63 && __atomic_load_n(&m->board->failed, __ATOMIC_ACQUIRE))
                return -1;
            meter_rest(m->board, looks);
        }
    }
    return 0;
}

/* Binds the calling thread to the rank-th core it may use, counted round. */
static inline void meter_bind(int rank)
{
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may) != 0)
        return;
    int cores = CPU_COUNT(&may), wanted = cores ? rank % cores : 0;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &may) && wanted-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static inline int meter_ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts the values. */
static inline double meter_quantile(double *values, int count, double quantile)
{
    if (count <= 0)
        return 0;
    qsort(values, (size_t)count, sizeof *values, meter_ascending);
    return values[(int)(quantile * (count - 1) + 0.5)];
}

/*
 * Means of `round` calls at a time, in place; returns how many.  Where roots rotate, calls differ
 * by whose turn it is, and the median of single ones would be that of the luckier half.
 */
static inline int meter_rounds(double *us, int calls, int round)
{
    int rounds = calls < round ? 0 : calls / round;
    for (int i = 0; i < rounds; i++) {
        double sum = 0;
        for (int k = 0; k < round; k++)
            sum += us[i * round + k];
        us[i] = sum / round;
    }
    return rounds ? rounds : calls;
}

/* Rank 0, while all ranks wait: the result of `calls` calls from the stamps on the lanes, of which
 * `round` in turn belong together. */
static inline meter_result meter_sum_up(const meter_board *board, int calls, int round)
{
    static double us[METER_CALLS]; /* one rank per process, or one thread of it, is rank 0 */
    meter_result result;
    memset(&result, 0, sizeof result);
    for (int i = 0; i < calls; i++) {
        int64_t enter = INT64_MIN, leave = INT64_MIN;
        for (int r = 0; r < board->ranks; r++) {
            const meter_lane *lane = &board->lane[r];
            enter = lane->enter[i] > enter ? lane->enter[i] : enter;
            leave = lane->leave[i] > leave ? lane->leave[i] : leave;
        }
        us[i] = (double)(leave > enter ? leave - enter : 0) * 1e-3;
    }
    for (int r = 0; r < board->ranks; r++)
        result.wrong += board->lane[r].wrong;
    int samples = meter_rounds(us, calls, round);
    result.p99 = meter_quantile(us, samples, 0.99);
    result.p50 = us[(samples - 1) / 2];
    result.least = us[0];
    result.calls = (uint32_t)calls;
    return result;
}

/* One call, from the rewriting of the input to the reading of the output; its stamps go to `slot`.
 */
static inline int meter_call(meter *m, const meter_contender *who, const pattern *p, void *in,
                             void *out, int slot, int64_t end)
{
    meter_lane *lane = &m->board->lane[m->rank];
    uint64_t call = m->calls++;
    int root = plan_op_rooted(p->what.op) ? (int)(call % (uint64_t)m->ranks) : 0;
    pattern_fill(p, m->rank, call, in);
    if (meter_meet(m) < 0)
        return -1;
    int64_t enter = meter_ns();
    int status = who->call(who->self, in, out, root);
    int64_t leave = meter_ns();
    if (status)
        return meter_fail(m, "the call failed");
    lane->enter[slot] = enter;
    lane->leave[slot] = leave;
    if (m->rank == 0) /* Others look at it between the next barrier and the one after. */
        m->board->stop = slot + 1 >= m->board->calls || (slot >= 2 && leave >= end);
    if (meter_meet(m) < 0)
        return -1;
    lane->wrong += pattern_check(p, m->rank, root, call, out);
    return 0;
}

static inline int meter_calls(meter *m, const meter_contender *who, const pattern *p, void *in,
                              void *out, meter_result *result)
{
    meter_lane *lane = &m->board->lane[m->rank];
    lane->wrong = 0;
    for (int i = 0; i < m->board->warmup; i++)
        if (meter_call(m, who, p, in, out, 0, INT64_MAX) < 0)
            return -1;
    int64_t end = meter_ns() + m->board->budget_ns;
    int calls = 0;
    do {
        if (meter_call(m, who, p, in, out, calls++, end) < 0)
            return -1;
    } while (!m->board->stop);
    if (meter_meet(m) < 0)
        return -1;
    if (m->rank == 0) {
        uint32_t note = result->note;
        *result = meter_sum_up(m->board, calls, plan_op_rooted(p->what.op) ? m->ranks : 1);
        result->note = note;
    }
    return meter_meet(m);
}

/* One repetition of one contender at one row of the board.  All ranks; 0, or -1 and the board says
 * why. */
static inline int meter_measure(meter *m, int row, int column, int repeat,
                                const meter_contender *who)
{
    const plan_case *what = &m->board->row[row].what;
    void *in = NULL, *out = NULL;
    pattern p;
    if (!pattern_open(&p, what))
        return meter_fail(m, "no memory for the patterns");
    int status = who->prepare(who->self, what, &in, &out);
    if (status)
        meter_fail(m, "the buffers could not be made");
    else
        status = meter_calls(m, who, &p, in, out, &m->board->row[row].result[column][repeat]);
    if (who->finish)
        who->finish(who->self);
    pattern_close(&p);
    return status;
}

/* All rows, one contender in column 0: what a peer's program does. */
static inline int meter_sweep(meter *m, const meter_contender *who)
{
    for (int row = 0; row < m->board->rows; row++) {
        for (int repeat = 0; repeat < m->board->repeats; repeat++)
            if (meter_measure(m, row, 0, repeat, who) < 0)
                return -1;
        if (m->rank == 0)
            __atomic_store_n(&m->board->done, (uint32_t)row + 1, __ATOMIC_RELEASE);
    }
    return 0;
}

#endif
