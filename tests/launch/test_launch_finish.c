/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/report/loss.c, launch/cause.c, fabric/world/spawn.c */
/* What weft_finish counts as a failure of the rank, how often the log tells of it, and whom
 * `weft run` and weft_spawn name. */
#include "fabric/group/group.h"
#include "launch_shell.h"

#include <weft/weft.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* ---- ranks ---- */

/* Kills rank 1 once rank 0 has come; rank 0 is told by its next barrier. */
static weft_status lose_rank_1(weft_group *group)
{
    weft_status status = weft_group_barrier(group, WEFT_DEFAULT);
    if (status == WEFT_OK && weft_rank(group) == 1)
        raise(SIGKILL);
    return weft_group_barrier(group, WEFT_DEFAULT);
}

static void *lose_in_thread(void *group)
{
    lose_rank_1(group);
    return NULL;
}

static void *lose_and_clear(void *group)
{
    lose_rank_1(group);
    weft_clear_error();
    return NULL;
}

static int in_thread(void *(*body)(void *))
{
    weft_group *world = weft_init(NULL);
    weft_group *both = weft_group_new(world, (int[]){0, 1}, 2, NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, both))
        return 99;
    pthread_join(thread, NULL);
    return weft_finish(world);
}

static int try_in_vain(void)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    weft_store *store = weft_store_local();
    weft_store_value value = {0};
    weft_tensor *y = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    bool right = true;
    for (int i = 0; i < 100; i++)
        right &= weft_symm_wait_signal(mem, 0, 0, 0) == WEFT_ERR_TIMEOUT;
    right &= !weft_group_named(world, "nobody") && weft_last_status() == WEFT_ERR_NOT_FOUND;
    right &= weft_store_get(store, "nothing", WEFT_STORE_NOW, &value) == WEFT_ERR_NOT_FOUND;
    weft_group_barrier(world, WEFT_DEFAULT);
    weft_all_reduce_into(y, y, WEFT_SUM, world); /* the first of a group meets at once */
    if (weft_rank(world) == 0) {
        weft_work *work = weft_all_reduce_start(y, y, WEFT_SUM, world);
        right &= weft_work_wait(work, 0) == WEFT_ERR_TIMEOUT;
        weft_group *alone = weft_group_named(world, "0");
        right &= alone == world;
        weft_symm_put_signal(mem, 1, 1, WEFT_DEFAULT);
        right &= weft_work_wait(work, WEFT_DEFAULT) == WEFT_OK;
    } else {
        weft_symm_wait_signal(mem, 0, 1, WEFT_DEFAULT);
        right &=
            weft_work_wait(weft_all_reduce_start(y, y, WEFT_SUM, world), WEFT_DEFAULT) == WEFT_OK;
    }
    int result = weft_finish(world);
    return right ? result : 98;
}

static int flood(void)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    lose_rank_1(world);
    for (int i = 0; i < 1500; i++)
        if (weft_all_reduce_into(x, x, WEFT_SUM, world) != WEFT_ERR_PEER_DEAD)
            return 97;
    return weft_finish(world);
}

/* Ranks without tokens: nobody looks at an empty result, nor at the mismatch behind it. */
static int empty(bool alike)
{
    weft_group *world = weft_init(NULL);
    weft_dtype dtype = alike || weft_rank(world) == 0 ? WEFT_F32 : WEFT_F64;
    weft_tensor *x = weft_zeros(dtype, WEFT_CPU, WEFT_SHAPE(0, 4));
    if (!weft_all_reduce(x, WEFT_SUM, world))
        return 95;
    weft_scope_open(); /* dropped without a look */
    if (alike && !weft_all_reduce(x, WEFT_SUM, world))
        return 95;
    weft_scope_close();
    return weft_finish(world);
}

/* Only rank 0 looks at the result. */
static int one_prints(void)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    weft_tensor *sum = weft_all_reduce(x, WEFT_SUM, world);
    if (weft_rank(world) == 0)
        printf("%g\n", weft_item(sum, 0));
    return weft_finish(world);
}

static int desert(void)
{
    weft_group *world = weft_init(NULL);
    weft_group_barrier(world, WEFT_DEFAULT);
    if (weft_rank(world) == 2)
        exit(0);
    weft_group_barrier(world, WEFT_DEFAULT);
    return weft_finish(world);
}

