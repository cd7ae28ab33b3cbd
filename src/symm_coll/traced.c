/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on symmetric memory as rows of a graph, for captures; see traced.h. */
#include "symm_coll/traced.h"

#include "coll/calls/work.h"
#include "coll/lane/request.h"
#include "fabric/group/group.h"
#include "functional/traced.h"
#include "symm_coll/ops.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"

#define GROUP_ARG(group_)   WEFT_I_GROUP_ARG(group_, weft_group_name(group_), (group_)->size)
#define REDUCTION_ARGS(op_) WEFT_I_INTEGER_ARG(op_), WEFT_I_NUMBER_ARG(weft_i_request_premul())

static weft_tensor *fail_null(const char *what, const char *which)
{
    return weft_last_status() < 0
               ? NULL
               : weft_i_null(WEFT_ERR_INVALID_ARG, "%s: the %s is NULL", what, which);
}

weft_tensor *weft_i_traced_symm(const weft_i_op *row, weft_tensor *x, weft_tensor *local,
                                weft_reduction op, weft_group *group)
{
    if (!group)
        return fail_null(row->name, "group");
    if (row == &weft_i_op_one_shot_all_reduce_copy)
        return WEFT_I_APPLY(one_shot_all_reduce_copy, WEFT_I_TENSOR_ARG(x),
                            WEFT_I_TENSOR_ARG(local), REDUCTION_ARGS(op), GROUP_ARG(group));
    if (row == &weft_i_op_two_shot_all_reduce)
        return WEFT_I_APPLY(two_shot_all_reduce, WEFT_I_TENSOR_ARG(x), REDUCTION_ARGS(op),
                            WEFT_I_INTEGER_ARG(true), GROUP_ARG(group));
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(x), REDUCTION_ARGS(op), GROUP_ARG(group)};
    return weft_i_op_apply(row, NULL, args);
}

weft_status weft_i_traced_symm_out(const weft_i_op *row, weft_tensor *out, weft_tensor *x,
                                   weft_tensor *local, weft_reduction op, weft_group *group)
{
    if (!(out = weft_i_see(out)))
        return fail_null(row->name, "output"), weft_last_status();
    return weft_i_traced_put(out, weft_i_traced_symm(row, x, local, op, group));
}

weft_status weft_i_traced_symm_scatter(weft_tensor *out, weft_tensor *x, bool split_last,
                                       weft_reduction op, weft_group *group)
{
    if (!group || !(out = weft_i_see(out)))
        return fail_null("reduce_scatter_out", group ? "output" : "group"), weft_last_status();
    return weft_i_traced_put(out, WEFT_I_APPLY(symm_reduce_scatter, WEFT_I_TENSOR_ARG(x),
                                               WEFT_I_INTEGER_ARG(split_last), REDUCTION_ARGS(op),
                                               GROUP_ARG(group)));
}

weft_tensor *weft_i_traced_symm_gather(weft_tensor *x, weft_group *group, weft_work **work)
{
    const char *what = weft_i_op_low_contention_all_gather.name;
    if (!group || !work)
        return fail_null(what, group ? "place of the work" : "group");
    *work = weft_i_work_new_p2p(NULL, 0);
    weft_tensor *out =
        *work ? WEFT_I_APPLY(low_contention_all_gather, WEFT_I_TENSOR_ARG(x), GROUP_ARG(group))
              : NULL;
    if (!out) {
        weft_release(*work);
        *work = NULL;
    }
    return out;
}

weft_status weft_i_traced_symm_gather_out(weft_tensor *out, weft_tensor *x, weft_group *group)
{
    if (!group || !out)
        return fail_null("multimem_all_gather_out", group ? "output" : "group"), weft_last_status();
    return WEFT_I_ACT(low_contention_all_gather_out, WEFT_I_TENSOR_ARG(out), WEFT_I_TENSOR_ARG(x),
                      GROUP_ARG(group));
}
