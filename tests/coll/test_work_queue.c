/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/work.c, coll/lane/request.c */
/*
 * The queue of posted work, step by step: one rank, whose works stop where the test wants them to,
 * or a queue without a helper thread, so that nothing runs but what the test runs.
 */
#include "harness_ranks.h"
#include "jobs.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/calls/coll.h"
#include "coll/calls/work.h"
#include "coll/lane/request.h"

#include <weft/weft.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* What follows a work: says that it is there, and goes on when it may. */
typedef struct stop {
    weft_i_completion completion;
    const weft_i_lane *lane;
    atomic_bool begun, may_go; /* seq_cst: between two threads */
    bool aside, keeps;         /* what it found */
    pthread_t runner;
    int order;
    weft_status ends;
    weft_group *revokes; /* NULL: nothing */
} stop;

static atomic_int ended;

static weft_status follow(weft_i_completion *completion, weft_status status)
{
    stop *it = (stop *)completion;
    CHECK_INT(status, WEFT_OK);
    it->aside = atomic_load(&it->lane->aside);
    it->keeps = weft_i_queue_keeps_rank(it->lane);
    it->runner = pthread_self();
    atomic_store(&it->begun, true);
    while (!atomic_load(&it->may_go))
        rest_us(200);
    it->order = ++ended;
    if (it->revokes)
        CHECK_OK(weft_group_revoke(it->revokes));
    return it->ends < 0 ? weft_i_fail(it->ends, "it ends so") : status;
}

static void keep(weft_i_object *object)
{
    (void)object;
}

static weft_i_coll barrier_of(weft_group *group)
{
    weft_i_coll coll;
    CHECK_OK(weft_i_request_begin(&coll, WEFT_I_BARRIER, group));
    coll.ask.dtype = WEFT_U8;
    CHECK_OK(weft_i_request_accept(&coll, 0));
    return coll;
}

static weft_work *post(stop *it, weft_group *group, bool may_go)
{
    memset(it, 0, sizeof *it);
    weft_i_object_start(&it->completion.object, WEFT_I_WORK, keep);
    it->completion.follow = follow;
    it->lane = group->lane;
    atomic_store(&it->may_go, may_go);
    weft_i_coll coll = barrier_of(group);
    weft_work *work = weft_i_work_enqueue(&coll, &it->completion);
    CHECK(work);
    return work;
}

static int references(const void *object)
{
    return atomic_load(&((const weft_i_object *)object)->references);
}

static void await_begin(const stop *it)
{
    for (int ms = 0; ms < 20000 && !atomic_load(&it->begun); ms++)
        rest_us(1000);
    CHECK(atomic_load(&it->begun));
}

/* What a wait for so long says, of work with so many before it. */
static void check_miss(weft_work *work, int64_t limit, int before)
{
    char text[300], after[40] = "", behind[40] = "";
    if (limit)
        snprintf(after, sizeof after, " after %lld ms", (long long)limit);
    if (before)
        snprintf(behind, sizeof behind, ", behind %d posted before it", before);
    snprintf(text, sizeof text, "barrier in group \"%s\" is still under way%s%s%s",
             weft_group_name(work->coll.group), after, behind,
             limit ? ": all ranks have come" : "");
    weft_clear_error();
    CHECK_STATUS(weft_work_wait(work, limit), WEFT_ERR_TIMEOUT);
    if (strcmp(weft_last_error(), text) != 0)
        FAIL("\"%s\" is not \"%s\"", weft_last_error(), text);
    weft_clear_error();
}