/* Errors that nobody checks for, and nobody reports. */
static int forget(void)
{
    weft_group *world = weft_init(NULL);
    weft_all_reduce_into(NULL, NULL, WEFT_SUM, world);
    return weft_rank(world) == 1 ? weft_finish(world) && 0 : 0;
}

/* Rank 2 fails by itself, the others because of it; ranks are told in any order. */
static int fail_of_own(void *arg)
{
    weft_group *world = weft_init(NULL);
    (void)arg;
    weft_group_barrier(world, WEFT_DEFAULT);
    if (weft_rank(world) == 2)
        return 77;
    weft_group_barrier(world, WEFT_DEFAULT);
    return weft_finish(world);
}

static void *err_in_thread(void *unused)
{
    weft_limit_close();
    return unused;
}

/* Looks at what weft_init returns, and at nothing else. */
static int refused(void)
{
    weft_group *world = weft_init(NULL);
    return world ? weft_finish(world) : 7;
}

/* A line of the log by a thread that weft has never seen before. */
static int log_in_thread(void)
{
    weft_group *world = weft_init(NULL);
    pthread_t thread;
    if (weft_rank(world) == 1 && pthread_create(&thread, NULL, err_in_thread, NULL))
        return 99;
    if (weft_rank(world) == 1)
        pthread_join(thread, NULL);
    return weft_finish(world);
}

/* For a trace: what was called, and more of it than a record keeps; then rank 1 dies. */
static int traced(void)
{
    weft_group *world = weft_init(NULL);
    weft_group *both = weft_group_new(world, (int[]){0, 1}, 2, "both");
    weft_tensor *x = weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(8, 4));
    for (int i = 0; i < 1100; i++)
        weft_group_barrier(world, WEFT_DEFAULT);
    weft_all_reduce_into(x, x, WEFT_MAX, both);
    weft_work_wait(weft_broadcast_start(x, 0, both), WEFT_DEFAULT);
    lose_rank_1(world);
    return weft_finish(world);
}

/* Waits until rank 0 has said in its log that it waits in that call. */
static bool is_told(const char *log, const char *call)
{
    char line[4096];
    for (int ms = 0; ms < 20000; ms++) {
        FILE *file = fopen(log, "r");
        bool told = false;
        while (file && !told && fgets(line, sizeof line, file))
            told = strstr(line, "has waited") && strstr(line, call);
        if (file)
            fclose(file);
        if (told)
            return true;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return false;
}

/* Rank 1 comes late to everything, once rank 0 has complained. */
static int late(const char *what)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    weft_broadcast_in_place(x, 0,
                            world); /* what collectives need once; on a busy machine it warns too */
    if (weft_rank(world) == 1 && !is_told(getenv("LOG"), getenv("CALL")))
        return 94;
    if (!strcmp(what, "late_barrier"))
        weft_group_barrier(world, WEFT_DEFAULT);
    else if (!strcmp(what, "late_reduce"))
        weft_all_reduce_into(x, x, WEFT_SUM, world);
    else if (!strcmp(what, "late_signal"))
        weft_rank(world) ? weft_symm_put_signal(mem, 0, 0, WEFT_DEFAULT)
                         : weft_symm_wait_signal(mem, 1, 0, WEFT_DEFAULT);
    else
        weft_rank(world) ? weft_send(x, 0, world) : weft_recv(x, 1, world);
    return weft_finish(world);
}

static void *reduce_in_thread(void *group)
{
    float x = 1;
    weft_all_reduce_ptr(&x, &x, 1, WEFT_F32, WEFT_SUM, group);
    return NULL;
}

/* While a thread of rank 0 waits in the group for rank 1, its first one calls in vain. */
static int two_threads(void)
{
    weft_group *world = weft_init(NULL);
    weft_group *other = weft_group_new(world, (int[]){0, 1}, 2, NULL);
    pthread_t thread;
    if (weft_rank(world) == 0) {
        if (pthread_create(&thread, NULL, reduce_in_thread, world))
            return 99;
        while (!atomic_load_explicit(&world->on_lane, memory_order_relaxed))
            nanosleep(&(struct timespec){0, 100000}, NULL);
        for (int i = 0; i < 50; i++)
            reduce_in_thread(world);
    }
    weft_group_barrier(other, WEFT_DEFAULT);
    if (weft_rank(world) == 0)
        pthread_join(thread, NULL);
    else
        reduce_in_thread(world);
    return weft_finish(world);
}

