/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/view.c, tensor/op/reshape.c, tensor/op/make.c, coll/lane/choose.c, symm/pool.c,
 * symm/workspace.c, symm_coll/vdev.c, fabric/mesh/mesh_text.c */
/*
 * Arguments at and just beyond their bounds, places to write to that are NULL, and functions that
 * are too small to have a test elsewhere.  tests/fuzz/fuzz_api.c asks that nothing crashes; here is
 * what must be answered.
 */
#include "coll_values.h"
#include "jobs.h"
#include "symm_info.h"

#include <limits.h>
#include <math.h>

static weft_tensor *numbers(int64_t count)
{
    return weft_arange(WEFT_F32, WEFT_CPU, 0, (double)count, 1);
}

/* ---- tensors ---- */

TEST(test_bounds_select)
{
    weft_scope_open();
    weft_tensor *part = weft_narrow(numbers(10), 0, 4, 3); /* 4, 5, 6: there are elements around */
    CHECK_NEAR(weft_item(weft_select(part, 0, -3), 0), 4, 0);
    CHECK_NEAR(weft_item(weft_select(part, 0, 2), 0), 6, 0);
    static const int64_t outside[] = {-4, 3, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        CHECK(!weft_select(part, 0, outside[i]));
        CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
        weft_clear_error();
    }
    weft_scope_close();
}

TEST(test_bounds_device)
{
    static const weft_device strange[] = {INT_MIN,        -1,           1, 65535, 3 << 16, INT_MAX,
                                          WEFT_CUDA(999), WEFT_META + 1};
    float data[2] = {1, 2};
    weft_scope_open();
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        CHECK(!weft_tensor_wrap(WEFT_F32, strange[i], WEFT_SHAPE(2), data, NULL, NULL));
        CHECK(weft_last_status() == WEFT_ERR_UNSUPPORTED ||
              (strange[i] == WEFT_CUDA(999) && weft_last_status() == WEFT_ERR_NOT_FOUND));
        weft_clear_error();
        CHECK(!weft_empty(WEFT_F32, strange[i], WEFT_SHAPE(2)));
        CHECK(!weft_symm_empty(WEFT_F32, strange[i], WEFT_SHAPE(2)));
        CHECK(!weft_to(numbers(2), WEFT_F32, strange[i]));
        CHECK(weft_last_status() < 0);
        weft_clear_error();
    }
    CHECK(weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), data, NULL, NULL));
    weft_scope_close();
}

TEST(test_bounds_reshape)
{
    weft_scope_open();
    weft_tensor *x = weft_transpose(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3)), 0, 1);
    weft_shape shape = WEFT_SHAPE(6, 1);
    static const int dims[] = {9, 1000, -1, INT_MAX, INT_MIN};
    for (int i = 0; i < 5; i++) {
        shape.ndim = dims[i];
        CHECK(!weft_reshape(x, shape));
        CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
        weft_clear_error();
    }
    shape.ndim = 2;
    CHECK(weft_reshape(x, shape));
    weft_scope_close();
}

/* Elements lie where the processor can load them. */
TEST(test_bounds_alignment)
{
    static _Alignas(16) unsigned char memory[40];
    weft_scope_open();
    weft_tensor *odd = weft_tensor_wrap(WEFT_U8, WEFT_CPU, WEFT_SHAPE(16), memory + 1, NULL, NULL);
    CHECK(odd && !weft_view_dtype(odd, WEFT_F32));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_tensor *even = weft_tensor_wrap(WEFT_U8, WEFT_CPU, WEFT_SHAPE(16), memory + 8, NULL, NULL);
    CHECK(weft_view_dtype(even, WEFT_F64));
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8));
    weft_symm *mem = weft_symm_rendezvous(weft_narrow(x, 0, 1, 4), weft_fake_init(&opts));
    CHECK(mem && weft_symm_remote_tensor(mem, 1, WEFT_SHAPE(2), WEFT_F32));
    CHECK(!weft_symm_remote_tensor(mem, 1, WEFT_SHAPE(2), WEFT_F64));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_dlpack description = {.tensor = {.data = memory,
                                          .device_type = 1,
                                          .ndim = 0,
                                          .code = 2,
                                          .bits = 32,
                                          .lanes = 1,
                                          .byte_offset = UINT64_MAX - 3}};
    CHECK(!weft_dlpack_import(&description));
    CHECK_CONTAINS(weft_last_error(), "beyond all memory");
    weft_clear_error();
    weft_scope_close();
}

