/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: train/checkpoint.c, train/checkpoint_plan.c, train/checkpoint_folder.c, train/portion.c, train/checkpoint_copy.c, train/checkpoint_files.c, train/checkpoint_items.c, train/checkpoint_match.c, train/checkpoint_restore.c, train/disk.c */
/* Training that stops and goes on: on other numbers of ranks, spread in other ways; damage; strangers. */
#define FAULT_FILES
#include "fault.h"
#include "folder.h"
#include "spread.h"

#include "harness.h"
#include "train/portion.h"
#include "values_seed.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

enum { BEFORE = 3, AFTER = 3 };

/* ---- parts ---- */

/* Parts of every kind, put together from parts of every other kind. */
static weft_i_portion part(weft_shape full, weft_shape own, const int64_t *offset, int dim, int n)
{
    weft_i_portion p = {.name = "x", .dtype = WEFT_F32, .shape = own, .full = full};
    memcpy(p.offset, offset, (size_t)full.ndim * sizeof *offset);
    p.stripe_dim = dim;
    p.stripes = n;
    CHECK_OK(weft_i_portion_check(&p));
    return p;
}

/* How a 12 x 6 tensor is cut, in `count` parts. */
static int cuts(int kind, weft_i_portion *out)
{
    weft_shape full = WEFT_SHAPE(12, 6);
    int count = 0;
    if (kind == 0)
        out[count++] = part(full, full, (int64_t[]){0, 0}, 0, 1);
    for (int i = 0; kind == 1 && i < 3; i++) /* rows, the last ones fewer */
        out[count++] = part(full, WEFT_SHAPE(i < 2 ? 5 : 2, 6), (int64_t[]){5 * i, 0}, 0, 1);
    for (int i = 0; kind == 2 && i < 2; i++) /* of each of three stripes a half */
        out[count++] = part(full, WEFT_SHAPE(6, 6), (int64_t[]){2 * i, 0}, 0, 3);
    for (int i = 0; kind == 3 && i < 4; i++) /* both dimensions */
        out[count++] = part(full, WEFT_SHAPE(6, 3), (int64_t[]){6 * (i / 2), 3 * (i % 2)}, 0, 1);
    for (int i = 0; kind == 4 && i < 3; i++) /* stripes of columns */
        out[count++] = part(full, WEFT_SHAPE(12, 2), (int64_t[]){0, i}, 1, 2);
    return count;
}

static weft_tensor *take(weft_tensor *whole, const weft_i_portion *p)
{
    weft_i_portion all = *p;
    all.shape = all.full;
    all.stripes = 1;
    memset(all.offset, 0, sizeof all.offset);
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, p->shape);
    CHECK_OK(weft_i_portion_copy(out, p, whole, &all));
    return out;
}

TEST(test_portions_of_every_kind)
{
    weft_tensor *whole = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 72, 1), WEFT_SHAPE(12, 6));
    for (int from = 0; from < 5; from++)
        for (int to = 0; to < 5; to++) {
            weft_i_portion a[4], b[4];
            int n = cuts(from, a), m = cuts(to, b);
            CHECK_OK(weft_i_portion_check_whole(a, n));
            for (int i = 0; i < m; i++) {
                weft_tensor *got = weft_zeros(WEFT_F32, WEFT_CPU, b[i].shape);
                for (int k = 0; k < n; k++)
                    CHECK_OK(weft_i_portion_copy(got, &b[i], take(whole, &a[k]), &a[k]));
                CHECK_NEAR(distance(got, take(whole, &b[i])), 0, 0);
            }
        }
    weft_i_portion a[4];
    cuts(1, a);
    CHECK_STATUS(weft_i_portion_check_whole(a, 2), WEFT_ERR_INVALID_ARG);
    a[1].offset[0] = 4;
    CHECK_STATUS(weft_i_portion_check_whole(a, 3), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "overlap");
    weft_clear_error();
}

