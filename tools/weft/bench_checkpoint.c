/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: 256 MiB that are spread over 1, 2 and 4 ranks, saved and loaded, beside what the disk can
 * do: every rank writes the same bytes to a file of its own, all at once, until they are on the disk
 * (fsync) under their name (rename); or reads them again.  All four take turns, from a common start to
 * the end of the slowest rank.  What is read was just written, so it comes from memory in both.
 */
#include "bench.h"
#include "bench_options.h"

#include <weft/weft.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURNS = 9, WIDE = 1024, ROWS = 1 << 16 }; /* of f32 */
enum { SAVE, COPY, RAW_WRITE, LOAD, RAW_READ, KINDS };
_Static_assert(KINDS *TURNS <= BENCH_SAMPLES, "the board has room for all");

typedef struct job {
    bench_board *board;
    int turns;
    char folder[200];
} job;

typedef struct rank_state {
    weft_group *world;
    weft_checkpoint *checkpoint;
    weft_tensor *x; /* this rank's rows */
    char raw[256], fresh[264];
    int64_t step;
    double copied; /* ms, of the last save: until training goes on */
} rank_state;

/* ---- by hand ---- */

static int write_all(int fd, const char *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t n = write(fd, bytes + done, count - done);
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return fsync(fd);
}

static int raw_write(const rank_state *r)
{
    int fd = open(r->fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int failed = fd < 0 || write_all(fd, weft_tensor_data(r->x), weft_tensor_bytes(r->x));
    if (fd >= 0)
        failed |= close(fd);
    return failed ? -1 : rename(r->fresh, r->raw);
}

static int raw_read(const rank_state *r)
{
    char *bytes = weft_tensor_data(r->x);
    size_t count = weft_tensor_bytes(r->x), done = 0;
    int fd = open(r->raw, O_RDONLY | O_CLOEXEC);
    for (ssize_t n = fd < 0 ? 0 : 1; n > 0 && done<count; done += n> 0 ? (size_t)n : 0)
        n = read(fd, bytes + done, count - done);
    if (fd >= 0)
        close(fd);
    return done == count ? 0 : -1;
}

/* ---- a rank ---- */

static int save(rank_state *r)
{
    int64_t start = bench_ns();
    if (weft_checkpoint_save(r->checkpoint, r->step++) < 0)
        return -1;
    r->copied = (double)(bench_ns() - start) * 1e-6;
    return weft_checkpoint_wait(r->checkpoint) < 0 ? -1 : 0;
}

static int do_one(rank_state *r, int kind)
{
    switch (kind) {
    case SAVE:
        return save(r);
    case RAW_WRITE:
        return raw_write(r);
    case LOAD:
        return weft_checkpoint_load(r->checkpoint, NULL) < 0 ? -1 : 0;
    case RAW_READ:
        return raw_read(r);
    default:
        return 0;
    }
}

static int make(rank_state *r, const job *j, int rank, int size)
{
    char run[256];
    weft_shard_place place = WEFT_SHARD_PLACE_INIT;
    weft_checkpoint_opts opts = WEFT_CHECKPOINT_OPTS_INIT;
    opts.keep = 1;
    snprintf(run, sizeof run, "%s/run-%d", j->folder, size);
    snprintf(r->raw, sizeof r->raw, "%s/raw-%d-%d", j->folder, size, rank);
    snprintf(r->fresh, sizeof r->fresh, "%s.new", r->raw);
    place.full = WEFT_SHAPE(ROWS, WIDE);
    place.offset[0] = ROWS / size * rank;
    r->x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS / size, WIDE));
    r->checkpoint = weft_checkpoint_new(run, r->world, &opts);
    return weft_shard_mark(r->x, &place) < 0 ||
                   weft_checkpoint_add_tensor(r->checkpoint, "x", r->x) < 0
               ? -1
               : 0;
}

/* The first turn makes the files and the memory of the copy, and does not count. */
static int body(int rank, void *arg)
{
    const job *j = arg;
    rank_state r = {.world = weft_init(NULL)};
    int failed = !r.world || make(&r, j, rank, weft_size(r.world));
    for (int turn = -1; turn < j->turns && !failed; turn++)
        for (int kind = 0; kind < KINDS && !failed; kind++) {
            failed = weft_group_barrier(r.world, WEFT_DEFAULT) < 0;
            int64_t start = bench_ns();
            failed |= do_one(&r, kind) || weft_group_barrier(r.world, WEFT_DEFAULT) < 0;
            double ms = kind == COPY ? r.copied : (double)(bench_ns() - start) * 1e-6;
            if (turn >= 0)
                j->board->sample[rank][kind * TURNS + turn] = ms;
        }
    if (failed)
        fprintf(stderr, "weft bench checkpoint: %s\n",
                weft_last_status() < 0 ? weft_last_error() : strerror(errno));
    return weft_finish(r.world) || failed;
}

/* ---- the command ---- */

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    return remove(path);
}

static double median_of(const job *j, int kind)
{
    return bench_quantile(j->board->sample[0] + kind * TURNS, j->turns, 0.5);
}

static int measure(bench_style *style, job *j, int ranks)
{
    if (bench_ranks(ranks, body, j))
        return -1;
    bench_row(style, "256 MiB saved, by write", ranks, "ms", median_of(j, SAVE),
              median_of(j, RAW_WRITE));
    bench_row(style, "  until training goes on", ranks, "ms", median_of(j, COPY), 0);
    bench_row(style, "256 MiB loaded, by read", ranks, "ms", median_of(j, LOAD),
              median_of(j, RAW_READ));
    return 0;
}

int bench_checkpoint(bench_style *style)
{
    const char *place = getenv("TMPDIR");
    job j = {.board = bench_board_new(), .turns = bench_turns(style, TURNS)};
    int n = snprintf(j.folder, sizeof j.folder, "%s/weft-bench-%ld", place ? place : "/tmp",
                     (long)getpid());
    if (!j.board || n < 0 || n >= (int)sizeof j.folder || mkdir(j.folder, 0700)) {
        fprintf(stderr, "weft bench checkpoint: the folder %s: %s\n", j.folder, strerror(errno));
        return 1;
    }
    int failed = 0;
    for (int ranks = 1; ranks <= 4 && !failed; ranks *= 2)
        failed = measure(style, &j, ranks);
    if (nftw(j.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS))
        fprintf(stderr, "weft bench checkpoint: removing %s: %s\n", j.folder, strerror(errno));
    bench_board_free(j.board);
    return failed ? 1 : 0;
}
