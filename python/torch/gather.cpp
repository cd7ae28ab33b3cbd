/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that only move: broadcast, all_gather, gather, scatter. */
#include "backend.h"

namespace weft_torch
{

void WeftBackend::check_root(const char *name, int64_t root) const
{
    TORCH_CHECK(root >= 0 && root < size_, name, ": invalid root rank: ", root);
}

/* ---- broadcast ---- */

WorkPtr WeftBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    const char *name = "weft::broadcast";
    check_root(name, opts.rootRank);
    TORCH_CHECK(opts.rootTensor >= 0 && opts.rootTensor < (int64_t)tensors.size(), name,
                ": invalid root tensor: ", opts.rootTensor);
    check_like(name, tensors, tensors[0]);
    at::Tensor source = tensors[opts.rootTensor];
#if WEFT_TORCH_AT_LEAST(2, 7)
    if (!opts.asyncOp && tensors.size() == 1 && source.is_contiguous()) {
        View v = view_of(source, Use::moves);
        at_once("broadcast", source, opts.timeout, [&] {
            return weft_broadcast_ptr(v.data, (size_t)v.count, v.dtype, (int)opts.rootRank, group);
        });
        return nullptr;
    }
#endif
    Call call(*this, c10d::OpType::BROADCAST, "broadcast", tensors, tensors, opts.timeout);
    weft_tensor *x = call.inout(source);
    for (const at::Tensor &t : tensors)
        if (!t.is_same(source))
            call.afterwards([t, source] { t.copy_(source); });
    call.post([&] { return weft_broadcast_start(x, (int)opts.rootRank, group); });
    return call.done(opts.asyncOp);
}

/* ---- all_gather ---- */

static Tensors joined(const TensorLists &lists)
{
    Tensors all;
    for (const Tensors &list : lists)
        all.insert(all.end(), list.begin(), list.end());
    return all;
}

/* Several inputs a rank: each list of outputs gets those of rank 0, then those of rank 1, ... */
WorkPtr WeftBackend::allgather(TensorLists &outs, Tensors &ins, const c10d::AllgatherOptions &opts)
{
    const char *name = "weft::allgather";
    TORCH_CHECK(!ins.empty(), name, ": requires non-empty input tensor list");
    TORCH_CHECK(outs.size() == ins.size(), name,
                ": requires input/output tensor lists to have the same length");
    size_t each = ins.size();
    for (size_t i = 0; i < outs.size(); i++)
        TORCH_CHECK(outs[i].size() == each * size_, name, ": invalid output tensor list at index ",
                    i, " (expected length ", each * size_, ", got ", outs[i].size(), ")");
    if (each > 1)
        for (const Tensors &list : outs)
            check_like(name, list, ins[0]);
    check_like(name, ins, ins[0]);
    for (size_t i = 0; each == 1 && i < outs[0].size(); i++)
        TORCH_CHECK(outs[0][i].scalar_type() == ins[0].scalar_type(), name,
                    ": invalid tensor type at index ", i);
    if (each == 1 && outs[0][rank_].sizes() != ins[0].sizes())
        check_like(name, {outs[0][rank_]}, ins[0]);
    Call call(*this, c10d::OpType::ALLGATHER, "all_gather", ins, joined(outs), opts.timeout);
    call.work->lists = each > 1 ? each : 0;
    for (size_t j = 0; j < each; j++) {
        std::vector<weft_tensor *> o;
        for (int r = 0; r < size_; r++)
            o.push_back(call.out(outs[0][r * each + j]));
        weft_tensor *x = call.in(ins[j]);
        call.post([&] { return weft_all_gather_parts_start(o.data(), x, group); });
    }
    for (size_t i = 1; i < outs.size(); i++) {
        Tensors to = outs[i], from = outs[0];
        call.afterwards([to, from] {
            for (size_t k = 0; k < to.size(); k++)
                to[k].copy_(from[k]);
        });
    }
    return call.done(opts.asyncOp);
}

static void check_whole(const at::Tensor &out, const at::Tensor &in, int size)
{
    TORCH_CHECK(out.numel() == in.numel() * size,
                "output tensor size must be equal to world_size times input tensor size");
    TORCH_CHECK_WITH(TypeError, out.scalar_type() == in.scalar_type(),
                     "output tensor must have the same type as input tensor");
}

WorkPtr WeftBackend::_allgather_base(at::Tensor &out, at::Tensor &in,
                                     const c10d::AllgatherOptions &opts)
{
    check_whole(out, in, size_);
#if WEFT_TORCH_AT_LEAST(2, 7)
    if (!opts.asyncOp && out.is_contiguous() && in.is_contiguous()) {
        View o = view_of(out, Use::moves), v = view_of(in, Use::moves);
        at_once("_all_gather_base", in, opts.timeout, [&] {
            return weft_all_gather_ptr(o.data, v.data, (size_t)v.count, v.dtype, group);
        });
        return nullptr;
    }
#endif
    Call call(*this, c10d::OpType::_ALLGATHER_BASE, "_all_gather_base", {in}, {out}, opts.timeout);
    weft_tensor *o = call.out(out), *x = call.in(in);
    call.post([&] { return weft_all_gather_start(o, x, group); });
    return call.done(opts.asyncOp);
}

