/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/op.c, tensor/op/cat.c, tensor/layer/embedding.c, tensor/op/index.c,
 * tensor/layer/linear.c, tensor/op/make.c, tensor/op/matmul.c, tensor/layer/normalize.c,
 * tensor/op/pointwise.c, tensor/op/reduce.c, tensor/op/reshape.c, tensor/op/view.c */
/* What operations on tensors refuse, and what they say then; see refusals.h. */
#include "refusals.h"

#include <limits.h>

static weft_status nothing(void *argument)
{
    (void)argument;
    return WEFT_OK;
}

TEST(test_refusals_tensor_made)
{
    CHECK_OK(weft_scope_open());
    static const int64_t negative[] = {-1, 1}, vast[] = {INT64_MAX / 2, 1}, fine[] = {3, 1};
    static char data[16];
    NO(weft_empty((weft_dtype)99, WEFT_CPU, WEFT_SHAPE(2)), WEFT_ERR_TYPE,
       "empty: 99 is not a dtype");
    NO(weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, -3)), WEFT_ERR_INVALID_ARG,
       "empty: shape [2, -3] has a negative size");
    NO(weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(INT64_MAX / 2, 2)), WEFT_ERR_INVALID_ARG,
       "empty: a tensor of shape [4611686018427387903, 2] of f32 has more bytes than can be "
       "counted");
    NO(weft_empty(WEFT_F32, WEFT_CPU, ((weft_shape){.ndim = 9})), WEFT_ERR_INVALID_ARG,
       "empty: a tensor has 0 to 8 dimensions");
    NO(weft_empty(WEFT_F32, WEFT_CPU, ((weft_shape){.ndim = -1})), WEFT_ERR_INVALID_ARG,
       "empty: a tensor has 0 to 8 dimensions");
    NO(weft_empty(WEFT_F32, (weft_device)77, WEFT_SHAPE(2)), WEFT_ERR_UNSUPPORTED,
       "storage: there is no device cpu:77 in this build");
    NO(weft_empty_strided(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3), negative), WEFT_ERR_INVALID_ARG,
       "empty_strided: stride -1 of dimension 0 is negative");
    NO(weft_empty_strided(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 3), vast), WEFT_ERR_INVALID_ARG,
       "empty_strided: a tensor of shape [4, 3] of f32 has more bytes than can be counted");
    NO(weft_empty_like(NULL), WEFT_ERR_INVALID_ARG, "detach: a tensor argument is NULL");
    NO(weft_arange(WEFT_F32, WEFT_CPU, 0, 1, 0), WEFT_ERR_INVALID_ARG,
       "arange: from 0 to 1 by 0 has no end");

    NO(weft_randint(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2), 5, 5), WEFT_ERR_INVALID_ARG,
       "integers: from 5 up to 5 there are none");
    NO(weft_rand(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2)), WEFT_ERR_TYPE,
       "uniform: draws floats, the tensor is i32");
    NO(weft_randn(WEFT_I8, WEFT_CPU, WEFT_SHAPE(2)), WEFT_ERR_TYPE,
       "normal: draws floats, the tensor is i8");
    NO(weft_tensor_from(WEFT_F32, WEFT_SHAPE(2), NULL), WEFT_ERR_INVALID_ARG,
       "weft_tensor_from: the data is NULL");
    NO(weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), NULL, NULL, NULL), WEFT_ERR_INVALID_ARG,
       "cannot wrap 8 bytes at NULL");
    NO(weft_tensor_wrap(WEFT_F32, WEFT_META, WEFT_SHAPE(2), data, NULL, NULL), WEFT_ERR_UNSUPPORTED,
       "weft_tensor_wrap: meta has no memory");
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 6, 1);
    NO(weft_as_strided(x, WEFT_SHAPE(2, 3), NULL, 0), WEFT_ERR_INVALID_ARG,
       "as_strided: the strides are NULL");
    NO(weft_as_strided(x, WEFT_SHAPE(2, 3), fine, -1), WEFT_ERR_INVALID_ARG,
       "as_strided: offset -1 is negative");
    NO(weft_as_strided(x, WEFT_SHAPE(2, 3), fine, 1), WEFT_ERR_STATE,
       "as_strided: offset 1 and 24 bytes do not fit a storage of 24 bytes");
    NO(weft_as_strided(x, WEFT_SHAPE(2, 3), negative, 0), WEFT_ERR_INVALID_ARG,
       "as_strided: stride -1 of dimension 0 is negative");
    NO(weft_dlpack_export(NULL), WEFT_ERR_INVALID_ARG, "dlpack export: the tensor is NULL");
    NO(weft_dlpack_export(weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(2))), WEFT_ERR_UNSUPPORTED,
       "dlpack export: a meta tensor has no memory");
    NO(weft_dlpack_export_versioned(NULL), WEFT_ERR_INVALID_ARG,
       "dlpack export: the tensor is NULL");
    NO(weft_dlpack_import(NULL), WEFT_ERR_INVALID_ARG, "dlpack import: the description is NULL");
    NO(weft_dlpack_import_versioned(NULL), WEFT_ERR_INVALID_ARG,
       "dlpack import: the description is NULL");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_tensor_asked)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 6, 1);
    weft_tensor *meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(2, 3));
    int64_t version = -1;
    char text[8];
    NO(weft_tensor_data(NULL), WEFT_ERR_INVALID_ARG, "weft_tensor_data: the tensor is NULL");
    NO(weft_tensor_data(meta), WEFT_ERR_TYPE, "weft_tensor_data: a meta tensor has no data");
    ERR(weft_tensor_size(x, 1), WEFT_ERR_INVALID_ARG,
        "weft_tensor_size: no dimension 1 in a tensor of 1 dimensions");
    ERR(weft_tensor_size(NULL, 1), WEFT_ERR_INVALID_ARG, "weft_tensor_size: the tensor is NULL");
    ERR(weft_tensor_stride(x, -2), WEFT_ERR_INVALID_ARG,
        "weft_tensor_stride: no dimension -2 in a tensor of 1 dimensions");
    BAD(weft_tensor_set_version(&x, &version, 1), WEFT_ERR_INVALID_ARG,
        "weft_tensor_set_version: version -1 of tensor 0 is negative");
    BAD(weft_tensor_set_version(NULL, &version, 1), WEFT_ERR_INVALID_ARG,
        "weft_tensor_set_version: the tensor is NULL");
    BAD(weft_tensor_set_version(&x, NULL, 1), WEFT_ERR_INVALID_ARG,
        "weft_tensor_set_version: the versions are NULL");
    BAD(weft_tensor_preserve_version(&x, 1, NULL, NULL), WEFT_ERR_INVALID_ARG,
        "weft_tensor_preserve_version: the body is NULL");
    BAD(weft_tensor_preserve_version(NULL, 1, nothing, NULL), WEFT_ERR_INVALID_ARG,
        "weft_tensor_preserve_version: the tensor is NULL");
    BAD(weft_tensor_write_version(x, x), WEFT_ERR_TYPE,
        "set_version: a version is one element of i64 on cpu");
    BAD(weft_print(x, NULL), WEFT_ERR_INVALID_ARG, "weft_print: the file is NULL");
    BAD(weft_print(NULL, stdout), WEFT_ERR_INVALID_ARG, "weft_print: the tensor is NULL");
    BAD(weft_tensor_text(NULL, text, 8), WEFT_ERR_INVALID_ARG,
        "weft_tensor_text: the tensor is NULL");
    BAD(weft_tensor_text(x, NULL, 8), WEFT_ERR_INVALID_ARG, "weft_tensor_text: 8 bytes at NULL");
    BAD(weft_storage_resize(NULL, 8), WEFT_ERR_INVALID_ARG,
        "weft_storage_resize: the storage is NULL");
    BAD(weft_resize_storage(x, -1), WEFT_ERR_INVALID_ARG, "resize_storage: -1 bytes");
    BAD(weft_resize_storage(NULL, 1), WEFT_ERR_INVALID_ARG,
        "resize_storage: a tensor argument is NULL");
    BAD(weft_scope_close() == WEFT_OK ? weft_scope_close() : WEFT_OK, WEFT_ERR_STATE,
        "weft_scope_close: no scope is open (the root scope closes with its thread)");
    weft_clear_error();
    CHECK_OK(weft_scope_open());
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_views)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 24, 1), WEFT_SHAPE(2, 3, 4));
    weft_tensor *turned = weft_transpose(x, 0, 2);
    static const int twice[] = {0, 1, 1}, far[] = {0, 1, 3};
    NO(weft_view(x, WEFT_SHAPE(5, 5)), WEFT_ERR_INVALID_ARG,
       "view: shape [5, 5] does not hold 24 elements");
    NO(weft_view(x, WEFT_SHAPE(-1, -1)), WEFT_ERR_INVALID_ARG,
       "view: shape [-1, -1] is not possible");
    NO(weft_view(x, WEFT_SHAPE(-1, 5)), WEFT_ERR_INVALID_ARG,
       "view: shape [-1, 5] does not hold 24 elements");
    NO(weft_view(x, WEFT_SHAPE(-2, 12)), WEFT_ERR_INVALID_ARG,
       "view: shape [-2, 12] is not possible");
    NO(weft_view(turned, WEFT_SHAPE(24)), WEFT_ERR_INVALID_ARG,
       "view: a tensor of shape [4, 3, 2] with these strides cannot be seen as [24] without a "
       "copy; use weft_reshape");
    NO(weft_view(NULL, WEFT_SHAPE(24)), WEFT_ERR_INVALID_ARG, "view: a tensor argument is NULL");
    NO(weft_reshape(x, WEFT_SHAPE(25)), WEFT_ERR_INVALID_ARG,
       "view: shape [25] does not hold 24 elements");
    NO(weft_transpose(x, 0, 3), WEFT_ERR_INVALID_ARG,
       "transpose: no dimension 3 in a tensor of 3 dimensions");
    NO(weft_transpose(x, -4, 0), WEFT_ERR_INVALID_ARG,
       "transpose: no dimension -4 in a tensor of 3 dimensions");
    NO(weft_permute(x, NULL), WEFT_ERR_INVALID_ARG, "permute: the dimensions are NULL");
    NO(weft_permute(x, twice), WEFT_ERR_INVALID_ARG, "permute: dimension 1 is named twice");
    NO(weft_permute(x, far), WEFT_ERR_INVALID_ARG,
       "permute: no dimension 3 in a tensor of 3 dimensions");
    NO(weft_expand(x, WEFT_SHAPE(2, 3, 5)), WEFT_ERR_INVALID_ARG,
       "expand: shape [2, 3, 4] does not expand to [2, 3, 5]");
    NO(weft_expand(x, WEFT_SHAPE(4)), WEFT_ERR_INVALID_ARG,
       "expand: shape [2, 3, 4] does not expand to [4]");
    NO(weft_slice(x, 3, 0, 1, 1), WEFT_ERR_INVALID_ARG,
       "slice: no dimension 3 in a tensor of 3 dimensions");
    NO(weft_slice(x, 0, 0, 1, 0), WEFT_ERR_INVALID_ARG, "slice: step 0; it must be at least 1");
    NO(weft_narrow(x, 0, 1, 2), WEFT_ERR_INVALID_ARG,
       "narrow: 2 elements from 1 of dimension 0, which has 2");
    NO(weft_narrow(x, 0, -3, 1), WEFT_ERR_INVALID_ARG,
       "narrow: 1 elements from -3 of dimension 0, which has 2");
    NO(weft_narrow(x, 0, 0, -1), WEFT_ERR_INVALID_ARG,
       "narrow: -1 elements from 0 of dimension 0, which has 2");
    NO(weft_select(x, 0, 2), WEFT_ERR_INVALID_ARG, "select: no index 2 in dimension 0 of size 2");
    NO(weft_select(x, 0, -3), WEFT_ERR_INVALID_ARG, "select: no index -3 in dimension 0 of size 2");
    NO(weft_select(x, 3, 0), WEFT_ERR_INVALID_ARG,
       "select: no dimension 3 in a tensor of 3 dimensions");
    NO(weft_squeeze(x, 3), WEFT_ERR_INVALID_ARG,
       "squeeze: no dimension 3 in a tensor of 3 dimensions");
    NO(weft_unsqueeze(x, 4), WEFT_ERR_INVALID_ARG,
       "unsqueeze: no dimension 4 in a tensor of 4 dimensions");
    NO(weft_movedim(x, 0, 3), WEFT_ERR_INVALID_ARG,
       "movedim: no dimension 3 in a tensor of 3 dimensions");
    NO(weft_movedim(NULL, 0, 1), WEFT_ERR_INVALID_ARG, "detach: a tensor argument is NULL");
    NO(weft_view_dtype(turned, WEFT_F64), WEFT_ERR_INVALID_ARG,
       "view_dtype: last dimension, strides and offset must be multiples of 2 elements");
    NO(weft_view_dtype(x, (weft_dtype)99), WEFT_ERR_TYPE, "view_dtype: 99 is not a dtype");
    CHECK_OK(weft_scope_close());
}