/* A dimension of one element has no next one: its stride may be anything. */
TEST(test_bounds_strides_of_one)
{
    weft_scope_open();
    const int64_t strides[] = {INT64_MAX, 1};
    weft_tensor *x = weft_as_strided(numbers(3), WEFT_SHAPE(1, 3), strides, 0);
    CHECK(x);
    CHECK_NEAR(weft_item(weft_sum(x, (const int[]){0, 1}, 2, false), 0), 3, 0);
    CHECK_NEAR(weft_item(weft_sum(x, (const int[]){1}, 1, true), 0), 3, 0);
    CHECK_NEAR(weft_item(weft_contiguous(weft_add(x, x)), 2), 4, 0);
    CHECK(!weft_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(1LL << 62, 1LL << 62, 1, 0)));
    weft_clear_error();
    weft_scope_close();
}

/* The same in operations on rows, whose kernels have strides of their own. */
TEST(test_bounds_rows_of_one)
{
    weft_scope_open();
    const int64_t strides[] = {INT64_MAX, 1}, columns[] = {1, INT64_MAX};
    weft_tensor *x = weft_as_strided(numbers(3), WEFT_SHAPE(1, 3), strides, 0);
    weft_tensor *y = weft_as_strided(numbers(3), WEFT_SHAPE(3, 1), columns, 0);
    CHECK(x && y);
    CHECK_NEAR(weft_item(weft_softmax(x, 0), 2), 1, 0);
    CHECK_NEAR(weft_item(weft_log_softmax(y, 1), 2), 0, 0);
    CHECK_NEAR(weft_item(weft_layer_norm(x, 1, NULL, NULL, 0), 1), 0, 1e-6);
    const int64_t last = 2;
    weft_tensor *index = weft_tensor_from(WEFT_I64, WEFT_SHAPE(1), &last);
    CHECK_NEAR(weft_item(weft_embedding(y, index), 0), weft_item(y, 2), 0);
    weft_tensor *bytes = weft_view_dtype(x, WEFT_U8);
    CHECK(bytes && weft_tensor_size(bytes, 1) == 12);
    CHECK_NEAR(weft_item(weft_mm(x, y), 0), weft_item(weft_sum(weft_mul(x, x), NULL, 0, false), 0),
               1e-6);
    CHECK_OK(weft_require_grad(x, true));
    CHECK_OK(weft_backward(weft_sum(weft_softmax(x, 0), NULL, 0, false)));
    CHECK_NEAR(weft_item(weft_grad(x), 1), 0, 1e-6);
    weft_scope_close();
}

/* Nothing lies in it, but its strides are numbers all the same: what cannot be made anew cannot be
 * seen either. */
