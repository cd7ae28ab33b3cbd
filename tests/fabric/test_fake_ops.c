/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/fake/fake.c, symm/fake.c */
/*
 * One table of operations, on every kind of group.  A fake group shows a rank its own data wherever
 * another rank's would be; so where all ranks of a real group give the same data, and reductions
 * are such that equal numbers stay as they are, both must come to the same bytes.  What a fake
 * group cannot know (what another root would give, what others would send) is checked by itself
 * below.
 */
#include "harness.h"

#include <weft/weft.h>

#include <stdlib.h>

enum { RANKS = 3, LAYOUTS = 3 };

/* What one rank saw: statuses, shapes and bytes, one after the other. */
typedef struct tale {
    unsigned char *bytes;
    size_t used, room;
} tale;

static void tell(tale *t, const void *data, size_t bytes)
{
    if (t->used + bytes > t->room) {
        t->room = 2 * (t->used + bytes);
        t->bytes = realloc(t->bytes, t->room);
    }
    if (bytes && t->bytes)
        memcpy(t->bytes + t->used, data, bytes);
    t->used += bytes;
}

static void tell_status(tale *t, weft_status status)
{
    tell(t, &status, sizeof status);
}

static void tell_tensor(tale *t, weft_tensor *x)
{
    x = weft_wait_tensor(x);
    weft_shape shape = weft_tensor_shape(x);
    tell_status(t, x ? WEFT_OK : weft_last_status());
    for (int dim = 0; x && dim < shape.ndim; dim++)
        tell(t, &shape.dim[dim], sizeof shape.dim[dim]);
    if (!x || weft_tensor_device(x) == WEFT_META)
        return;
    weft_tensor *flat = weft_contiguous(x);
    tell(t, weft_tensor_data(flat), weft_tensor_bytes(flat));
}

static void tell_tensors(tale *t, weft_status status, weft_tensor **x, int count)
{
    if (status < 0 || !count)
        tell_status(t, status);
    for (int i = 0; i < count && status >= 0; i++)
        tell_tensor(t, x[i]);
}

static void tell_blobs(tale *t, const weft_blobs *blobs)
{
    int count = weft_blobs_count(blobs);
    tell_status(t, blobs ? WEFT_OK : weft_last_status());
    tell(t, &count, sizeof count);
    for (int i = 0; i < count; i++) {
        weft_bytes one = weft_blobs_get(blobs, i);
        tell(t, &one.length, sizeof one.length);
        tell(t, one.data, one.length);
    }
}

/* Where and on what an operation runs. */
typedef struct scene {
    weft_group *group;
    int rank, size; /* of the group */
    weft_dtype dtype;
    weft_device device;
    int64_t inner; /* elements of a row, but for the last dimension */
    int layout;
} scene;

static weft_tensor *spread(weft_tensor *x, int layout)
{
    if (layout == 1) /* the first and last dimension lie the other way round */
        return weft_transpose(weft_contiguous(weft_transpose(x, 0, 2)), 0, 2);
    if (layout == 2) { /* every other element of a larger one */
        weft_tensor *twice = weft_cat((weft_tensor *[]){x, x}, 2, 2);
        return weft_slice(twice, 2, 0, weft_tensor_size(x, 2), 1);
    }
    return x;
}

/* [2 * size][inner][size]; the numbers are small, so that sums and means are exact. */
static weft_tensor *numbers(const scene *s)
{
    if (s->device == WEFT_META)
        return spread(weft_empty(s->dtype, WEFT_META, WEFT_SHAPE(2 * s->size, s->inner, s->size)),
                      s->layout);
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2 * s->size, s->inner, s->size));
    float *data = weft_tensor_data(x);
    for (int64_t i = 0, count = weft_tensor_numel(x); i < count; i++)
        data[i] = (float)(i % 61);
    return spread(weft_to(x, s->dtype, WEFT_CPU), s->layout);
}

/* The same in which every row is alike: what others send is what we send. */
static weft_tensor *alike(const scene *s)
{
    weft_tensor *row = weft_narrow(numbers(s), 0, 0, 1);
    return weft_contiguous(weft_expand(row, WEFT_SHAPE(2 * s->size, s->inner, s->size)));
}

/* ---- the operations ---- */

typedef void action(const scene *s, tale *t);

