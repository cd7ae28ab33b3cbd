/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose instructions an emulator counts (scripts/arm-check count): those of `weft bench
 * --overhead` in a world of one, or with the argument 2 all_reduce between two threads.  After each
 * call the program marks it by a system call that does not exist, which count_plugin.c sees.  Only
 * public functions, so that it can be linked with earlier versions too.
 */
#include "count.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 50, CALLS = 2000, LARGE = 64 << 10 };

typedef struct operands {
    weft_group *world;
    weft_tensor *plain[2], *symm[2], *large[2];
    weft_symm *mem;
} operands;

typedef int call(const operands *o);

static int nothing(const operands *o)
{
    return !o->world;
}

static int read_clock(const operands *o)
{
    struct timespec now;
    return !o->world || clock_gettime(CLOCK_MONOTONIC, &now) < 0;
}

static int open_scope(const operands *o)
{
    return !o->world || weft_scope_open() < 0 || weft_scope_close() < 0;
}

static int make_tensor(const operands *o)
{
    static float memory[2];
    weft_release(weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), memory, NULL, NULL));
    return !o->world;
}

static int add(const operands *o)
{
    weft_tensor *sum = weft_add(o->plain[0], o->plain[1]);
    weft_release(sum);
    return !sum;
}

static int group_barrier(const operands *o)
{
    return weft_group_barrier(o->world, WEFT_DEFAULT) < 0;
}

static int channel_barrier(const operands *o)
{
    return weft_symm_barrier(o->mem, 0, WEFT_DEFAULT) < 0;
}

static int reduce_plain(const operands *o)
{
    return weft_all_reduce_into(o->plain[1], o->plain[0], WEFT_SUM, o->world) < 0;
}

static int reduce_symm(const operands *o)
{
    return weft_all_reduce_into(o->symm[1], o->symm[0], WEFT_SUM, o->world) < 0;
}

static int reduce_large(const operands *o)
{
    return weft_all_reduce_into(o->large[1], o->large[0], WEFT_SUM, o->world) < 0;
}

static int reduce_posted(const operands *o)
{
    weft_work *work = weft_all_reduce_start(o->plain[1], o->plain[0], WEFT_SUM, o->world);
    weft_status status = weft_work_wait(work, WEFT_DEFAULT);
    weft_release(work);
    return status < 0;
}

static int reduce_functional(const operands *o)
{
    weft_tensor *sum = weft_wait_tensor(weft_all_reduce(o->plain[0], WEFT_SUM, o->world));
    weft_release(sum);
    return !sum;
}

static int wait_for_nothing(const operands *o)
{
    return !weft_wait_tensor(o->plain[0]);
}

static int broadcast(const operands *o)
{
    return weft_broadcast_in_place(o->plain[0], 0, o->world) < 0;
}

/* The first counts the mark itself. */
static const struct row {
    const char *name;
    int ranks;
    call *run;
} rows[] = {
    {"nothing", 0, nothing},
    {"reading the clock", 1, read_clock},
    {"scope, open and close", 1, open_scope},
    {"tensor, make and release", 1, make_tensor},
    {"weft_add of 2 f32", 1, add},
    {"barrier of a group", 1, group_barrier},
    {"barrier on a channel", 1, channel_barrier},
    {"all_reduce, 8 B", 1, reduce_plain},
    {"all_reduce, 8 B symm", 1, reduce_symm},
    {"all_reduce, 8 B, posted", 1, reduce_posted},
    {"all_reduce, 8 B, functional", 1, reduce_functional},
    {"waiting for nothing", 1, wait_for_nothing},
    {"broadcast, 8 B", 1, broadcast},
    {"all_reduce, 8 B, 2 ranks", 2, reduce_plain},
    {"all_reduce, 8 B symm, 2 ranks", 2, reduce_symm},
    {"all_reduce, 64 KiB, 2 ranks", 2, reduce_large},
};

static int repeat(const operands *o, int row)
{
    for (int i = 0; i < WARM_UP; i++)
        if (rows[row].run(o))
            return 1;
    syscall(COUNT_MARK, COUNT_ROWS); /* what came before belongs to no row */
    for (int i = 0; i < CALLS; i++) {
        if (rows[row].run(o))
            return 1;
        syscall(COUNT_MARK, row);
    }
    return 0;
}

static int body(void *arg)
{
    int ranks = *(int *)arg, failed = 0;
    operands o = {.world = weft_init(NULL)};
    if (!o.world)
        return 1;
    for (int i = 0; i < 2; i++) {
        o.plain[i] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
        o.large[i] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LARGE / sizeof(float)));
        o.symm[i] = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
        o.mem = weft_symm_rendezvous(o.symm[i], o.world);
    }
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows) && !failed; row++)
        if (!rows[row].ranks || rows[row].ranks == ranks)
            failed = repeat(&o, row);
    return weft_finish(o.world) || failed;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 1;
    int failed = weft_spawn(ranks, body, &ranks);
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows) && !failed; row++)
        if (!rows[row].ranks || rows[row].ranks == ranks)
            printf("name %d %s\n", row, rows[row].name);
    return failed;
}