TEST(test_bounds_empty_and_long)
{
    weft_scope_open();
    weft_tensor *none = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0));
    weft_shape most = WEFT_SHAPE(INT64_MAX / 8, 0, 2), more = WEFT_SHAPE(INT64_MAX / 8 + 1, 0, 2);
    weft_tensor *x = weft_reshape(none, most);
    CHECK(x && weft_tensor_is_contiguous(x) && weft_equal(x, weft_empty(WEFT_F32, WEFT_CPU, most)));
    CHECK_INT(weft_tensor_numel(x), 0);
    const int64_t far[] = {INT64_MAX, INT64_MAX}, stride[] = {2};
    CHECK_INT(weft_tensor_numel(weft_as_strided(none, WEFT_SHAPE(0, 0), far, 1)), 0);
    weft_tensor *three = numbers(3);
    CHECK(weft_equal(weft_view_scatter(three, none, WEFT_SHAPE(0), stride, INT64_MAX), three));
    CHECK(!weft_empty(WEFT_F32, WEFT_CPU, more) && !weft_view(none, more));
    CHECK(!weft_reshape(none, WEFT_SHAPE(INT64_MAX, 0, 2)));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "view: a tensor of shape [9223372036854775807, 0, 2] of f32 "
                                      "has more bytes than can be counted");
    weft_clear_error();
    weft_scope_close();
}

static weft_status source(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                          int outs, void *user)
{
    (void)self, (void)in, (void)user;
    if (ins != 0 || outs != 1)
        return WEFT_ERR_INTERNAL;
    out[0] = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 5);
    return WEFT_OK;
}

/* Nobody need have a list of no inputs. */
TEST(test_bounds_module_of_no_inputs)
{
    weft_scope_open();
    weft_tensor *out = NULL;
    CHECK_OK(weft_module_call_list(weft_module_new_list(source, NULL), &out, 1, NULL, 0));
    CHECK(weft_item(out, 0) == 5);
    weft_scope_close();
}

TEST(test_bounds_words_count_as_writes)
{
    weft_scope_open();
    weft_tensor *words = weft_symm_empty(WEFT_U32, WEFT_CPU, WEFT_SHAPE(4));
    int64_t before = weft_tensor_version(words);
    CHECK_OK(weft_symm_memset32(words, 0, 7, 4));
    CHECK_INT(weft_tensor_version(words), before + 1);
    CHECK_OK(weft_symm_stream_write_value32(words, 1, 8));
    CHECK_INT(weft_tensor_version(words), before + 2);
    CHECK(weft_symm_memset32(words, 1, 7, 4) < 0); /* one word too many */
    CHECK_INT(weft_tensor_version(words), before + 2);
    weft_tensor *meta = weft_empty(WEFT_U32, WEFT_META, WEFT_SHAPE(4));
    CHECK_STATUS(weft_symm_memset32(meta, 0, 7, 4), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_symm_stream_write_value32(meta, 1, 7), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    weft_scope_close();
}

/* ---- texts ---- */

TEST(test_bounds_text_at_null)
{
    char text[16], name[8];
    weft_scope_open();
    weft_tensor *x = numbers(3);
    int length = weft_tensor_text(x, NULL, 0);
    CHECK(length > 10);
    CHECK_STATUS(weft_tensor_text(x, NULL, 9), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tensor_text(x, name, sizeof name), length);
    CHECK(strlen(name) == sizeof name - 1);
    weft_fake_opts opts = WEFT_FAKE_OPTS(1, 4);
    weft_group *world = weft_fake_init(&opts);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "dp,tp");
    CHECK(weft_mesh_text(mesh, NULL, 0) > 10);
    CHECK_STATUS(weft_mesh_text(mesh, NULL, 9), WEFT_ERR_INVALID_ARG);
    weft_work *work = weft_barrier_start(world);
    CHECK(!weft_work_describe(work, NULL, 9));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_device_name(WEFT_CUDA(3), NULL), "cuda"));
    CHECK(!strcmp(weft_device_name(-1, NULL), "unknown"));
    CHECK(!strcmp(weft_device_name(WEFT_CUDA(3), text), "cuda:3"));
    weft_clear_error();
    weft_scope_close();
}