/* One runs, two wait behind it: what each says, and what is counted. */
RANKS_TEST(test_queue_order, 1)
{
    (void)rank, (void)size;
    weft_group *world = join(30000), *group = fresh_group(world);
    stop stops[3];
    weft_work *works[3];
    ended = 0;
    uint64_t before = weft_group_sequence(group);
    works[0] = post(&stops[0], group, false);
    await_begin(&stops[0]);
    works[1] = post(&stops[1], group, true);
    works[2] = post(&stops[2], group, true);
    CHECK_INT(weft_group_sequence(group), before + 3);
    CHECK(atomic_load(&group->calls.posted) == 3 && atomic_load(&group->world->under_way) == 3);
    CHECK(!pthread_equal(stops[0].runner, pthread_self()) && !stops[0].keeps);
    CHECK(weft_i_queue_keeps_rank(group->lane)); /* this thread is nobody's helper */
    for (int i = 0; i < 3; i++) {
        CHECK(weft_work_status(works[i]) == WEFT_IN_PROGRESS && !weft_work_sequence(works[i]));
        check_miss(works[i], 0, i);
    }
    check_miss(works[1], 3, 1);
    CHECK(!atomic_load(&stops[1].begun));
    atomic_store(&stops[0].may_go, true);
    CHECK_OK(weft_work_wait(works[2], WEFT_DEFAULT));
    for (int i = 0; i < 3; i++) {
        CHECK_INT(stops[i].order, i + 1);
        CHECK_INT(weft_work_status(works[i]), WEFT_OK);
        CHECK_INT(weft_work_sequence(works[i]), weft_work_sequence(works[0]) + (uint64_t)i);
        CHECK_INT(stops[i].completion.object.references, 1); /* given back */
        CHECK(!works[i]->completion && !atomic_load(&works[i]->holds) && !works[i]->message);
    }
    CHECK(!atomic_load(&group->calls.posted) && !atomic_load(&group->world->under_way));
    CHECK(!group->world->losses.untold);
    finish(world);
}

/* Work that the helper runs while nobody waits leaves the core to others where the rank has no
 * second one; and it does not keep the rank. */
RANKS_TEST(test_queue_aside, 1)
{
    (void)rank, (void)size;
    weft_group *world = join(30000);
    int cores = weft_i_os_cores();
    for (int all = 1; all <= 3; all++) {
        world->world->cores = all;
        weft_group *group = fresh_group(world);
        stop alone, waited;
        weft_work *work = post(&alone, group, false);
        await_begin(&alone);
        CHECK_INT(alone.aside, all < 2 || cores < 2);
        const weft_i_lane *lane = group->lane;
        CHECK_INT(atomic_load(&lane->aside), all < 2 || cores < 2);
        check_miss(work, 1, 0);
        CHECK(!atomic_load(&lane->aside)); /* somebody has waited: no more */
        atomic_store(&alone.may_go, true);
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        work = post(&waited, group, true);
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT)); /* by whoever is first */
        CHECK(!atomic_load(&lane->aside));
        if (pthread_equal(waited.runner, pthread_self()))
            CHECK(!waited.aside && waited.keeps);
        weft_release(group);
    }
    finish(world);
}

/* What failed is owed until somebody takes the error, or drops the work. */
RANKS_TEST(test_queue_owed, 1)
{
    (void)rank, (void)size;
    weft_group *world = join(30000), *group = fresh_group(world);
    const weft_i_losses *losses = &world->world->losses;
    stop it;
    for (int how = 0; how < 3; how++) {
        weft_work *work = post(&it, group, false);
        it.ends = WEFT_ERR_NUMERIC;
        atomic_store(&it.may_go, true);
        for (int ms = 0; ms < 20000 && atomic_load(&world->world->under_way); ms++)
            rest_us(1000);
        CHECK_INT(losses->untold, 1);
        CHECK_INT(losses->untold_first, WEFT_ERR_NUMERIC);
        CHECK_CONTAINS(losses->untold_text, "it ends so");
        if (how == 0) {
            CHECK_STATUS(weft_work_wait(work, WEFT_DEFAULT), WEFT_ERR_NUMERIC);
            CHECK(!strcmp(weft_last_error(), "it ends so"));
            CHECK(!strcmp(weft_work_error(work), "it ends so"));
        } else if (how == 1) {
            CHECK_INT(weft_work_status(work), WEFT_ERR_NUMERIC);
        } else {
            weft_release(work);
        }
        CHECK_INT(losses->untold, 0);
        if (how < 2) {
            CHECK_INT(weft_work_status(work), WEFT_ERR_NUMERIC); /* told twice, paid once */
            CHECK_INT(losses->untold, 0);
            CHECK(weft_work_sequence(work) > 0);
        }
        weft_clear_error();
    }
    finish(world);
}

