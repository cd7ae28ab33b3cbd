/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of one dimension: reductions of each to its owner, and an exchange of them along another
 * dimension.  The first is made of rounds of tiles, a block for each owner; the second packs its blocks
 * where they do not lie together, and is an all_to_all in between.
 */
#include "weft/symm_coll.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/calls/run.h"
#include "coll/calls/work.h"
#include "coll/host/algorithms.h"
#include "coll/lane/request.h"
#include "weft/op.h"
#include "weft/view.h"

/* ---- reduce_scatter_offset ---- */

typedef struct blocks {
    weft_tensor *x; /* as a matrix: the dimension of the blocks, and what is before or behind it */
    int dim;        /* of that matrix */
    const int64_t *ends;
    const int *owners;
    int count, ranks;
} blocks;

static int owner_of(const blocks *all, int block)
{
    return all->owners ? all->owners[block] : block % all->ranks;
}

static int64_t length_of(const blocks *all, int block)
{
    return all->ends[block] - (block ? all->ends[block - 1] : 0);
}

static weft_status check_blocks(const blocks *all, int64_t length)
{
    for (int i = 0; i < all->count; i++) {
        if (length_of(all, i) < 0 || all->ends[i] > length)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "reduce_scatter_offset: block %d ends at %lld, the one before at "
                               "%lld, of %lld",
                               i, (long long)all->ends[i], (long long)(i ? all->ends[i - 1] : 0),
                               (long long)length);
        if (owner_of(all, i) < 0 || owner_of(all, i) >= all->ranks)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "reduce_scatter_offset: rank %d owns block %d; there are 0 to %d",
                               owner_of(all, i), i, all->ranks - 1);
    }
    if (all->count && all->ends[all->count - 1] != length)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "reduce_scatter_offset: the last block ends at %lld of %lld",
                           (long long)all->ends[all->count - 1], (long long)length);
    return WEFT_OK;
}

/* This rank's results, one for each of its blocks in their order. */
static weft_status check_outs(const blocks *all, weft_tensor *const *out, int outs, int rank,
                              const weft_tensor *x, int dim)
{
    char expected[WEFT_I_SHAPE_TEXT], given[WEFT_I_SHAPE_TEXT];
    int mine = 0;
    for (int i = 0; i < all->count; i++) {
        if (owner_of(all, i) != rank || mine++ >= outs)
            continue;
        weft_shape shape = weft_i_tensor_shape(x);
        const weft_tensor *result = out[mine - 1];
        shape.dim[dim] = length_of(all, i);
        if (!result)
            return weft_i_missing("reduce_scatter_offset: result %d is NULL", mine - 1);
        if (!weft_i_shape_equal(shape, weft_i_tensor_shape(result)) ||
            !weft_i_tensor_is_contiguous(result))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "reduce_scatter_offset: result %d is to be contiguous, of shape %s, "
                               "not %s",
                               mine - 1, weft_i_shape_text(shape, expected),
                               weft_i_shape_text(weft_i_tensor_shape(result), given));
    }
    return mine == outs ? WEFT_OK
                        : weft_i_fail(WEFT_ERR_INVALID_ARG,
                                      "reduce_scatter_offset: %d results for the %d blocks of rank "
                                      "%d",
                                      outs, mine, rank);
}

/* The dimension of the blocks and all behind it, as rows of what is before. */
static weft_tensor *as_matrix(weft_tensor *x, int dim, int *of)
{
    int64_t before = 1, behind = 1;
    for (int d = 0; d < x->ndim; d++)
        *(d < dim ? &before : &behind) *= x->dim[d];
    *of = before == 1 ? 0 : 1;
    int64_t length = x->dim[dim];
    if (before == 1) /* blocks of rows */
        return weft_view(x, WEFT_SHAPE(length, length ? behind / length : 1));
    return weft_view(x, WEFT_SHAPE(before, behind));
}

/* Columns that one step of the dimension has in the matrix. */
static int64_t unit_of(const weft_tensor *x, int dim, int matrix_dim)
{
    int64_t unit = 1;
    for (int d = dim + 1; matrix_dim == 1 && d < x->ndim; d++)
        unit *= x->dim[d];
    return unit;
}