TEST(test_bounds_mesh_print)
{
    weft_scope_open();
    char text[200] = "";
    weft_fake_opts opts = WEFT_FAKE_OPTS(1, 4);
    weft_mesh *mesh = weft_mesh_init(weft_fake_init(&opts), WEFT_CPU, WEFT_SHAPE(2, 2), "dp,tp");
    FILE *file = tmpfile();
    CHECK(file);
    CHECK_OK(weft_mesh_print(mesh, file));
    rewind(file);
    CHECK(fgets(text, sizeof text, file));
    fclose(file);
    CHECK(!strcmp(text, "mesh of 2 x 2 on cpu (dp, tp): [[0, 1], [2, 3]]\n"));
    CHECK_STATUS(weft_mesh_print(mesh, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_mesh_print(NULL, stderr), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_bounds_strerror)
{
    CHECK(*weft_strerror(WEFT_OK) && *weft_strerror(WEFT_ERR_TIMEOUT));
    CHECK(strcmp(weft_strerror(WEFT_ERR_TIMEOUT), weft_strerror(WEFT_ERR_REVOKED)));
    CHECK(weft_strerror((weft_status)12345) && weft_strerror((weft_status)INT_MIN));
}

/* ---- options ---- */

/* A struct of an older header ends between members; any other size was never set. */
TEST(test_bounds_options)
{
    weft_scope_open();
    weft_fake_opts fake = WEFT_FAKE_OPTS(1, 2);
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    weft_group *world = weft_fake_init(&fake);
    for (size_t size = 0; size < sizeof fake; size++) {
        fake.size = size;
        bool whole = size && size % sizeof(void *) == 0;
        CHECK_INT(weft_fake_init(&fake) != NULL, whole);
        CHECK_STATUS(weft_last_status(), whole ? WEFT_OK : WEFT_ERR_INVALID_ARG);
    }
    for (size_t size = 0; size < sizeof opts; size++) {
        opts.size = size;
        bool whole = size && size % sizeof(void *) == 0;
        weft_clear_error();
        CHECK_INT(weft_group_new_with(world, (const int[]){0, 1}, 2, &opts) != NULL, whole);
    }
    weft_init_opts init = WEFT_INIT_OPTS;
    init.size = 12;
    CHECK(!weft_init(&init));
    CHECK_CONTAINS(weft_last_error(), "WEFT_INIT_OPTS");
    weft_clear_error();
    weft_scope_close();
}

TEST(test_bounds_tune)
{
    char path[] = "/tmp/weft-tune-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    size_t staged = weft_tune_get(WEFT_TUNE_EAGER, "all_reduce", 2),
           direct = weft_tune_get(WEFT_TUNE_ZERO_COPY, "all_reduce", 2),
           single = weft_tune_get(WEFT_TUNE_CMA, "all_reduce", 2),
           library = weft_tune_get(WEFT_TUNE_NCCL, "all_reduce", 2);
    CHECK(library > 777);
    static const char text[] = "# ours\nall_reduce 2 4096 8192 65536\nall_reduce 2 nccl 777\n";
    CHECK(write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    CHECK_OK(weft_tune_load(path));
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "all_reduce", 2), 4096);
    CHECK_INT(weft_tune_get(WEFT_TUNE_ZERO_COPY, "all_reduce", 2), 8192);
    CHECK_INT(weft_tune_get(WEFT_TUNE_CMA, "all_reduce", 2), 65536);
    CHECK_INT(weft_tune_get(WEFT_TUNE_NCCL, "all_reduce", 2), 777);
    CHECK(weft_tune_get(WEFT_TUNE_NCCL, "all_reduce", 3) > 777); /* another column */
    CHECK(write(fd, "all_reduce 2 nccl 5\nall_reduce 2 nccl x\n", 40) == 40);
    CHECK(weft_tune_load(path) < 0);
    CHECK_INT(weft_tune_get(WEFT_TUNE_NCCL, "all_reduce", 2), 777);
    CHECK(ftruncate(fd, (off_t)sizeof text - 1) == 0 && lseek(fd, 0, SEEK_END) > 0);
    CHECK(write(fd, "all_reduce 2 1 2 3\nnonsense\n", 28) == 28);
    CHECK(weft_tune_load(path) < 0); /* and nothing has changed */
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "all_reduce", 2), 4096);
    close(fd);
    unlink(path);
    CHECK(weft_tune_load(path) < 0 && weft_tune_load(NULL) < 0);
    CHECK_OK(weft_tune_set(WEFT_TUNE_ZERO_COPY, "all_reduce", 2, 1024));
    CHECK_INT(weft_tune_get(WEFT_TUNE_ZERO_COPY, "all_reduce", 2), 1024);
    CHECK_INT(weft_tune_get(WEFT_TUNE_EAGER, "all_reduce", 2), 4096);
    CHECK(weft_tune_set(WEFT_TUNE_ZERO_COPY, "all_reduce", 2, SIZE_MAX) < 0 || direct);
    CHECK_STATUS(weft_tune_set(WEFT_TUNE_ZERO_COPY, "no such op", 2, 1), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(weft_tune_set((weft_threshold)(WEFT_TUNE_CUDA_MEET_FIRST + 1), "all_reduce", 2, 1),
                 WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tune_get((weft_threshold)-1, "all_reduce", 2), 0);
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_tune_get(WEFT_TUNE_ZERO_COPY, "no such op", 2), 0);
    CHECK_INT(weft_tune_get(WEFT_TUNE_CMA, "no such op", 2), 0);
    CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "all_reduce", 2, staged));
    CHECK_OK(weft_tune_set(WEFT_TUNE_ZERO_COPY, "all_reduce", 2, direct));
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "all_reduce", 2, single));
    CHECK_OK(weft_tune_set(WEFT_TUNE_NCCL, "all_reduce", 2, library));
    CHECK_STATUS(weft_tune_set(WEFT_TUNE_NCCL, "no such op", 2, 1), WEFT_ERR_NOT_FOUND);
    CHECK_INT(weft_tune_get(WEFT_TUNE_NCCL, "no such op", 2), 0);
    weft_clear_error();
}

