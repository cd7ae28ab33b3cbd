/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: train/checkpoint_write.c, train/checkpoint_load.c */
/*
 * Ranks are killed at random times while they train and save: what goes on begins at a step that was
 * saved, and computes what an undisturbed run does.  WEFT_TEST_KILLS says how many of the kills that end a
 * job there are (default 6), WEFT_TEST_SEED which times are drawn.
 */
#include "folder.h"
#include "spread.h"

#include "harness.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { STEPS = 12, SAVE = 2, BEREFT = 3 };

static uint64_t drawn = 1;

static uint64_t draw(uint64_t below)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return drawn % below;
}

static void seed_draws(uint64_t more)
{
    const char *text = getenv("WEFT_TEST_SEED");
    drawn = (text ? strtoull(text, NULL, 10) : 1) * 0x9e3779b97f4a7c15u + more * 77777 + 1;
    for (int i = 0; i < 20; i++)
        draw(2);
}

static void *kill_later(void *us)
{
    rest_us((long)(intptr_t)us);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void arm(long us)
{
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, kill_later, (void *)(intptr_t)us));
    pthread_detach(thread);
}

/* ---- a job that ends with its first dead rank, and starts again ---- */

static void write_line(int fd, const char *format, long long a, double b)
{
    char line[128];
    uint64_t bits;
    memcpy(&bits, &b, sizeof bits);
    int n = snprintf(line, sizeof line, format, a, bits);
    CHECK(write(fd, line, (size_t)n) == n);
}

/* One rank of it: main of a program that `weft run` starts. */
static int run_job(const char *folder, int victim, long us)
{
    path_text run, log;
    if (setjmp(harness_out)) { /* a rank whose peers are gone, or what must not be */
        fprintf(stderr, "%s\n", harness_reason);
        _exit(weft_status_scope(weft_last_status()) == WEFT_SCOPE_GROUP ? BEREFT : 4);
    }
    join_path(run, folder, "run");
    join_path(log, folder, "log");
    weft_group *world = join(0);
    bool first = weft_rank(world) == 0;
    int fd = first ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    job j = begin(world, SHARDED, weft_size(world), true, run, true, NULL);
    weft_seed(42); /* as every run begins, unless something is loaded */
    int64_t step = 0;
    long long began = harness_now();
    if (weft_rank(world) == victim)
        arm(us);
    weft_status status = weft_checkpoint_load(j.checkpoint, &step);
    CHECK(status >= 0 || status == WEFT_ERR_NOT_FOUND);
    if (first)
        write_line(fd, "begin %lld %" PRIx64 "\n", step, 0);
    for (int s = (int)step; s < STEPS; s++) {
        if (s % SAVE == 0)
            CHECK_OK(weft_checkpoint_save(j.checkpoint, s));
        double loss = train_step(&j, s);
        if (first)
            write_line(fd, "step %lld %" PRIx64 "\n", s, loss);
    }
    CHECK_OK(weft_checkpoint_save(j.checkpoint, STEPS));
    CHECK_OK(weft_checkpoint_wait(j.checkpoint));
    if (first)
        write_line(fd, "took %lld %" PRIx64 "\n", (harness_now() - began) / 1000, 0);
    weft_clear_error();
    return weft_finish(world);
}

