/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of sparse tensors: every rank gets all indices and values, and adds them in the order of
 * ranks.  How many there are must be known before memory can be made for them, so the call blocks,
 * also where its work was asked for.
 */
#include "backend.h"

namespace weft_torch
{

/* Several tensors a rank count as their sum. */
static at::Tensor sum_of(const Tensors &tensors)
{
    at::Tensor sum = tensors[0];
    for (size_t i = 1; i < tensors.size(); i++)
        sum = sum + tensors[i];
    return sum.coalesce();
}

static void run(Call &call, const std::function<weft_work *()> &start)
{
    size_t before = call.work->operation->works.size();
    call.post(start);
    weft_work *posted = call.work->operation->works[before];
    weft_status status = weft_work_wait(posted, WEFT_FOREVER);
    if (status >= 0)
        return;
    raise_interrupt();
    fail_as(status, weft_last_error(), call.work->operation->limit);
}

/* What each rank has: elements, then the sizes of its tensor, which have to be those of all. */
static std::vector<int64_t> counts_of(Call &call, const at::Tensor &mine, int size,
                                      weft_group *group)
{
    std::vector<int64_t> words{mine._nnz(), mine.sparse_dim()};
    words.insert(words.end(), mine.sizes().begin(), mine.sizes().end());
    int64_t each = (int64_t)words.size();
    at::Tensor in = at::tensor(words, at::kLong), out = at::empty({size, each}, at::kLong);
    weft_tensor *o = call.out(out), *x = call.in(in);
    run(call, [&] { return weft_all_gather_start(o, x, group); });
    std::vector<int64_t> counts;
    const int64_t *all = out.const_data_ptr<int64_t>();
    for (int r = 0; r < size; r++) {
        TORCH_CHECK(std::equal(words.begin() + 1, words.end(), all + r * each + 1),
                    "weft::allreduce: invalid tensor size: the sparse tensor of rank ", r,
                    " has other sizes than that of this rank, ", mine.sizes());
        counts.push_back(all[r * each]);
    }
    return counts;
}

/* Columns of all ranks, one after the other; `in` has mine along its first dimension. */
static at::Tensor gather_rows(Call &call, const at::Tensor &in, const std::vector<int64_t> &counts,
                              weft_group *group)
{
    auto sizes = in.sizes().vec();
    Tensors parts;
    std::vector<weft_tensor *> o;
    for (int64_t count : counts) {
        sizes[0] = count;
        parts.push_back(at::empty(sizes, in.options()));
        o.push_back(call.out(parts.back()));
    }
    weft_tensor *x = call.in(in);
    run(call, [&] { return weft_all_gather_parts_start(o.data(), x, group); });
    return at::cat(parts);
}

WorkPtr WeftBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    const char *name = "weft::allreduce";
    TORCH_CHECK(!tensors.empty(), name, ": requires non-empty tensor list");
    check_like(name, tensors, tensors[0]);
    TORCH_CHECK(tensors[0].is_sparse(), name, ": unsupported layout");
    TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM, name,
                ": unsupported reduction operation for sparse tensors: only SUM");
    at::NoGradGuard no_grad;
    Call call(*this, c10d::OpType::_ALLREDUCE_SPARSE, "sparse_all_reduce", tensors, tensors,
              opts.timeout);
    at::Tensor mine = sum_of(tensors);
    auto counts = counts_of(call, mine, size_, group);
    at::Tensor indices = gather_rows(call, mine.indices().t().contiguous(), counts, group);
    at::Tensor values = gather_rows(call, mine.values(), counts, group);
    at::Tensor sum =
        at::sparse_coo_tensor(indices.t(), values, mine.sizes(), mine.options()).coalesce();
    for (at::Tensor &t : tensors)
        t.copy_(sum);
    call.work->conclude();
    return call.work;
}

} // namespace weft_torch
