/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: train/tokens.c, train/shuffle.c */
/* Token files: each sequence once in an epoch, the same batches for any number of ranks, bad files. */
#include "folder.h"
#include "harness.h"

#include "train/shuffle.h"

enum { COUNT = 103, LENGTH = 5, BATCH = 4 }; /* 20 sequences, 5 batches */

static void make_file(path_text folder, path_text path)
{
    uint16_t tokens[COUNT];
    make_tree(folder);
    join_path(path, folder, "x.bin");
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (uint16_t)(1000 + i);
    write_bytes(path, tokens, sizeof tokens);
}

static weft_tokens *open_tokens(const char *path, bool shuffle, uint64_t seed)
{
    weft_tokens_opts opts = WEFT_TOKENS_OPTS_INIT;
    opts.batch = BATCH;
    opts.length = LENGTH;
    opts.shuffle = shuffle;
    opts.seed = seed;
    weft_tokens *t = weft_tokens_open(path, &opts);
    if (!t)
        FAIL("%s", weft_last_error());
    return t;
}

/* Of every size: each number once, and orders that differ. */
TEST(test_shuffle_is_a_permutation)
{
    static char seen[5000];
    for (uint64_t count = 1; count < sizeof seen; count = count * 3 / 2 + 1) {
        int moved = 0, other = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t at = weft_i_shuffle(i, count, 7, 2);
            CHECK(at < count && !seen[at]);
            seen[at] = 1;
            moved += at != i;
            other += at != weft_i_shuffle(i, count, 7, 3);
        }
        if (count > 20)
            CHECK(moved > (int)count / 2 && other > (int)count / 2);
    }
    CHECK(weft_i_shuffle(5, (uint64_t)1 << 50, 1, 0) < (uint64_t)1 << 50);
}

TEST(test_tokens_in_order)
{
    path_text folder, path;
    make_file(folder, path);
    weft_tokens *t = open_tokens(path, false, 0);
    weft_tensor *x, *labels;
    CHECK_INT(weft_tokens_count(t), COUNT);
    CHECK_INT(weft_tokens_batches(t), 5);
    CHECK_OK(weft_tokens_batch(t, 1, 1, 2, &x, &labels));
    CHECK_INT(weft_tensor_size(x, 0), 2);
    for (int i = 0; i < 2 * LENGTH; i++) {
        CHECK_INT(weft_item_int(x, i), 1000 + 6 * LENGTH + i);
        CHECK_INT(weft_item_int(labels, i), 1001 + 6 * LENGTH + i);
    }
    CHECK_OK(weft_tokens_batch(t, 6, 0, 1, &x, NULL)); /* the second epoch's second */
    CHECK_INT(weft_item_int(x, 0), 1000 + 4 * LENGTH);
    remove_tree(folder);
}

/* Whatever the number of parts, the rows of a batch are the same; an epoch has each sequence once. */
TEST(test_tokens_shuffled)
{
    path_text folder, path;
    int seen[20] = {0}, differ = 0;
    make_file(folder, path);
    weft_tokens *t = open_tokens(path, true, 3), *other = open_tokens(path, true, 4);
    for (int64_t b = 0; b < 5; b++) {
        weft_tensor *whole, *labels, *part, *again, *elsewhere;
        CHECK_OK(weft_tokens_batch(t, b, 0, 1, &whole, &labels));
        CHECK_OK(weft_tokens_batch(t, b + 5, 0, 1, &again, NULL));
        CHECK_OK(weft_tokens_batch(other, b, 0, 1, &elsewhere, NULL));
        for (int row = 0; row < BATCH; row++) {
            CHECK_OK(weft_tokens_batch(t, b, row, BATCH, &part, NULL));
            int64_t first = weft_item_int(whole, row * LENGTH);
            CHECK_INT(weft_item_int(part, 0), first);
            CHECK_INT(weft_item_int(labels, row * LENGTH + LENGTH - 1), first + LENGTH);
            CHECK_INT((first - 1000) % LENGTH, 0);
            seen[(first - 1000) / LENGTH]++;
            differ += weft_item_int(again, row * LENGTH) != first;
            differ += weft_item_int(elsewhere, row * LENGTH) != first;
        }
    }
    for (int i = 0; i < 20; i++)
        CHECK_INT(seen[i], 1);
    CHECK(differ > 20);
    remove_tree(folder);
}

TEST(test_tokens_refused)
{
    path_text folder, path;
    make_file(folder, path);
    weft_tokens_opts opts = WEFT_TOKENS_OPTS_INIT;
    CHECK(!weft_tokens_open("/nowhere/at/all", &opts));
    CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    CHECK(!weft_tokens_open(path, &opts));
    CHECK_CONTAINS(weft_last_error(), "103 tokens, 0 sequences of 256; a batch takes 8");
    opts.length = LENGTH, opts.batch = BATCH, opts.dtype = WEFT_U32;
    CHECK(!weft_tokens_open(path, &opts));
    CHECK_CONTAINS(weft_last_error(), "no whole number of u32");
    opts.dtype = WEFT_F32;
    CHECK(!weft_tokens_open(path, &opts));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    opts.dtype = WEFT_U16, opts.skip = 1000;
    CHECK(!weft_tokens_open(path, &opts));
    opts.skip = 0, opts.symbols = 1050, opts.shuffle = false;
    weft_tokens *t = weft_tokens_open(path, &opts);
    weft_tensor *x = NULL;
    CHECK_OK(weft_tokens_batch(t, 0, 0, 1, &x, NULL));
    CHECK_STATUS(weft_tokens_batch(t, 2, 0, 1, &x, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "token 50 of");
    CHECK_STATUS(weft_tokens_batch(t, 0, 0, 3, &x, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_tokens_batch(t, -1, 0, 1, &x, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_tokens_batch(t, 0, 1, 1, &x, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_tokens_batch(t, 0, 0, 1, NULL, NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    remove_tree(folder);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