/* Two rows of three. */
static weft_tensor *grid(weft_dtype dtype)
{
    return weft_view(weft_arange(dtype, WEFT_CPU, 0, 6, 1), WEFT_SHAPE(2, 3));
}

TEST(test_refusals_ops_elements)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = grid(WEFT_F32), *whole = grid(WEFT_I64);
    weft_tensor *odd = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *truth = weft_zeros(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(2, 3));
    weft_tensor *meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(2, 3));
    weft_tensor *wide =
        weft_expand(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 3)), WEFT_SHAPE(2, 3));
    NO(weft_add(x, odd), WEFT_ERR_INVALID_ARG,
       "add: shapes [2, 3] and [4] do not broadcast (dimension 1 from the end)");
    NO(weft_add(x, NULL), WEFT_ERR_INVALID_ARG, "add: a tensor argument is NULL");
    NO(weft_add(x, meta), WEFT_ERR_TYPE,
       "add: arguments on cpu and meta; all must be on one device");
    BAD(weft_add_into(odd, x, x), WEFT_ERR_INVALID_ARG,
        "add: the result has shape [2, 3], the target [4]");
    BAD(weft_add_into(whole, x, x), WEFT_ERR_TYPE,
        "add: a result of f32 cannot be written to a tensor of i64");
    BAD(weft_add_into(meta, x, x), WEFT_ERR_TYPE,
        "add: the target is on meta, the arguments are not");
    BAD(weft_add_into(wide, x, x), WEFT_ERR_INVALID_ARG,
        "add: several elements of the written tensor of shape [2, 3] share memory (an expanded "
        "view?); write to a clone");
    BAD(weft_add_into(NULL, x, x), WEFT_ERR_INVALID_ARG, "add: the target is NULL");
    NO(weft_neg(truth), WEFT_ERR_TYPE,
       "neg: bool has no negative; use weft_logical_not or weft_logical_xor");
    NO(weft_sub(truth, truth), WEFT_ERR_TYPE,
       "sub: bool has no negative; use weft_logical_not or weft_logical_xor");
    NO(weft_where(x, x, x), WEFT_ERR_TYPE, "where: the condition is f32, not bool");
    CHECK(!weft_where(weft_ones(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(5, 5, 5)), x, x));
    CHECK(weft_last_status() == WEFT_ERR_INVALID_ARG && !strncmp(weft_last_error(), "where: ", 7));
    weft_clear_error();
    NO(weft_where(truth, grid(WEFT_U64), whole), WEFT_ERR_TYPE,
       "where: no dtype holds both u64 and i64; convert one of them with weft_to");
    BAD(weft_fill(NULL, 1), WEFT_ERR_INVALID_ARG, "fill: a tensor argument is NULL");
    BAD(weft_fill(wide, 1), WEFT_ERR_INVALID_ARG,
        "fill: several elements of the written tensor of shape [2, 3] share memory (an expanded "
        "view?); write to a clone");
    BAD(weft_copy(x, odd), WEFT_ERR_INVALID_ARG,
        "copy: shapes [2, 3] and [4] do not broadcast (dimension 1 from the end)");
    BAD(weft_copy(x, meta), WEFT_ERR_TYPE,
        "copy: arguments on cpu and meta; all must be on one device");
    NO(weft_to(meta, WEFT_F32, WEFT_CPU), WEFT_ERR_TYPE,
       "to: cannot move a tensor from meta, which has no elements, to cpu");
    NO(weft_to_dtype(x, (weft_dtype)99), WEFT_ERR_TYPE, "to: 99 is not a dtype");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_ops_join)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = grid(WEFT_F32), *odd = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *pair[] = {x, odd}, *holes[] = {x, NULL};
    NO(weft_cat(NULL, 1, 0), WEFT_ERR_INVALID_ARG, "cat: no tensors");
    NO(weft_cat(pair, 0, 0), WEFT_ERR_INVALID_ARG, "cat: no tensors");
    NO(weft_cat(pair, 2, 0), WEFT_ERR_INVALID_ARG,
       "cat: shapes [2, 3] and [4] differ outside dimension 0");
    NO(weft_cat(holes, 2, 0), WEFT_ERR_INVALID_ARG, "cat: a tensor argument is NULL");
    NO(weft_cat(pair, 1, 2), WEFT_ERR_INVALID_ARG,
       "cat: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_stack(pair, 2, 0), WEFT_ERR_INVALID_ARG,
       "cat: shapes [1, 2, 3] and [1, 4] differ outside dimension 0");
    NO(weft_stack(NULL, 1, 0), WEFT_ERR_INVALID_ARG, "stack: no tensors");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_ops_write)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = grid(WEFT_F32), *whole = grid(WEFT_I64);
    BAD(weft_set(x, whole), WEFT_ERR_TYPE, "set: a tensor of f32 cannot take over one of i64");
    BAD(weft_uniform(whole, 0, 1), WEFT_ERR_TYPE, "uniform: draws floats, the tensor is i64");
    BAD(weft_normal(whole, 0, 1), WEFT_ERR_TYPE, "normal: draws floats, the tensor is i64");
    BAD(weft_integers(whole, 3, 3), WEFT_ERR_INVALID_ARG,
        "integers: from 3 up to 3 there are none");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_ops_reduce)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = grid(WEFT_F32), *whole = grid(WEFT_I64);
    static const int both[] = {0, 0}, far[] = {2};
    NO(weft_sum(x, both, 2, false), WEFT_ERR_INVALID_ARG, "sum: dimension 0 is named twice");
    NO(weft_sum(x, far, 1, false), WEFT_ERR_INVALID_ARG,
       "sum: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_sum(x, both, -1, false), WEFT_ERR_INVALID_ARG, "sum: -1 dimensions named");
    NO(weft_mean(whole, NULL, 0, false), WEFT_ERR_TYPE,
       "mean: of i64; convert it to a float with weft_to_dtype");
    NO(weft_argmax(x, 2, false), WEFT_ERR_INVALID_ARG,
       "argmax: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_argmax(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0)), 0, false), WEFT_ERR_INVALID_ARG,
       "argmax: no elements along dimension 0 of shape [0], and no identity");
    NO(weft_argmax_all(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0))), WEFT_ERR_INVALID_ARG,
       "argmax: no elements along dimension 0 of shape [0], and no identity");
    NO(weft_softmax(x, 2), WEFT_ERR_INVALID_ARG,
       "softmax: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_softmax(whole, 0), WEFT_ERR_TYPE,
       "softmax: of i64; convert it to a float with weft_to_dtype");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_ops_layer_norm)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = grid(WEFT_F32), *whole = grid(WEFT_I64);
    weft_tensor *odd = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *three[3];
    NO(weft_layer_norm(x, 3, NULL, NULL, 1e-5), WEFT_ERR_INVALID_ARG,
       "layer_norm: the last 3 of 2 dimensions");
    NO(weft_layer_norm(x, 0, NULL, NULL, 1e-5), WEFT_ERR_INVALID_ARG,
       "layer_norm: the last 0 of 2 dimensions");
    NO(weft_layer_norm(x, 1, odd, NULL, 1e-5), WEFT_ERR_INVALID_ARG,
       "layer_norm: weight is f32 [4]; it must be a float of shape [3]");
    NO(weft_layer_norm(x, 1, NULL, odd, 1e-5), WEFT_ERR_INVALID_ARG,
       "layer_norm: bias is f32 [4]; it must be a float of shape [3]");
    NO(weft_layer_norm(whole, 1, NULL, NULL, 1e-5), WEFT_ERR_TYPE,
       "layer_norm: of i64; convert it to a float with weft_to_dtype");
    BAD(weft_layer_norm_grad(odd, x, 1, NULL, 1e-5, false, three), WEFT_ERR_INVALID_ARG,
        "layer_norm_grad: the gradient has not the shape and dtype of x");
    BAD(weft_layer_norm_grad(x, x, 1, NULL, 1e-5, false, NULL), WEFT_ERR_INVALID_ARG,
        "layer_norm_grad: the results are NULL");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_ops_index)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = grid(WEFT_F32), *whole = grid(WEFT_I64);
    weft_tensor *odd = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    static const int64_t steps[] = {3, 1};
    NO(weft_embedding(x, odd), WEFT_ERR_TYPE, "embedding: the indices are f32, not integers");
    NO(weft_embedding(odd, whole), WEFT_ERR_INVALID_ARG,
       "embedding: the weight has 1 dimensions, not 2");
    NO(weft_embedding(x, whole), WEFT_ERR_INVALID_ARG,
       "embedding: index 2 at 2; the weight has 2 rows");
    NO(weft_embedding_grad(x, odd, 3), WEFT_ERR_INVALID_ARG,
       "embedding_grad: a f32 gradient of 2 dimensions for f32 indices of 1");
    NO(weft_embedding_grad(x, whole, 3), WEFT_ERR_INVALID_ARG,
       "embedding_grad: a f32 gradient of 2 dimensions for i64 indices of 2");
    NO(weft_embedding_grad(x, whole, -1), WEFT_ERR_INVALID_ARG,
       "embedding_grad: a f32 gradient of 2 dimensions for i64 indices of 2");
    NO(weft_take_along(x, 2, whole), WEFT_ERR_INVALID_ARG,
       "take_along: no dimension 2 in a tensor of 2 dimensions");
    NO(weft_take_along(x, 0, odd), WEFT_ERR_TYPE, "take_along: the index is f32, not integers");
    NO(weft_take_along(x, 0, x), WEFT_ERR_TYPE, "take_along: the index is f32, not integers");
    NO(weft_take_along(x, 0, whole), WEFT_ERR_INVALID_ARG,
       "take_along: index 2 at 2; the dimension has 2 elements");
    NO(weft_scatter_add(x, 1, whole, odd), WEFT_ERR_INVALID_ARG,
       "scatter_add: an index of shape [2, 3] for a tensor of shape [4]");
    NO(weft_scatter_add(x, 0, whole, x), WEFT_ERR_INVALID_ARG,
       "scatter_add: index 2 at 2; the dimension has 2 elements");
    NO(weft_view_scatter(x, odd, WEFT_SHAPE(2, 2), steps, 0), WEFT_ERR_INVALID_ARG,
       "view_scatter: a source of shape [4] for a region of shape [2, 2]");
    NO(weft_view_scatter(x, whole, WEFT_SHAPE(2, 3), steps, 0), WEFT_ERR_TYPE,
       "view_scatter: i64 is to replace elements of f32");
    NO(weft_view_scatter(x, x, WEFT_SHAPE(2, 3), steps, 1), WEFT_ERR_INVALID_ARG,
       "view_scatter: offset 1 and 6 elements do not fit 6 elements");
    NO(weft_view_scatter(x, x, WEFT_SHAPE(2, 3), steps, -1), WEFT_ERR_INVALID_ARG,
       "view_scatter: offset -1 and 6 elements do not fit 6 elements");
    CHECK_OK(weft_scope_close());
}

