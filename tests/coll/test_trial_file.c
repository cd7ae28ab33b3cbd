/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/trial_file.c */
/* What trials have taught, in a file: written, read, merged, damaged, somebody else's. */
#include "harness.h"
#include "harness_cache.h"

#include "base/os/os.h"
#include "coll/lane/trial_file.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 2, FULL = WEFT_I_TRIAL_RUNS };

static void fill(weft_i_trials trials)
{
    memset(trials, 0, sizeof(weft_i_trials));
    trials[WEFT_I_ALL_GATHER][3] = (weft_i_trial){{1000, 2000}, {FULL, FULL}, {0, 0}, 0, 0};
    trials[WEFT_I_ALL_REDUCE][0] = (weft_i_trial){{7, 5}, {FULL, FULL}, {0, 0}, 0, 0};
    trials[WEFT_I_REDUCE][1] =
        (weft_i_trial){{7, 0}, {FULL, 0}, {0, 0}, 0, 0}; /* half known: not kept */
}

static size_t read_whole(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "rb");
    CHECK(file);
    size_t length = fread(text, 1, room - 1, file);
    fclose(file);
    text[length] = 0;
    return length;
}

static void write_whole(const char *path, const char *text, size_t length)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, length), (long)length);
    close(fd);
}

/* With the right digest below. */
static void write_sealed(const char *path, const char *body)
{
    char text[8192];
    uint64_t sum = 0xcbf29ce484222325u;
    for (const char *at = body; *at; at++)
        sum = (sum ^ (unsigned char)*at) * 0x100000001b3u;
    int length = snprintf(text, sizeof text, "%sdigest %016" PRIx64 "\n", body, sum);
    write_whole(path, text, (size_t)length);
}

static int known(void)
{
    weft_i_trials trials;
    memset(trials, 0, sizeof trials);
    return weft_i_trial_file_read(RANKS, trials);
}

TEST(test_trial_file)
{
    weft_i_trials out, in;
    char path[WEFT_I_TRIAL_PATH], other[WEFT_I_TRIAL_PATH];
    harness_cache_each(harness_cache_remove);
    CHECK_INT(known(), 0);
    fill(out);
    CHECK(weft_i_trial_file_write(RANKS, out));
    memset(in, 0, sizeof in);
    CHECK_INT(weft_i_trial_file_read(RANKS, in), 2);
    CHECK_INT(in[WEFT_I_ALL_GATHER][3].mean[1], 2000);
    CHECK_INT(in[WEFT_I_ALL_REDUCE][0].mean[0], 7);
    CHECK_INT(in[WEFT_I_REDUCE][1].runs[0], 0);
    CHECK(weft_i_trial_file_path(RANKS, path) && weft_i_trial_file_path(4, other));
    CHECK(strcmp(path, other) != 0);
    memset(in, 0, sizeof in);
    CHECK_INT(weft_i_trial_file_read(4, in), 0);
    CHECK_INT(harness_cache_each(NULL), 1); /* no part is left */
}

