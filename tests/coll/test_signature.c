/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/signature.c, coll/calls/work_text.c */
/* Signatures of calls: which two are one call, and every one of them in words. */
#include "harness.h"

#include "coll/lane/list.h"
#include "coll/lane/signature.h"
#include "symm/kind.h"

#include <weft/weft.h>

static const char *text_of(weft_i_signature signature)
{
    static char text[WEFT_I_SIGNATURE_TEXT];
    memset(text, 'x', sizeof text);
    CHECK(weft_i_signature_text(&signature, text, sizeof text) == text);
    return text;
}

static void check_text(const char *actual, const char *expected)
{
    if (strcmp(actual, expected) != 0)
        FAIL("\"%s\" is not \"%s\"", actual, expected);
}

#define CHECK_TEXT(expected_, ...) \
    check_text(text_of((weft_i_signature){.dtype = WEFT_F32, .count = 100, __VA_ARGS__}), expected_)

/* Every fact counts but the shape; and what belongs to the showing of it, not to the call. */
/* Which kinds can be coalesced, and into what. */
TEST(test_signature_lists_of_kinds)
{
    for (int kind = 0; kind < WEFT_I_COLL_KINDS; kind++)
        CHECK_INT(weft_i_kind_list_of((weft_i_coll_kind)kind),
                  kind == WEFT_I_ALL_REDUCE       ? WEFT_I_ALL_REDUCE_LIST
                  : kind == WEFT_I_ALL_GATHER     ? WEFT_I_ALL_GATHER_LIST
                  : kind == WEFT_I_REDUCE_SCATTER ? WEFT_I_REDUCE_SCATTER_LIST
                                                  : -1);
}

TEST(test_signature_same)
{
    const weft_i_signature a = {.kind = 1,
                                .dtype = 2,
                                .reduction = 3,
                                .root = 4,
                                .count = 5,
                                .offset = 6,
                                .block = 7,
                                .dims = 1,
                                .dim = {5}};
    weft_i_signature b = a;
    CHECK(weft_i_signature_same(&a, &b));
    b.dims = 2;
    b.dim[0] = b.dim[1] = 9;
    atomic_store(&b.shown, 77);
    CHECK(weft_i_signature_same(&a, &b));
    for (int i = 0; i < 7; i++) {
        b = a;
        uint32_t *words[] = {&b.kind, &b.dtype, &b.reduction, &b.root, &b.block};
        if (i < 5)
            ++*words[i];
        else
            ++*(i == 5 ? &b.count : &b.offset);
        CHECK(!weft_i_signature_same(&a, &b) && !weft_i_signature_same(&b, &a));
    }
}

TEST(test_signature_text)
{
    CHECK_TEXT("barrier", .kind = WEFT_I_BARRIER);
    CHECK_TEXT("all_gather of 100 f32", .kind = WEFT_I_ALL_GATHER, .root = 1);
    CHECK_TEXT("all_reduce of 100 f32, max", .kind = WEFT_I_ALL_REDUCE, .reduction = WEFT_MAX);
    CHECK_TEXT("broadcast of 100 f32, root 2", .kind = WEFT_I_BROADCAST, .root = 2);
    CHECK_TEXT("reduce of 100 f32, sum, root 3", .kind = WEFT_I_REDUCE, .root = 3);
    CHECK_TEXT("all_to_all of 100 f32", .kind = WEFT_I_ALL_TO_ALL);
    CHECK_TEXT("all_to_all of f32 by splits", .kind = WEFT_I_ALL_TO_ALL, .root = 1);
    CHECK_TEXT("broadcast_object, root 1", .kind = WEFT_I_BROADCAST_OBJECT, .root = 1);
    CHECK_TEXT("all_gather_object", .kind = WEFT_I_ALL_GATHER_OBJECT);
    /* counts of parts may differ, and shapes with them */
    CHECK_TEXT("gather_parts of f32, root 1", .kind = WEFT_I_GATHER_PARTS, .root = 1, .dims = 2);
    CHECK_TEXT("all_reduce of 100 f32, sum, at byte 64 of symmetric block 3",
               .kind = WEFT_I_ALL_REDUCE, .offset = 64, .block = 3);
}

TEST(test_signature_text_shapes)
{
    CHECK_TEXT("all_gather of 100 f32, shape [100]", .kind = WEFT_I_ALL_GATHER, .dims = 1,
               .dim = {100, 7});
    CHECK_TEXT("all_gather of 100 f32, shape [1, 4, 5, 5]", .kind = WEFT_I_ALL_GATHER, .dims = 4,
               .dim = {1, 4, 5, 5});
    CHECK_TEXT("all_gather of 100 f32, shape [1, 4, 5, 5, ...]", .kind = WEFT_I_ALL_GATHER,
               .dims = 5, .dim = {1, 4, 5, 5});
}

/* Of a list: how many tensors, and the first of them. */
TEST(test_signature_text_lists)
{
    uint32_t a = weft_i_signature_tensor(WEFT_F32, 8), b = weft_i_signature_tensor(WEFT_I64, 0);
    CHECK_TEXT("all_gather_list of 0 tensors", .kind = WEFT_I_ALL_GATHER_LIST);
    CHECK_TEXT("all_gather_list of 2 tensors (8 f32, 0 i64)", .kind = WEFT_I_ALL_GATHER_LIST,
               .dims = 2, .dim = {a, b});
    CHECK_TEXT("all_reduce_list of 4 tensors (8 f32, 8 f32, 0 i64, 8 f32), sum",
               .kind = WEFT_I_ALL_REDUCE_LIST, .dims = 4, .dim = {a, a, b, a});
    CHECK_TEXT("all_gather_list of 5 tensors (8 f32, 8 f32, 8 f32, 8 f32, ...)",
               .kind = WEFT_I_ALL_GATHER_LIST, .dims = 5, .dim = {a, a, a, a});
    CHECK_INT(weft_i_signature_tensor(1, 0x3fffffe), 0x7fffffe);
    CHECK_INT(weft_i_signature_tensor(1, 0x3ffffff), 0x7ffffff);
    CHECK_INT(weft_i_signature_tensor(1, UINT64_MAX), 0x7ffffff); /* cut, and no other dtype */
}

