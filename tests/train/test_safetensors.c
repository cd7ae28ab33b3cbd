/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: train/safetensors.c, train/safetensors_save.c, train/header.c, train/sum.c, train/json_reader.c, train/safetensors_file.c, train/file_map.c, train/header_write.c, train/index.c, train/layout.c */
/* Files of tensors: out and in, in the bytes that others write, and what is refused. */
#define FAULT_FILES
#include "fault.h"
#include "folder.h"
#include "harness.h"

#include "train/header.h"
#include "train/json_reader.h"
#include "train/sum.h"

/* ---- checksums ---- */

/* Values of the reference program, `xxhsum -H64`. */
TEST(test_sum_is_xxh64)
{
    unsigned char bytes[101];
    for (int i = 0; i < 101; i++)
        bytes[i] = (unsigned char)(i * 7 + 3);
    CHECK(weft_i_sum_of("", 0) == 0xef46db3751d8e999u);
    CHECK(weft_i_sum_of("abc", 3) == 0x44bc2cf5ad770999u);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        weft_i_sum sum;
        weft_i_sum_begin(&sum);
        weft_i_sum_add(&sum, bytes, cut);
        weft_i_sum_add(&sum, bytes + cut, sizeof bytes - cut);
        CHECK(weft_i_sum_end(&sum) == weft_i_sum_of(bytes, sizeof bytes));
    }
}

/* ---- there and back ---- */

TEST(test_safetensors_round_trip)
{
    path_text folder, path;
    make_tree(folder);
    join_path(path, folder, "all.safetensors");
    weft_named list[WEFT_DTYPE_COUNT + 2];
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        snprintf(list[d].name, sizeof list[d].name, "%s \"quoted\" \xc3\xa4 %d",
                 weft_dtype_name((weft_dtype)d), d);
        weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 6 + d, 1);
        list[d].tensor = weft_to(x, (weft_dtype)d, WEFT_CPU);
    }
    weft_tensor *turned =
        weft_transpose(weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 6, 1), WEFT_SHAPE(2, 3)), 0, 1);
    snprintf(list[WEFT_DTYPE_COUNT].name, WEFT_NAME_MAX, "turned");
    list[WEFT_DTYPE_COUNT].tensor = turned;
    snprintf(list[WEFT_DTYPE_COUNT + 1].name, WEFT_NAME_MAX, "empty");
    list[WEFT_DTYPE_COUNT + 1].tensor = weft_empty(WEFT_F16, WEFT_CPU, WEFT_SHAPE(4, 0, 2));
    int count = WEFT_DTYPE_COUNT + 2;
    weft_safetensors_note note = {"format", "pt\n\\"};
    CHECK_OK(weft_safetensors_save(path, list, count, &note, 1));

    weft_safetensors *file = weft_safetensors_open(path);
    if (!file)
        FAIL("%s", weft_last_error());
    CHECK_INT(weft_safetensors_count(file), count);
    CHECK(!strcmp(weft_safetensors_metadata(file, "format"), "pt\n\\"));
    CHECK(!weft_safetensors_metadata(file, "other"));
    for (int i = 0; i < count; i++) {
        weft_tensor *x = weft_safetensors_get(file, list[i].name), *y = list[i].tensor;
        if (!x)
            FAIL("%s", weft_last_error());
        CHECK(weft_safetensors_has(file, list[i].name));
        CHECK_INT(weft_tensor_dtype(x), weft_tensor_dtype(y));
        CHECK_INT(weft_tensor_ndim(x), weft_tensor_ndim(y));
        weft_tensor *flat = weft_contiguous(y);
        CHECK_INT(weft_tensor_bytes(x), weft_tensor_bytes(flat));
        if (weft_tensor_bytes(x))
            CHECK(!memcmp(weft_tensor_data(x), weft_tensor_data(flat), weft_tensor_bytes(x)));
    }
    /* A tensor outlives its file, and nobody writes to it. */
    weft_tensor *x = weft_safetensors_get(file, "turned");
    weft_release(file);
    remove_tree(folder);
    CHECK_NEAR(weft_item(x, 1), 3, 0);
    CHECK(weft_fill(x, 1) < 0);
    weft_clear_error();
}

/* The widest come first, so that each lies where its elements can be read. */
TEST(test_safetensors_are_aligned)
{
    path_text folder, path;
    make_tree(folder);
    join_path(path, folder, "x.safetensors");
    weft_named list[] = {{"a", weft_ones(WEFT_U8, WEFT_CPU, WEFT_SHAPE(3))},
                         {"b", weft_ones(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3))},
                         {"c", weft_ones(WEFT_F16, WEFT_CPU, WEFT_SHAPE(1))}};
    CHECK_OK(weft_safetensors_save(path, list, 3, NULL, 0));
    weft_safetensors *file = weft_safetensors_open(path);
    weft_safetensors_entry entry;
    CHECK_OK(weft_safetensors_about(file, 0, &entry));
    CHECK(!strcmp(entry.name, "b") && entry.dtype == WEFT_F64 && entry.shape.dim[0] == 3);
    CHECK_STATUS(weft_safetensors_about(file, 3, &entry), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    remove_tree(folder);
}

