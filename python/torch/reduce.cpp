/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that compute: all_reduce, reduce, reduce_scatter. */
#include "backend.h"

#include <set>

namespace weft_torch
{

static const Use computes = Use::computes;

/* ---- all_reduce ---- */

static void fold(at::Tensor &into, const at::Tensor &x, const c10d::ReduceOp &op)
{
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        into.add_(x);
        return;
    case c10d::ReduceOp::PRODUCT:
        into.mul_(x);
        return;
    case c10d::ReduceOp::MIN:
        at::minimum_out(into, into, x);
        return;
    case c10d::ReduceOp::MAX:
        at::maximum_out(into, into, x);
        return;
    case c10d::ReduceOp::BAND:
        into.bitwise_and_(x);
        return;
    case c10d::ReduceOp::BOR:
        into.bitwise_or_(x);
        return;
    case c10d::ReduceOp::BXOR:
        into.bitwise_xor_(x);
        return;
    default:
        TORCH_CHECK(false, "weft: this reduction takes one tensor a rank");
    }
}

/* Several tensors a rank are folded into the first, and all of them get the result. */
static void fold_all(Call &call, Tensors &tensors, const c10d::ReduceOp &op)
{
    at::NoGradGuard no_grad;
    for (size_t i = 1; i < tensors.size(); i++) {
        fold(tensors[0], tensors[i], op);
        at::Tensor first = tensors[0], other = tensors[i];
        call.afterwards([first, other] { other.copy_(first); });
    }
}

WorkPtr WeftBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    TORCH_CHECK(!tensors.empty(), "weft::allreduce: requires non-empty tensor list");
    check_like("weft::allreduce", tensors, tensors[0]);
    at::Tensor &t = tensors[0];
    if (t.is_sparse())
        return allreduce_sparse(tensors, opts);
#if WEFT_TORCH_AT_LEAST(2, 7)
    if (!opts.asyncOp && tensors.size() == 1 && dense(t)) {
        View v = view_of(t, computes, &opts.reduceOp);
        at_once("all_reduce", t, opts.timeout, [&] {
            return weft_all_reduce_ptr(v.data, v.data, (size_t)v.count, v.dtype,
                                       reduction_of(opts.reduceOp), group);
        });
        return nullptr;
    }
#endif
    Call call(*this, c10d::OpType::ALLREDUCE, "all_reduce", tensors, tensors, opts.timeout);
    weft_tensor *x = nullptr;
    if (tensors.size() == 1) {
        x = call.inout(t, computes, &opts.reduceOp);
    } else {
        /* Copies back in the order of `after`: first the first, from where it was staged. */
        at::Tensor sum = t.clone(at::MemoryFormat::Contiguous);
        at::Tensor first = t;
        call.work->operation->keep.push_back(sum);
        call.afterwards([first, sum] { first.copy_(sum); });
        Tensors all = tensors;
        all[0] = sum;
        fold_all(call, all, opts.reduceOp);
        x = call.wrapped(sum, computes, &opts.reduceOp);
    }
    call.post([&] { return weft_all_reduce_start(x, x, reduction_of(opts.reduceOp), group); });
    return call.done(opts.asyncOp);
}

/* Operands of a list must not overlap: what begins where another begins goes through a copy. */
WorkPtr WeftBackend::allreduce_coalesced(Tensors &tensors,
                                         const c10d::AllreduceCoalescedOptions &opts)
{
    const char *name = "weft::allreduce_coalesced";
    TORCH_CHECK(!tensors.empty(), name, ": requires non-empty tensor list");
    for (size_t i = 0; i < tensors.size(); i++) {
        TORCH_CHECK(tensors[i].layout() == tensors[0].layout(), name,
                    ": invalid tensor layout at index ", i);
        TORCH_CHECK(tensors[i].scalar_type() == tensors[0].scalar_type(), name,
                    ": tensors must all have the same type");
    }
    TORCH_CHECK(tensors[0].layout() == at::kStrided, name, ": unsupported layout");
    Call call(*this, c10d::OpType::ALLREDUCE_COALESCED, "all_reduce", tensors, tensors,
              opts.timeout);
    std::set<void *> seen;
    std::vector<weft_tensor *> x;
    at::NoGradGuard no_grad;
    for (const at::Tensor &t : tensors) {
        if (t.numel() == 0 || seen.insert(t.data_ptr()).second) {
            x.push_back(call.inout(t, computes, &opts.reduceOp));
            continue;
        }
        at::Tensor again = t.clone(at::MemoryFormat::Contiguous);
        call.work->operation->keep.push_back(again);
        x.push_back(call.wrapped(again, computes, &opts.reduceOp));
    }
    call.post([&] {
        return weft_all_reduce_list_start(x.data(), x.data(), (int)x.size(),
                                          reduction_of(opts.reduceOp), group);
    });
    return call.done(opts.asyncOp);
}