/* ---- without a helper ---- */

static weft_i_os table;
static int helpers, joined, wakes;
static _Atomic uint32_t *alarm_at; /* the first word that anybody was woken at */
static uint32_t alarm_was;

static int start_nobody(pthread_t *thread, void *(*body)(void *), void *arg)
{
    (void)body, (void)arg;
    *thread = pthread_self();
    helpers++;
    return 0;
}

static void join_nobody(pthread_t thread)
{
    CHECK(pthread_equal(thread, pthread_self()));
    joined++;
}

static void count_wake(_Atomic uint32_t *word, int count)
{
    alarm_at = alarm_at ? alarm_at : word;
    if (word == alarm_at) {
        wakes += count > 0 && atomic_load(word) != alarm_was;
        alarm_was = atomic_load(word);
    }
    weft_i_os_linux.futex_wake(word, count);
}

static weft_group *join_alone(void)
{
    if (harness_in_threads)
        SKIP("the table of system calls belongs to the whole process");
    weft_group *world = join(30000);
    CHECK_OK(weft_scope_open());
    weft_group *group = fresh_group(world);
    helpers = joined = wakes = 0;
    ended = 0;
    alarm_at = NULL;
    alarm_was = 0;
    table = weft_i_os_linux;
    table.thread_create = start_nobody;
    table.thread_join = join_nobody;
    table.futex_wake = count_wake;
    weft_i_os_now = &table;
    return group;
}

static void finish_alone(weft_group *group)
{
    weft_group *world = weft_group_world(group);
    CHECK_OK(weft_scope_close()); /* works, group, lane and queue */
    weft_i_os_now = &weft_i_os_linux;
    CHECK(helpers == 1 && joined == 1);
    finish(world);
}

/* Who waits at least as long as the operation may take runs it, and what is before it, no more. */
RANKS_TEST(test_queue_patience, 1)
{
    (void)rank, (void)size;
    weft_group *group = join_alone();
    stop stops[4];
    weft_work *works[4];
    for (int i = 0; i < 4; i++)
        works[i] = post(&stops[i], group, true);
    CHECK_INT(atomic_load(&group->calls.posted), 4);
    check_miss(works[1], 0, 1);
    check_miss(works[1], 1, 1);
    CHECK(!stops[0].begun);
    works[1]->coll.ask.limit_ms = 5;
    check_miss(works[1], 4, 1);
    CHECK(!stops[0].begun);
    CHECK_OK(weft_work_wait(works[1], 5));
    CHECK(stops[0].begun && stops[1].begun && !stops[2].begun);
    CHECK(pthread_equal(stops[0].runner, pthread_self()) && !stops[0].aside && stops[0].keeps);
    works[2]->coll.ask.limit_ms = WEFT_FOREVER; /* longer than anything but that */
    check_miss(works[2], 1, 0);
    CHECK(!stops[2].begun);
    CHECK_OK(weft_work_wait(works[2], WEFT_FOREVER));
    CHECK(stops[2].begun && !stops[3].begun && atomic_load(&group->calls.posted) == 1);
    wakes = 0;
    _Atomic uint32_t *bell = &weft_i_lane_head_of(group->lane, 0)->p2p_bell;
    atomic_store(bell, 1);
    CHECK_INT(weft_work_test(works[3]), WEFT_IN_PROGRESS); /* asks for somebody who runs it, */
    CHECK(wakes == 1 && !atomic_load(bell));               /* who may sleep for requests */
    CHECK_INT(weft_work_status(works[3]), WEFT_IN_PROGRESS);
    CHECK_INT(wakes, 1);
    weft_i_coll coll = barrier_of(group); /* a plain call runs what is posted before it */
    uint64_t sequence = weft_group_sequence(group);
    CHECK_OK(weft_i_work_now(&coll));
    CHECK(stops[3].begun && !atomic_load(&group->calls.posted));
    CHECK_INT(weft_group_sequence(group), sequence + 1);
    CHECK_OK(weft_i_work_now(&coll)); /* and itself, if there is nothing */
    CHECK_INT(weft_group_sequence(group), sequence + 2);
    for (int i = 0; i < 4; i++)
        CHECK_INT(stops[i].order, i + 1);
    wakes = 0;
    CHECK_INT(weft_work_test(works[3]), WEFT_OK);
    CHECK_INT(wakes, 0);
    finish_alone(group);
}