static int rank_main(const char *what)
{
    if (!strcmp(what, "two"))
        return two_threads();
    if (!strncmp(what, "late", 4))
        return late(what);
    if (!strcmp(what, "traced"))
        return traced();
    if (!strcmp(what, "thread"))
        return in_thread(lose_in_thread);
    if (!strcmp(what, "cleared"))
        return in_thread(lose_and_clear);
    if (!strcmp(what, "tries"))
        return try_in_vain();
    if (!strcmp(what, "flood"))
        return flood();
    if (!strcmp(what, "empty") || !strcmp(what, "mismatch"))
        return empty(!strcmp(what, "empty"));
    if (!strcmp(what, "nothing"))
        return weft_finish(weft_init(NULL));
    if (!strcmp(what, "one"))
        return one_prints();
    if (!strcmp(what, "refused"))
        return refused();
    if (!strcmp(what, "desert"))
        return desert();
    if (!strcmp(what, "forget"))
        return forget();
    if (!strcmp(what, "own"))
        return fail_of_own(NULL);
    if (!strcmp(what, "log"))
        return log_in_thread();
    return !strcmp(what, "spawn") ? weft_spawn(3, fail_of_own, NULL) : 96;
}

/* ---- tests ---- */

/* The group was lost in another thread than the one that finishes. */
TEST(test_finish_counts_other_threads)
{
    shell("$W run -n 2 sh -c '%s rank thread; echo \"$RANK ended with $?\"'", self);
    CHECK_CONTAINS(out, "0 ended with 40"); /* WEFT_ERR_PEER_DEAD */
    shell("$W run -n 2 sh -c '%s rank cleared; echo \"$RANK ended with $?\"'", self);
    CHECK_CONTAINS(out, "0 ended with 0");
}

/* A try that finds nothing is no failure: polls, names, keys. */
TEST(test_finish_counts_no_tries)
{
    CHECK_INT(shell("$W run -n 2 $S tries"), 0);
    CHECK_INT(count(err, "finished after an error"), 0);
}

/* Who broke the rule of one thread at a time reads it in the log, once, and from weft_finish. */
TEST(test_finish_tells_of_two_threads)
{
    CHECK_INT(shell("$W run -n 2 $S two"), -WEFT_ERR_STATE);
    CHECK_INT(count(err, "weft WARN [rank 0]: all_reduce in group \"0\": another thread of rank 0"),
              1);
    CHECK_CONTAINS(err, "give each thread one of its own (weft_group_new) (WEFT_ERR_STATE)");
    CHECK_INT(count(err, "another thread of rank 1"), 0);
    CHECK_INT(shell("WEFT_DEBUG=INFO $W run -n 2 $S two"), -WEFT_ERR_STATE);
    CHECK_INT(count(err, "WARN [rank 0]: all_reduce in group \"0\": another thread"), 1);
    CHECK_INT(count(err, "INFO [rank 0]: all_reduce in group \"0\": another thread"), 49);
}

/* 1,500 calls after a death: one line for the first, and one for each power of ten. */
TEST(test_finish_log_is_short)
{
    shell("$W run -n 2 $S flood");
    CHECK(count(err, "weft WARN [rank 0]") >= 2); /* the death, and the end */
    CHECK(count(err, "weft WARN [rank 0]") < 8);
    CHECK_CONTAINS(err, "so far 1000 errors of this kind");
    CHECK_INT(count(err, "finished after an error: "), 0); /* told before */
}

/* The failure of a posted operation counts, also if nobody used its result; results that nobody
 * needs are no reason to warn. */
