/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/coll.c, coll/calls/coalesce.c, coll/calls/p2p_call.c, coll/lane/request.c,
 * functional/rule.c, parts/parts.c, parts/object.c, symm/put.c, symm_coll/reduce.c,
 * symm_coll/gather.c */
/* What operations between ranks refuse, and what they say then; see refusals.h. */
#include "coll/lane/request.h"
#include "refusals.h"
#include "tensor/object/tensor.h"

static weft_tensor *flat(weft_dtype dtype, int64_t count)
{
    return weft_zeros(dtype, WEFT_CPU, WEFT_SHAPE(count));
}

TEST(test_refusals_coll_reduce)
{
    weft_group *w = open_world();
    weft_tensor *x = flat(WEFT_F32, 16), *y = flat(WEFT_F32, 16), *small = flat(WEFT_F32, 2);
    weft_tensor *whole = flat(WEFT_I64, 16),
                *meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(16));
    weft_tensor *big = flat(WEFT_F32, 128), *gaps = weft_slice(flat(WEFT_F32, 32), 0, 0, 32, 2);
    BAD(weft_all_reduce_into(y, x, WEFT_SUM, NULL), WEFT_ERR_INVALID_ARG,
        "all_reduce: the group is NULL");
    BAD(weft_all_reduce_into(NULL, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: the output is NULL");
    BAD(weft_all_reduce_into(y, NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: the input is NULL");
    BAD(weft_all_reduce_into(y, x, (weft_reduction)99, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: 99 is not a reduction");
    BAD(weft_all_reduce_into(small, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: the input has 16 elements, shape [16], but the output 2, shape [2]");
    BAD(weft_all_reduce_into(whole, x, WEFT_SUM, w), WEFT_ERR_TYPE,
        "all_reduce: the input is f32, the output i64");
    BAD(weft_all_reduce_into(y, gaps, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: the input, of shape [16], is not contiguous; weft_contiguous makes a copy "
        "that is");
    BAD(weft_all_reduce_into(gaps, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: the output, of shape [16], is not contiguous; take a contiguous one, and "
        "weft_copy from it");
    BAD(weft_all_reduce_into(y, meta, WEFT_SUM, w), WEFT_ERR_UNSUPPORTED,
        "all_reduce: the input is on meta, where tensors have no elements");

    BAD(weft_all_reduce_into(y, x, WEFT_BAND, w), WEFT_ERR_TYPE,
        "all_reduce: reduction band has no meaning for f32");

    BAD(weft_all_reduce_into(weft_narrow(big, 0, 0, 16), weft_narrow(big, 0, 8, 16), WEFT_SUM, w),
        WEFT_ERR_INVALID_ARG, "all_reduce: input and output overlap without being the same");
    BAD(weft_reduce_into(y, x, WEFT_SUM, 8, w), WEFT_ERR_INVALID_ARG,
        "reduce: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_reduce_into(y, x, WEFT_SUM, -1, w), WEFT_ERR_INVALID_ARG,
        "reduce: rank -1 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_reduce_into(small, x, WEFT_SUM, ME, w), WEFT_ERR_INVALID_ARG,
        "reduce: the input has 16 elements, shape [16], but the output 2, shape [2]");
    BAD(weft_broadcast_in_place(x, 8, w), WEFT_ERR_INVALID_ARG,
        "broadcast: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_broadcast_in_place(NULL, 0, w), WEFT_ERR_INVALID_ARG, "broadcast: the input is NULL");
    BAD(weft_broadcast_in_place(gaps, 0, w), WEFT_ERR_INVALID_ARG,
        "broadcast: the input, of shape [16], is not contiguous; weft_contiguous makes a copy that "
        "is");
    close_world();
}

TEST(test_refusals_coll_gather)
{
    weft_group *w = open_world();
    weft_tensor *x = flat(WEFT_F32, 16), *y = flat(WEFT_F32, 16), *small = flat(WEFT_F32, 2);
    weft_tensor *whole = flat(WEFT_I64, 16), *big = flat(WEFT_F32, 128);
    BAD(weft_all_gather_into(x, x, w), WEFT_ERR_INVALID_ARG,
        "all_gather: the output has 16 elements; for 8 ranks with 16 each it must have 128");
    BAD(weft_all_gather_into(y, x, w), WEFT_ERR_INVALID_ARG,
        "all_gather: the output has 16 elements; for 8 ranks with 16 each it must have 128");
    BAD(weft_all_gather_into(whole, x, w), WEFT_ERR_TYPE,
        "all_gather: the input is f32, the output i64");
    BAD(weft_gather_into(y, x, ME, w), WEFT_ERR_INVALID_ARG,
        "gather: the output has 16 elements; for 8 ranks with 16 each it must have 128");
    BAD(weft_gather_into(NULL, x, ME, w), WEFT_ERR_INVALID_ARG, "gather: the output is NULL");
    BAD(weft_scatter_into(x, y, ME, w), WEFT_ERR_INVALID_ARG,
        "scatter: the input has 16 elements; for 8 ranks with 16 each it must have 128");
    BAD(weft_scatter_into(x, NULL, ME, w), WEFT_ERR_INVALID_ARG, "scatter: the input is NULL");
    BAD(weft_scatter_into(x, y, 9, w), WEFT_ERR_INVALID_ARG,
        "scatter: rank 9 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_reduce_scatter_into(x, y, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter: the input has 16 elements; for 8 ranks with 16 each it must have 128");
    BAD(weft_reduce_scatter_into(small, big, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter: the input has 128 elements; for 8 ranks with 2 each it must have 16");
    close_world();
}

TEST(test_refusals_coll_all_to_all)
{
    weft_group *w = open_world();
    weft_tensor *x = flat(WEFT_F32, 16), *y = flat(WEFT_F32, 16), *small = flat(WEFT_F32, 2);
    static const int64_t even[] = {2, 2, 2, 2, 2, 2, 2, 2}, much[] = {9, 2, 2, 2, 2, 2, 2, 2},
                         minus[] = {-2, 6, 2, 2, 2, 2, 2, 2};
    BAD(weft_all_to_all_into(x, x, NULL, NULL, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: works only out of place");
    BAD(weft_all_to_all_into(y, x, even, NULL, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: give both splits or neither");
    BAD(weft_all_to_all_into(y, x, NULL, even, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: give both splits or neither");
    BAD(weft_all_to_all_into(y, x, even, much, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: the input splits do not add up: 2 for rank 4, 1 rows left");
    BAD(weft_all_to_all_into(y, x, much, even, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: the output splits do not add up: 2 for rank 4, 1 rows left");
    BAD(weft_all_to_all_into(y, x, minus, even, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: the output splits do not add up: -2 for rank 0, 16 rows left");
    BAD(weft_all_to_all_into(small, x, NULL, NULL, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: the input has 16 elements, shape [16], but the output 2, shape [2]");
    BAD(weft_all_to_all_into(weft_narrow(y, 0, 0, 15), weft_narrow(x, 0, 0, 15), NULL, NULL, w),
        WEFT_ERR_INVALID_ARG,
        "all_to_all: the input has 15 elements, which 8 ranks cannot share equally; give splits");
    static const int64_t few[] = {2, 2, 2, 2, 2, 2, 2, 1};
    BAD(weft_all_to_all_into(y, x, even, few, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: the input splits add up to 15 rows of 16");
    BAD(weft_all_to_all_into(y, x, few, even, w), WEFT_ERR_INVALID_ARG,
        "all_to_all: the output splits add up to 15 rows of 16");
    BAD(weft_all_to_all_into(y, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16, 3)), even, even, w),
        WEFT_ERR_INVALID_ARG, "all_to_all: a row of the input has 12 bytes, one of the output 4");
    weft_tensor *big = flat(WEFT_F32, 31);
    BAD(weft_all_to_all_into(weft_narrow(big, 0, 0, 16), weft_narrow(big, 0, 15, 16), NULL, NULL,
                             w),
        WEFT_ERR_INVALID_ARG, "all_to_all: input and output overlap without being the same");
    close_world();
}

/* One tensor for each rank, of any size but of one dtype. */
TEST(test_refusals_coll_all_to_all_list)
{
    weft_group *w = open_world();
    weft_tensor *in[8], *out[8];
    for (int i = 0; i < 8; i++) {
        in[i] = flat(i == 3 ? WEFT_I64 : WEFT_F32, 2 + i);
        out[i] = flat(i == 3 ? WEFT_I64 : WEFT_F32, 2 + i);
    }
    BAD(weft_all_to_all_list_into(out, in, w), WEFT_ERR_TYPE,
        "all_to_all_list: f32 for rank 0, i64 for rank 3");
    NO(weft_all_to_all_list_start(out, in, w), WEFT_ERR_TYPE,
       "all_to_all_list: f32 for rank 0, i64 for rank 3");
    in[3] = flat(WEFT_F32, 5);
    BAD(weft_all_to_all_list_into(out, in, w), WEFT_ERR_TYPE,
        "all_to_all_list: the input is f32, the output i64");
    out[3] = in[3];
    BAD(weft_all_to_all_list_into(out, in, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_list: input and output overlap without being the same");
    out[3] = NULL;
    BAD(weft_all_to_all_list_into(out, in, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_list: the output is NULL");
    out[3] = flat(WEFT_F32, 5);
    CHECK_OK(weft_all_to_all_list_into(out, in, w));
    in[7] = NULL;
    BAD(weft_all_to_all_list_into(out, in, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_list: the input is NULL");
    BAD(weft_all_to_all_list_into(out, in, NULL), WEFT_ERR_INVALID_ARG,
        "all_to_all_list: the group is NULL");
    CHECK_STATUS(weft_all_to_all_list_into(NULL, in, w), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "all_to_all_list: a list of 8 tensors at ");
    CHECK_STATUS(weft_all_to_all_list_into(out, NULL, w), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_all_reduce_list_into(out, in, -1, WEFT_SUM, w), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "all_reduce_list: a list of -1 tensors at ");
    weft_clear_error();
    CHECK_OK(weft_all_reduce_list_into(NULL, NULL, 0, WEFT_SUM, w)); /* of none */
    close_world();
}

TEST(test_refusals_coll_list)
{
    weft_group *w = open_world();
    weft_tensor *x = flat(WEFT_F32, 16), *y = flat(WEFT_F32, 16), *small = flat(WEFT_F32, 2);
    weft_tensor *outs[] = {y, small}, *ins[] = {x, small}, *holes[] = {x, NULL};
    BAD(weft_all_reduce_list_into(outs, holes, 2, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: the input is NULL");
    BAD(weft_all_reduce_list_into(holes, ins, 2, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "all_reduce: the output is NULL");
    BAD(weft_all_gather_list_into(outs, ins, 2, w), WEFT_ERR_INVALID_ARG,
        "all_gather: the output has 16 elements; for 8 ranks with 16 each it must have 128");
    BAD(weft_reduce_scatter_list_into(outs, ins, 2, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter: the input has 16 elements; for 8 ranks with 16 each it must have 128");
    NO(weft_all_reduce_start(y, NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
       "all_reduce: the input is NULL");
    NO(weft_barrier_start(NULL), WEFT_ERR_INVALID_ARG, "barrier: the group is NULL");
    close_world();
}

TEST(test_refusals_p2p)
{
    weft_group *w = open_world();
    weft_tensor *x = flat(WEFT_F32, 16), *gaps = weft_slice(flat(WEFT_F32, 32), 0, 0, 32, 2);
    int source;
    BAD(weft_send(x, 8, w), WEFT_ERR_INVALID_ARG,
        "send: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_send(x, -1, w), WEFT_ERR_INVALID_ARG,
        "send: rank -1 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_send(x, ME, w), WEFT_ERR_INVALID_ARG,
        "send: rank 3 would wait for itself; use weft_send_start and weft_recv_start");
    BAD(weft_send(NULL, 0, w), WEFT_ERR_INVALID_ARG, "send: the input is NULL");
    BAD(weft_send(x, 0, NULL), WEFT_ERR_INVALID_ARG, "send: the group is NULL");
    BAD(weft_send(gaps, 0, w), WEFT_ERR_INVALID_ARG,
        "send: the input, of shape [16], is not contiguous; weft_contiguous makes a copy that is");
    BAD(weft_recv(gaps, 0, w), WEFT_ERR_INVALID_ARG,
        "recv: the output, of shape [16], is not contiguous; take a contiguous one, and weft_copy "
        "from it");
    BAD(weft_recv(x, ME, w), WEFT_ERR_INVALID_ARG,
        "recv: rank 3 would wait for itself; use weft_send_start and weft_recv_start");
    BAD(weft_recv(x, 9, w), WEFT_ERR_INVALID_ARG,
        "recv: rank 9 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_send_tag(x, 0, -1, w), WEFT_ERR_INVALID_ARG, "send: tag -1 is negative");
    BAD(weft_recv_tag(x, 0, -2, w), WEFT_ERR_INVALID_ARG, "recv: tag -2 is negative");
    BAD(weft_recv_any(x, -1, w, &source), WEFT_ERR_INVALID_ARG, "recv: tag -1 is negative");
    BAD(weft_recv_any(x, 0, w, NULL), WEFT_ERR_INVALID_ARG, "recv_any: no place for the source");
    BAD(weft_send_recv(x, 0, x, 1, w), WEFT_ERR_INVALID_ARG, "send_recv: input and output overlap");
    BAD(weft_send_recv(x, 8, x, 1, w), WEFT_ERR_INVALID_ARG,
        "recv: rank 8 must be in [0, 8): ranks are those of group \"0\"");

    BAD(weft_work_wait(NULL, 5), WEFT_ERR_INVALID_ARG, "the work is NULL");
    BAD(weft_work_test(NULL), WEFT_ERR_INVALID_ARG, "the work is NULL");

    close_world();
}

TEST(test_refusals_functional)
{
    weft_group *w = open_world();
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16, 3)), *odd = flat(WEFT_F32, 5);
    weft_tensor *point = weft_zeros(WEFT_F32, WEFT_CPU, ((weft_shape){0}));
    weft_tensor *out[8], *in[8];
    for (int i = 0; i < 8; i++)
        in[i] = odd;
    static const int64_t even[] = {2, 2, 2, 2, 2, 2, 2, 2}, much[] = {9, 2, 2, 2, 2, 2, 2, 2};
    static const int twice[] = {1, 1, 2, 3, 4, 5, 6, 7}, far[] = {0, 1, 2, 3, 4, 5, 6, 8};
    NO(weft_all_reduce(NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
       "all_reduce: a tensor argument is NULL");
    NO(weft_all_reduce(x, WEFT_SUM, NULL), WEFT_ERR_INVALID_ARG,
       "weft_all_reduce: the group is NULL");
    NO(weft_all_reduce(x, (weft_reduction)99, w), WEFT_ERR_INVALID_ARG,
       "all_reduce: 99 is not a reduction");

    NO(weft_all_gather_tensor(x, 2, w), WEFT_ERR_INVALID_ARG,
       "all_gather_into_tensor: no dimension 2 in a tensor of 2 dimensions");

    NO(weft_reduce_scatter_tensor(odd, WEFT_SUM, 0, w), WEFT_ERR_INVALID_ARG,
       "reduce_scatter_tensor: dimension 0 of shape [5] has 5 entries, which do not divide among 8 "
       "ranks");
    NO(weft_reduce_scatter_tensor(x, WEFT_SUM, 1, w), WEFT_ERR_INVALID_ARG,
       "reduce_scatter_tensor: dimension 1 of shape [16, 3] has 3 entries, which do not divide "
       "among 8 ranks");
    NO(weft_reduce_scatter_tensor(x, WEFT_SUM, 2, w), WEFT_ERR_INVALID_ARG,
       "reduce_scatter_tensor: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_reduce_scatter_tensor(point, WEFT_SUM, 0, w), WEFT_ERR_INVALID_ARG,
       "reduce_scatter_tensor: a tensor without dimensions cannot be divided among 8 ranks");
    NO(weft_all_to_all_single(odd, NULL, NULL, w), WEFT_ERR_INVALID_ARG,
       "all_to_all_single: 5 rows do not divide among 8 ranks; give splits");
    NO(weft_all_to_all_single(x, even, NULL, w), WEFT_ERR_INVALID_ARG,
       "all_to_all_single: give both splits or neither");
    NO(weft_all_to_all_single(x, even, much, w), WEFT_ERR_INVALID_ARG,
       "all_to_all_single: the input splits add up to 23 rows of 16");
    NO(weft_all_to_all_single(point, NULL, NULL, w), WEFT_ERR_INVALID_ARG,
       "all_to_all_single: a tensor without dimensions has no rows");
    NO(weft_broadcast(x, 8, w), WEFT_ERR_INVALID_ARG, "broadcast: rank 8 must be in [0, 8)");
    NO(weft_broadcast(NULL, 0, w), WEFT_ERR_INVALID_ARG, "broadcast: a tensor argument is NULL");
    NO(weft_permute_tensor(x, NULL, w), WEFT_ERR_INVALID_ARG,
       "weft_permute_tensor: the permutation is NULL");
    NO(weft_permute_tensor(x, twice, w), WEFT_ERR_INVALID_ARG,
       "permute_tensor: no permutation: two ranks send to rank 1");
    NO(weft_permute_tensor(x, far, w), WEFT_ERR_INVALID_ARG,
       "permute_tensor: rank 7 sends to rank 8, which must be in [0, 8)");
    NO(weft_wait_tensor(NULL), WEFT_ERR_INVALID_ARG, "wait_tensor: a tensor argument is NULL");

    BAD(weft_reduce_scatter_tensor_coalesced(out, in, 2, WEFT_SUM, NULL, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_tensor_coalesced: dimension 0 of shape [5] has 5 entries, which do not "
        "divide among 8 ranks");

    NO(weft_all_gather_into_tensor_out(odd, x, 0, w), WEFT_ERR_INVALID_ARG,
       "all_gather_into_tensor_out: the result is f32[128, 3], the output f32[5]");
    NO(weft_reduce_scatter_tensor_out(odd, x, WEFT_SUM, 0, w), WEFT_ERR_INVALID_ARG,
       "reduce_scatter_tensor_out: the result is f32[2, 3], the output f32[5]");

    close_world();
}

TEST(test_refusals_parts)
{
    weft_group *w = open_world();
    weft_tensor *x = flat(WEFT_F32, 4), *parts[8], *mixed[8];
    for (int i = 0; i < 8; i++) {
        parts[i] = flat(WEFT_F32, 4);
        mixed[i] = flat(i == 5 ? WEFT_I64 : WEFT_F32, 4);
    }
    weft_bytes mine = {"x", 1}, null = {NULL, 3};
    BAD(weft_all_gather_parts_into(NULL, x, w), WEFT_ERR_INVALID_ARG,
        "all_gather_parts: rank 3 gives no list of outputs");
    BAD(weft_all_gather_parts_into(mixed, x, w), WEFT_ERR_TYPE,
        "all_gather_parts: the part of rank 5 is i64, those before it f32");
    BAD(weft_all_gather_parts_into(parts, NULL, w), WEFT_ERR_INVALID_ARG,
        "all_gather_parts: the input is NULL");
    BAD(weft_gather_parts_into(NULL, x, ME, w), WEFT_ERR_INVALID_ARG,
        "gather_parts: rank 3 gives no list of outputs");
    BAD(weft_gather_parts_into(parts, x, 0, w), WEFT_ERR_INVALID_ARG,
        "gather_parts: only the root, rank 0, gives a list of outputs; on rank 3 it must be NULL");
    BAD(weft_gather_parts_into(parts, x, 8, w), WEFT_ERR_INVALID_ARG,
        "gather_parts: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    BAD(weft_scatter_parts_into(x, NULL, ME, w), WEFT_ERR_INVALID_ARG,
        "scatter_parts: rank 3 gives no list of inputs");
    BAD(weft_scatter_parts_into(x, parts, 0, w), WEFT_ERR_INVALID_ARG,
        "scatter_parts: only the root, rank 0, gives a list of inputs; on rank 3 it must be NULL");
    BAD(weft_reduce_scatter_parts_into(x, NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_parts: rank 3 gives no list of inputs");
    BAD(weft_reduce_scatter_parts_into(x, mixed, WEFT_SUM, w), WEFT_ERR_TYPE,
        "reduce_scatter_parts: the part of rank 5 is i64, those before it f32");
    NO(weft_all_gather_object(null, w), WEFT_ERR_INVALID_ARG,
       "all_gather_object: string 0 has 3 bytes at NULL");
    NO(weft_all_gather_object(mine, NULL), WEFT_ERR_INVALID_ARG,
       "all_gather_object: the group is NULL");
    NO(weft_gather_object(mine, 8, w), WEFT_ERR_INVALID_ARG,
       "gather_object: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    NO(weft_broadcast_object(&mine, 1, 8, w), WEFT_ERR_INVALID_ARG,
       "broadcast_object: rank 8 must be in [0, 8): ranks are those of group \"0\"");

    NO(weft_broadcast_object(&mine, 1, 0, w), WEFT_ERR_INVALID_ARG,
       "broadcast_object: only the root, rank 0, gives a list; on rank 3 it must be NULL");

    NO(weft_scatter_object(&mine, 0, w), WEFT_ERR_INVALID_ARG,
       "scatter_object: only the root, rank 0, gives a list; on rank 3 it must be NULL");
    NO(weft_coalesce_close(w), WEFT_ERR_STATE,
       "coalesce_close: group \"0\" does not collect calls of this thread");
    CHECK_OK(weft_coalesce_open(w));
    BAD(weft_coalesce_open(w), WEFT_ERR_STATE, "coalesce_open: group \"0\" collects calls already");
    weft_release(weft_coalesce_close(w));
    weft_clear_error();
    BAD(weft_coalesce_open(NULL), WEFT_ERR_INVALID_ARG, "the group is NULL");
    BAD(weft_monitored_barrier(NULL, 5, true), WEFT_ERR_INVALID_ARG, "the group is NULL");
    BAD(weft_monitored_barrier(w, -5, true), WEFT_ERR_INVALID_ARG,
        "monitored_barrier: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -5");
    close_world();
}

TEST(test_refusals_symm_coll_reduce)
{
    weft_group *w = open_world();
    weft_tensor *plain = flat(WEFT_F32, 16),
                *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_tensor *odd = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)),
                *small = flat(WEFT_F32, 2);
    weft_tensor *whole = flat(WEFT_I64, 16);
    CHECK(weft_symm_rendezvous(x, w) && weft_symm_rendezvous(odd, w));
    NO(weft_symm_one_shot_all_reduce(NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
       "all_reduce: the input is NULL");
    NO(weft_symm_one_shot_all_reduce(plain, WEFT_SUM, w), WEFT_ERR_TYPE,
       "one_shot_all_reduce: the input is not symmetric memory; make it with weft_symm_empty");
    NO(weft_symm_one_shot_all_reduce(x, (weft_reduction)99, w), WEFT_ERR_INVALID_ARG,
       "one_shot_all_reduce: 99 is not a reduction");
    NO(weft_symm_one_shot_all_reduce(x, WEFT_SUM, NULL), WEFT_ERR_INVALID_ARG,
       "one_shot_all_reduce: the group is NULL");
    BAD(weft_symm_one_shot_all_reduce_out(small, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce: expected out shape [16], not [2]");
    BAD(weft_symm_one_shot_all_reduce_out(x, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "one_shot_all_reduce: the output overlaps the symmetric input, which other ranks read");
    BAD(weft_symm_one_shot_all_reduce_out(whole, x, WEFT_SUM, w), WEFT_ERR_TYPE,
        "one_shot_all_reduce: the input is f32, the output i64");
    NO(weft_symm_one_shot_all_reduce_copy(odd, plain, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
       "one_shot_all_reduce_copy: the local input of 64 bytes exceeds the buffer of 12");
    NO(weft_symm_one_shot_all_reduce_copy(x, whole, WEFT_SUM, w), WEFT_ERR_TYPE,
       "one_shot_all_reduce_copy: the buffer is f32, the local input i64");
    NO(weft_symm_one_shot_all_reduce_copy(x, x, WEFT_SUM, w), WEFT_ERR_UNSUPPORTED,
       "one_shot_all_reduce_copy: backend fake has no operations on symmetric memory");
    NO(weft_symm_one_shot_all_reduce_copy(x, NULL, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
       "all_reduce: the input is NULL");
    BAD(weft_symm_two_shot_all_reduce(plain, WEFT_SUM, w), WEFT_ERR_TYPE,
        "two_shot_all_reduce: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_two_shot_all_reduce_out(small, x, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "two_shot_all_reduce_out: expected out shape [16], not [2]");
    BAD(weft_symm_multimem_all_reduce(plain, WEFT_SUM, w), WEFT_ERR_TYPE,
        "multimem_all_reduce: the input is not symmetric memory; make it with weft_symm_empty");
    BAD(weft_symm_multimem_one_shot_reduce_out(plain, x, WEFT_SUM, 8, w), WEFT_ERR_INVALID_ARG,
        "multimem_one_shot_reduce_out: rank 8 must be in [0, 8): ranks are those of group \"0\"");
    close_world();
}

TEST(test_refusals_symm_coll_parts)
{
    weft_group *w = open_world();
    weft_tensor *plain = flat(WEFT_F32, 16),
                *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_tensor *odd = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK(weft_symm_rendezvous(x, w) && weft_symm_rendezvous(odd, w));
    weft_work *work = NULL;
    BAD(weft_symm_reduce_scatter_out(plain, x, false, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the input, 16 elements, must be divisible by 8 ranks times vectors of "
        "4 elements");
    BAD(weft_symm_reduce_scatter_out(plain, odd, true, WEFT_SUM, w), WEFT_ERR_INVALID_ARG,
        "reduce_scatter_out: the last dimension, 3 elements, must be divisible by 8 ranks times "
        "vectors of 1 elements");
    BAD(weft_symm_multimem_all_gather_out(x, plain, w), WEFT_ERR_INVALID_ARG,
        "multimem_all_gather_out: expected out shape [128], not [16]");
    NO(weft_symm_low_contention_all_gather(x, w, NULL), WEFT_ERR_INVALID_ARG,
       "low_contention_all_gather: there is nowhere to put the work");
    NO(weft_symm_low_contention_reduce_scatter(odd, WEFT_SUM, w, &work), WEFT_ERR_INVALID_ARG,
       "low_contention_reduce_scatter: dim 0, of 3, must be divisible by the 8 ranks");
    weft_tensor *point = weft_symm_empty(WEFT_F32, WEFT_CPU, (weft_shape){0});
    CHECK(point && weft_symm_rendezvous(point, w));
    NO(weft_symm_low_contention_reduce_scatter(point, WEFT_SUM, w, &work), WEFT_ERR_INVALID_ARG,
       "low_contention_reduce_scatter: dim 0, of 1, must be divisible by the 8 ranks");
    BAD(weft_symm_all_to_all_vdev(x, x, x, x, w), WEFT_ERR_TYPE,
        "all_to_all_vdev: the table of splits must be i64, not f32");
    BAD(weft_symm_all_to_all_vdev_2d(x, x, x, x, 0, w), WEFT_ERR_INVALID_ARG,
        "all_to_all_vdev_2d: the alignment must be 1 or more, not 0");
    BAD(weft_symm_tile_reduce(plain, plain, WEFT_SUM, 0, w), WEFT_ERR_INVALID_ARG,
        "tile_reduce: the input tile has 1 dimensions, not 2");
    BAD(weft_symm_tile_reduce(plain, x, WEFT_SUM, 8, w), WEFT_ERR_INVALID_ARG,
        "tile_reduce: the input tile has 1 dimensions, not 2");
    close_world();
}

/* Memory that others gave us to read, as a DLPack capsule may. */
TEST(test_refusals_read_only)
{
    weft_group *w = open_world();
    weft_tensor *fixed = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4)),
                *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4)),
                *words = weft_zeros(WEFT_U32, WEFT_CPU, WEFT_SHAPE(8));
    weft_symm *mem = weft_symm_rendezvous(x, w);
    CHECK(fixed && mem);
    fixed->storage->read_only = words->storage->read_only = true;
    BAD(weft_symm_tile_reduce(fixed, x, WEFT_SUM, ME, w), WEFT_ERR_STATE,
        "tile_reduce: the output is read-only memory");
    BAD(weft_symm_get(fixed, mem, ME, 0), WEFT_ERR_STATE, "get: the tensor is read-only memory");
    CHECK_OK(weft_symm_put(mem, ME, fixed, 0)); /* it may be read */
    BAD(weft_symm_memset32(words, 0, 1, 1), WEFT_ERR_STATE,
        "weft_symm_memset32: the tensor is read-only memory");
    BAD(weft_symm_stream_write_value32(words, 0, 1), WEFT_ERR_STATE,
        "weft_symm_stream_write_value32: the tensor is read-only memory");
    BAD(weft_all_reduce_into(fixed, fixed, WEFT_SUM, w), WEFT_ERR_STATE,
        "all_reduce: the output is read-only memory");
    BAD(weft_recv(fixed, 0, w), WEFT_ERR_STATE, "recv: the output is read-only memory");
    BAD(weft_broadcast_in_place(fixed, ME, w), WEFT_ERR_STATE,
        "broadcast: the output is read-only memory");
    CHECK_OK(weft_reduce_into(NULL, fixed, WEFT_SUM, 0, w)); /* and given */
    fixed->storage->read_only = words->storage->read_only = false;
    CHECK_OK(weft_symm_memset32(words, 0, 1, 1));
    close_world();
}

/* What every call has from the beginning: no channel, the group's rank and limit. */
TEST(test_refusals_begin)
{
    weft_group *w = open_world();
    weft_i_coll coll;
    CHECK_OK(weft_group_set_timeout(w, 77));
    CHECK_OK(weft_i_request_begin(&coll, WEFT_I_GATHER, w));
    CHECK(coll.label.group == w && !strcmp(coll.label.op, "gather") && coll.label.channel == -1);
    CHECK(coll.ask.rank == ME && coll.ask.size == WORLD && coll.ask.limit_ms == 77);
    close_world();
}

TEST(test_refusals_symm_put)
{
    weft_group *w = open_world();
    weft_tensor *plain = flat(WEFT_F32, 16),
                *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    weft_symm *mem = weft_symm_rendezvous(x, w);
    CHECK(mem);
    BAD(weft_symm_put(NULL, 0, plain, 0), WEFT_ERR_INVALID_ARG, "put: the handle is NULL");
    BAD(weft_symm_put(mem, 8, plain, 0), WEFT_ERR_INVALID_ARG,
        "put: invalid peer: rank 8 must be in [0, 8)");
    BAD(weft_symm_put(mem, ME, NULL, 0), WEFT_ERR_INVALID_ARG, "put: the tensor is NULL");
    BAD(weft_symm_put(mem, ME, plain, 1), WEFT_ERR_INVALID_ARG,
        "put: 16 elements of f32 at offset 1: that exceeds the 16 there are");
    BAD(weft_symm_put(mem, ME, plain, -1), WEFT_ERR_INVALID_ARG,
        "put: the offset -1 must be non-negative");
    BAD(weft_symm_get(NULL, mem, ME, 0), WEFT_ERR_INVALID_ARG, "get: the tensor is NULL");
    BAD(weft_symm_get(plain, mem, -1, 0), WEFT_ERR_INVALID_ARG,
        "get: invalid peer: rank -1 must be in [0, 8)");
    BAD(weft_symm_get(plain, mem, ME, 9), WEFT_ERR_INVALID_ARG,
        "get: 16 elements of f32 at offset 9: that exceeds the 16 there are");
    BAD(weft_symm_put_with_signal(mem, ME, plain, 0, -1, 5), WEFT_ERR_INVALID_ARG,
        "put_with_signal: channel -1 must be in [0, 288)");
    BAD(weft_symm_wait_for_signal(mem, 9, 0, 5), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: rank 9 must be in [0, 8)");
    close_world();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