TEST(test_portion_text)
{
    for (int kind = 0; kind < 5; kind++) {
        weft_i_portion p[4], q;
        int n = cuts(kind, p);
        for (int i = 0; i < n; i++) {
            char text[WEFT_I_PORTION_TEXT];
            const char *end;
            weft_i_portion_write(&p[i], text);
            q = p[i];
            CHECK(weft_i_portion_read(&q, text, &end) && !*end);
            CHECK(weft_i_portion_same(&p[i], &q));
        }
    }
    weft_i_portion p = {.name = "x", .shape = WEFT_SHAPE(2)};
    const char *end, *const bad[] = {"",
                                     "of",
                                     "of 4",
                                     "of 4 at",
                                     "of x at 0",
                                     "of 4 at 99999999999999999999",
                                     "of 4 at 0 in 0",
                                     "of 4 at 0 in 0,99999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!weft_i_portion_read(&p, bad[i], &end));
    CHECK(weft_i_portion_read(&p, "of 4 at 0 in 0,0", &end));
    CHECK_STATUS(weft_i_portion_check(&p), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

/* Beside a sanitizer fewer of the same. */
enum { MOVES_ONE_OF = VALUES_SANITIZED ? 3 : 1, BYTES = VALUES_SANITIZED ? 7 : 1 };

/* ---- there and elsewhere ---- */

/* Trains, saves, and goes on in another way; the losses are those of one rank that never stopped. */
static void move(weft_group *world, const truth *t, way from, way to, int ranks)
{
    path_text folder;
    make_common_tree(folder, world);
    CHECK_OK(weft_scope_open());
    job a = begin(world, from, weft_size(world), false, folder, false, NULL);
    add_position(&a);
    for (int s = 0; s < BEFORE; s++)
        CHECK_NEAR(train_step(&a, s), t->loss[s], 1e-6);
    CHECK_OK(weft_checkpoint_save(a.checkpoint, BEFORE));
    CHECK_OK(weft_checkpoint_wait(a.checkpoint));
    job b = begin(world, to, ranks, false, folder, true, NULL);
    add_position(&b);
    int64_t step = -1;
    CHECK_OK(weft_checkpoint_load(b.checkpoint, &step));
    CHECK_INT(step, BEFORE);
    CHECK_INT(b.position, BEFORE);
    for (int s = BEFORE; s < BEFORE + AFTER; s++) {
        double loss = train_step(&b, s);
        if (!(fabs(loss - t->loss[s]) <= 2e-6))
            FAIL("from way %d to way %d on %d ranks: the loss of step %d is %.9g, not %.9g", from,
                 to, ranks, s, loss, t->loss[s]);
    }
    CHECK_OK(weft_scope_close());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (weft_rank(world) == 0)
        remove_tree(folder);
}

RANKS_TEST(test_checkpoint_moves, 4)
{
    static const struct {
        way from, to;
        int ranks;
    } moves[] = {{SHARDED, SHARDED, 2}, {SHARDED, CUT, 4},       {CUT, SHARDED, 4},
                 {BOTH, ALONE, 1},      {BOTH, SHARDED, 4},      {REPLICATED, BOTH, 4},
                 {CUT, CUT, 2},         {SHARDED, REPLICATED, 2}};
    weft_group *world = join(0);
    truth t;
    find_truth(&t, BEFORE + AFTER);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if ((i + (size_t)values_first(0, MOVES_ONE_OF)) % MOVES_ONE_OF == 0)
            move(world, &t, moves[i].from, moves[i].to, moves[i].ranks);
    finish(world);
}

/* The bits of a run that never stopped, random numbers included. */
static void resume_same(weft_group *world, way how)
{
    path_text folder;
    double never[BEFORE + AFTER];
    uint64_t random[2] = {0, 0};
    make_common_tree(folder, world);
    CHECK_OK(weft_scope_open());
    weft_checkpoint_opts opts = WEFT_CHECKPOINT_OPTS_INIT;
    job a = begin(world, how, weft_size(world), true, folder, false, &opts);
    for (int s = 0; s < BEFORE + AFTER; s++) {
        never[s] = train_step(&a, s);
        weft_seed(77 + (uint64_t)weft_rank(world));
        weft_item(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5)), 0);
        if (s == BEFORE - 1) /* written while the next steps change everything */
            CHECK_OK(weft_checkpoint_save(a.checkpoint, BEFORE));
        if (s == BEFORE - 1)
            random[0] =
                (uint64_t)(weft_item(weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1)), 0) * 1e15);
    }
    CHECK_OK(weft_checkpoint_wait(a.checkpoint));
    job b = begin(world, how, weft_size(world), true, folder, true, &opts);
    CHECK_OK(weft_checkpoint_load_step(b.checkpoint, BEFORE));
    random[1] = (uint64_t)(weft_item(weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1)), 0) * 1e15);
    CHECK_INT(random[0], random[1]);
    for (int s = BEFORE; s < BEFORE + AFTER; s++)
        CHECK(train_step(&b, s) == never[s]);
    weft_named mine[PARAMS], theirs[PARAMS];
    int count = weft_module_params(a.net, mine, PARAMS);
    CHECK_INT(weft_module_params(b.net, theirs, PARAMS), count);
    for (int i = 0; i < count; i++)
        CHECK(!weft_tensor_numel(mine[i].tensor) ||
              !memcmp(weft_tensor_data(mine[i].tensor), weft_tensor_data(theirs[i].tensor),
                      weft_tensor_bytes(mine[i].tensor)));
    CHECK_OK(weft_scope_close());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (weft_rank(world) == 0)
        remove_tree(folder);
}