static void do_all_reduce(const scene *s, tale *t)
{
    tell_tensor(t, weft_all_reduce(numbers(s), WEFT_MAX, s->group));
    tell_tensor(t, weft_all_reduce(numbers(s), WEFT_AVG, s->group));
}

static void do_all_reduce_in_place(const scene *s, tale *t)
{
    tell_tensor(t, weft_all_reduce_(numbers(s), WEFT_MIN, s->group));
}

static void do_all_gather(const scene *s, tale *t)
{
    for (int dim = -1; dim < 3; dim++)
        tell_tensor(t, weft_all_gather_tensor(numbers(s), dim, s->group));
}

static void do_all_gather_out(const scene *s, tale *t)
{
    weft_tensor *x = numbers(s);
    weft_tensor *out =
        weft_empty(s->dtype, s->device, WEFT_SHAPE(2 * s->size * s->size, s->inner, s->size));
    weft_tensor *wide =
        weft_empty(s->dtype, s->device, WEFT_SHAPE(2 * s->size, s->inner, s->size * s->size));
    tell_tensor(t, weft_all_gather_into_tensor_out(out, x, 0, s->group));
    tell_tensor(t, weft_all_gather_into_tensor_out(wide, x, 2, s->group));
}

static void do_reduce_scatter(const scene *s, tale *t)
{
    for (int dim = 0; dim < 3; dim += 2)
        tell_tensor(t, weft_reduce_scatter_tensor(numbers(s), WEFT_MAX, dim, s->group));
}

static void do_reduce_scatter_out(const scene *s, tale *t)
{
    weft_tensor *out = weft_empty(s->dtype, s->device, WEFT_SHAPE(2 * s->size, s->inner, 1));
    tell_tensor(t, weft_reduce_scatter_tensor_out(out, numbers(s), WEFT_MAX, 2, s->group));
}

static void do_broadcast(const scene *s, tale *t)
{
    for (int src = 0; src < s->size; src++) {
        tell_tensor(t, weft_broadcast(numbers(s), src, s->group));
        tell_tensor(t, weft_broadcast_(numbers(s), src, s->group));
    }
}

static void do_all_to_all_single(const scene *s, tale *t)
{
    tell_tensor(t, weft_all_to_all_single(alike(s), NULL, NULL, s->group));
    int64_t even[RANKS];
    for (int rank = 0; rank < s->size; rank++)
        even[rank] = 2;
    tell_tensor(t, weft_all_to_all_single(alike(s), even, even, s->group));
}

static void do_all_to_all(const scene *s, tale *t)
{
    weft_tensor *in[RANKS], *out[RANKS] = {NULL};
    for (int rank = 0; rank < s->size; rank++)
        in[rank] = numbers(s);
    tell_tensors(t, weft_all_to_all(out, in, NULL, s->group), out, s->size);
}

static void do_coalesced(const scene *s, tale *t)
{
    weft_tensor *in[] = {numbers(s), weft_narrow(numbers(s), 0, 0, s->size)}, *out[2] = {NULL};
    const int dims[] = {2, 0};
    tell_tensors(t, weft_all_reduce_coalesced(out, in, 2, WEFT_MAX, s->group), out, 2);
    tell_tensors(t, weft_all_gather_into_tensor_coalesced(out, in, 2, s->group), out, 2);
    tell_tensors(t, weft_reduce_scatter_tensor_coalesced(out, in, 2, WEFT_MIN, dims, s->group), out,
                 2);
    tell_tensors(t, weft_all_reduce_coalesced_(in, 2, WEFT_MAX, s->group), in, 2);
}

/* A posted operation ends well in every kind of group. */
static void tell_work(tale *t, weft_work *work, weft_tensor **x, int count)
{
    weft_status status = work ? weft_work_wait(work, WEFT_DEFAULT) : weft_last_status();
    tell_tensors(t, status, x, count);
}

static weft_tensor *blank(const scene *s, int64_t rows)
{
    return weft_full(s->dtype, WEFT_CPU, WEFT_SHAPE(rows, s->inner, s->size), 3);
}

static weft_tensor *flat(const scene *s)
{
    return weft_contiguous(numbers(s));
}