/* ---- reduce ---- */

WorkPtr WeftBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    const char *name = "weft::reduce";
    check_root(name, opts.rootRank);
    TORCH_CHECK(tensors.size() == 1, name, ": requires a single-element tensor list");
    TORCH_CHECK(opts.rootTensor == 0, name, ": invalid root tensor: ", opts.rootTensor);
    const at::Tensor &t = tensors[0];
    bool root = opts.rootRank == rank_;
    Call call(*this, c10d::OpType::REDUCE, "reduce", tensors, tensors, opts.timeout);
    weft_tensor *x = root       ? call.inout(t, computes, &opts.reduceOp)
                     : dense(t) ? call.wrapped(t, computes, &opts.reduceOp)
                                : call.in(t, computes, &opts.reduceOp);
    call.post([&] {
        return weft_reduce_start(root ? x : nullptr, x, reduction_of(opts.reduceOp),
                                 (int)opts.rootRank, group);
    });
    return call.done(opts.asyncOp);
}

/* ---- reduce_scatter ---- */

WorkPtr WeftBackend::reduce_scatter(Tensors &outs, TensorLists &ins,
                                    const c10d::ReduceScatterOptions &opts)
{
    const char *name = "weft::reduce_scatter";
    TORCH_CHECK(outs.size() == 1, name, ": requires a single-element output tensor list");
    TORCH_CHECK(ins.size() == 1 && (int)ins[0].size() == size_, name,
                ": invalid input tensor list at index 0 (expected length ", size_, ", got ",
                ins.empty() ? 0 : ins[0].size(), ")");
    Call call(*this, c10d::OpType::REDUCE_SCATTER, "reduce_scatter", ins[0], outs, opts.timeout);
    std::vector<weft_tensor *> x;
    for (const at::Tensor &t : ins[0])
        x.push_back(call.in(t, computes, &opts.reduceOp));
    weft_tensor *o = call.out(outs[0], computes, &opts.reduceOp);
    call.post([&] {
        return weft_reduce_scatter_parts_start(o, x.data(), reduction_of(opts.reduceOp), group);
    });
    return call.done(opts.asyncOp);
}

static void check_parts(const at::Tensor &out, const at::Tensor &in, int size)
{
    TORCH_CHECK(out.numel() * size == in.numel(),
                "input tensor must be the same size as output size times world size");
    TORCH_CHECK_WITH(TypeError, out.scalar_type() == in.scalar_type(),
                     "input tensor must be the same type as the output tensor.");
}

WorkPtr WeftBackend::_reduce_scatter_base(at::Tensor &out, at::Tensor &in,
                                          const c10d::ReduceScatterOptions &opts)
{
    check_parts(out, in, size_);
#if WEFT_TORCH_AT_LEAST(2, 7)
    if (!opts.asyncOp && out.is_contiguous() && in.is_contiguous()) {
        View o = view_of(out, computes, &opts.reduceOp), v = view_of(in, computes, &opts.reduceOp);
        at_once("_reduce_scatter_base", in, opts.timeout, [&] {
            return weft_reduce_scatter_ptr(o.data, v.data, (size_t)o.count, v.dtype,
                                           reduction_of(opts.reduceOp), group);
        });
        return nullptr;
    }
#endif
    Call call(*this, c10d::OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base", {in}, {out},
              opts.timeout);
    weft_tensor *x = call.in(in, computes, &opts.reduceOp);
    weft_tensor *o = call.out(out, computes, &opts.reduceOp);
    call.post([&] { return weft_reduce_scatter_start(o, x, reduction_of(opts.reduceOp), group); });
    return call.done(opts.asyncOp);
}

WorkPtr WeftBackend::reduce_scatter_tensor_coalesced(Tensors &outs, Tensors &ins,
                                                     const c10d::ReduceScatterOptions &opts)
{
    TORCH_CHECK(outs.size() == ins.size() && !ins.empty(),
                "weft: requires input/output tensor lists of the same length");
    for (size_t i = 0; i < ins.size(); i++)
        check_parts(outs[i], ins[i], size_);
    Call call(*this, c10d::OpType::COALESCED, "reduce_scatter_tensor_coalesced", ins, outs,
              opts.timeout);
    std::vector<weft_tensor *> o, x;
    for (size_t i = 0; i < ins.size(); i++) {
        o.push_back(call.out(outs[i], computes, &opts.reduceOp));
        x.push_back(call.in(ins[i], computes, &opts.reduceOp));
    }
    call.post([&] {
        return weft_reduce_scatter_list_start(o.data(), x.data(), (int)x.size(),
                                              reduction_of(opts.reduceOp), group);
    });
    return call.done(opts.asyncOp);
}

} // namespace weft_torch