TEST(test_finish_counts_unused_results)
{
    CHECK_INT(shell("$W run -n 2 $S mismatch"), -WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(err, "all_reduce of 0 f32, sum, shape [0, 4], but rank 1 calls all_reduce of 0 "
                        "f64");
    /* Its last operations are those that the user called, not their steps. */
    CHECK_CONTAINS(err, "\nweft:   | init #1 on group 0");
    CHECK_CONTAINS(err, "\nweft:   | all_reduce #");
    CHECK_INT(count(err, "rendezvous"), 0);
    CHECK_INT(count(err, "lane #"), 0);
    CHECK_INT(count(err, "cma #"), 0);
    CHECK_INT(shell("$W run -n 2 $S empty"), 0);
    CHECK(!*err);
    CHECK_INT(shell("$W run -n 2 $S one"), 0);
    CHECK(!*err && !strcmp(out, "[0] 2\n"));
}

/* What all ranks say stands there once, with their numbers, and is not quoted again. */
TEST(test_finish_equal_messages)
{
    /* A busy machine may keep one silent for too long, and a rank that looks before the launcher has
     * told how the other ended says less of it. */
    for (int tries = 0; tries < 40; tries++) {
        CHECK_INT(shell("$W run -n 4 $S desert"), -WEFT_ERR_PEER_DEAD);
        if (count(err, "finished after an error") == 1 && count(err, "will not come") == 1)
            break;
    }
    CHECK_INT(count(err, "will not come"), 1);
    CHECK_CONTAINS(err, "[0,1,3] weft WARN: this rank of 4 in group \"0\"");
    CHECK_CONTAINS(err, "[0,1,3] weft WARN: finished after an error (WEFT_ERR_PEER_DEAD)\n");
    CHECK_INT(count(err, "finished after an error"), 1);
    CHECK_INT(count(err, "the last lines of rank"), 0);
    CHECK_INT(shell("$W run --no-prefix -n 4 $S desert"), -WEFT_ERR_PEER_DEAD);
    CHECK_INT(count(err, "finished after an error"), 3);
}

/* Why weft_init has failed stands in the log, once, whether or not weft_finish is called. */
TEST(test_finish_init_tells_why)
{
    static const char *const wrong[][2] = {{"WEFT_WAIT=foo", "WEFT_WAIT=\"foo\" is not a valid"},
                                           {"WEFT_DEBUG=LOUD", "NONE, WARN, INFO or TRACE"},
                                           {"RANK=0", "RANK is set but WORLD_SIZE is not"},
                                           {"RANK=5 WORLD_SIZE=2", "RANK=5"}};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(shell("%s $S refused", wrong[i][0]), 7);
        CHECK_CONTAINS(err, wrong[i][1]);
        CHECK_INT(count(err, wrong[i][1]), 1);
        CHECK_INT(shell("%s $S one", wrong[i][0]), -WEFT_ERR_INVALID_ARG);
        CHECK_INT(count(err, wrong[i][1]), 1);
        CHECK_CONTAINS(err, "finished after an error (WEFT_ERR_INVALID_ARG)");
    }
}

/* A file of thresholds that is not there slows a job at most. */
TEST(test_finish_counts_no_tune_file)
{
    CHECK_INT(shell("WEFT_TUNE=/nonexistent/tune $W run -n 2 $S one"), 0);
    CHECK_CONTAINS(err, "using the thresholds compiled in");
    CHECK_INT(count(err, "finished after an error"), 0);
}

/* It is told also where no collective runs: once, with the reason, and as no failure. */
TEST(test_finish_tells_of_tune_file)
{
    CHECK_INT(shell("WEFT_TUNE=/nonexistent/tune $W run -n 2 $S nothing"), 0);
    CHECK_INT(count(err, "[0,1] weft WARN: WEFT_TUNE: cannot open the thresholds in "
                         "/nonexistent/tune: No such file or directory; using the thresholds "
                         "compiled in\n"),
              1);
    CHECK_INT(count(err, "\n"), 1);
    CHECK_INT(shell("WEFT_TUNE=/etc/hostname $W run -n 2 $S nothing"), 0); /* no thresholds */
    CHECK_INT(count(err, "WEFT_TUNE: "), 1);
    CHECK_INT(shell("WEFT_TUNE=/nonexistent/tune $S nothing"), 0); /* alone */
    CHECK_INT(count(err, "WEFT_TUNE: "), 1);
    CHECK_INT(shell("$W run -n 2 $S nothing"), 0);
    CHECK(!*err);
}