TEST(test_trial_described)
{
    weft_i_trials out;
    weft_tune_time time;
    fill(out);
    CHECK(weft_i_trial_file_write(RANKS, out));
    CHECK_INT(weft_tune_count(RANKS), 2);
    CHECK_OK(weft_tune_describe(RANKS, 1, &time));
    CHECK(!strcmp(time.op, "all_gather") && time.bytes == 8 * 64 << 10);
    CHECK(time.staged_ns == 1000 && time.cma_ns == 2000);
    CHECK_INT(weft_tune_describe(RANKS, 2, &time), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tune_describe(RANKS, -1, &time), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tune_describe(RANKS, 0, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tune_count(-1), 0);
    CHECK_INT(weft_tune_count(RANKS + 5), 0); /* of which nothing is written */
    CHECK_INT(weft_tune_describe(RANKS + 5, 0, &time), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "weft_tune_describe: row 0 of");
}

TEST(test_trial_file_cut_or_changed)
{
    weft_i_trials out;
    char path[WEFT_I_TRIAL_PATH], text[8192];
    fill(out);
    CHECK(weft_i_trial_file_write(RANKS, out) && weft_i_trial_file_path(RANKS, path));
    size_t length = read_whole(path, text, sizeof text);
    for (size_t cut = 0; cut < length; cut++) {
        write_whole(path, text, cut);
        CHECK_INT(known(), 0);
    }
    for (size_t at = 0; at < length; at++) {
        text[at] ^= 1;
        write_whole(path, text, length);
        CHECK_INT(known(), 0);
        text[at] ^= 1;
    }
    write_whole(path, text, length);
    CHECK_INT(known(), 2);
}

/* Only where WEFT_LEARN asks for it; and what the lane does not know stays in the file. */
TEST(test_trial_file_merged)
{
    weft_i_trials mine, all;
    memset(mine, 0, sizeof mine);
    mine[WEFT_I_ALL_REDUCE][0] = (weft_i_trial){{70, 50}, {FULL, FULL}, {0, 0}, 0, 0};
    mine[WEFT_I_ALL_TO_ALL][WEFT_I_TRIAL_SIZES - 1] =
        (weft_i_trial){{INT32_MAX, 1}, {FULL, FULL}, {0, 0}, 0, 0};
    mine[WEFT_I_BROADCAST][2] =
        (weft_i_trial){{7, 7}, {FULL - 1, FULL}, {0, 0}, 0, 0}; /* not yet */
    mine[WEFT_I_BROADCAST][3] = (weft_i_trial){{7, 7}, {FULL, FULL - 1}, {0, 0}, 0, 0};
    fill(all);
    harness_cache_each(harness_cache_remove);
    CHECK(weft_i_trial_file_write(RANKS, all));
    setenv("WEFT_LEARN", "0", 1);
    weft_i_trial_keep(RANKS, mine);
    memset(all, 0, sizeof all);
    weft_i_trial_remember(RANKS, all);
    CHECK_INT(all[WEFT_I_ALL_REDUCE][0].runs[0], 0);
    setenv("WEFT_LEARN", "1", 1);
    weft_i_trial_remember(RANKS, all);
    CHECK_INT(all[WEFT_I_ALL_REDUCE][0].mean[0], 7);
    weft_i_trial_keep(RANKS, mine);
    unsetenv("WEFT_LEARN");
    memset(all, 0, sizeof all);
    CHECK_INT(weft_i_trial_file_read(RANKS, all), 3);
    CHECK(all[WEFT_I_ALL_REDUCE][0].mean[0] == 70 && all[WEFT_I_ALL_REDUCE][0].mean[1] == 50 &&
          all[WEFT_I_ALL_REDUCE][0].runs[0] == FULL);
    CHECK(all[WEFT_I_ALL_REDUCE][0].kept[0] == WEFT_I_TRIAL_COLD &&
          all[WEFT_I_ALL_REDUCE][0].kept[1] == WEFT_I_TRIAL_COLD);
    CHECK_INT(all[WEFT_I_ALL_GATHER][3].mean[1], 2000);
    const weft_i_trial *last = &all[WEFT_I_ALL_TO_ALL][WEFT_I_TRIAL_SIZES - 1];
    CHECK(last->mean[0] == INT32_MAX && last->mean[1] == 1 && last->runs[1] == FULL);
}

/* Rows that make no sense are passed over; a file of another machine is not read at all. */
TEST(test_trial_file_foreign)
{
    weft_i_trials out;
    char path[WEFT_I_TRIAL_PATH], text[8192], body[16384];
    fill(out);
    CHECK(weft_i_trial_file_write(RANKS, out) && weft_i_trial_file_path(RANKS, path));
    read_whole(path, text, sizeof text);
    char *rows = strchr(strchr(text, '\n') + 1, '\n') + 1, version[64];
    *rows = 0;
    snprintf(version, sizeof version, ", weft %s\n", weft_version());
    CHECK(!strcmp(rows - strlen(version), version)); /* another one measures anew */
    snprintf(body, sizeof body,
             "%sall_gather 65536 0 5\nall_gather 65536 5 4294967295\nall_gather 65537 5 5\n"
             "send 65536 5 5\nnothing 65536 5 5\nall_gather -1 5 5\nall_gather\n\n%s%s",
             text,
             "barrier 65536 5 5\nall_gather 268435456 5 5\nall_gather 65536 2147483648 5\n"
             "all_gather 65536 5 0\nall_gather 32768 5 5\nall_gather 65536 5 2147483648\n",
             "all_gather 131072 5 5\n");
    write_sealed(path, body);
    CHECK_INT(known(), 1);
    snprintf(body, sizeof body, "%sall_gather 134217728 5 2147483647\n", text);
    write_sealed(path, body);
    CHECK_INT(known(), 1);
    snprintf(body, sizeof body, "weft trials 1\nmachine another\nall_gather 131072 5 5\n");
    write_sealed(path, body);
    CHECK_INT(known(), 0);
    memset(body, 'x', sizeof body);
    body[sizeof body - 1] = 0;
    write_whole(path, body, sizeof body); /* long */
    CHECK_INT(known(), 0);
}

/* Links, FIFOs, files that others may write to, and folders that are none: no cache, no failure. */
TEST(test_trial_file_hostile)
{
    weft_i_trials out;
    char path[WEFT_I_TRIAL_PATH], target[WEFT_I_TRIAL_PATH + 8];
    fill(out);
    CHECK(weft_i_trial_file_write(RANKS, out) && weft_i_trial_file_path(RANKS, path));
    snprintf(target, sizeof target, "%s.real", path);
    CHECK(!chmod(path, 0666));
    CHECK_INT(known(), 0);
    CHECK(!chmod(path, 0600) && known() == 2);
    CHECK(!rename(path, target) && !symlink(target, path));
    CHECK_INT(known(), 0);
    CHECK(weft_i_trial_file_write(RANKS, out)); /* in the place of the link, not through it */
    struct stat about;
    CHECK(!lstat(path, &about) && S_ISREG(about.st_mode));
    CHECK(!unlink(path) && !mkfifo(path, 0600));
    CHECK_INT(known(), 0);
    CHECK(!unlink(path) && !mkdir(path, 0700));
    CHECK_INT(known(), 0);
    CHECK(!weft_i_trial_file_write(RANKS, out));
    CHECK(!rmdir(path));
    CHECK_INT(harness_cache_each(NULL), 1); /* the link's target, and no part */
    setenv("WEFT_CACHE_DIR", target, 1);    /* a file */
    CHECK(!weft_i_trial_file_write(RANKS, out));
    CHECK_INT(known(), 0);
    setenv("WEFT_CACHE_DIR", harness_cache, 1);
}

int main(int argc, char **argv)
{
    return harness_cache_main(argc, argv);
}