RANKS_TEST(test_checkpoint_resumes_bit_by_bit, 4)
{
    weft_group *world = join(0);
    resume_same(world, SHARDED);
    resume_same(world, BOTH);
    finish(world);
}

/* ---- one rank ---- */

/* A small thing to be saved: a tensor and a value. */
typedef struct thing {
    weft_tensor *x;
    int64_t value;
    weft_checkpoint *checkpoint;
} thing;

static void make_thing(thing *t, weft_group *group, const char *folder, weft_shape shape, int keep)
{
    weft_checkpoint_opts opts = WEFT_CHECKPOINT_OPTS_INIT;
    opts.keep = keep;
    opts.wait = true;
    t->x = weft_zeros(WEFT_F32, WEFT_CPU, shape);
    t->value = 0;
    t->checkpoint = weft_checkpoint_new(folder, group, &opts);
    CHECK_OK(weft_checkpoint_add_tensor(t->checkpoint, "x", t->x));
    CHECK_OK(weft_checkpoint_add_value(t->checkpoint, "value", &t->value, sizeof t->value));
}

static void save_thing(thing *t, int64_t step)
{
    CHECK_OK(weft_fill(t->x, (double)step));
    t->value = 10 * step;
    CHECK_OK(weft_checkpoint_save(t->checkpoint, step));
}

static void check_thing(const thing *t, int64_t step)
{
    CHECK_NEAR(weft_item(t->x, 0), (double)step, 0);
    CHECK_INT(t->value, 10 * step);
}

RANKS_TEST(test_checkpoint_keeps_the_newest, 1)
{
    path_text folder;
    thing t;
    int64_t step = 0;
    weft_group *world = join(0);
    make_tree(folder);
    make_thing(&t, world, folder, WEFT_SHAPE(4), 2);
    CHECK_STATUS(weft_checkpoint_load(t.checkpoint, &step), WEFT_ERR_NOT_FOUND);
    for (int s = 1; s <= 4; s++)
        save_thing(&t, s);
    CHECK(!is_there(folder, "step-000000000002") && is_there(folder, "step-000000000003") &&
          is_there(folder, "step-000000000004"));
    /* Gone back: what is saved from there on is newer than what lies ahead. */
    CHECK_OK(weft_checkpoint_load_step(t.checkpoint, 3));
    check_thing(&t, 3);
    save_thing(&t, 2);
    CHECK_OK(weft_checkpoint_load(t.checkpoint, &step));
    CHECK_INT(step, 2);
    check_thing(&t, 2);
    /* The same step again takes the place of the first. */
    CHECK_OK(weft_fill(t.x, 7));
    CHECK_OK(weft_checkpoint_save(t.checkpoint, 2));
    CHECK_OK(weft_checkpoint_load(t.checkpoint, &step));
    CHECK_NEAR(weft_item(t.x, 3), 7, 0);
    CHECK(!is_there(folder, "writing-000000000002"));
    remove_tree(folder);
    finish(world);
}

/* Every byte of every file, changed, is noticed, or is padding that means nothing; then the older one
 * is taken. */