/* ---- the files of others ---- */

static void put_file(const char *path, const char *header, const void *data, size_t bytes)
{
    static char all[4096];
    uint64_t length = strlen(header);
    memcpy(all, &length, 8);
    memcpy(all + 8, header, length);
    if (bytes)
        memcpy(all + 8 + length, data, bytes);
    write_bytes(path, all, 8 + length + bytes);
}

/* Members in any order, unknown ones, numbers that lie anywhere: a copy then. */
TEST(test_safetensors_of_others)
{
    path_text folder, path;
    float value[] = {1.5f, -2};
    make_tree(folder);
    join_path(path, folder, "model.safetensors");
    put_file(path,
             "{ \"w\\u00e4\" : {\"data_offsets\":[0,8],\"more\":{\"x\":[1,-2.5e3,null,true]},"
             "\"shape\":[2],\"dtype\":\"F32\"}}   ",
             value, sizeof value);
    weft_safetensors *file = weft_safetensors_open(folder);
    weft_tensor *x = weft_safetensors_get(file, "w\xc3\xa4");
    if (!x)
        FAIL("%s", weft_last_error());
    CHECK_NEAR(weft_item(x, 0), 1.5, 0);
    CHECK_NEAR(weft_item(x, 1), -2, 0);
    CHECK(!weft_safetensors_get(file, "w"));
    CHECK_CONTAINS(weft_last_error(), "has no \"w\"");
    weft_clear_error();
    remove_tree(folder);
}

TEST(test_safetensors_index)
{
    path_text folder, one, two, index;
    float value[] = {1, 2, 3, 4};
    make_tree(folder);
    join_path(one, folder, "model-1.safetensors");
    join_path(two, folder, "model-2.safetensors");
    join_path(index, folder, "model.safetensors.index.json");
    put_file(one,
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
             "\"hidden\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
             value, 16);
    put_file(two, "{\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", value + 2, 4);
    static const char fine[] = "{\"metadata\":{\"total_size\":12},\"weight_map\":{"
                               "\"b\":\"model-2.safetensors\",\"a\":\"model-1.safetensors\"}}";
    write_bytes(index, fine, sizeof fine - 1);
    weft_safetensors *file = weft_safetensors_open(folder);
    if (!file)
        FAIL("%s", weft_last_error());
    CHECK_INT(weft_safetensors_count(file), 2);
    CHECK(!weft_safetensors_has(file, "hidden"));
    CHECK_NEAR(weft_item(weft_safetensors_get(file, "a"), 1), 2, 0);
    CHECK_NEAR(weft_item(weft_safetensors_get(file, "b"), 0), 3, 0);

    static const char *const wrong[][2] = {
        {"{\"weight_map\":{\"a\":\"model-2.safetensors\"}}", "\"a\" is not in"},
        {"{\"weight_map\":{\"a\":\"../model-1.safetensors\"}}", "no file of this folder"},
        {"{\"weight_map\":{\"a\":\"model-9.safetensors\"}}", "there is no file"},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\",\"a\":\"model-1.safetensors\"}}", "twice"},
        {"{\"weights\":{}}", "no \"weight_map\""},
        {"{\"weight_map\":{\"a\":1}}", "a string was expected"},
        {"{\"weight_map\":{", "it ends"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_bytes(index, wrong[i][0], strlen(wrong[i][0]));
        CHECK(!weft_safetensors_open(index));
        CHECK_CONTAINS(weft_last_error(), wrong[i][1]);
    }
    weft_clear_error();
    remove_tree(folder);
    CHECK(!weft_safetensors_open(folder));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    weft_clear_error();
}

/* ---- what is refused ---- */