/* ---- operations into a tensor ---- */

TEST(test_bounds_where_and_bmm_into)
{
    weft_scope_open();
    weft_tensor *a = numbers(4), *b = weft_neg(numbers(4)), *out = weft_zeros_like(a);
    weft_tensor *even =
        weft_to(weft_eq(weft_tensor_from(WEFT_F32, WEFT_SHAPE(4), (const float[]){0, 1, 0, 1}),
                        weft_zeros_like(a)),
                WEFT_BOOL, WEFT_CPU);
    CHECK_OK(weft_where_into(out, even, a, b));
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(weft_item(out, i), i % 2 ? -i : i, 0);
    CHECK(weft_where_into(numbers(3), even, a, b) < 0);
    weft_tensor *x = weft_view(numbers(8), WEFT_SHAPE(2, 2, 2));
    weft_tensor *product = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2, 2));
    CHECK_OK(weft_bmm_into(product, x, x));
    CHECK(weft_equal(product, weft_bmm(x, x)));
    CHECK_NEAR(weft_item(product, 7), 6 * 5 + 7 * 7, 0);
    CHECK(weft_bmm_into(numbers(8), x, x) < 0);
    weft_clear_error();
    weft_scope_close();
}

/* ---- ranks ---- */

/* Means of three small floats that lie halfway between two, and just below that, where a factor of
 * 1/3, which is a little more than a third, comes to the tie. */