/* 0 if it came to its end. */
static int start_job(const char *folder, int victim, long us)
{
    char command[2048], self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    self[n] = 0;
    snprintf(command, sizeof command, "'%s' run -q -n 4 '%s' job '%s' %d %ld >%s/out 2>&1",
             WEFT_COMMAND, self, folder, victim, us, folder);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

typedef struct diary {
    int64_t begin; /* the last */
    int64_t saved; /* the last step that is surely on the disk: the save after it was begun */
    int64_t took;  /* us; 0: it did not come to the end */
    int begins, steps;
    uint64_t loss[STEPS];
} diary;

/* What the ranks have written, and whether each began where it could, and had the losses of the calm run. */
static void read_diary(const char *folder, diary *d, const diary *calm)
{
    path_text path;
    char line[128];
    join_path(path, folder, "log");
    *d = (diary){.saved = -1};
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        long long number;
        uint64_t bits;
        char word[16];
        if (sscanf(line, "%15s %lld %" SCNx64, word, &number, &bits) != 3)
            continue; /* the last line, cut */
        if (!strcmp(word, "begin")) {
            if (number % SAVE || number < d->saved)
                FAIL("it went on from step %lld; step %lld was saved", number, (long long)d->saved);
            d->begin = number;
            d->begins++;
        } else if (!strcmp(word, "step")) {
            CHECK(number >= 0 && number < STEPS);
            if (calm && calm->loss[number] != bits)
                FAIL("begin %d, from step %lld: step %lld has another loss than an undisturbed run",
                     d->begins, (long long)d->begin, number);
            d->loss[number] = bits;
            d->steps++;
            if (number % SAVE == 0 && number - SAVE >= d->begin && number - SAVE > d->saved)
                d->saved = number - SAVE;
        } else {
            d->took = number;
        }
    }
    if (file)
        fclose(file);
}

static void tell_output(const char *folder)
{
    path_text path;
    static char text[2000];
    join_path(path, folder, "out");
    text[read_bytes(path, text, sizeof text - 1)] = 0;
    fprintf(stderr, "%s\n", text);
}

TEST(test_survival_of_restarts)
{
    path_text quiet, folder;
    diary calm, d = {0};
    const char *text = getenv("WEFT_TEST_KILLS");
    int wanted = text ? atoi(text) : 6, kills = 0, rounds = 0;
    seed_draws(0);
    make_tree(quiet);
    if (start_job(quiet, -1, 0)) {
        tell_output(quiet);
        FAIL("the undisturbed run failed");
    }
    read_diary(quiet, &calm, NULL);
    CHECK(calm.steps == STEPS && calm.took > 0);
    while (kills < wanted) {
        make_tree(folder);
        for (d.took = 0; !d.took; rounds++) {
            bool undisturbed = kills >= wanted || rounds % 7 == 6;
            int code = start_job(folder, undisturbed ? -1 : (int)draw(4),
                                 (long)draw((uint64_t)calm.took * 5 / 4 + 1));
            read_diary(folder, &d, &calm);
            bool killed = !undisturbed && (code == 128 + SIGKILL || code == BEREFT);
            kills += killed;
            if (code && !killed) {
                tell_output(folder);
                FAIL("round %d: the job ended with %d", rounds, code);
            }
        }
        remove_tree(folder);
    }
    remove_tree(quiet);
    if (text)
        fprintf(stderr, "%d kills in %d jobs\n", kills, rounds);
}

/* ---- ranks that go on without the dead ---- */

/* As train_step, where ranks may die. */
static weft_status try_step(job *j, int s, double *out)
{
    double norm;
    int parts = weft_size(j->group), part = weft_rank(j->group);
    weft_status status = weft_scope_open();
    weft_tensor *batch = batch_of(s);
    int64_t rows = weft_tensor_size(batch, 0) / parts;
    if (weft_tensor_size(batch, 0) % parts == 0) /* or else all compute all of it */
        batch = weft_narrow(batch, 0, rows * part, rows);
    weft_tensor *y = weft_module_call(j->net, inputs_of(batch));
    weft_tensor *loss = y ? weft_cross_entropy(y, labels_of(batch)) : NULL;
    status = loss ? weft_backward(loss) : weft_last_status();
    if (status >= 0)
        status = weft_clip_grads(j->net, LIMIT, j->mesh, &norm);
    if (status >= 0)
        status = weft_optim_step(j->optim);
    if (status >= 0) {
        weft_tensor *all = weft_all_reduce(weft_detach(loss), WEFT_AVG, j->group);
        *out = all ? weft_item(all, 0) : NAN;
        status = isnan(*out) ? weft_last_status() : WEFT_OK;
    }
    weft_scope_close();
    return status;
}