/* A plain call that comes in turn says how it ended, not how what ran before it did. */
RANKS_TEST(test_queue_fails_in_turn, 1)
{
    (void)rank, (void)size;
    weft_group *group = join_alone();
    stop before[2];
    post(&before[0], group, true)->coll.ask.limit_ms = WEFT_FOREVER;
    before[0].ends = WEFT_ERR_NUMERIC;
    weft_i_coll coll = barrier_of(group);
    CHECK_OK(weft_i_work_now(&coll));
    CHECK(before[0].begun);
    post(&before[1], group, true);
    before[1].revokes = group; /* after it, before the call */
    CHECK_STATUS(weft_i_work_now(&coll), WEFT_ERR_REVOKED);
    CHECK(before[1].begun && !atomic_load(&group->calls.posted));
    weft_clear_error();
    finish_alone(group);
}

/* ---- on a stream ---- */

static weft_status event_says;
static int64_t event_limit;
static int queries, syncs, event;

static weft_status query_event(void *at)
{
    CHECK(at == &event);
    queries++;
    return event_says < 0 ? weft_i_fail(event_says, "the stream is ill") : event_says;
}

static weft_status sync_event(void *at, int64_t limit_ms)
{
    CHECK(at == &event);
    syncs++;
    event_limit = limit_ms;
    return event_says == WEFT_IN_PROGRESS ? WEFT_ERR_TIMEOUT : query_event(at);
}

static void free_event(void *at)
{
    CHECK(at == &event);
}

/* Work that a carrier has given to a stream is over at its event; a limit is told with its number.
 */
RANKS_TEST(test_queue_of_a_stream, 1)
{
    (void)rank, (void)size;
    weft_group *group = join_alone();
    weft_i_device device = {
        .event_query = query_event, .event_sync = sync_event, .event_free = free_event};
    stop one;
    CHECK_OK(weft_work_wait(post(&one, group, true), WEFT_FOREVER)); /* there is a queue */
    for (int how = 0; how < 4; how++) {
        weft_i_coll coll = barrier_of(group);
        weft_work *work = weft_i_work_new_p2p(group, 0);
        weft_stream stream = {.device = WEFT_CPU, .table = &device};
        weft_i_object_start(&stream.head, WEFT_I_STREAM, keep);
        work->coll.ask = coll.ask;
        work->stream = weft_i_object_hold(&stream);
        work->event = &event;
        atomic_store(&work->status, WEFT_IN_PROGRESS);
        queries = syncs = 0;
        event_says = WEFT_IN_PROGRESS;
        CHECK_INT(weft_work_test(work), WEFT_IN_PROGRESS);
        CHECK_INT(weft_work_status(work), WEFT_IN_PROGRESS);
        CHECK(queries == 2 && !syncs);
        CHECK_STATUS(weft_work_wait(work, 7), WEFT_ERR_TIMEOUT);
        char text[160];
        snprintf(text, sizeof text,
                 "barrier in group \"%s\" is still under way on its stream after 7 ms",
                 weft_group_name(group));
        CHECK(!strcmp(weft_last_error(), text) && event_limit == 7 && syncs == 1);
        CHECK_INT(weft_work_status(work), WEFT_IN_PROGRESS);
        weft_clear_error();
        event_says = how < 2 ? WEFT_OK : WEFT_ERR_DEVICE;
        weft_status wanted = event_says;
        CHECK_INT(how % 2 ? weft_work_wait(work, 9) : weft_work_test(work), wanted);
        if (wanted < 0)
            CHECK(!strcmp(weft_last_error(), "the stream is ill") &&
                  !strcmp(weft_work_error(work), "the stream is ill"));
        weft_clear_error();
        queries = syncs = 0; /* it is over: nobody asks again */
        event_says = WEFT_IN_PROGRESS;
        CHECK_INT(weft_work_wait(work, 9), wanted);
        CHECK_INT(weft_work_status(work), wanted);
        CHECK(!queries && !syncs);
        weft_clear_error();
        weft_release(work);
    }
    finish_alone(group);
}