RANKS_TEST(test_checkpoint_damage, 1)
{
    path_text folder, path;
    thing t;
    int64_t step;
    weft_group *world = join(0);
    make_tree(folder);
    make_thing(&t, world, folder, WEFT_SHAPE(16), 2);
    save_thing(&t, 1);
    save_thing(&t, 2);
    static const char *const files[] = {"step-000000000002/index.json",
                                        "step-000000000002/part-00001-of-00001.safetensors"};
    for (int f = 0; f < 2; f++) {
        join_path(path, folder, files[f]);
        off_t bytes_there = size_of_file(path);
        CHECK(bytes_there > 0);
        for (off_t at = 0; at < bytes_there; at += at % 3 + BYTES) {
            flip_bit(path, at);
            CHECK_OK(weft_fill(t.x, -1));
            CHECK_OK(weft_checkpoint_load(t.checkpoint, &step));
            if (step != 1)
                FAIL("byte %lld of %s was changed, and nobody noticed", (long long)at, files[f]);
            check_thing(&t, 1);
            flip_bit(path, at);
        }
        for (off_t cut = 0; cut < bytes_there; cut += 37 * BYTES) {
            static char bytes[1 << 16];
            size_t count = read_bytes(path, bytes, sizeof bytes);
            write_bytes(path, bytes, (size_t)cut);
            CHECK_OK(weft_checkpoint_load(t.checkpoint, &step));
            CHECK_INT(step, 1);
            write_bytes(path, bytes, count);
        }
    }
    CHECK_OK(weft_checkpoint_load(t.checkpoint, &step));
    CHECK_INT(step, 2);
    /* None is whole: an error, not a new beginning. */
    flip_bit(path, 9);
    CHECK_STATUS(weft_checkpoint_load_step(t.checkpoint, 2), WEFT_ERR_IO);
    join_path(path, folder, "step-000000000001/index.json");
    flip_bit(path, 9);
    CHECK_STATUS(weft_checkpoint_load(t.checkpoint, &step), WEFT_ERR_IO);
    check_thing(&t, 2);
    remove_tree(folder);
    finish(world);
}

/* ---- faults ---- */

static weft_status status_of_save(thing *t, int64_t step)
{
    weft_status status = weft_fill(t->x, (double)step);
    t->value = 10 * step;
    return status < 0 ? status : weft_checkpoint_save(t->checkpoint, step);
}

static ssize_t no_room(int fd, const void *bytes, size_t count)
{
    (void)fd, (void)bytes, (void)count;
    errno = ENOSPC;
    return -1;
}

static weft_i_os full_table;

/* Before there are threads, which may read it at any time. */
__attribute__((constructor)) static void fill_full_table(void)
{
    full_table = weft_i_os_linux;
    full_table.write = no_room;
}

/* Whatever call fails, a full disk among them: the checkpoint before is whole, or the new one is. */
RANKS_TEST(test_checkpoint_save_faults, 1)
{
    path_text folder;
    thing t;
    int64_t step;
    int failed = 0;
    weft_group *world = join(0);
    make_tree(folder);
    make_thing(&t, world, folder, WEFT_SHAPE(16), 2);
    save_thing(&t, 1);
    for (int n = 1;; n++) {
        fault_arm(n);
        weft_status status = status_of_save(&t, 2);
        bool fired = fault_disarm();
        failed += status < 0;
        CHECK_OK(weft_fill(t.x, -1));
        CHECK_OK(weft_checkpoint_load(t.checkpoint, &step));
        if (step != 2 && (step != 1 || status >= 0))
            FAIL("call %d (%s): the save gave %d, and the load step %lld", n, fault_name, status,
                 (long long)step);
        check_thing(&t, step);
        if (!fired)
            break;
        save_thing(&t, 1);
    }
    CHECK(failed > 20);
    remove_tree(folder);
    finish(world);
}

/* A load fails, or gives all of the newest: want of memory is not taken for damage. */
RANKS_TEST(test_checkpoint_load_faults, 1)
{
    path_text folder;
    thing t;
    int64_t step;
    int failed = 0;
    weft_group *world = join(0);
    make_tree(folder);
    make_thing(&t, world, folder, WEFT_SHAPE(16), 2);
    save_thing(&t, 1);
    save_thing(&t, 2);
    for (int n = 1;; n++) {
        CHECK_OK(weft_fill(t.x, -1));
        t.value = -10;
        fault_arm(n);
        weft_status status = weft_checkpoint_load(t.checkpoint, &step);
        bool fired = fault_disarm();
        failed += status < 0;
        if (status < 0) /* from here on nothing is in its way */
            CHECK_OK(weft_checkpoint_load(t.checkpoint, &step));
        if (step != 2)
            FAIL("call %d (%s): step %lld was loaded", n, fault_name, (long long)step);
        check_thing(&t, 2);
        if (!fired)
            break;
    }
    CHECK(failed > 20);
    remove_tree(folder);
    finish(world);
}