/* Trains from the last checkpoint on; the status of the death that ended it. */
static weft_status train_on(weft_group *group, const truth *t, const char *folder, int victim,
                            long us, int64_t *saved)
{
    job j = {.group = group};
    int64_t step = 0;
    weft_mesh *grid = weft_mesh_init(group, WEFT_CPU, WEFT_SHAPE(weft_size(group)), "data");
    j.mesh = j.data = grid;
    j.net = new_gpt();
    CHECK(grid && j.net);
    shard_all(j.net, grid);
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT;
    momentum.momentum = 0.9;
    j.optim = weft_optim_sgd(j.net, RATE, &momentum);
    j.checkpoint = weft_checkpoint_new(folder, group, NULL);
    CHECK_OK(weft_checkpoint_add_module(j.checkpoint, "model", j.net));
    CHECK_OK(weft_checkpoint_add_optim(j.checkpoint, "optim", j.optim));
    weft_status status = weft_checkpoint_load(j.checkpoint, &step);
    CHECK(status >= 0 || (status == WEFT_ERR_NOT_FOUND && *saved < 0));
    if (step % SAVE || step < *saved)
        FAIL("it went on from step %lld; step %lld was saved", (long long)step, (long long)*saved);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    if (weft_rank(group) == victim) {
        harness_rank_dies();
        arm(us);
    }
    for (int s = (int)step; s < STEPS; s++) {
        double loss = NAN;
        if (s % SAVE == 0) {
            WEFT_TRY(weft_checkpoint_save(j.checkpoint, s));
            if (s - SAVE >= step)
                *saved = s - SAVE;
        }
        WEFT_TRY(try_step(&j, s, &loss));
        if (!(fabs(loss - t->loss[s]) <= 1e-5))
            FAIL("step %d on %d ranks, from step %lld: the loss is %.9g, not %.9g", s,
                 weft_size(group), (long long)step, loss, t->loss[s]);
    }
    WEFT_TRY(weft_checkpoint_save(j.checkpoint, STEPS));
    return weft_checkpoint_wait(j.checkpoint);
}

static void survive(int number, int rank)
{
    path_text folder;
    truth t;
    int64_t saved = -1;
    (void)rank;
    if (harness_in_threads)
        return; /* none of them can be killed alone */
    weft_group *world = join(0), *group = world;
    make_common_tree(folder, world);
    find_truth(&t, STEPS);
    seed_draws((uint64_t)number);
    for (;;) {
        int size = weft_size(group), victim = size > 1 ? (int)draw((uint64_t)size) : -1;
        long us = (long)draw(60000);
        CHECK_OK(weft_scope_open());
        weft_status status = train_on(group, &t, folder, victim, us, &saved);
        CHECK_OK(weft_scope_close());
        if (status >= 0)
            break;
        if (weft_status_scope(status) != WEFT_SCOPE_GROUP)
            FAIL("not the end of a group: %s", weft_last_error());
        weft_clear_error();
        weft_group_revoke(group);
        group = weft_group_shrink(group);
        if (!group)
            FAIL("%s", weft_last_error());
        weft_clear_error();
    }
    if (weft_rank(group) == 0)
        remove_tree(folder);
    finish(world);
}

RANKS_TEST(test_survival_of_shrinking_1, 4)
{
    survive(1, rank);
}

RANKS_TEST(test_survival_of_shrinking_2, 4)
{
    survive(2, rank);
}

RANKS_TEST(test_survival_of_shrinking_3, 3)
{
    survive(3, rank);
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "job"))
        return run_job(argv[2], atoi(argv[3]), atol(argv[4]));
    setenv("WEFT_KILL_GRACE", "60000", 1); /* those who live go on, however slow the disk is */
    return harness_main(argc, argv);
}