static void do_plain(const scene *s, tale *t)
{
    int n = 2 * s->size;
    weft_tensor *out[] = {blank(s, n), blank(s, n * s->size), blank(s, 2), blank(s, n)};
    tell_tensors(t, weft_all_reduce_into(out[0], flat(s), WEFT_MAX, s->group), out, 1);
    tell_tensors(t, weft_all_gather_into(out[1], flat(s), s->group), out + 1, 1);
    tell_tensors(t, weft_reduce_scatter_into(out[2], flat(s), WEFT_MAX, s->group), out + 2, 1);
    weft_tensor *same = alike(s);
    tell_tensors(t, weft_all_to_all_into(out[3], same, NULL, NULL, s->group), out + 3, 1);
    tell_status(t, weft_group_barrier(s->group, WEFT_DEFAULT));
    tell_work(t, weft_all_gather_start(out[1], flat(s), s->group), out + 1, 1);
    tell_work(t, weft_barrier_start(s->group), NULL, 0);
}

static void do_plain_rooted(const scene *s, tale *t)
{
    int n = 2 * s->size;
    for (int root = 0; root < s->size; root++) {
        bool mine = s->rank == root;
        weft_tensor *all = mine ? blank(s, n * s->size) : NULL, *part = blank(s, 2);
        weft_tensor *x = flat(s), *sum = blank(s, n);
        tell_tensors(t, weft_broadcast_in_place(x, root, s->group), &x, 1);
        tell_tensors(t, weft_gather_into(all, flat(s), root, s->group), &all, mine);
        tell_tensors(t, weft_reduce_into(sum, flat(s), WEFT_MAX, root, s->group), &sum, mine);
        tell_tensors(t, weft_scatter_into(part, mine ? flat(s) : NULL, root, s->group), &part,
                     mine);
    }
}

static void do_lists(const scene *s, tale *t)
{
    weft_tensor *in[] = {flat(s), weft_narrow(flat(s), 0, 0, s->size)};
    int n = 2 * s->size;
    weft_tensor *same[] = {blank(s, n), blank(s, s->size)};
    weft_tensor *more[] = {blank(s, n * s->size), blank(s, s->size * s->size)};
    weft_tensor *less[] = {blank(s, 2), blank(s, 1)};
    tell_tensors(t, weft_all_reduce_list_into(same, in, 2, WEFT_MAX, s->group), same, 2);
    tell_tensors(t, weft_all_gather_list_into(more, in, 2, s->group), more, 2);
    tell_tensors(t, weft_reduce_scatter_list_into(less, in, 2, WEFT_MAX, s->group), less, 2);
    tell_work(t, weft_all_reduce_list_start(same, in, 2, WEFT_MIN, s->group), same, 2);
    tell_work(t, weft_all_gather_list_start(more, in, 2, s->group), more, 2);
    tell_work(t, weft_reduce_scatter_list_start(less, in, 2, WEFT_MIN, s->group), less, 2);
}

static void do_list_all_to_all(const scene *s, tale *t)
{
    weft_tensor *in[RANKS], *out[RANKS];
    for (int rank = 0; rank < s->size; rank++) {
        in[rank] = flat(s);
        out[rank] = blank(s, 2 * s->size);
    }
    tell_tensors(t, weft_all_to_all_list_into(out, in, s->group), out, s->size);
    tell_work(t, weft_all_to_all_list_start(out, in, s->group), out, s->size);
}

static void do_parts(const scene *s, tale *t)
{
    weft_tensor *each[RANKS], *out[RANKS], *mine = blank(s, s->rank + 1);
    for (int rank = 0; rank < s->size; rank++) {
        out[rank] = blank(s, 2 * s->size);
        each[rank] = weft_narrow(flat(s), 0, rank, rank + 1);
    }
    tell_tensors(t, weft_all_gather_parts_into(out, flat(s), s->group), out, s->size);
    tell_tensors(t, weft_reduce_scatter_parts_into(mine, each, WEFT_MAX, s->group), &mine, 1);
    tell_work(t, weft_all_gather_parts_start(out, flat(s), s->group), out, s->size);
    tell_work(t, weft_reduce_scatter_parts_start(mine, each, WEFT_MIN, s->group), &mine, 1);
}