/* Who leaves with 0 but without weft_finish is the cause of what others report. */
TEST(test_finish_names_deserter)
{
    CHECK_INT(shell("$W run -n 4 $S desert"), -WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(err, "weft: rank 2 of 4 failed first: it exited with 0 without calling "
                        "weft_finish");
    CHECK_CONTAINS(err, "weft: then ranks 0 1 3:");
    CHECK_INT(shell("$W run -n 2 true"), 0); /* no ranks of weft */
    CHECK(!*err);
}

/* Forgetting weft_finish is no failure, but errors are lost with it: that is told. */
TEST(test_finish_forgotten)
{
    CHECK_INT(shell("$W run -n 3 $S forget"), 0);
    CHECK_CONTAINS(err, "weft: 2 of 3 ranks exited with 0 without calling weft_finish, which "
                        "reports the first error of a rank\n");
    CHECK_INT(count(err, "failed first"), 0);
}

TEST(test_finish_spawn_and_run_agree)
{
    CHECK_INT(shell("$W run -n 3 $S own"), 77);
    CHECK_CONTAINS(err, "rank 2 of 3 failed first");
    CHECK_INT(shell("$S spawn"), 77);
    CHECK_CONTAINS(err, "rank 2 of 3 failed first: it returned 77\n"); /* no status of weft */
}

TEST(test_finish_log_lines_have_ranks)
{
    CHECK_INT(shell("WEFT_DEBUG=INFO $W run --no-prefix -n 2 $S log"), 0);
    CHECK_CONTAINS(err, "weft INFO [rank 1]: weft_limit_close");
    CHECK_INT(count(err, "weft INFO: "), 0);
}

/* The trace of the dead is written by the launcher, and tells as much as that of the living. */
TEST(test_finish_traces_the_dead)
{
    shell("WEFT_TRACE=$D/t.json $W run -n 2 $S traced");
    CHECK_CONTAINS(err, "t.0.json has the last 1024 operations of rank 0");
    CHECK_CONTAINS(err, "t.1.json has the last 1024 operations of rank 1");
    for (int rank = 0; rank < 2; rank++) {
        CHECK_INT(shell("grep -c . $D/t.%d.json >/dev/null && cat $D/t.%d.json", rank, rank), 0);
        CHECK_CONTAINS(out, "\"dropped\":");
        CHECK_CONTAINS(out, "\"group_name\":\"both\",\"dtype\":\"bf16\",\"count\":32,"
                            "\"reduction\":\"max\",\"thread\":");
        CHECK_CONTAINS(out, "\"count\":32,\"posted\":");
    }
    CHECK_INT(shell("$W trace summary $D/t.0.json $D/t.1.json"), 0);
    CHECK_CONTAINS(out, "group_barrier ");
    CHECK_CONTAINS(out, " earlier operations are not in these traces.");
}

/* A rank that waits long says so once, names whom it waits for, and goes on. */
TEST(test_finish_warns_of_long_waits)
{
    static const char *const calls[][2] = {{"late_barrier", "group_barrier: has waited "},
                                           {"late_reduce", "all_reduce: has waited "},
                                           {"late_signal", "channel 0: has waited "},
                                           {"late_recv", "recv: has waited "}};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(shell("rm -f $D/log.*; LOG=$D/log.0 CALL='%s' WEFT_WARN_AFTER=100 "
                        "WEFT_DEBUG_FILE=$D/log.%%r "
                        "$W run -n 2 $S %s; s=$?; cat $D/log.0 >&2; exit $s",
                        calls[i][1], calls[i][0]),
                  0);
        CHECK_INT(count(err, calls[i][1]), 1);
        const char *whom = strstr(err, calls[i][1]) + strlen(calls[i][1]);
        CHECK(atof(whom) >= 0.1);
        /* One that gets no core for half a second is told from one that is well. */
        if (!strstr(whom, "rank 1 (alive, process "))
            CHECK_CONTAINS(whom, "stopped or starved of processor time");
    }
}

/* `forever` can be said of every limit, and 0 of none. */
TEST(test_finish_limits_are_checked)
{
    static const char *const names[] = {"WEFT_TIMEOUT", "WEFT_WARN_AFTER", "WEFT_MEET_TIMEOUT",
                                        "WEFT_STORE_TIMEOUT", "WEFT_CC_TIMEOUT"};
    for (int i = 0; i < 5; i++) {
        CHECK_INT(shell("%s=forever $W run -n 2 $S one", names[i]), 0);
        CHECK(!*err);
        CHECK(shell("%s=0 $W run -n 2 $S one", names[i]) != 0);
        CHECK_CONTAINS(err, "milliseconds from 1 on, or forever");
    }
}

int main(int argc, char **argv)
{
    return launch_main(argc, argv, rank_main);
}
