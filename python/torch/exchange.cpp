/* SPDX-License-Identifier: Apache-2.0 */
/* all_to_all, messages and barriers. */
#include "backend.h"

namespace weft_torch
{

/* ---- all_to_all ---- */

/* Splits count rows, weft's count elements. */
std::vector<int64_t> WeftBackend::splits_of(const at::Tensor &t, const std::vector<int64_t> &rows,
                                            int64_t scale) const
{
    int64_t first = t.dim() ? t.size(0) : 1;
    if (rows.empty()) {
        TORCH_CHECK(first % size_ == 0, "Tensor's dim 0 does not divide equally across group size");
        return std::vector<int64_t>(size_, t.numel() / size_ * scale);
    }
    TORCH_CHECK((int)rows.size() == size_, "Number of tensor splits not equal to group size");
    int64_t sum = 0, row = first ? t.numel() / first * scale : 0;
    std::vector<int64_t> splits;
    for (int64_t count : rows) {
        sum += count;
        splits.push_back(count * row);
    }
    TORCH_CHECK(sum == first, "Split sizes doesn't match total dim 0 size");
    return splits;
}

WorkPtr WeftBackend::alltoall_base(at::Tensor &out, at::Tensor &in, std::vector<int64_t> &out_rows,
                                   std::vector<int64_t> &in_rows, const c10d::AllToAllOptions &opts)
{
    TORCH_CHECK(out.scalar_type() == in.scalar_type(), "tensors must have identical type");
    Call call(*this, c10d::OpType::ALLTOALL_BASE, "all_to_all", {in}, {out}, opts.timeout);
    auto to = splits_of(out, out_rows, view_of(out, Use::moves).scale);
    auto from = splits_of(in, in_rows, view_of(in, Use::moves).scale);
    weft_tensor *o = call.out(out), *x = call.in(in);
    call.post([&] { return weft_all_to_all_start(o, x, to.data(), from.data(), group); });
    return call.done(opts.asyncOp);
}

WorkPtr WeftBackend::alltoall(Tensors &outs, Tensors &ins, const c10d::AllToAllOptions &opts)
{
    const char *name = "weft::alltoall";
    TORCH_CHECK((int)ins.size() == size_, name, ": input tensor list size ", ins.size(),
                " does not match world size ", size_);
    TORCH_CHECK((int)outs.size() == size_, name, ": output tensor list size ", outs.size(),
                " does not match world size ", size_);
    for (const Tensors *list : {&ins, &outs})
        for (size_t i = 0; i < list->size(); i++)
            TORCH_CHECK((*list)[i].scalar_type() == (*list)[0].scalar_type(), name,
                        ": invalid tensor type at index ", i);
    TORCH_CHECK(ins[0].scalar_type() == outs[0].scalar_type(), name,
                ": input and output tensors must have the same type");
    TORCH_CHECK(ins[rank_].numel() == outs[rank_].numel(), name, ": invalid tensor size at index ",
                rank_, ": input and output tensors must have the same size there");
    Call call(*this, c10d::OpType::ALLTOALL, "all_to_all", ins, outs, opts.timeout);
    std::vector<weft_tensor *> o, x;
    for (int r = 0; r < size_; r++) {
        o.push_back(call.out(outs[r]));
        x.push_back(call.in(ins[r]));
    }
    call.post([&] { return weft_all_to_all_list_start(o.data(), x.data(), group); });
    return call.done(opts.asyncOp);
}

/* ---- barriers ---- */

WorkPtr WeftBackend::barrier(const c10d::BarrierOptions &opts)
{
    Call call(*this, c10d::OpType::BARRIER, "barrier", {}, {}, opts.timeout);
    call.post([&] { return weft_barrier_start(group); });
#if WEFT_TORCH_AT_LEAST(2, 9)
    return call.done(opts.asyncOp);
#else
    return call.done(true);
#endif
}

/* The ranks that weft's text names: "..., rank 2 (alive, ...), rank 3 (stopped ...)". */
static std::vector<std::string> missing_in(const std::string &text)
{
    size_t begin = text.find(" ms: ");
    std::string outer;
    int depth = 0;
    for (size_t i = begin == std::string::npos ? text.size() : begin; i < text.size(); i++) {
        depth += text[i] == '(';
        if (depth == 0)
            outer += text[i];
        depth -= text[i] == ')';
    }
    std::vector<std::string> ranks;
    for (size_t at = 0; (at = outer.find("rank ", at)) != std::string::npos;) {
        size_t end = at += 5;
        while (end < outer.size() && isdigit((unsigned char)outer[end]))
            end++;
        if (end > at)
            ranks.push_back(outer.substr(at, end - at));
    }
    return ranks;
}

/* Rank 0 says who did not come, the others that they came, in the words known from Gloo. */
static std::string barrier_words(int rank, int64_t limit, const std::string &text)
{
    if (rank != 0)
        return c10::str("Rank ", rank,
                        " successfully reached monitoredBarrier, but received errors "
                        "while waiting for send/recv from rank 0. ");
    auto missing = missing_in(text);
    if (missing.empty())
        return c10::str("Rank 0 timed out in monitoredBarrier after ", limit, " ms. ");
    std::string list;
    for (const std::string &r : missing)
        list += (list.empty() ? "" : ", ") + r;
    return c10::str(missing.size() > 1 ? "Ranks " : "Rank ", list,
                    " failed to pass monitoredBarrier in ", limit, " ms. ");
}

void WeftBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all)
{
    alive();
    heed_signals();
    int64_t limit = (opts.timeout == c10d::kUnsetTimeout ? options->timeout : opts.timeout).count();
    if (limit <= 0 && size_ > 1)
        fail(c10::str("[weft] Rank ", rank_, " timed out in monitoredBarrier after ", limit,
                      " ms."));
    std::lock_guard<std::mutex> guard(collectives);
    ++sequence;
    weft_status status = weft_monitored_barrier(group, limit > 0 ? limit : WEFT_DEFAULT, wait_all);
    if (status >= 0)
        return;
    raise_interrupt();
    std::string text = weft_last_error();
    if (status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_PEER_DEAD)
        text = barrier_words(rank_, limit, text) + text;
    fail("[weft] " + text);
}

/* ---- messages ---- */

WorkPtr WeftBackend::message(c10d::OpType type, const char *title, Tensors &tensors, bool sends,
                             const std::function<weft_work *(weft_tensor *)> &post)
{
    TORCH_CHECK(tensors.size() == 1, "weft::", title, ": requires a single-element tensor list");
    Call call(*this, type, title, tensors, sends ? Tensors{} : tensors, c10d::kUnsetTimeout);
    weft_tensor *x = sends ? call.in(tensors[0]) : call.out(tensors[0]);
    call.post_message([&] { return post(x); });
    return call.work;
}

WorkPtr WeftBackend::send(Tensors &tensors, int to, int tag)
{
    return message(c10d::OpType::SEND, "send", tensors, true,
                   [&](weft_tensor *x) { return weft_send_tag_start(x, to, tag, group); });
}

WorkPtr WeftBackend::recv(Tensors &tensors, int from, int tag)
{
    return message(c10d::OpType::RECV, "recv", tensors, false,
                   [&](weft_tensor *x) { return weft_recv_tag_start(x, from, tag, group); });
}

WorkPtr WeftBackend::recvAnysource(Tensors &tensors, int tag)
{
    return message(c10d::OpType::RECVANYSOURCE, "recvAnySource", tensors, false,
                   [&](weft_tensor *x) { return weft_recv_tag_start(x, WEFT_ANY, tag, group); });
}

} // namespace weft_torch