RANKS_TEST(test_bounds_mean_is_a_division, 3)
{
    weft_group *world = join(20000);
    enum { TIES = 21 };
    for (int k = 0; k < TIES; k++) {
        int odd = 2 * k + 1; /* the mean is 1 + odd / 256 */
        const double tie[] = {1, 1.5, 0.5 + 3.0 * odd / 256};
        const double below[] = {2.5, 0.5 + 3.0 * odd / 256, -1.0 / (1 << 22)};
        weft_tensor *x = weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(9), tie[rank]);
        weft_tensor *y = weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(9), below[rank]);
        CHECK_NEAR(weft_item(x, 0), tie[rank], 0); /* bfloat16 has it */
        CHECK_NEAR(weft_item(y, 0), below[rank], 0);
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_AVG, world));
        CHECK_OK(weft_all_reduce_into(y, y, WEFT_AVG, world));
        int even = (odd - 1) / 2 % 2 ? odd + 1 : odd - 1;
        for (int i = 0; i < 9; i++) {
            CHECK_NEAR(weft_item(x, i), 1 + even / 256.0, 0);
            CHECK_NEAR(weft_item(y, i), 1 + (odd - 1) / 256.0, 0);
        }
    }
    finish(world);
}

/* As much as fits an output, and one row more. */
RANKS_TEST(test_bounds_vdev, 2)
{
    weft_group *world = join(20000);
    weft_tensor *in = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 3));
    weft_tensor *splits = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2));
    weft_tensor *table = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 2));
    int64_t *split = weft_tensor_data(splits);
    CHECK(weft_symm_rendezvous(in, world) && weft_symm_rendezvous(splits, world));
    weft_fill(in, rank + 1);
    split[0] = split[1] = 2;
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_tensor *exact = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 3));
    CHECK_OK(weft_symm_all_to_all_vdev(exact, table, in, splits, world));
    CHECK_NEAR(weft_item(exact, 11), 2, 0);
    /* One rank's output is a row too small, with memory behind it that must stay as it is. */
    weft_tensor *whole = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 3), 7);
    weft_tensor *small = weft_narrow(whole, 0, 0, rank == 0 ? 3 : 4);
    CHECK_STATUS(weft_symm_all_to_all_vdev(small, table, in, splits, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "rank 0 receives exceeds the 3 rows");
    for (int i = 0; i < 12; i++)
        CHECK_NEAR(weft_item(whole, i), 7, 0);
    finish(world);
}

RANKS_TEST(test_bounds_reduce_scatter_split, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 16));
    CHECK(weft_symm_rendezvous(x, world));
    weft_fill(x, 1);
    static const int64_t wrong[][2] = {{3, 7}, {2, 8}, {3, 9}, {3, 16}, {4, 6}, {1, 8}, {24, 1}};
    for (int i = 0; i < 7; i++) {
        weft_tensor *out = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(wrong[i][0], wrong[i][1]), 7);
        CHECK_STATUS(weft_symm_reduce_scatter_out(out, x, true, WEFT_SUM, world),
                     WEFT_ERR_INVALID_ARG);
        CHECK_NEAR(weft_item(out, 0), 7, 0);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 8));
    CHECK_OK(weft_symm_reduce_scatter_out(out, x, true, WEFT_SUM, world));
    CHECK_NEAR(weft_item(out, 23), 2, 0);
    finish(world);
}

RANKS_TEST(test_bounds_symm_is, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
    CHECK(weft_symm_is(x) && weft_symm_is(weft_narrow(x, 1, 1, 2)));
    CHECK(weft_symm_is(weft_detach(x)));
    CHECK(!weft_symm_is(NULL) && !weft_symm_is(numbers(4)) && !weft_symm_is(weft_clone(x)));
    CHECK(!weft_symm_is(weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4))));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem && weft_symm_is(x) && symm_info(mem).group == world);
    finish(world);
}

RANKS_TEST(test_bounds_low_contention_needs_work, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK(!weft_symm_low_contention_all_gather(x, world, NULL));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!weft_symm_low_contention_reduce_scatter(x, WEFT_SUM, world, NULL));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_work *work = NULL; /* the group goes on */
    weft_tensor *all = weft_symm_low_contention_all_gather(x, world, &work);
    CHECK(all);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_bounds_multimem_one_shot_out, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8)), *out = numbers(8);
    CHECK(weft_symm_rendezvous(x, world));
    weft_fill(x, rank + 1);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_symm_multimem_one_shot_all_reduce_out(out, x, WEFT_SUM, world));
    for (int i = 0; i < 8; i++) {
        CHECK_NEAR(weft_item(out, i), 3, 0);
        CHECK_NEAR(weft_item(x, i), rank + 1, 0);
    }
    finish(world);
}