/* Operands are held until the work is over, and counted for who wants to know how often. */
RANKS_TEST(test_queue_holds, 1)
{
    (void)rank, (void)size;
    weft_group *group = join_alone();
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *y = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    for (int twice = 0; twice < 2; twice++) {
        weft_i_coll coll;
        weft_tensor *in = twice ? y : x;
        CHECK_OK(weft_i_request_plain(&coll, WEFT_I_ALL_REDUCE, y, in, WEFT_SUM, 0, group));
        stop it = {.lane = group->lane, .may_go = true};
        weft_i_object_start(&it.completion.object, WEFT_I_WORK, keep);
        it.completion.follow = follow;
        weft_work *work = weft_i_work_enqueue(&coll, &it.completion);
        CHECK(work && work->claimed && references(&it.completion) == 2);
        CHECK_INT(atomic_load(&work->holds), 1 + twice);
        CHECK(references(y) == 2 + twice && references(x) == 2 - twice);
        CHECK_OK(weft_resize_storage(y, 16)); /* claimed operands are waited for, not pinned */
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK(!atomic_load(&work->holds) && references(&it.completion) == 1);
        CHECK(references(x) == 1 && references(y) == 1);
        weft_release(work);
    }
    finish_alone(group);
}

/* The helper is woken for work that is worth it: input and output of 32 KiB. */
RANKS_TEST(test_queue_wakes, 1)
{
    (void)rank, (void)size;
    weft_group *group = join_alone();
    weft_tensor *small = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4095));
    weft_tensor *large = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4096));
    weft_work *works[2];
    CHECK(works[0] = weft_all_reduce_start(small, small, WEFT_SUM, group));
    CHECK_INT(wakes, 0);
    CHECK(works[1] = weft_all_reduce_start(large, large, WEFT_SUM, group));
    CHECK_INT(wakes, 1);
    CHECK(references(small) > 1 && references(large) > 1); /* held */
    CHECK_OK(weft_work_wait(works[1], WEFT_DEFAULT));
    CHECK_INT(weft_work_status(works[0]), WEFT_OK);
    weft_release(works[0]);
    weft_release(works[1]);
    CHECK(references(small) == 1 && references(large) == 1);
    finish_alone(group);
}

/* Splits are copied: the caller's may go. */
RANKS_TEST(test_queue_splits, 1)
{
    (void)rank, (void)size;
    weft_group *group = join_alone();
    weft_tensor *in = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 4);
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    int64_t out_splits[] = {3}, in_splits[] = {3};
    weft_work *work = weft_all_to_all_start(out, in, out_splits, in_splits, group);
    CHECK(work);
    out_splits[0] = in_splits[0] = -1;
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    CHECK(weft_item(out, 2) == 4);
    CHECK(work->splits[0] == 3 && work->splits[1] == 3);
    finish_alone(group);
}

static int fail_to_start(pthread_t *thread, void *(*body)(void *), void *arg)
{
    (void)thread, (void)body, (void)arg;
    return EAGAIN;
}

/* Without a thread nothing is posted, and the next try may have one. */
RANKS_TEST(test_queue_no_thread, 1)
{
    (void)rank, (void)size;
    weft_group *group = join_alone();
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    table.thread_create = fail_to_start;
    CHECK(!weft_barrier_start(group) && weft_last_status() == WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "helper thread");
    CHECK(!weft_send_start(x, 0, group) && !weft_all_reduce_start(x, x, WEFT_SUM, group));
    weft_clear_error();
    CHECK(!((const weft_i_lane *)group->lane)->queue && !atomic_load(&group->calls.posted));
    CHECK(references(x) == 1 && !atomic_load(&group->world->under_way));
    table.thread_create = start_nobody;
    CHECK_OK(weft_work_wait(weft_barrier_start(group), WEFT_DEFAULT));
    finish_alone(group);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