/* One rank's disk is full: all learn of it, and the last checkpoint is still there. */
RANKS_TEST(test_checkpoint_full_disk, 2)
{
    path_text folder;
    int64_t step;
    if (harness_in_threads)
        return; /* they share the table of calls */
    weft_group *world = join(0);
    make_common_tree(folder, world);
    job a = begin(world, SHARDED, 2, true, folder, false, NULL);
    CHECK_OK(weft_checkpoint_save(a.checkpoint, 1));
    CHECK_OK(weft_checkpoint_wait(a.checkpoint));
    train_step(&a, 0);
    if (rank == 1)
        weft_i_os_now = &full_table;
    CHECK_OK(weft_checkpoint_save(a.checkpoint, 2));
    weft_status status = weft_checkpoint_wait(a.checkpoint);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(status, WEFT_ERR_NO_SPACE);
    CHECK_CONTAINS(weft_last_error(), "the save of step 2: rank 1: writing");
    CHECK_OK(weft_checkpoint_wait(a.checkpoint)); /* it was told */
    CHECK_OK(weft_checkpoint_load(a.checkpoint, &step));
    CHECK_INT(step, 1);
    CHECK_OK(weft_checkpoint_save(a.checkpoint, 3));
    CHECK_OK(weft_checkpoint_wait(a.checkpoint));
    CHECK(!is_there(folder, "writing-000000000002"));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0)
        remove_tree(folder);
    finish(world);
}

/* ---- of something else ---- */

RANKS_TEST(test_checkpoint_of_something_else, 2)
{
    path_text folder;
    thing t;
    weft_group *world = join(0);
    make_common_tree(folder, world);
    make_thing(&t, world, folder, WEFT_SHAPE(4), 0);
    save_thing(&t, 5);
    struct {
        const char *name;
        weft_tensor *x;
        size_t bytes;
        const char *why;
    } other[] = {
        {"x", weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5)), 8,
         "f32 [4] in the checkpoint, and f32 [5]"},
        {"x", weft_ones(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4)), 8,
         "f32 [4] in the checkpoint, and f64 [4]"},
        {"y", weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), 8, "it has no \"y\""},
        {"x", weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), 4, "8 bytes in the checkpoint, and 4"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        /* On one rank only: all learn of it. */
        bool strange = rank == 1;
        weft_tensor *same = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                    *x = strange ? other[i].x : same;
        int64_t value = -1;
        weft_checkpoint *c = weft_checkpoint_new(folder, world, NULL);
        CHECK_OK(weft_checkpoint_add_tensor(c, strange ? other[i].name : "x", x));
        CHECK_OK(weft_checkpoint_add_value(c, "value", &value, strange ? other[i].bytes : 8));
        CHECK_STATUS(weft_checkpoint_load(c, NULL), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), other[i].why);
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        CHECK_NEAR(weft_item(x, 0), 1, 0);
        CHECK_INT(value, -1);
    }
    /* A module of other layers: the names of both. */
    weft_module *net = weft_nn_linear(3, 3);
    weft_checkpoint *c = weft_checkpoint_new(folder, world, NULL);
    CHECK_OK(weft_checkpoint_add_module(c, "x", net));
    CHECK_STATUS(weft_checkpoint_load(c, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(),
                   "it has no \"x.weight\", \"x.bias\"; nothing here has its \"x\"");
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0)
        remove_tree(folder);
    finish(world);
}

/* What is not asked for stays in the files: a model without its optimizer. */
RANKS_TEST(test_checkpoint_in_part, 2)
{
    path_text folder;
    weft_group *world = join(0);
    make_common_tree(folder, world);
    job a = begin(world, SHARDED, 2, true, folder, false, NULL);
    train_step(&a, 0);
    CHECK_OK(weft_checkpoint_save(a.checkpoint, 1));
    CHECK_OK(weft_checkpoint_wait(a.checkpoint));
    weft_module *net = new_gpt();
    weft_checkpoint *c = weft_checkpoint_new(folder, world, NULL);
    CHECK_OK(weft_checkpoint_add_module(c, "model", net));
    CHECK_OK(weft_checkpoint_load(c, NULL));
    weft_named mine[PARAMS], theirs[PARAMS];
    int count = weft_module_params(a.net, mine, PARAMS);
    CHECK_INT(weft_module_params(net, theirs, PARAMS), count);
    for (int i = 0; i < count; i++) {
        weft_shard_place place;
        weft_shard_place_of(mine[i].tensor, &place);
        CHECK_NEAR(
            distance(mine[i].tensor, part_of(theirs[i].tensor, mine[i].tensor, place.offset)), 0,
            0);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0)
        remove_tree(folder);
    finish(world);
}

/* ---- calls ---- */