static void do_parts_rooted(const scene *s, tale *t)
{
    for (int root = 0; root < s->size; root++) {
        bool mine = s->rank == root;
        weft_tensor *each[RANKS], *out[RANKS], *part = blank(s, s->rank + 1);
        for (int rank = 0; rank < s->size; rank++) {
            out[rank] = blank(s, 2 * s->size);
            each[rank] = weft_narrow(flat(s), 0, rank, rank + 1);
        }
        weft_tensor *const *to = mine ? out : NULL, *const *from = mine ? each : NULL;
        int shown = mine ? s->size : 0;
        tell_tensors(t, weft_gather_parts_into(to, flat(s), root, s->group), out, shown);
        tell_tensors(t, weft_scatter_parts_into(part, from, root, s->group), &part, mine);
        tell_work(t, weft_gather_parts_start(to, flat(s), root, s->group), out, shown);
        tell_work(t, weft_scatter_parts_start(part, from, root, s->group), &part, mine);
    }
}

static void do_objects(const scene *s, tale *t)
{
    weft_tensor *x = flat(s);
    weft_bytes bytes = {weft_tensor_data(x), weft_tensor_bytes(x)}, list[RANKS];
    for (int rank = 0; rank < s->size; rank++)
        list[rank] = (weft_bytes){bytes.data, bytes.length / (size_t)(rank + 1)};
    tell_blobs(t, weft_all_gather_object(bytes, s->group));
    for (int root = 0; root < s->size; root++) {
        bool mine = s->rank == root;
        tell_blobs(t, weft_gather_object(bytes, root, s->group));
        weft_blobs *part = weft_scatter_object(mine ? list : NULL, root, s->group);
        weft_blobs *copy = weft_broadcast_object(mine ? list : NULL, 2, root, s->group);
        weft_blobs *none = weft_broadcast_object(NULL, 0, root, s->group);
        if (mine) {
            tell_blobs(t, part);
            tell_blobs(t, copy);
        }
        tell_blobs(t, none);
    }
}

static void do_barriers(const scene *s, tale *t)
{
    for (int all = 0; all < 2; all++)
        tell_status(t, weft_monitored_barrier(s->group, WEFT_DEFAULT, all));
    tell_status(t, weft_monitored_barrier(s->group, -7, true));
}

static const struct row {
    const char *name;
    action *act;
    bool functional; /* takes meta tensors and tensors of any layout */
    bool tensors;    /* depends on the tensor's size */
} table[] = {
    {"all_reduce", do_all_reduce, true, true},
    {"all_reduce_", do_all_reduce_in_place, true, true},
    {"all_gather_tensor", do_all_gather, true, true},
    {"all_gather_into_tensor_out", do_all_gather_out, true, true},
    {"reduce_scatter_tensor", do_reduce_scatter, true, true},
    {"reduce_scatter_tensor_out", do_reduce_scatter_out, true, true},
    {"broadcast", do_broadcast, true, true},
    {"all_to_all_single", do_all_to_all_single, true, true},
    {"all_to_all", do_all_to_all, true, true},
    {"coalesced", do_coalesced, true, true},
    {"plain", do_plain, false, true},
    {"plain, rooted", do_plain_rooted, false, true},
    {"lists", do_lists, false, true},
    {"list all_to_all", do_list_all_to_all, false, true},
    {"parts", do_parts, false, true},
    {"parts, rooted", do_parts_rooted, false, true},
    {"objects", do_objects, false, true},
    {"barriers", do_barriers, false, false},
};

enum { ROWS = sizeof table / sizeof *table };

/* Bytes of a rank's input: none, a few, more than is copied at once. */
static const int64_t inners[] = {0, 1, 7, 40, 2000};
static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_I64};

enum { INNERS = sizeof inners / sizeof *inners, DTYPES = sizeof dtypes / sizeof *dtypes };

/* All variants of a row, one after the other. */
static void run_row(const struct row *row, scene s, tale *t)
{
    int layouts = row->functional ? LAYOUTS : 1;
    for (int i = 0; i < (row->tensors ? INNERS : 1); i++)
        for (int dtype = 0; dtype < (row->tensors ? DTYPES : 1); dtype++)
            for (s.layout = 0; s.layout < layouts; s.layout++) {
                weft_scope_open();
                weft_clear_error();
                s.inner = inners[i];
                s.dtype = dtypes[dtype];
                row->act(&s, t);
                weft_scope_close();
            }
}

static tale real[RANKS][ROWS];

static int real_rank(void *unused)
{
    (void)unused;
    weft_group *world = weft_init(NULL);
    int rank = weft_rank(world);
    for (int i = 0; world && i < ROWS; i++)
        run_row(&table[i], (scene){.group = world, .rank = rank, .size = RANKS, .device = WEFT_CPU},
                &real[rank][i]);
    weft_clear_error();
    return weft_finish(world);
}

