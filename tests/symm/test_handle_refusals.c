/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/handle.c, symm/put.c, symm/signals.c, symm/workspace.c */
/* What functions on handles of symmetric memory refuse, with all of the message, and what is just
 * allowed; see refusals.h. */
#include "refusals.h"

#include "tensor/object/tensor.h"

static weft_group *w;
static weft_tensor *x, *row, *words, *meta;
static weft_symm *h, *behind; /* of `x`, and of its second element on */
static weft_symm_info info;
static int channels;

static weft_tensor *symm(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *made = weft_symm_empty(dtype, WEFT_CPU, shape);
    CHECK(made);
    return made;
}

static void open_handles(void)
{
    w = open_world();
    x = symm(WEFT_F32, WEFT_SHAPE(8, 8));
    row = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8));
    words = weft_zeros(WEFT_U32, WEFT_CPU, WEFT_SHAPE(8));
    meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(8));
    CHECK(h = weft_symm_rendezvous(x, w));
    CHECK(behind = weft_symm_rendezvous(weft_narrow(weft_view(x, WEFT_SHAPE(64)), 0, 1, 8), w));
    CHECK_OK(weft_symm_describe(h, &info));
    channels = info.channels;
    CHECK_INT(channels, 288); /* as the messages say */
}

TEST(test_refusals_handle_signals)
{
    open_handles();
    BAD(weft_symm_barrier(NULL, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: the handle is NULL");
    BAD(weft_symm_barrier(h, -1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: channel -1 exceeds the maximum supported channel: must be in [0, 288) "
        "for a pad of 9216 bytes and 8 ranks");
    BAD(weft_symm_barrier(h, channels, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: channel 288 exceeds the maximum supported channel: must be in [0, 288) "
        "for a pad of 9216 bytes and 8 ranks");
    BAD(weft_symm_barrier(h, 0, -7), WEFT_ERR_INVALID_ARG,
        "weft_symm_barrier: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -7");
    BAD(weft_symm_put_signal(NULL, 0, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_put_signal: the handle is NULL");
    BAD(weft_symm_put_signal(h, -1, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_put_signal: rank -1 must be in [0, 8)");
    BAD(weft_symm_put_signal(h, 8, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_put_signal: rank 8 must be in [0, 8)");
    BAD(weft_symm_put_signal(h, 0, channels, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_put_signal: channel 288 exceeds the maximum supported channel: must be in [0, "
        "288) for a pad of 9216 bytes and 8 ranks");
    BAD(weft_symm_put_signal(h, 0, 0, -7), WEFT_ERR_INVALID_ARG,
        "weft_symm_put_signal: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not "
        "-7");
    BAD(weft_symm_wait_signal(NULL, 0, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: the handle is NULL");
    BAD(weft_symm_wait_signal(h, -1, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: rank -1 must be in [0, 8)");
    BAD(weft_symm_wait_signal(h, 8, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: rank 8 must be in [0, 8)");
    BAD(weft_symm_wait_signal(h, 0, -1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: channel -1 exceeds the maximum supported channel: must be in [0, "
        "288) for a pad of 9216 bytes and 8 ranks");
    BAD(weft_symm_wait_signal(h, 0, 0, -7), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not "
        "-7");
    BAD(weft_symm_reset(NULL, 1), WEFT_ERR_INVALID_ARG, "weft_symm_reset: the handle is NULL");
    BAD(weft_symm_reset(h, -7), WEFT_ERR_INVALID_ARG,
        "weft_symm_reset: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -7");
    close_world();
}

TEST(test_refusals_handle_words)
{
    open_handles();
    BAD(weft_symm_memset32(NULL, 0, 1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: the tensor is NULL");
    BAD(weft_symm_memset32(x, 0, 1, 1), WEFT_ERR_TYPE,
        "weft_symm_memset32: wants a flat, contiguous uint32 tensor, not 2 dimensions of f32");
    BAD(weft_symm_memset32(weft_view(words, WEFT_SHAPE(2, 4)), 0, 1, 1), WEFT_ERR_TYPE,
        "weft_symm_memset32: wants a flat, contiguous uint32 tensor, not 2 dimensions of u32");
    BAD(weft_symm_memset32(weft_slice(words, 0, 0, 8, 2), 0, 1, 1), WEFT_ERR_TYPE,
        "weft_symm_memset32: wants a flat, contiguous uint32 tensor, not 1 dimensions of u32");
    BAD(weft_symm_memset32(words, -1, 1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: the offset must be greater than or equal to 0, not -1");
    BAD(weft_symm_memset32(words, 0, 1, 0), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: the count must be a positive integer, not 0");
    BAD(weft_symm_memset32(words, 0, 1, -1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: the count must be a positive integer, not -1");
    BAD(weft_symm_memset32(words, 0, -1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: the value -1 is outside the uint32 range");
    BAD(weft_symm_memset32(words, 0, 4294967296, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: the value 4294967296 is outside the uint32 range");
    BAD(weft_symm_memset32(words, 0, 1, 9), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: offset 0 and count 9 exceeded the numel of the tensor, 8");
    BAD(weft_symm_memset32(words, 8, 1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: offset 8 and count 1 exceeded the numel of the tensor, 8");
    BAD(weft_symm_memset32(words, 9, 1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: offset 9 and count 1 exceeded the numel of the tensor, 8");
    BAD(weft_symm_memset32(words, INT64_MAX, 1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_memset32: offset 9223372036854775807 and count 1 exceeded the numel of the "
        "tensor, 8");
    BAD(weft_symm_stream_write_value32(NULL, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_stream_write_value32: the tensor is NULL");
    BAD(weft_symm_stream_write_value32(words, 8, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_stream_write_value32: offset 8 and count 1 exceeded the numel of the tensor, 8");
    BAD(weft_symm_stream_write_value32(words, -1, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_stream_write_value32: the offset must be greater than or equal to 0, not -1");
    BAD(weft_symm_stream_write_value32(words, 0, 4294967296), WEFT_ERR_INVALID_ARG,
        "weft_symm_stream_write_value32: the value 4294967296 is outside the uint32 range");
    BAD(weft_symm_stream_write_value32(x, 0, 1), WEFT_ERR_TYPE,
        "weft_symm_stream_write_value32: wants a flat, contiguous uint32 tensor, not 2 dimensions "
        "of f32");
    close_world();
}

TEST(test_refusals_handle_transfers)
{
    open_handles();
    BAD(weft_symm_put(NULL, 0, row, 0), WEFT_ERR_INVALID_ARG, "put: the handle is NULL");
    BAD(weft_symm_put(h, -1, row, 0), WEFT_ERR_INVALID_ARG,
        "put: invalid peer: rank -1 must be in [0, 8)");
    BAD(weft_symm_put(h, 8, row, 0), WEFT_ERR_INVALID_ARG,
        "put: invalid peer: rank 8 must be in [0, 8)");
    BAD(weft_symm_put(h, 0, NULL, 0), WEFT_ERR_INVALID_ARG, "put: the tensor is NULL");
    BAD(weft_symm_put(h, 0, meta, 0), WEFT_ERR_TYPE,
        "put: the tensor is on meta, the symmetric memory on cpu");
    BAD(weft_symm_put(h, 0, weft_slice(row, 0, 0, 8, 2), 0), WEFT_ERR_INVALID_ARG,
        "put: the tensor must be contiguous");
    BAD(weft_symm_put(h, 0, row, -1), WEFT_ERR_INVALID_ARG,
        "put: the offset -1 must be non-negative");
    BAD(weft_symm_put(h, 0, row, 57), WEFT_ERR_INVALID_ARG,
        "put: 8 elements of f32 at offset 57: that exceeds the 64 there are");
    BAD(weft_symm_put(h, 0, row, 65), WEFT_ERR_INVALID_ARG,
        "put: 8 elements of f32 at offset 65: that exceeds the 64 there are");
    BAD(weft_symm_put(h, 0, row, INT64_MAX), WEFT_ERR_INVALID_ARG,
        "put: 8 elements of f32 at offset 9223372036854775807: that exceeds the 64 there are");
    BAD(weft_symm_get(row, NULL, 0, 0), WEFT_ERR_INVALID_ARG, "get: the handle is NULL");
    BAD(weft_symm_get(row, h, 8, 0), WEFT_ERR_INVALID_ARG,
        "get: invalid peer: rank 8 must be in [0, 8)");
    BAD(weft_symm_get(NULL, h, 0, 0), WEFT_ERR_INVALID_ARG, "get: the tensor is NULL");
    BAD(weft_symm_get(row, h, 0, 57), WEFT_ERR_INVALID_ARG,
        "get: 8 elements of f32 at offset 57: that exceeds the 64 there are");
    BAD(weft_symm_put_with_signal(NULL, 0, row, 0, 0, 1), WEFT_ERR_INVALID_ARG,
        "put_with_signal: the handle is NULL");
    BAD(weft_symm_put_with_signal(h, 8, row, 0, 0, 1), WEFT_ERR_INVALID_ARG,
        "put_with_signal: invalid peer: rank 8 must be in [0, 8)");
    BAD(weft_symm_put_with_signal(h, 0, row, 0, -1, 1), WEFT_ERR_INVALID_ARG,
        "put_with_signal: channel -1 must be in [0, 288)");
    BAD(weft_symm_put_with_signal(h, 0, row, 0, channels, 1), WEFT_ERR_INVALID_ARG,
        "put_with_signal: channel 288 must be in [0, 288)");
    BAD(weft_symm_put_with_signal(h, 0, row, 0, 0, -7), WEFT_ERR_INVALID_ARG,
        "put_with_signal: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -7");
    BAD(weft_symm_put_with_signal(h, 0, row, 57, 0, 1), WEFT_ERR_INVALID_ARG,
        "put_with_signal: 8 elements of f32 at offset 57: that exceeds the 64 there are");
    BAD(weft_symm_put_with_signal(h, 0, NULL, 0, 0, 1), WEFT_ERR_INVALID_ARG,
        "put_with_signal: the tensor is NULL");
    BAD(weft_symm_wait_for_signal(NULL, 0, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: the handle is NULL");
    BAD(weft_symm_wait_for_signal(h, 8, 0, 1), WEFT_ERR_INVALID_ARG,
        "weft_symm_wait_signal: rank 8 must be in [0, 8)");
    close_world();
}

TEST(test_refusals_handle_asking)
{
    open_handles();
    BAD(weft_symm_describe(NULL, &info), WEFT_ERR_INVALID_ARG,
        "weft_symm_describe: the handle is NULL");
    BAD(weft_symm_describe(h, NULL), WEFT_ERR_INVALID_ARG,
        "weft_symm_describe: the result is NULL");
    NO(weft_symm_buffer_ptr(NULL, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer_ptr: the handle is NULL");
    NO(weft_symm_buffer_ptr(h, 8), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer_ptr: invalid peer: rank 8 must be in [0, 8)");
    NO(weft_symm_buffer_ptr(h, -1), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer_ptr: invalid peer: rank -1 must be in [0, 8)");
    NO(weft_symm_signal_pad_ptr(NULL, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_signal_pad_ptr: the handle is NULL");
    NO(weft_symm_signal_pad_ptr(h, 8), WEFT_ERR_INVALID_ARG,
       "weft_symm_signal_pad_ptr: invalid peer: rank 8 must be in [0, 8)");
    NO(weft_symm_rendezvous(NULL, w), WEFT_ERR_INVALID_ARG, "rendezvous: the tensor is NULL");
    NO(weft_symm_rendezvous(row, w), WEFT_ERR_TYPE,
       "rendezvous: the tensor is not symmetric memory; make it with weft_symm_empty");
    NO(weft_symm_rendezvous(row, NULL), WEFT_ERR_TYPE,
       "rendezvous: the tensor is not symmetric memory");
    NO(weft_symm_rendezvous(x, NULL), WEFT_ERR_INVALID_ARG,
       "rendezvous: no group was given and the memory has no default group");
    close_world();
}

TEST(test_refusals_handle_tensors)
{
    open_handles();
    NO(weft_symm_buffer(NULL, 0, WEFT_SHAPE(8), WEFT_F32, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: the handle is NULL");
    NO(weft_symm_buffer(h, 8, WEFT_SHAPE(8), WEFT_F32, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: invalid peer: rank 8 must be in [0, 8)");
    NO(weft_symm_buffer(h, 0, WEFT_SHAPE(-1), WEFT_F32, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: shape [-1] has a negative size");
    NO(weft_symm_buffer(h, 0, WEFT_SHAPE(8), WEFT_F32, -1), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: the offset -1 must be non-negative");
    NO(weft_symm_buffer(h, 0, WEFT_SHAPE(8), WEFT_F32, 57), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: shape [8] at offset 57 (4 bytes each) exceeds the 256 bytes there are");
    NO(weft_symm_buffer(h, 0, WEFT_SHAPE(0), WEFT_F32, 65), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: shape [0] at offset 65 (4 bytes each) exceeds the 256 bytes there are");
    NO(weft_symm_buffer(h, 0, WEFT_SHAPE(65), WEFT_F32, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: shape [65] at offset 0 (4 bytes each) exceeds the 256 bytes there are");
    NO(weft_symm_buffer(h, 0, WEFT_SHAPE(33), WEFT_F64, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_buffer: shape [33] at offset 0 (8 bytes each) exceeds the 256 bytes there are");
    NO(weft_symm_remote_tensor(NULL, 0, WEFT_SHAPE(8), WEFT_F32), WEFT_ERR_INVALID_ARG,
       "weft_symm_remote_tensor: the handle is NULL");
    NO(weft_symm_remote_tensor(h, 8, WEFT_SHAPE(8), WEFT_F32), WEFT_ERR_INVALID_ARG,
       "weft_symm_remote_tensor: invalid peer: rank 8 must be in [0, 8)");
    NO(weft_symm_remote_tensor(h, 0, WEFT_SHAPE(65), WEFT_F32), WEFT_ERR_INVALID_ARG,
       "weft_symm_remote_tensor: shape [65] at offset 0 (4 bytes each) exceeds the 256 bytes there "
       "are");
    NO(weft_symm_remote_tensor(behind, 0, WEFT_SHAPE(64), WEFT_F32), WEFT_ERR_INVALID_ARG,
       "weft_symm_remote_tensor: shape [64] at offset 0 (4 bytes each) exceeds the 252 bytes there "
       "are");
    NO(weft_symm_remote_tensor(behind, 0, WEFT_SHAPE(4), WEFT_F64), WEFT_ERR_INVALID_ARG,
       "weft_symm_remote_tensor: byte 4, where the tensor begins, is no place for elements of f64");
    NO(weft_symm_tensor(NULL, 0), WEFT_ERR_INVALID_ARG, "weft_symm_tensor: the handle is NULL");
    NO(weft_symm_tensor(h, 8), WEFT_ERR_INVALID_ARG,
       "weft_symm_tensor: invalid peer: rank 8 must be in [0, 8)");
    NO(weft_symm_signal_pad(NULL, 0, WEFT_SHAPE(1), WEFT_U32, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_signal_pad: the handle is NULL");
    NO(weft_symm_signal_pad(h, 8, WEFT_SHAPE(1), WEFT_U32, 0), WEFT_ERR_INVALID_ARG,
       "weft_symm_signal_pad: invalid peer: rank 8 must be in [0, 8)");
    NO(weft_symm_signal_pad(h, 0, WEFT_SHAPE(1), WEFT_U32, -1), WEFT_ERR_INVALID_ARG,
       "weft_symm_signal_pad: the offset -1 must be non-negative");
    NO(weft_symm_signal_pad(h, 0, WEFT_SHAPE(1 + (int64_t)info.pad_bytes / 4), WEFT_U32, 0),
       WEFT_ERR_INVALID_ARG,
       "weft_symm_signal_pad: shape [2305] at offset 0 (4 bytes each) exceeds the 9216 bytes there "
       "are");
    close_world();
}

/* Up to the very last element. */
TEST(test_refusals_handle_fine)
{
    open_handles();
    CHECK_OK(weft_fill(x, 0));
    CHECK_OK(weft_symm_memset32(words, 0, UINT32_MAX, 8));
    CHECK_OK(weft_symm_memset32(words, 6, 5, 2));
    CHECK_OK(weft_symm_stream_write_value32(words, 7, 0));
    const uint32_t *word = weft_tensor_data(words);
    CHECK(word[0] == UINT32_MAX && word[5] == UINT32_MAX && word[6] == 5 && word[7] == 0);
    CHECK_OK(weft_symm_put(h, ME, row, 56));
    CHECK(weft_item(x, 55) == 0 && weft_item(x, 56) == 1 && weft_item(x, 63) == 1);
    CHECK_OK(weft_fill(weft_narrow(weft_view(x, WEFT_SHAPE(64)), 0, 50, 8), 3));
    CHECK_OK(weft_symm_get(row, h, ME, 51));
    CHECK(weft_item(row, 0) == 3 && weft_item(row, 6) == 3 && weft_item(row, 7) == 1);
    CHECK_OK(weft_fill(row, 7));
    CHECK_OK(weft_symm_put_with_signal(h, ME, row, 0, channels - 1, 1));
    CHECK(weft_item(x, 7) == 7 && weft_item(x, 8) == 0);
    CHECK_OK(weft_symm_put(h, ME, weft_narrow(row, 0, 0, 0), 64)); /* nothing, at the end */
    CHECK_OK(weft_symm_put_signal(h, WORLD - 1, channels - 1, 0));
    CHECK_OK(weft_symm_barrier(h, channels - 1, 0));
    close_world();
}

/* The tensors of a handle lie where they should. */
TEST(test_refusals_handle_places)
{
    open_handles();
    float *data = weft_tensor_data(x);
    CHECK(weft_symm_buffer_ptr(h, ME) == data && info.offset == 0 && info.bytes == 256);
    CHECK(info.group == w && info.rank == ME && info.size == WORLD && info.emulates_multicast);
    CHECK(!info.multicast_ptr && !strcmp(info.why_no_multicast, "the CPU emulates it"));
    CHECK(weft_tensor_data(weft_symm_buffer(h, ME, WEFT_SHAPE(8), WEFT_F32, 56)) == data + 56);
    CHECK(weft_symm_buffer(h, ME, WEFT_SHAPE(0), WEFT_F32, 64));
    CHECK(weft_tensor_data(weft_symm_buffer(behind, ME, WEFT_SHAPE(64), WEFT_F32, 0)) == data);
    CHECK(weft_tensor_data(weft_symm_remote_tensor(behind, ME, WEFT_SHAPE(63), WEFT_F32)) ==
          data + 1);
    weft_tensor *same = weft_symm_tensor(behind, ME);
    CHECK(weft_tensor_data(same) == data + 1 && weft_tensor_numel(same) == 8);
    CHECK_INT(same->storage->bytes, 252);
    const atomic_int *holders = &((const weft_i_object *)(const void *)behind)->references;
    int held = atomic_load(holders);
    weft_release(same);
    CHECK_INT(atomic_load(holders), held); /* it leased the own block, which needs no handle */
    CHECK(!weft_symm_has_multicast(WEFT_CPU) && weft_last_status() == WEFT_OK);
    int64_t pads = (int64_t)info.pad_bytes / 4;
    weft_tensor *pad = weft_symm_signal_pad(h, ME, WEFT_SCALAR, WEFT_U32, 10);
    CHECK_INT(weft_tensor_numel(pad), pads - 10);
    CHECK(weft_tensor_data(pad) == (uint32_t *)weft_symm_signal_pad_ptr(h, ME) + 10);
    CHECK_INT(weft_tensor_numel(weft_symm_signal_pad(h, ME, WEFT_SCALAR, WEFT_U32, pads)), 0);
    CHECK_INT(weft_tensor_numel(weft_symm_signal_pad(h, ME, WEFT_SCALAR, WEFT_U32, 0)), pads);
    CHECK_INT(weft_tensor_numel(weft_symm_signal_pad(h, ME, WEFT_SHAPE(pads), WEFT_U32, 0)), pads);
    close_world();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