#define W "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":"
static const struct {
    const char *header, *why;
    size_t data;
} bad[] = {
    {W "[0,8]}}", "it was cut", 4},
    {W "[0,8]}}", "it has 12 for them", 12},
    {W "[8,0]}}", "has 8 bytes by its shape", 8},
    {W "[0,4]}}", "has 8 bytes by its shape", 4},
    {W "[4,12]}}", "behind a gap", 12},
    {W "[0,8]},\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", "inside the one",
     12},
    {W "[0,8]},\"w\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}", "twice", 8},
    {W "[0,8],\"shape\":[2]}}", "a member twice", 8},
    {W "[0]}}", "has not two numbers", 8},
    {W "[0,8,8]}}", "more than two", 8},
    {W "[0,-8]}}", "a whole number was expected", 8},
    {W "[0,8.0]}}", "a whole number was expected", 8},
    {W "[0,99999999999999999999]}}", "too large", 8},
    {W "[00,8]}}", "begins with 0", 8},
    {W "[0,8]}} x", "something follows", 8},
    {W "[0,8]}", "it ends inside", 8},
    {"{\"w\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "has no dtype", 8},
    {"{\"w\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", "\"C64\"", 8},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}",
     "more than 8 dimensions", 1},
    {"{\"w\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
     "more elements than can be counted", 0},
    {"{\"w\\u0000x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     "an escape that is none", 1},
    {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "not UTF-8", 1},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", "twice", 0},
    {"{\"__metadata__\":{\"a\":1}}", "a string was expected", 0},
    {"[]", "does not begin with {", 0},
    {"{\"w\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "an object was expected", 0},
    {"{\"w\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested too deep", 0},
};

TEST(test_safetensors_refused)
{
    path_text folder, path;
    make_tree(folder);
    join_path(path, folder, "bad.safetensors");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_file(path, bad[i].header, "0123456789abcdef", bad[i].data);
        if (weft_safetensors_open(path))
            FAIL("%s was taken", bad[i].header);
        CHECK_CONTAINS(weft_last_error(), bad[i].why);
        CHECK_CONTAINS(weft_last_error(), "bad.safetensors");
    }
    static const uint64_t lengths[] = {0, 1, 9, 100000001, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_bytes(path, &lengths[i], 8);
        CHECK(!weft_safetensors_open(path));
        CHECK_CONTAINS(weft_last_error(), "safetensors file");
    }
    write_bytes(path, "", 0);
    CHECK(!weft_safetensors_open(path));
    CHECK_CONTAINS(weft_last_error(), "too few");
    CHECK(!mkfifo(strcat(path, ".fifo"), 0600));
    CHECK(!weft_safetensors_open(path));
    CHECK_CONTAINS(weft_last_error(), "no regular file");
    weft_clear_error();
    remove_tree(folder);
}

TEST(test_safetensors_save_refused)
{
    path_text folder, path;
    make_tree(folder);
    join_path(path, folder, "x.safetensors");
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    weft_named twice[] = {{"a", x}, {"a", x}}, other[] = {{"\xff", x}}, none[] = {{"a", NULL}},
               meta[] = {{"a", weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(2))}};
    weft_clear_error();
    CHECK_STATUS(weft_safetensors_save(path, twice, 2, NULL, 0), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "\"a\" is in it twice");
    CHECK_STATUS(weft_safetensors_save(path, other, 1, NULL, 0), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_safetensors_save(path, none, 1, NULL, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_safetensors_save(path, meta, 1, NULL, 0), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_safetensors_save("/nowhere/at/all", twice, 1, NULL, 0), WEFT_ERR_IO);
    CHECK(!is_there(folder, "x.safetensors"));
    weft_clear_error();
    /* What is no file is not replaced by one. */
    CHECK(!mkfifo(path, 0600));
    CHECK_STATUS(weft_safetensors_save(path, twice, 1, NULL, 0), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "is there, and is no regular file");
    CHECK(is_there(folder, "x.safetensors") && !unlink(path));
    weft_clear_error();
    remove_tree(folder);
}

/* ---- faults ---- */

/* Whatever fails, the old file is whole, or the new one. */
TEST(test_safetensors_save_faults)
{
    path_text folder, path;
    make_tree(folder);
    join_path(path, folder, "x.safetensors");
    weft_named old[] = {{"x", weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8), 1)}},
               new[] = {{"x", weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8), 2)}};
    CHECK_OK(weft_safetensors_save(path, old, 1, NULL, 0));
    int failed = 0;
    for (int n = 1;; n++) {
        fault_arm(n);
        weft_status status = weft_safetensors_save(path, new, 1, NULL, 0);
        bool fired = fault_disarm();
        weft_safetensors *file = weft_safetensors_open(path);
        if (!file)
            FAIL("call %d (%s): %s", n, fault_name, weft_last_error());
        double value = weft_item(weft_safetensors_get(file, "x"), 0);
        CHECK(value == 2 || (status < 0 && value == 1));
        failed += status < 0;
        weft_release(file);
        CHECK_OK(weft_safetensors_save(path, old, 1, NULL, 0));
        if (!fired)
            break;
    }
    CHECK(failed > 8);
    weft_clear_error();
    remove_tree(folder);
}

TEST(test_safetensors_open_faults)
{
    path_text folder, path;
    make_tree(folder);
    join_path(path, folder, "x.safetensors");
    weft_named list[] = {{"x", weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8))}};
    CHECK_OK(weft_safetensors_save(path, list, 1, NULL, 0));
    for (int n = 1;; n++) {
        fault_arm(n);
        weft_safetensors *file = weft_safetensors_open(path);
        weft_tensor *x = file ? weft_safetensors_get(file, "x") : NULL;
        bool fired = fault_disarm();
        CHECK(x || fired);
        weft_release(x);
        weft_release(file);
        if (!fired)
            break;
    }
    weft_clear_error();
    remove_tree(folder);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
