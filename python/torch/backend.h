/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process group of PyTorch is a world of weft of its own, which meets through PyTorch's store.
 * The collectives are in reduce.cpp, gather.cpp, exchange.cpp and sparse.cpp.
 */
#pragma once

#include "weft_torch.h"

namespace weft_torch
{

class WeftBackend : public c10d::Backend
{
  public:
    WeftBackend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, Millis timeout,
                const std::string &name);
    ~WeftBackend() override;

    const std::string getBackendName() const override
    {
        return "weft";
    }
    c10::intrusive_ptr<Options> options_of() const
    {
        return options;
    }
    weft_group *handle() const
    {
        return group;
    }

    /* ---- life (backend.cpp) ---- */

    void setSequenceNumberForGroup() override
    {
    }
    uint64_t getSequenceNumberForGroup() override
    {
        return sequence;
    }

#if WEFT_TORCH_AT_LEAST(2, 7)
    void abort() override;
    void shutdown() override
    {
        leave();
    }
    c10::intrusive_ptr<Options> getBackendOptions() override
    {
        return options;
    }
    void setTimeout(Millis timeout) override;
#else
    void abort();
    void shutdown()
    {
        leave();
    }
    void setTimeout(Millis timeout);
#endif
#if WEFT_TORCH_AT_LEAST(2, 8)
    bool supportsSplitting() const override
    {
        return true;
    }
    c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                      const std::vector<int> &ranks,
                                      const c10::intrusive_ptr<Options> &opts) override;
    c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store> &store,
                                      const c10::intrusive_ptr<Options> &opts, const int &rank,
                                      const int &size) override;
    /* Not marked as overriding: 2.8 and 2.9 have no such functions to override. */
    bool supportsShrinking() const
    {
        return true;
    }
    c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t> &ranks_to_exclude,
                                       int shrink_flags, const c10::intrusive_ptr<Options> &opts);
#endif

    /* ---- collectives ---- */

    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outs, TensorLists &ins,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &out, at::Tensor &in,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outs, Tensors &ins,
                                            const c10d::ReduceScatterOptions &opts) override;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allgather(TensorLists &outs, Tensors &ins, const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &out, at::Tensor &in,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(TensorLists &outs, Tensors &ins,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outs, Tensors &ins,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(TensorLists &outs, Tensors &ins, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outs, TensorLists &ins, const c10d::ScatterOptions &opts) override;

    WorkPtr alltoall_base(at::Tensor &out, at::Tensor &in, std::vector<int64_t> &out_rows,
                          std::vector<int64_t> &in_rows,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outs, Tensors &ins, const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all) override;
    WorkPtr send(Tensors &tensors, int to, int tag) override;
    WorkPtr recv(Tensors &tensors, int from, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;

  private:
    friend class Call;

    std::string agree_on_place(Millis timeout);
    void meet(Millis timeout);
    void leave();
    void alive() const;
    void check_root(const char *name, int64_t root) const;
    std::vector<int64_t> splits_of(const at::Tensor &t, const std::vector<int64_t> &rows,
                                   int64_t scale) const;
    WorkPtr message(c10d::OpType type, const char *title, Tensors &tensors, bool sends,
                    const std::function<weft_work *(weft_tensor *)> &post);

    /* A call in this thread by pointers: no work, no tensor of weft. */
    void at_once(const char *title, const at::Tensor &tensor, Millis timeout,
                 const std::function<weft_status()> &call);

    c10::intrusive_ptr<c10d::Store> torch_store;
    weft_store *store = nullptr;
    weft_group *group = nullptr;
    c10::intrusive_ptr<Options> options;
    std::string name;
    std::atomic<uint64_t> sequence{0};
    std::atomic<bool> over{false};
    int shrinks = 0;
    /* One thread at a time uses a group; messages and collectives have nothing in common. */
    std::mutex collectives, messages;
};

/* One call that is posted: its operands, its limit, and where its objects of weft live. */
class Call
{
  public:
    Call(WeftBackend &backend, c10d::OpType type, const char *title, const Tensors &in, Tensors out,
         Millis timeout);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    /* Operands: through a contiguous copy, unless they are (for elementwise use: dense). */
    weft_tensor *in(const at::Tensor &tensor, Use use = Use::moves,
                    const c10d::ReduceOp *op = nullptr);
    weft_tensor *out(const at::Tensor &tensor, Use use = Use::moves,
                     const c10d::ReduceOp *op = nullptr);
    weft_tensor *inout(const at::Tensor &tensor, Use use = Use::moves,
                       const c10d::ReduceOp *op = nullptr);
    at::Tensor staged_in(const at::Tensor &tensor);
    at::Tensor staged_out(const at::Tensor &tensor);
    weft_tensor *wrapped(const at::Tensor &tensor, Use use, const c10d::ReduceOp *op);
    void afterwards(std::function<void()> f)
    {
        work->operation->after.push_back(std::move(f));
    }

    void post(const std::function<weft_work *()> &start); /* a collective */
    void post_message(const std::function<weft_work *()> &start);
    WorkPtr done(bool asynchronous);

    c10::intrusive_ptr<WeftWork> work;

  private:
    void add(weft_work *posted);

    WeftBackend &backend;
    bool limited = false;
};

/* A limit for the calls of this thread. */
struct Limit {
    bool open;
    explicit Limit(Millis timeout)
        : open(timeout.count() > 0 && weft_limit_open(timeout.count()) >= 0)
    {
    }
    ~Limit()
    {
        if (open)
            weft_limit_close();
    }
};

/* Lets other threads of Python go on, whether this one has the GIL or not. */
class WithoutGil
{
  public:
    WithoutGil();
    ~WithoutGil();

  private:
    void *saved;
};

/* Python is about to end: a thread that asks for its lock later would be ended in the middle. */
void end_threads();

/* Ctrl-C ends the waits of Python's first thread. */
void heed_signals();
void raise_interrupt(); /* throws if a signal has ended a wait of this thread */

} // namespace weft_torch