/* One block for each owner that has `round` others before it. */
static int deal(const blocks *all, int round, int64_t unit, int *seen, weft_tensor **tiles,
                int *roots)
{
    int count = 0;
    for (int r = 0; r < all->ranks; r++)
        seen[r] = 0;
    for (int i = 0; i < all->count; i++) {
        int owner = owner_of(all, i);
        if (seen[owner]++ != round)
            continue;
        int64_t begin = i ? all->ends[i - 1] : 0;
        tiles[count] = weft_slice(all->x, all->dim, begin * unit, all->ends[i] * unit, 1);
        roots[count++] = owner;
    }
    return count;
}

/* As a matrix like its block. */
static weft_tensor *flat(weft_tensor *result, int dim)
{
    int of;
    weft_tensor *matrix = result ? as_matrix(result, dim, &of) : NULL;
    return matrix;
}

static weft_status run_rounds(const blocks *all, weft_tensor *const *out, const weft_tensor *x,
                              int dim, weft_reduction op, weft_group *group, int *room,
                              weft_tensor **tiles)
{
    int *seen = room, *roots = room + all->ranks, mine = 0;
    int64_t unit = unit_of(x, dim, all->dim);
    for (int round = 0;; round++) {
        weft_status status = weft_scope_open();
        int count = status < 0 ? 0 : deal(all, round, unit, seen, tiles, roots);
        bool owns = false;
        for (int i = 0; i < count; i++)
            owns |= roots[i] == group->rank;
        if (count) {
            weft_tensor *result = owns ? flat(out[mine++], dim) : NULL;
            status = weft_symm_multi_root_tile_reduce(result, tiles, roots, count, op, group);
        }
        if (status >= 0 || count)
            weft_scope_close();
        if (status < 0 || !count)
            return status;
    }
}