static weft_group *fake(int rank, int size, bool mute)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(rank, size);
    opts.error_on_collective = mute;
    weft_group *world = weft_fake_init(&opts);
    if (!world)
        FAIL("weft_fake_init: %s", weft_last_error());
    return world;
}

static void compare(const tale *here, const tale *there, const char *row, int rank)
{
    size_t at = 0;
    if (here->used && here->used == there->used && !memcmp(here->bytes, there->bytes, here->used))
        return;
    while (at < here->used && at < there->used && here->bytes[at] == there->bytes[at])
        at++;
    if (here->used != there->used || at < here->used)
        FAIL("%s, rank %d: byte %zu of %zu is not that of a real group, of %zu", row, rank, at,
             here->used, there->used);
}

/* Every operation, layout, size and dtype does in a fake group what a real group of ranks with the
 * same data does. */
TEST(test_fake_ops_as_a_real_group)
{
    memset(real, 0, sizeof real);
    CHECK_INT(weft_spawn(RANKS, real_rank, NULL), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        weft_scope_open();
        weft_group *world = fake(rank, RANKS, false);
        for (int i = 0; i < ROWS; i++) {
            tale mine = {0};
            run_row(&table[i],
                    (scene){.group = world, .rank = rank, .size = RANKS, .device = WEFT_CPU},
                    &mine);
            compare(&mine, &real[rank][i], table[i].name, rank);
            free(mine.bytes);
            free(real[rank][i].bytes);
        }
        weft_clear_error();
        weft_scope_close();
    }
}

static int first_status(const tale *t)
{
    int status = 1;
    if (t->used >= sizeof status)
        memcpy(&status, t->bytes, sizeof status);
    return status;
}

/* Meta tensors: all kinds of group give the same shapes. */
TEST(test_fake_ops_on_meta)
{
    weft_scope_open();
    weft_group *groups[] = {weft_group_stand_in("0", RANKS), fake(0, RANKS, false)};
    for (int i = 0; i < ROWS; i++) {
        tale told[2] = {{0}};
        for (int k = 0; k < 2 && table[i].functional; k++)
            run_row(&table[i],
                    (scene){.group = groups[k], .rank = 0, .size = RANKS, .device = WEFT_META},
                    &told[k]);
        compare(&told[0], &told[1], table[i].name, 0);
        if (table[i].functional)
            CHECK_INT(first_status(&told[0]), WEFT_OK);
        free(told[0].bytes);
        free(told[1].bytes);
    }
    weft_scope_close();
}

/* ---- groups on which every operation must fail, and with which words ---- */

/* Runs all rows and looks at the first status each tells. */
static void check_refused(weft_group *group, weft_status expected, const char *word)
{
    for (int i = 0; i < ROWS; i++) {
        tale t = {0};
        weft_scope_open();
        weft_clear_error();
        scene s = {
            .group = group, .size = RANKS, .device = WEFT_CPU, .dtype = WEFT_F32, .inner = 7};
        table[i].act(&s, &t);
        if (first_status(&t) != (int)expected)
            FAIL("%s: status %d, %s", table[i].name, first_status(&t), weft_last_error());
        if (expected < 0 && strcmp(table[i].name, "barriers"))
            CHECK_CONTAINS(weft_last_error(), word);
        free(t.bytes);
        weft_clear_error();
        weft_scope_close();
    }
}

TEST(test_fake_ops_error_on_collective)
{
    weft_scope_open();
    check_refused(fake(0, RANKS, true), WEFT_ERR_STATE, "error_on_collective");
    weft_scope_close();
}

TEST(test_fake_ops_revoked)
{
    weft_scope_open();
    weft_group *world = fake(0, RANKS, false);
    weft_group *all = weft_group_new(world, (const int[]){0, 1, 2}, RANKS, NULL);
    CHECK_OK(weft_group_revoke(all));
    check_refused(all, WEFT_ERR_REVOKED, "revoked");
    weft_scope_close();
}

/* ---- what only a fake group does ---- */

static void check_values(weft_tensor *x, int count, const float *expected)
{
    CHECK(x);
    CHECK_INT(weft_tensor_numel(x), count);
    for (int i = 0; i < count; i++)
        CHECK_NEAR(weft_item(x, i), expected[i], 0);
}