/* The agreement before a first use is told as the call that needs it. */
TEST(test_signature_text_first_use)
{
    CHECK_TEXT("reduce_scatter_out of 100 f32, with symmetric memory not used before",
               .kind = WEFT_I_FIRST_USE, .root = WEFT_I_REDUCE_SCATTER_OUT);
    CHECK_TEXT("first_use of 100 f32, sum", .kind = WEFT_I_FIRST_USE, .root = WEFT_I_COLL_KINDS);
}

/* It is another rank's memory: numbers that mean nothing have a text too. */
TEST(test_signature_text_nonsense)
{
    CHECK_TEXT("something unknown", .kind = WEFT_I_COLL_KINDS);
    CHECK_TEXT("something unknown", .kind = UINT32_MAX, .root = 1, .block = 1);
    char text[8];
    memset(text, 'x', sizeof text);
    const weft_i_signature all = {.kind = WEFT_I_ALL_REDUCE, .dims = UINT32_MAX};
    check_text(weft_i_signature_text(&all, text, 5), "all_"); /* cut, and terminated */
    CHECK(text[5] == 'x');
    const char *nothing = text_of((weft_i_signature){.kind = WEFT_I_ALL_REDUCE,
                                                     .dtype = UINT32_MAX,
                                                     .reduction = UINT32_MAX,
                                                     .dims = UINT32_MAX});
    CHECK_CONTAINS(nothing, "all_reduce of 0 ");
    CHECK_CONTAINS(nothing, "shape [0, 0, 0, 0, ...]");
}

/* ---- of a call ---- */

static const weft_i_coll a_reduce = {.ask = {.kind = WEFT_I_REDUCE,
                                             .dtype = WEFT_I64,
                                             .reduction = WEFT_MAX,
                                             .root = 3,
                                             .count = 77},
                                     .digest = 1234};

static weft_i_signature of_call(const weft_i_coll *coll)
{
    weft_i_signature signature;
    memset(&signature, 0xee, sizeof signature);
    weft_i_coll_put_signature(&signature, coll);
    CHECK_INT(signature.kind, WEFT_I_REDUCE);
    CHECK(signature.dtype == WEFT_I64 && signature.reduction == WEFT_MAX && signature.root == 3);
    CHECK_INT(signature.count, 77);
    return signature;
}

TEST(test_signature_of_a_call)
{
    CHECK_OK(weft_scope_open());
    weft_i_coll coll = a_reduce;
    weft_i_signature seen = of_call(&coll); /* nothing here */
    CHECK(seen.dims == 0 && seen.offset == 0 && seen.block == 0);
    CHECK_INT(seen.dim[0], 0xeeeeeeee);
    weft_tensor *in = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 4)),
                *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 1, 2, 2, 3));
    coll.out_tensor = out;
    seen = of_call(&coll);
    CHECK(seen.dims == 5 && seen.dim[0] == 5 && seen.dim[3] == 2);
    coll.in_tensor = in; /* the input comes first */
    seen = of_call(&coll);
    CHECK(seen.dims == 3 && seen.dim[0] == 2 && seen.dim[1] == 3 && seen.dim[2] == 4);
    CHECK(seen.dim[3] == 0xeeeeeeee && seen.offset == 0);
    weft_i_registration registration = {.serial = 6};
    coll.reach = &(weft_i_reach){&registration, 640};
    seen = of_call(&coll);
    CHECK(seen.offset == 640 && seen.block == 6 && seen.dims == 3);
    coll.reach = NULL;
    CHECK_OK(weft_scope_close());
}

/* The first tensors of a list, its length and its digest. */
TEST(test_signature_of_a_list)
{
    enum { ITEMS = 6 };
    CHECK_OK(weft_scope_open());
    weft_i_coll coll = a_reduce;
    CHECK(coll.list = weft_i_list_new(ITEMS));
    for (int i = 0; i < ITEMS; i++) {
        weft_tensor *x = weft_zeros(i % 2 ? WEFT_F64 : WEFT_I8, WEFT_CPU, WEFT_SHAPE(10 + i));
        weft_i_coll one = {
            .in_tensor = i == 1 ? NULL : x,
            .out_tensor = i == 1 ? x : NULL,
            .ask = {.count = 10 + (size_t)i, .item = i % 2 ? 8 : 1, .reduction = WEFT_MAX}};
        if (i == 3)
            one.in_tensor = one.out_tensor = NULL; /* none of this rank */
        CHECK_OK(weft_i_list_add(&coll, &one));
    }
    for (size_t count = 0; count <= ITEMS; count++) {
        coll.list->count = count;
        weft_i_signature seen = of_call(&coll);
        CHECK(seen.dims == count && seen.offset == coll.digest && seen.block == 0);
        for (uint32_t i = 0; i < WEFT_I_SIGNATURE_DIMS; i++) {
            uint32_t dtype = i == 3 ? 0 : i % 2 ? WEFT_F64 : WEFT_I8;
            CHECK_INT(seen.dim[i], i < count ? weft_i_signature_tensor(dtype, 10 + i) : 0xeeeeeeee);
        }
    }
    coll.list->count = ITEMS;
    weft_i_object_drop(coll.list);
    CHECK_OK(weft_scope_close());
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