/* Closing what a destroyed group collects gives back the tensors, which may hold the group. */
TEST(test_bounds_collection_of_a_destroyed_group)
{
    weft_scope_open();
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *pair = weft_group_new(weft_fake_init(&opts), (const int[]){0, 1}, 2, NULL);
    weft_symm *mem = weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), pair);
    weft_tensor *x = weft_symm_tensor(mem, 1);
    CHECK(x);
    CHECK_OK(weft_coalesce_open(pair));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, pair));
    CHECK_OK(weft_group_destroy(pair));
    CHECK(!weft_coalesce_close(pair));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_STATE);
    weft_clear_error();
    weft_scope_close();
}

/* A place that was used before comes back zeroed. */
TEST(test_bounds_pool_is_zeroed)
{
    weft_scope_open();
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, 4096);
    for (int round = 0; round < 3; round++) {
        weft_scope_open();
        weft_tensor *x = weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(100));
        CHECK(x);
        for (int i = 0; i < 100; i++)
            CHECK_NEAR(weft_item(x, i), 0, 0);
        weft_fill(x, 5);
        weft_scope_close();
    }
    weft_scope_close();
}

/* Asking for what is there already is no collective: one rank may do so alone. */
RANKS_TEST(test_bounds_workspace, 2)
{
    weft_group *world = join(20000);
    weft_symm *first = weft_symm_workspace(world, WEFT_CPU, 5000);
    CHECK(first);
    void *place = weft_symm_buffer_ptr(first, rank);
    static const size_t again[] = {5000, 4999, 1};
    for (int i = 0; i < 3 && rank == 0; i++) {
        weft_limit_open(500);
        weft_symm *same = weft_symm_workspace(world, WEFT_CPU, again[i]);
        weft_limit_close();
        CHECK(same);
        CHECK(weft_symm_buffer_ptr(same, rank) == place);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(weft_symm_workspace(world, WEFT_CPU, 5001)); /* grows on all */
    finish(world);
}

/* The posted forms of the rooted parts. */
RANKS_TEST(test_bounds_parts_start, 3)
{
    weft_group *world = join(20000);
    weft_tensor *out[3], *each[3], *part = numbers(rank + 1);
    for (int i = 0; i < size; i++) {
        out[i] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(i + 1));
        each[i] = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(i + 1), 10 * i);
    }
    weft_work *work = weft_gather_parts_start(rank == 1 ? out : NULL, part, 1, world);
    CHECK(work);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    for (int i = 0; i < size; i++)
        CHECK_NEAR(weft_item(out[i], i), rank == 1 ? i : 0, 0);
    work = weft_scatter_parts_start(part, rank == 2 ? each : NULL, 2, world);
    CHECK(work);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    CHECK_NEAR(weft_item(part, rank), 10 * rank, 0);
    finish(world);
}

/* Zeros behind every block: what is read there is not what was brought. */
static void *roomy_alloc(size_t bytes)
{
    return weft_i_os_linux.alloc(bytes + 512);
}

TEST(test_bounds_rendezvous_of_one)
{
    weft_scope_open();
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 1);
    weft_group *world = weft_fake_init(&opts);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8));
    weft_i_os table = weft_i_os_linux;
    table.alloc = roomy_alloc;
    weft_i_os_now = &table;
    weft_symm *mem = weft_symm_rendezvous(x, world);
    weft_i_os_now = &weft_i_os_linux;
    if (!mem)
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_symm_barrier(mem, 0, 1000));
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
