/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/fold/fold_hosts.c, kernels/fold/fold.c */
/* Folds of inputs from several hosts, bit by bit against the order by definition. */
#include "fold_reference.h"
#include "harness.h"

#include "kernels/fold/fold_hosts.h"

enum { MOST_INPUTS = 48, MOST_HOSTS = 9, COUNT = 700, ROOM = COUNT * 8 + 16 };

static _Alignas(64) unsigned char source[MOST_INPUTS][ROOM], result[2][ROOM], expected[ROOM];
static double factors[MOST_INPUTS];
static uint64_t state = 7;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Numbers whose sums depend on the order, and now and then any bits. */
static void fill(weft_dtype dtype)
{
    size_t size = weft_dtype_size(dtype);
    for (int i = 0; i < MOST_INPUTS; i++) {
        factors[i] = (double)(int)(draw() % 9) / 4 - 1;
        for (size_t k = 0; k < COUNT; k++) {
            uint64_t bits = draw();
            if (dtype == WEFT_BOOL)
                bits &= 1;
            else if (weft_i_dtype_is_float(dtype) && bits >> 61)
                reference_store_float(dtype, (char *)&bits,
                                      (double)(int)(bits >> 40 & 255) / 3 - 42);
            memcpy(source[i] + 1 + k * size, &bits, size); /* at an odd address */
        }
    }
}

/* Hosts of these sizes; the first says how many. */
static const int layouts[][MOST_HOSTS + 1] = {{2, 1, 1},
                                              {2, 2, 2},
                                              {2, 3, 1},
                                              {3, 1, 1, 1},
                                              {3, 2, 1, 3},
                                              {4, 1, 2, 3, 4},
                                              {5, 1, 1, 1, 1, 1},
                                              {6, 2, 2, 2, 2, 2, 2},
                                              {7, 1, 2, 1, 2, 1, 2, 1},
                                              {8, 1, 1, 1, 1, 1, 1, 1, 1},
                                              {9, 3, 1, 1, 1, 1, 1, 1, 1, 2},
                                              {2, 40, 8}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static weft_i_fold_hosts lay_out(const int *layout, weft_dtype dtype, weft_i_fold_op op,
                                 int firsts[MOST_HOSTS + 1])
{
    firsts[0] = 0;
    for (int h = 0; h < layout[0]; h++)
        firsts[h + 1] = firsts[h] + layout[1 + h];
    return (weft_i_fold_hosts){dtype, op, layout[0], firsts};
}

static void check_same(const char *what, weft_dtype dtype, int op, const unsigned char *got,
                       size_t count)
{
    size_t size = weft_dtype_size(dtype);
    for (size_t i = 0; i < count; i++)
        if (memcmp(got + i * size, expected + i * size, size))
            FAIL("%s: %s, op %d: element %zu of %zu differs", what, weft_dtype_name(dtype), op, i,
                 count);
}

static void check_case(const int *layout, weft_dtype dtype, weft_i_fold_op op, size_t count)
{
    int firsts[MOST_HOSTS + 1];
    const void *in[MOST_INPUTS];
    void *out[] = {result[0] + 3, result[1]};
    weft_i_fold_hosts how = lay_out(layout, dtype, op, firsts);
    for (int i = 0; i < MOST_INPUTS; i++)
        in[i] = source[i] + 1;
    fold_reference_hosts(dtype, op, expected, in, layout + 1, layout[0], count, factors);
    weft_i_fold_hosts_run(&how, out, 2, in, count, factors);
    check_same("first", dtype, op, out[0], count);
    check_same("second", dtype, op, out[1], count);
}

static void check_dtype(const char *variant, weft_dtype dtype)
{
    static const size_t counts[] = {0, 1, 255, 256, 257, COUNT};
    CHECK(weft_i_fold_use(variant));
    for (int op = 0; op < WEFT_I_FOLD_OPS; op++)
        for (int l = 0; weft_i_fold_find(dtype, (weft_i_fold_op)op) && l < LAYOUTS; l++)
            check_case(layouts[l], dtype, (weft_i_fold_op)op, counts[(l + op) % 6]);
}

TEST(test_fold_hosts_matrix)
{
    const char *variant;
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        fill((weft_dtype)dtype);
        for (int v = 0; (variant = weft_i_fold_variant(v)); v++)
            if (weft_i_fold_use(variant))
                check_dtype(variant, (weft_dtype)dtype);
    }
    weft_i_fold_use(NULL);
}

/* Up to three hosts the tree is the hosts in order: partials folded one after the other. */
TEST(test_fold_hosts_up_to_three_in_order)
{
    fill(WEFT_F32);
    for (int l = 0; layouts[l][0] <= 3; l++) {
        float partial[3][COUNT];
        const void *parts[] = {partial[0], partial[1], partial[2]};
        void *one = expected;
        const int *layout = layouts[l];
        for (int h = 0, k = 0; h < layout[0]; k += layout[1 + h], h++) {
            const void *in[MOST_INPUTS];
            void *to = partial[h];
            for (int i = 0; i < layout[1 + h]; i++)
                in[i] = source[k + i] + 1;
            fold_reference(WEFT_F32, WEFT_I_FOLD_SUM, &to, 1, in, layout[1 + h], COUNT, NULL);
        }
        fold_reference(WEFT_F32, WEFT_I_FOLD_SUM, &one, 1, parts, layout[0], COUNT, NULL);
        int firsts[MOST_HOSTS + 1];
        const void *in[MOST_INPUTS];
        void *out = result[0];
        for (int i = 0; i < MOST_INPUTS; i++)
            in[i] = source[i] + 1;
        weft_i_fold_hosts how = lay_out(layout, WEFT_F32, WEFT_I_FOLD_SUM, firsts);
        weft_i_fold_hosts_run(&how, &out, 1, in, COUNT, NULL);
        check_same("in order", WEFT_F32, WEFT_I_FOLD_SUM, result[0], COUNT);
    }
}

/* Known beforehand.  2^24 + 1 + 1 loses both ones in rank order; by hosts (2^24, 1 + 1) it does not. */
TEST(test_fold_hosts_known)
{
    const float x[] = {0x1p24f, 1, 1};
    const void *in[] = {&x[0], &x[1], &x[2]};
    const int by_two[] = {0, 1, 3}, by_three[] = {0, 1, 2, 3};
    float got = 0;
    void *out = &got;
    weft_i_fold_hosts two = {WEFT_F32, WEFT_I_FOLD_SUM, 2, by_two};
    weft_i_fold_hosts three = {WEFT_F32, WEFT_I_FOLD_SUM, 3, by_three};
    weft_i_fold_hosts_run(&two, &out, 1, in, 1, NULL);
    CHECK(got == 0x1p24f + 2);
    weft_i_fold_hosts_run(&three, &out, 1, in, 1, NULL);
    CHECK(got == 0x1p24f);
    /* bf16: 256 + 1 + 1 is rounded once, to 258. */
    const uint16_t small[] = {0x4380, 0x3f80, 0x3f80};
    const void *small_in[] = {&small[0], &small[1], &small[2]};
    uint16_t small_got = 0;
    out = &small_got;
    three.dtype = WEFT_BF16;
    weft_i_fold_hosts_run(&three, &out, 1, small_in, 1, NULL);
    CHECK_INT(small_got, 0x4381);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