WorkPtr WeftBackend::allgather_coalesced(TensorLists &outs, Tensors &ins,
                                         const c10d::AllgatherOptions &opts)
{
    const char *name = "weft::allgather_coalesced";
    TORCH_CHECK((int)outs.size() == size_, name, ": output lists should be equal to world size");
    TORCH_CHECK(!ins.empty(), name, ": requires non-empty input tensor list");
    for (const Tensors &list : outs) {
        TORCH_CHECK(list.size() == ins.size(), name, ": invalid output size: (expected length ",
                    ins.size(), ", got ", list.size(), ")");
        for (size_t i = 0; i < ins.size(); i++) {
            TORCH_CHECK(list[i].sizes() == ins[i].sizes(), name,
                        ": invalid size of output tensor at index ", i, " (expected ",
                        ins[i].sizes(), ", got ", list[i].sizes(), ")");
            TORCH_CHECK(list[i].scalar_type() == ins[i].scalar_type(), name,
                        ": invalid tensor type at index ", i, " (expected ", ins[i].scalar_type(),
                        ", got ", list[i].scalar_type(), ")");
        }
    }
    Call call(*this, c10d::OpType::ALLGATHER_COALESCED, "all_gather", ins, joined(outs),
              opts.timeout);
    for (size_t j = 0; j < ins.size(); j++) {
        std::vector<weft_tensor *> o;
        for (int r = 0; r < size_; r++)
            o.push_back(call.out(outs[r][j]));
        weft_tensor *x = call.in(ins[j]);
        call.post([&] { return weft_all_gather_parts_start(o.data(), x, group); });
    }
    return call.done(opts.asyncOp);
}

WorkPtr WeftBackend::allgather_into_tensor_coalesced(Tensors &outs, Tensors &ins,
                                                     const c10d::AllgatherOptions &opts)
{
    TORCH_CHECK(outs.size() == ins.size() && !ins.empty(),
                "weft: requires input/output tensor lists of the same length");
    for (size_t i = 0; i < ins.size(); i++)
        check_whole(outs[i], ins[i], size_);
    Call call(*this, c10d::OpType::COALESCED, "all_gather_into_tensor_coalesced", ins, outs,
              opts.timeout);
    std::vector<weft_tensor *> o, x;
    for (size_t i = 0; i < ins.size(); i++) {
        o.push_back(call.out(outs[i]));
        x.push_back(call.in(ins[i]));
    }
    call.post([&] { return weft_all_gather_list_start(o.data(), x.data(), (int)x.size(), group); });
    return call.done(opts.asyncOp);
}

/* ---- gather and scatter ---- */

/* The list of one tensor for each rank, which the root alone gives. */
static void check_root_list(const char *name, const char *kind, const TensorLists &lists, bool root,
                            int size, const at::Tensor &like)
{
    if (!root) {
        TORCH_CHECK(lists.empty(), name, ": requires empty ", kind, " on non-root");
        return;
    }
    TORCH_CHECK(lists.size() == 1, name, ": requires a single-element ", kind,
                " list containing a list with ", size, " tensors.");
    TORCH_CHECK((int)lists[0].size() == size, name, ": Incorrect ", kind, " list size ",
                lists[0].size(), ". ", kind[0] == 'i' ? "Input" : "Output", " list size should be ",
                size, ", same as size of the process group.");
    check_like(name, lists[0], like);
}

WorkPtr WeftBackend::gather(TensorLists &outs, Tensors &ins, const c10d::GatherOptions &opts)
{
    const char *name = "ProcessGroupWeft::gather";
    check_root(name, opts.rootRank);
    TORCH_CHECK(ins.size() == 1, name, ": requires a single-element input tensor list");
    bool root = opts.rootRank == rank_;
    check_root_list(name, "output", outs, root, size_, ins[0]);
    Call call(*this, c10d::OpType::GATHER, "gather", ins, joined(outs), opts.timeout);
    std::vector<weft_tensor *> o;
    for (const at::Tensor &t : call.work->outs)
        o.push_back(call.out(t));
    weft_tensor *x = call.in(ins[0]);
    call.post([&] {
        return weft_gather_parts_start(root ? o.data() : nullptr, x, (int)opts.rootRank, group);
    });
    return call.done(opts.asyncOp);
}

WorkPtr WeftBackend::scatter(Tensors &outs, TensorLists &ins, const c10d::ScatterOptions &opts)
{
    const char *name = "ProcessGroupWeft::scatter";
    check_root(name, opts.rootRank);
    TORCH_CHECK(outs.size() == 1, name, ": requires a single-element output tensor list");
    bool root = opts.rootRank == rank_;
    check_root_list(name, "input", ins, root, size_, outs[0]);
    Tensors parts = joined(ins);
    Call call(*this, c10d::OpType::SCATTER, "scatter", parts, outs, opts.timeout);
    std::vector<weft_tensor *> x;
    for (const at::Tensor &t : parts)
        x.push_back(call.in(t));
    weft_tensor *o = call.out(outs[0]);
    call.post([&] {
        return weft_scatter_parts_start(o, root ? x.data() : nullptr, (int)opts.rootRank, group);
    });
    return call.done(opts.asyncOp);
}

} // namespace weft_torch
