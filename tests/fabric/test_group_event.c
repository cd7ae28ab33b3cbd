/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_event.c */
/*
 * Descriptors that tell an idle rank of lost members: readable after a death, a leave, a revoke,
 * and not before; once for each event; closed with the group.
 */
#include "jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout_ms) == 1;
}

static uint64_t take(int fd)
{
    uint64_t events = 0;
    CHECK(read(fd, &events, sizeof events) == (ssize_t)sizeof events);
    return events;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0 || errno != EBADF;
}

static int event_of(weft_group *group)
{
    int fd = -1, again = -1;
    CHECK_OK(weft_group_event_fd(group, &fd));
    CHECK_OK(weft_group_event_fd(group, &again));
    CHECK(fd >= 0 && fd == again);
    return fd;
}

RANKS_TEST(test_event_death, 4)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    int fd = event_of(world);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(!is_readable(fd, 20)); /* nothing has happened */
    if (rank == 2) {
        harness_await_marks(3);
        harness_rank_dies();
        kill(getpid(), SIGKILL);
    }
    harness_mark();
    CHECK(is_readable(fd, 30000));
    CHECK_INT(take(fd), 1);
    CHECK(!is_readable(fd, 20)); /* told once */
    uint64_t flags = 1;
    CHECK_STATUS(weft_group_agree(world, &flags, WEFT_DEFAULT), WEFT_ERR_PEER_DEAD);
    weft_group *rest = weft_group_shrink(world);
    CHECK(rest);
    int next = event_of(rest);
    CHECK(next != fd && !is_readable(next, 10)); /* the dead one is no member there */
    CHECK_OK(weft_group_barrier(rest, WEFT_DEFAULT));
    (void)size;
    finish(world);
    CHECK(!is_open(fd) && !is_open(next));
}

/* How long it takes, over many kills; the limit is far from the promise, because others may have
 * the processor. */
RANKS_TEST(test_event_is_quick, 8)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    int fd = event_of(world);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank) { /* one after the other */
        harness_await_marks(rank);
        harness_rank_dies();
        kill(getpid(), SIGKILL);
    }
    for (int victim = 1; victim < size; victim++) {
        long long began = harness_now();
        harness_mark();
        CHECK(is_readable(fd, 30000));
        CHECK_INT(take(fd), 1);
        CHECK((harness_now() - began) / 1000000 < 15000); /* the limit is 20 s */
    }
    finish(world);
}

RANKS_TEST(test_event_leave_and_revoke, 3)
{
    static const int all[] = {0, 1, 2};
    weft_group *world = join(20000);
    weft_group *one = weft_group_new(world, all, 3, NULL),
               *two = weft_group_new(world, all, 3, NULL);
    weft_group *child = weft_group_new(one, all, 3, NULL);
    int of_one = event_of(one), of_two = event_of(two), of_child = event_of(child);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(!is_readable(of_one, 10) && !is_readable(of_two, 10));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0)
        CHECK_OK(weft_group_revoke(one));
    CHECK(is_readable(of_one, 10000) && is_readable(of_child, 10000));
    CHECK_INT(take(of_one), 1);
    CHECK(!is_readable(of_two, 20) && !is_readable(of_one, 0)); /* not its affair; told once */
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1) {
        CHECK_OK(weft_group_destroy(two));
        CHECK(harness_in_threads || !is_open(of_two)); /* another thread may have the number */
    } else {
        CHECK(is_readable(of_two, 10000));
        CHECK_INT(take(of_two), 1);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    int of_world = event_of(world);
    if (rank == 2) {
        finish(world);
        return;
    }
    CHECK(is_readable(of_world, 10000)); /* rank 2 has left; rank 0 or 1 may have, too */
    uint64_t events = take(of_world);
    CHECK(events == 1 || events == 2);
    /* What was before is told at once. */
    if (rank == 1) {
        int late = -1;
        CHECK_STATUS(weft_group_event_fd(two, &late), WEFT_ERR_STATE);
        CHECK_STATUS(weft_group_event_fd(one, NULL), WEFT_ERR_INVALID_ARG);
    } else {
        static const int me[] = {0};
        weft_group *alone = weft_group_new(world, me, 1, NULL);
        int of_alone = event_of(alone);
        CHECK(!is_readable(of_alone, 10));
        CHECK_OK(weft_group_revoke(alone));
        CHECK(is_readable(of_alone, 10000));
        weft_group_destroy(alone);
    }
    finish(world);
}

/* Asked for after it has happened. */
RANKS_TEST(test_event_late, 2)
{
    weft_group *world = join(20000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_revoke(world));
    CHECK(is_readable(event_of(world), 0));
    (void)rank;
    (void)size;
    finish(world);
}

/* Broadcasts of 8 bytes, whose root waits for nobody, until one fails; how many did not. */
static int broadcasts_until_the_end(weft_group *world)
{
    for (int done = 0; done < 100; done++) {
        double x = 1;
        weft_status status = weft_broadcast_ptr(&x, 1, WEFT_F64, 0, world);
        if (status < 0) {
            CHECK_INT(status, WEFT_ERR_PEER_DEAD);
            CHECK_CONTAINS(weft_last_error(), "rank 3 (");
            return done;
        }
    }
    return 100;
}

/* A root that waits for nobody looks at one rank at every other call, so it does not go on as long as
 * the lane has turns; and the others hear of it from the root. */
RANKS_TEST(test_event_next_calls, 4)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    double x = rank;
    CHECK_OK(weft_broadcast_ptr(&x, 1, WEFT_F64, 0, world));
    int fd = event_of(world);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 3) {
        harness_rank_dies();
        kill(getpid(), SIGKILL);
    }
    CHECK(is_readable(fd, 30000));
    CHECK(broadcasts_until_the_end(world) < 2 * (size - 1));
    weft_clear_error();
    weft_group *rest = weft_group_shrink(world);
    CHECK(rest && weft_size(rest) == 3);
    CHECK_OK(weft_broadcast_ptr(&x, 1, WEFT_F64, 0, rest));
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