weft_status weft_symm_reduce_scatter_offset(weft_tensor *const *out, int outs, weft_tensor *x,
                                            int dim, const int64_t *ends, const int *owners,
                                            int count, weft_reduction op, weft_group *group)
{
    if (!x)
        return weft_i_missing("reduce_scatter_offset: the input is NULL");
    WEFT_TRY(weft_i_group_usable(group));
    if (dim < 0 || dim >= x->ndim || !weft_i_tensor_is_contiguous(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "reduce_scatter_offset: dimension %d of a tensor of %d, which is to be "
                           "contiguous",
                           dim, x->ndim);
    if (count < 0 || outs < 0 || (count && !ends) || (outs && !out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "reduce_scatter_offset: %d blocks, %d results",
                           count, outs);
    blocks all = {.ends = ends, .owners = owners, .count = count, .ranks = group->size};
    WEFT_TRY(check_blocks(&all, x->dim[dim]));
    WEFT_TRY(check_outs(&all, out, outs, group->rank, x, dim));
    WEFT_TRY(weft_scope_open());
    int *room = WEFT_OS->alloc(2 * (size_t)group->size * sizeof *room);
    weft_tensor **tiles = WEFT_OS->alloc((size_t)group->size * sizeof(weft_tensor *));
    all.x = as_matrix(x, dim, &all.dim);
    weft_status status = room && tiles ? all.x ? WEFT_OK : weft_last_status()
                                       : weft_i_fail(WEFT_ERR_NO_MEMORY,
                                                     "reduce_scatter_offset: no memory for %d "
                                                     "ranks",
                                                     group->size);
    if (status >= 0)
        status = run_rounds(&all, out, x, dim, op, group, room, tiles);
    WEFT_OS->free(room);
    WEFT_OS->free(tiles);
    weft_scope_close();
    return status;
}

/* ---- all_to_all_nd ---- */

static weft_status check_nd(const weft_tensor *out, const weft_tensor *x, int scatter, int gather,
                            const weft_group *group)
{
    char expected[WEFT_I_SHAPE_TEXT], given[WEFT_I_SHAPE_TEXT];
    if (scatter < 0 || scatter >= x->ndim || gather < 0 || gather >= x->ndim || scatter == gather)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all_nd: dimensions %d and %d of a tensor of %d, which are to be "
                           "two",
                           scatter, gather, x->ndim);
    weft_shape shape = weft_i_tensor_shape(x);
    if (shape.dim[scatter] % group->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "all_to_all_nd: dimension %d, of %lld, must be divisible by the %d "
                           "ranks",
                           scatter, (long long)shape.dim[scatter], group->size);
    shape.dim[scatter] /= group->size;
    if (__builtin_mul_overflow(shape.dim[gather], (int64_t)group->size, &shape.dim[gather]) ||
        !weft_i_shape_equal(shape, weft_i_tensor_shape(out)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all_nd: expected out shape %s, not %s",
                           weft_i_shape_text(shape, expected),
                           weft_i_shape_text(weft_i_tensor_shape(out), given));
    if (out->dtype != x->dtype || weft_i_tensor_device(out) != weft_i_tensor_device(x))
        return weft_i_fail(WEFT_ERR_TYPE, "all_to_all_nd: the input is %s, the output %s%s",
                           weft_dtype_name(x->dtype), weft_dtype_name(out->dtype),
                           out->dtype == x->dtype ? " of another device" : "");
    return weft_i_tensor_is_contiguous(x) && weft_i_tensor_is_contiguous(out)
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all_nd: operands are to be contiguous");
}

/* With the dimension cut into one part for each rank, and the parts first. */
static weft_tensor *parts_first(weft_tensor *x, int dim, int ranks)
{
    weft_shape shape = {.ndim = x->ndim + 1};
    int order[WEFT_MAX_DIMS];
    if (shape.ndim > WEFT_MAX_DIMS)
        return weft_i_null(WEFT_ERR_LIMIT, "all_to_all_nd: %d dimensions; %d are the most", x->ndim,
                           WEFT_MAX_DIMS - 1);
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = d == dim       ? ranks
                       : d == dim + 1 ? x->dim[dim] / ranks
                                      : x->dim[d - (d > dim)];
    order[0] = dim;
    for (int d = 1; d < shape.ndim; d++)
        order[d] = d - 1 + (d - 1 >= dim);
    return weft_permute(weft_view(x, shape), order);
}

static weft_status exchange(weft_tensor *out, weft_tensor *x, int scatter, int gather,
                            weft_group *group)
{
    weft_i_coll coll;
    WEFT_TRY(weft_i_request_begin(&coll, WEFT_I_ALL_TO_ALL_ND, group));
    WEFT_TRY(weft_i_request_input(&coll, x));
    WEFT_TRY(weft_i_request_output(&coll, out));
    WEFT_TRY(weft_i_request_check_overlap(&coll, 0, coll.ask.in_bytes + coll.ask.out_bytes));
    coll.ask.root = scatter * WEFT_MAX_DIMS + gather; /* all ranks mean the same */
    WEFT_TRY(weft_i_request_accept(&coll, coll.ask.in_bytes / (size_t)group->size));
    return weft_i_work_now(&coll);
}

weft_status weft_symm_all_to_all_nd(weft_tensor *out, weft_tensor *x, int scatter_dim,
                                    int gather_dim, weft_group *group)
{
    if (!x || !out)
        return weft_i_missing("all_to_all_nd: the %s is NULL", x ? "output" : "input");
    WEFT_TRY(weft_i_group_usable(group));
    WEFT_TRY(check_nd(out, x, scatter_dim, gather_dim, group));
    if (weft_i_tensor_ranges_meet(out, x) && weft_i_tensor_numel(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all_nd: works only out of place");
    WEFT_TRY(weft_scope_open());
    weft_tensor *packed =
        scatter_dim ? weft_contiguous(parts_first(x, scatter_dim, group->size)) : x;
    weft_tensor *placed = gather_dim ? parts_first(out, gather_dim, group->size) : out;
    weft_tensor *got = placed && gather_dim ? weft_empty(x->dtype, weft_i_tensor_device(x),
                                                         weft_i_tensor_shape(placed))
                                            : placed;
    weft_status status =
        packed && got ? exchange(got, packed, scatter_dim, gather_dim, group) : weft_last_status();
    if (status >= 0 && got != placed)
        status = weft_copy(placed, got);
    weft_scope_close();
    return status;
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_kind_run(WEFT_I_ALL_TO_ALL_ND, weft_i_coll_all_to_all);
}