TEST(test_refusals_ops_matmul)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = grid(WEFT_F32), *whole = grid(WEFT_I64);
    weft_tensor *odd = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *truth = weft_zeros(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(2, 3));
    NO(weft_mm(x, x), WEFT_ERR_INVALID_ARG, "mm: shapes [2, 3] and [2, 3] do not multiply");
    NO(weft_mm(x, odd), WEFT_ERR_INVALID_ARG, "mm: shapes [2, 3] and [4] do not multiply");
    NO(weft_mm(x, whole), WEFT_ERR_INVALID_ARG, "mm: shapes [2, 3] and [2, 3] do not multiply");
    NO(weft_bmm(x, x), WEFT_ERR_INVALID_ARG, "bmm: shapes [2, 3] and [2, 3] do not multiply");
    NO(weft_matmul(x, weft_zeros(WEFT_F32, WEFT_CPU, ((weft_shape){0}))), WEFT_ERR_INVALID_ARG,
       "matmul: a 0-d tensor is not a matrix; use weft_mul");
    NO(weft_matmul(truth, truth), WEFT_ERR_INVALID_ARG,
       "mm: shapes [2, 3] and [2, 3] do not multiply");
    BAD(weft_matmul_describe(NULL), WEFT_ERR_INVALID_ARG,
        "weft_matmul_describe: the result is NULL");
    NO(weft_linear(x, x, odd), WEFT_ERR_INVALID_ARG,
       "linear: the bias has shape [4], the weight [2, 3]");
    NO(weft_linear(x, odd, NULL), WEFT_ERR_INVALID_ARG,
       "linear: x of shape [2, 3] and a weight of shape [4]; the weight is [out, in], x ends with "
       "in");
    NO(weft_linear(x, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 2)), NULL), WEFT_ERR_INVALID_ARG,
       "linear: x of shape [2, 3] and a weight of shape [3, 2]; the weight is [out, in], x ends "
       "with in");
    NO(weft_linear(weft_zeros(WEFT_F32, WEFT_CPU, ((weft_shape){0})), x, NULL),
       WEFT_ERR_INVALID_ARG,
       "linear: x of shape [] and a weight of shape [2, 3]; the weight is [out, in], x ends with "
       "in");
    NO(weft_linear(x, whole, NULL), WEFT_ERR_TYPE,
       "linear: x is f32, the weight i64; all must be one dtype, not bool");
    weft_tensor *meta = weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(2, 3));
    NO(weft_linear(meta, weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(4)), NULL),
       WEFT_ERR_INVALID_ARG,
       "linear: x of shape [2, 3] and a weight of shape [4]; the weight is [out, in], x ends with "
       "in");
    CHECK_OK(weft_scope_close());
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
