/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/job_look.c, fabric/world/job_find.c, launch/attempt.c */
/*
 * The job page in the hands of somebody who writes nonsense into it: who looks from outside while
 * it changes, and the launcher whose rank does so, tell what they can and go on.
 */
#include "fault.h"
#include "harness.h"

#include "fabric/world/job.h"
#include <weft/weft.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3 };

/* Standard error goes nowhere until `speak`. */
static int silence(void)
{
    int before = dup(2), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 2);
    close(nowhere);
    return before;
}

static void speak(int before)
{
    dup2(before, 2);
    close(before);
}

/* ---- a page that changes while it is looked at ---- */

static atomic_bool over;
static atomic_ulong rounds;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Puts nonsense into the page and takes it out again, so that many looks begin with a sound head.
 * Words are written whole, as a careless neighbour would. */
static void *scribble(void *page)
{
    uint64_t state = 88172645463325252, before[sizeof(weft_i_job) / 8];
    uint64_t *head = page;
    memcpy(before, head, sizeof before);
    char *slots = (char *)weft_i_job_rank(page, 0);
    size_t words = (size_t)((char *)weft_i_job_rank(page, RANKS) - slots) / 8;
    /* Relaxed: only how long, and how often. */
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        for (size_t i = 1; i < sizeof before / 8; i++)
            __atomic_store_n(&head[i], next(&state) % 3 ? before[i] : next(&state),
                             __ATOMIC_RELAXED);
        for (int i = 0; i < 64; i++)
            __atomic_store_n((uint64_t *)(void *)slots + next(&state) % words, next(&state),
                             __ATOMIC_RELAXED);
        for (int rank = 0; rank < RANKS; rank++) /* so that cards and records are read */
            atomic_store_explicit(&weft_i_job_rank(page, rank)->life.state,
                                  next(&state) % 5 ? WEFT_I_RANK_HERE : (uint32_t)next(&state),
                                  memory_order_relaxed);
        for (size_t i = 1; i < sizeof before / 8; i++)
            __atomic_store_n(&head[i], before[i], __ATOMIC_RELAXED);
        atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
    }
    return NULL;
}

static void check_shown(const weft_job *job)
{
    weft_job_info info;
    CHECK_OK(weft_job_describe(job, &info));
    CHECK_INT(info.ranks, RANKS);
    for (int i = 0; i < info.ranks; i++) {
        weft_job_rank rank;
        int missing[RANKS];
        CHECK_OK(weft_job_describe_rank(job, i, &rank));
        CHECK(rank.silent_ns >= 0 && strlen(rank.now.name) < sizeof rank.now.name);
        for (const char *c = rank.now.group; *c; c++)
            CHECK(*c >= ' ' && *c <= '~');
        for (const char *c = rank.now.name; *c; c++)
            CHECK(*c >= ' ' && *c <= '~');
        CHECK(weft_job_missing(job, i, missing, RANKS) < RANKS);
    }
}

TEST(test_page_changes_while_looked_at)
{
    enum { LOOKS = 2000 };
    weft_i_segment *page = NULL;
    pthread_t thread;
    int shown = 0, refused = 0;
    int before = silence(); /* a warning for each look that is refused */
    CHECK_OK(weft_i_job_new(RANKS, WEFT_I_BETWEEN_PROCESSES, &page));
    atomic_store(&over, false);
    CHECK(!pthread_create(&thread, NULL, scribble, page->base));
    /* On a busy machine the other thread may not have run during the first ones. */
    for (int i = 0;
         i < LOOKS || (i < 100 * LOOKS && !(shown && refused && atomic_load(&rounds) > 10)); i++) {
        weft_scope_open();
        weft_clear_error();
        weft_job *job = weft_job_open(getpid());
        if (job)
            check_shown(job);
        else
            CHECK(weft_last_status() == WEFT_ERR_PROTOCOL ||
                  weft_last_status() == WEFT_ERR_VERSION ||
                  weft_last_status() == WEFT_ERR_NOT_FOUND);
        shown += job != NULL;
        refused += !job;
        weft_scope_close();
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    speak(before);
    weft_clear_error();
    weft_i_segment_drop(page);
    CHECK(shown && refused && atomic_load(&rounds) > 10); /* it did change meanwhile */
}

/* ---- a process that wants to cut memory off under the others ---- */

/* What ranks have mapped cannot be made shorter, so that touching it raises no SIGBUS. */
TEST(test_page_cannot_be_cut)
{
    weft_i_segment *page = NULL;
    CHECK_OK(weft_i_job_new(RANKS, WEFT_I_BETWEEN_PROCESSES, &page));
    for (off_t bytes = 0; bytes <= 1 << 30; bytes += 1 << 29) {
        CHECK(ftruncate(page->fd, bytes) < 0 && errno == EPERM);
        CHECK(fcntl(page->fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
    }
    CHECK(fallocate(page->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
    CHECK_INT(weft_i_job_of(page)->ranks, 0); /* a hole reads as zeros */
    weft_i_segment_drop(page);
}

/* ---- a rank that writes over the whole page ---- */

/* What it writes: nothing but ones, zeros, noise, or an offset that leads far away. */
static void wreck(char *page, size_t bytes, int how)
{
    uint64_t state = 1234567;
    if (how < 2)
        memset(page, how ? 0 : 0xff, bytes);
    for (size_t i = 0; how == 2 && i + 8 <= bytes; i += 8) {
        uint64_t word = next(&state);
        memcpy(page + i, &word, sizeof word);
    }
    weft_i_job *head = (weft_i_job *)(void *)page;
    if (how == 3)
        head->slots_at = (uint64_t)1 << 46;
    if (how == 4)
        head->slot_bytes = 1u << 31;
}

static int how_to_wreck;

static int rank_body(int rank, void *unused)
{
    (void)unused;
    const char *fd = getenv("WEFT_JOB_FD");
    weft_i_segment *segment = NULL;
    struct stat file;
    if (rank != 1)
        return pause(); /* until the launcher ends us */
    if (!fd || fstat(atoi(fd), &file) ||
        weft_i_segment_map(atoi(fd), (size_t)file.st_size, (weft_i_key){{0}}, &segment) < 0)
        return 9;
    wreck(segment->base, (size_t)file.st_size, how_to_wreck);
    return 7;
}

/* The launcher reports the rank's own exit code, ends the others, and leaves nobody behind. */
TEST(test_page_wrecked_by_a_rank)
{
    setenv("WEFT_KILL_GRACE", "100", 1);
    for (how_to_wreck = 0; how_to_wreck < 5; how_to_wreck++) {
        weft_launch_end end = {0};
        weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
        opts.ranks = RANKS;
        opts.body = rank_body;
        opts.timeout_ms = 20000;
        opts.end = &end;
        int before = silence(); /* its report is of no interest, but must be made */
        int code = weft_launch(&opts);
        speak(before);
        CHECK_INT(code, 7);
        CHECK_INT(end.first_rank, 1);
        CHECK_INT(end.exit_code, 7);
        CHECK(!end.timed_out);
        CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    }
    unsetenv("WEFT_KILL_GRACE");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