static weft_tensor *run_of(int count)
{
    return weft_arange(WEFT_F32, WEFT_CPU, 0, count, 1);
}

/* What another root would give stays as it is; a new tensor is a clone of the own one. */
TEST(test_fake_ops_other_root)
{
    weft_scope_open();
    weft_group *world = fake(1, RANKS, false);
    weft_tensor *part = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), 9), *x = run_of(2);
    CHECK_OK(weft_scatter_parts_into(part, NULL, 0, world));
    check_values(part, 2, (const float[]){9, 9});
    weft_tensor *copy = weft_wait_tensor(weft_broadcast(x, 2, world));
    check_values(copy, 2, (const float[]){0, 1});
    CHECK(weft_tensor_data(copy) != weft_tensor_data(x));
    weft_tensor *large = run_of(100000);
    CHECK(weft_equal(weft_broadcast(large, 0, world), large));
    weft_blobs *list = weft_broadcast_object(NULL, 5, 0, world);
    CHECK(list && weft_blobs_count(list) == 0);
    weft_blobs *one = weft_scatter_object(NULL, 2, world);
    CHECK_INT(weft_blobs_count(one), 1);
    CHECK_INT(weft_blobs_get(one, 0).length, 0);
    weft_scope_close();
}

/* Parts of other sizes than the own: cut short, or filled up with zeros. */
TEST(test_fake_ops_uneven)
{
    weft_scope_open();
    weft_group *world = fake(1, RANKS, false);
    weft_tensor *out[] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1)),
                          weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)),
                          weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))};
    weft_tensor *x = weft_add_scalar(run_of(2), 5);
    CHECK_OK(weft_all_gather_parts_into(out, x, world));
    check_values(out[0], 1, (const float[]){5});
    check_values(out[1], 2, (const float[]){5, 6});
    check_values(out[2], 4, (const float[]){5, 6, 0, 0});
    const int64_t in_splits[] = {1, 3, 2}, out_splits[] = {2, 1, 4};
    weft_tensor *moved = weft_all_to_all_single(run_of(6), out_splits, in_splits, world);
    check_values(moved, 7, (const float[]){0, 0, 1, 4, 5, 0, 0});
    const int turn[] = {1, 2, 0}, stay[] = {0, 1, 2};
    check_values(weft_permute_tensor(x, turn, world), 2, (const float[]){0, 0});
    check_values(weft_permute_tensor(x, stay, world), 2, (const float[]){5, 6});
    weft_scope_close();
}

/* Limits are those of a real group: everybody's string would be as long as ours. */
TEST(test_fake_ops_object_limit)
{
    weft_scope_open();
    weft_group *world = fake(0, 1 << 20, false);
    static const char text[4096];
    CHECK(!weft_all_gather_object((weft_bytes){text, sizeof text}, world));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_LIMIT);
    weft_clear_error();
    weft_blobs *all = weft_all_gather_object((weft_bytes){"a", 1}, world);
    CHECK_INT(weft_blobs_count(all), 1 << 20);
    CHECK(!memcmp(weft_blobs_get(all, (1 << 20) - 1).data, "a", 1));
    weft_bytes word = {text, sizeof text};
    weft_blobs *copy = weft_broadcast_object(&word, 1, 0, world);
    CHECK_INT(weft_blobs_count(copy), 1);
    CHECK_INT(weft_blobs_get(copy, 0).length, sizeof text);
    CHECK_OK(weft_monitored_barrier(world, WEFT_DEFAULT, true));
    weft_scope_close();
}

/* A stand-in is no fake group, has no ranks, and every operation on data says so. */
TEST(test_fake_ops_stand_in)
{
    weft_scope_open();
    weft_group *group = weft_group_stand_in("0", RANKS);
    weft_expansion expansion;
    CHECK(!weft_fake_is(group) && !weft_fake_is(NULL));
    CHECK_STATUS(weft_ranks_expand(NULL, weft_ranks_group(group), NULL, &expansion),
                 WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "stand-in");
    CHECK(!expansion.ranks && !expansion.count);
    CHECK_STATUS(weft_monitored_barrier(group, WEFT_DEFAULT, true), WEFT_ERR_STATE);
    check_refused(group, WEFT_ERR_STATE, "");
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
