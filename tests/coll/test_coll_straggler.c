/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/move.c, coll/host/reduce.c, coll/lane/lane.c */
/*
 * Ranks that are threads copy straight from each other's tensors.  A rank whose time is up breaks
 * the operation off, but must not return while another one is still copying: its caller would get
 * back memory that is being read.
 */
#include "jobs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { COUNT = 1 << 20, OWNER = 1 };

/* The last bytes of the result: whole pages, on kernels with pages of 64 KiB too. */
enum { HELD = 64 << 10 };
static char *held_page;           /* the rank that first writes to it stops there */
static atomic_int waiting;        /* it does */
static atomic_int returned;       /* ranks that have left the operation */
static atomic_int returned_early; /* those that had while it still stood there */

/* Holds the thread that touched the page until the others' time has long passed, or one of them has
 * returned, which is the mistake. */
static void hold(int signal, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr, page = (uintptr_t)held_page;
    if (at < page || at >= page + HELD)
        _exit(128 + signal);
    atomic_store(&waiting, 1);
    for (int ms = 0; ms < 400 && !atomic_load(&returned); ms++)
        rest_us(1000);
    atomic_store(&returned_early, atomic_load(&returned));
    mprotect(held_page, HELD, PROT_READ | PROT_WRITE);
}

static void arm(char *page)
{
    struct sigaction action = {.sa_sigaction = hold, .sa_flags = SA_SIGINFO};
    held_page = page;
    sigaction(SIGSEGV, &action, NULL);
    CHECK(!mprotect(page, HELD, PROT_NONE));
}

/* Threads of a job have signals blocked. */
static void let_faults_in(void)
{
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

RANKS_TEST(test_straggler_break_off, 3)
{
    if (!harness_in_threads)
        SKIP("processes copy from the bounce buffer, or by the kernel");
    weft_group *world = join(20000);
    size_t bytes = (size_t)size * COUNT * sizeof(float);
    char *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    weft_tensor *in = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT), rank + 1);
    weft_tensor *out =
        weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(size * COUNT), room, NULL, NULL);
    CHECK(in && out);
    weft_tensor *warm = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(warm, warm, WEFT_SUM, world));
    let_faults_in();
    if (rank == OWNER) /* in the part of the last rank, whoever writes it */
        arm(room + bytes - HELD);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_set_timeout(world, 50));
    weft_status status;
    do /* on a loaded machine the time may pass before all have come: then nothing has happened */
        status = weft_all_gather_into(out, in, world);
    while (status == WEFT_ERR_TIMEOUT && !atomic_load(&waiting));
    atomic_fetch_add(&returned, 1);
    CHECK(status < 0);
    CHECK(atomic_load(&waiting));
    CHECK_INT(atomic_load(&returned_early), 0);
    weft_release(out);
    munmap(room, bytes);
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