RANKS_TEST(test_checkpoint_calls, 2)
{
    path_text folder;
    weft_group *world = join(0);
    make_common_tree(folder, world);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    int64_t value = 1;
    weft_checkpoint_opts opts = WEFT_CHECKPOINT_OPTS_INIT;
    opts.keep = -1;
    CHECK(!weft_checkpoint_new(folder, world, &opts));
    CHECK(!weft_checkpoint_new("", world, NULL));
    weft_clear_error();
    CHECK(!weft_checkpoint_new(folder, NULL, NULL));
    weft_checkpoint *c = weft_checkpoint_new(folder, world, NULL);
    CHECK_OK(weft_checkpoint_add_tensor(c, "model.x", x));
    CHECK_STATUS(weft_checkpoint_add_tensor(c, "model.x", x), WEFT_ERR_EXISTS);
    CHECK_STATUS(weft_checkpoint_add_tensor(c, "model", x), WEFT_ERR_EXISTS);
    CHECK_STATUS(weft_checkpoint_add_tensor(c, "", x), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_checkpoint_add_value(c, "v", &value, 0), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_checkpoint_add_value(c, "v", &value, sizeof value));
    CHECK_STATUS(weft_checkpoint_save(c, -1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_checkpoint_load_step(c, -1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_checkpoint_load_step(c, 3), WEFT_ERR_NOT_FOUND);
    /* The ranks differ: in a step, in a value, in what they have. */
    CHECK_STATUS(weft_checkpoint_save(c, rank), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "step 0 into");
    value = rank;
    CHECK_STATUS(weft_checkpoint_save(c, 1), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "\"v\" with bytes");
    value = 1;
    weft_shard_place place = WEFT_SHARD_PLACE_INIT;
    place.full = WEFT_SHAPE(12);
    place.offset[0] = 4 * rank;
    CHECK_OK(weft_shard_mark(x, &place));
    CHECK_STATUS(weft_checkpoint_save(c, 1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "the parts of \"model.x\" have 8 elements");
    CHECK(!is_there(folder, "step-000000000001") && !is_there(folder, "writing-000000000001"));
    place.full = WEFT_SHAPE(8);
    CHECK_OK(weft_shard_mark(x, &place));
    CHECK_OK(weft_checkpoint_save(c, 1));
    CHECK_OK(weft_checkpoint_wait(c));
    CHECK_OK(weft_checkpoint_wait(c));
    CHECK_OK(weft_checkpoint_load(c, NULL));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0)
        remove_tree(folder);
    finish(world);
}

/* A child that holds the lock of `folder`, and then writes to the pipe and sleeps `ms`. */
static pid_t hold_lock(const char *folder, int ms)
{
    char path[600], byte = 0;
    int told[2];
    snprintf(path, sizeof path, "%s/lock", folder);
    CHECK_INT(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_RDWR);
        bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && write(told[1], &byte, 1) == 1;
        if (held)
            usleep((useconds_t)ms * 1000);
        _exit(!held);
    }
    close(told[1]);
    CHECK_INT(read(told[0], &byte, 1), 1);
    close(told[0]);
    return child;
}

/* Who holds the lock for this job is waited for, as one that dies; another job is told at once. */
RANKS_TEST(test_checkpoint_lock, 1)
{
    path_text folder;
    (void)rank;
    if (harness_in_threads)
        SKIP("it forks");
    weft_group *world = join(0);
    make_common_tree(folder, world);
    weft_checkpoint *c = weft_checkpoint_new(folder, world, NULL);
    CHECK_OK(weft_checkpoint_add_tensor(c, "x", weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))));
    CHECK_OK(weft_checkpoint_save(c, 1));
    CHECK_OK(weft_checkpoint_wait(c));
    pid_t child = hold_lock(folder, 300);
    CHECK_OK(weft_checkpoint_save(c, 2));
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK_OK(weft_checkpoint_wait(c));
    char path[600];
    snprintf(path, sizeof path, "%s/lock", folder);
    FILE *lock = fopen(path, "w");
    CHECK(lock && fputs("another job's key", lock) >= 0 && fclose(lock) == 0);
    child = hold_lock(folder, 60000);
    CHECK_STATUS(weft_checkpoint_save(c, 3), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "another job saves into the folder");
    weft_clear_error();
    kill(child, SIGKILL);
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK_OK(weft_checkpoint_save(c, 3));
    CHECK_OK(weft_checkpoint_wait(c));
    remove_tree(folder);
    finish(world);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}
