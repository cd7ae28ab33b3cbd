/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon the death of a rank is known while its peers' kernels wait for it: cuda_kill_bench
 * [deaths].  Ranks are processes that share one GPU; with WEFT_TEST_CUDA=real on a GPU, else on
 * the software driver, only to see that it runs.
 *
 *     known  a survivor's thread that asks for the rank's fate every 50 us is told
 *     sync   a survivor's weft_stream_sync has returned WEFT_ERR_PEER_DEAD
 *
 * Each figure is the later survivor's, from just before the kill.  A survivor lives on if it can
 * still rendezvous with the other one and wait for it in a kernel.
 */
#define WEFT_TEST_ON_CUDA
#include "device.h"

#include "fabric/group/group.h"
#include "jobs.h"

#include <pthread.h>

enum { SURVIVORS = 2, DEATHS_MOST = 1000 };

/* What the ranks tell the parent. */
static struct {
    _Atomic long long killed, known[SURVIVORS], over[SURVIVORS];
    atomic_int lives;
} * told;

typedef struct asker {
    const weft_group *world;
    long long known; /* 0: not within 20 s */
} asker;

static void *ask(void *arg)
{
    asker *me = arg;
    long long end = harness_now() + 20000000000;
    while (!me->known && harness_now() < end) {
        if (weft_i_group_member_fate(me->world, SURVIVORS) < 0)
            me->known = harness_now();
        rest_us(50);
    }
    return NULL;
}

static weft_symm *make(weft_group *group)
{
    weft_symm *mem = weft_symm_rendezvous(weft_symm_empty(WEFT_F32, DEVICE, WEFT_SHAPE(16)), group);
    if (!mem)
        FAIL("rendezvous: %s", weft_last_error());
    return mem;
}

static weft_status wait_for_all(weft_symm *mem)
{
    weft_status status = weft_symm_barrier(mem, 0, 30000);
    return status < 0 ? status : weft_stream_sync(weft_stream_current(DEVICE), 20000);
}

static void die(void)
{
    harness_rank_dies();
    CHECK(harness_await(0, 1) && harness_await(1, 1));
    rest_us(20000); /* their kernels wait by now */
    told->killed = harness_now();
    kill(getpid(), SIGKILL);
}

RANKS_TEST(cuda_kill, SURVIVORS + 1)
{
    weft_group *world = join(30000);
    weft_symm *mem = make(world);
    weft_group *rest = weft_group_new(world, (int[]){0, 1}, SURVIVORS, "rest");
    asker asks = {.world = world};
    pthread_t thread;
    CHECK_OK(wait_for_all(mem));
    if (rank == SURVIVORS)
        die();
    CHECK(!pthread_create(&thread, NULL, ask, &asks));
    CHECK_OK(weft_symm_barrier(mem, 0, 30000));
    harness_mark();
    weft_status status = weft_stream_sync(weft_stream_current(DEVICE), 20000);
    told->over[rank] = harness_now();
    CHECK_INT(status, WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    pthread_join(thread, NULL);
    CHECK(asks.known);
    told->known[rank] = asks.known;
    CHECK_OK(wait_for_all(make(rest)));
    told->lives++;
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double later_ms(const _Atomic long long *when)
{
    long long later = when[0] > when[1] ? when[0] : when[1];
    return (double)(later - told->killed) / 1e6;
}

static void print(const char *what, double *list, int count)
{
    qsort(list, (size_t)count, sizeof *list, compare);
    printf("  %s: median %.2f ms, most %.2f ms\n", what, list[count / 2], list[count - 1]);
}

int main(int argc, char **argv)
{
    static double known[DEATHS_MOST], over[DEATHS_MOST];
    int wanted = argc > 1 ? atoi(argv[1]) : 20, count = 0, failures = 0;
    if (wanted < 1 || wanted > DEATHS_MOST)
        return 2;
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        return 2;
    device_install();
    harness_backend = "shm"; /* a thread cannot die alone */
    for (int i = 0; i < wanted; i++) {
        bool failed = harness_first->run(harness_first);
        failures += failed;
        if (failed)
            continue;
        known[count] = later_ms(told->known);
        over[count++] = later_ms(told->over);
    }
    printf("%d deaths, %d of %d survivors live on\n", wanted, told->lives, SURVIVORS * wanted);
    if (count) {
        print("known", known, count);
        print("sync", over, count);
    }
    return failures != 0;
}
