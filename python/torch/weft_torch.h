/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adapter between torch.distributed and weft, in C++ because c10d is.  It is compiled against the
 * user's PyTorch (python/src/weft/torch/_build.py), and this header is compiled ahead.
 */
#ifndef WEFT_TORCH_H
#define WEFT_TORCH_H

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/version.h>

#include <weft/weft.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

/* Releases of PyTorch, to compare with. */
#define WEFT_TORCH_AT_LEAST(major, minor) \
    (TORCH_VERSION_MAJOR > (major) ||     \
     (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace weft_torch
{

using Millis = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/* ---- operands (operand.cpp) ---- */

/* Whether an operation only moves elements, or computes with them. */
enum class Use { moves, computes };

/* What weft sees of a tensor whose elements lie without gaps. */
struct View {
    void *data;
    weft_dtype dtype;
    int64_t count;
    int64_t scale; /* elements of weft in one of PyTorch */
};

weft_dtype dtype_of(at::ScalarType type); /* WEFT_DTYPE_COUNT: weft has no such element */
View view_of(const at::Tensor &tensor, Use use, const c10d::ReduceOp *op = nullptr);
weft_tensor *wrap(const View &view); /* of the open scope */
weft_reduction reduction_of(const c10d::ReduceOp &op);
bool dense(const at::Tensor &tensor);

/* All of them have the type and the sizes of the first, and a layout that weft takes; `name` begins
 * the message. */
void check_like(const char *name, const Tensors &tensors, const at::Tensor &first);

/* ---- errors (errors.cpp) ---- */

[[noreturn]] void fail(const std::string &text);

/* Fails with weft's own text.  A limit that passed is told in the words PyTorch's users look for. */
[[noreturn]] void fail_as(weft_status status, const char *text, Millis limit);

/* "gloo:all_reduce" of "all_reduce", by the name that profiles are to show; lives for ever. */
const char *titled(const char *title);
void set_title(const std::string &name);

/* ---- work (work.cpp) ---- */

/* What a posted operation needs until it is over, whether anybody still has the work or not. */
struct Operation {
    std::vector<weft_work *> works;
    Tensors keep;                             /* operands */
    std::vector<std::function<void()>> after; /* copies back what was not contiguous */
    Millis limit{0};
    size_t bytes = 0;

    Operation() = default;
    Operation(const Operation &) = delete;
    Operation &operator=(const Operation &) = delete;
    ~Operation();
    bool over() const;
    weft_status outcome(std::string *text) const; /* of the first that failed */
    void settle();                                /* runs `after`, once all is over and well */
};

class WeftWork : public c10d::Work
{
  public:
    WeftWork(int rank, c10d::OpType type, const char *title, const Tensors &in);
    ~WeftWork() override;

    bool isCompleted() override;
    bool wait(Millis timeout) override;
    void synchronize() override
    {
        wait(Millis(0));
    }
    void abort() override;
    Tensors result() override
    {
        return outs;
    }
    int sourceRank() const override;
    uint64_t getSequencenumber() const override
    {
        return sequence;
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

    void conclude(); /* all is over: says so, once */

    std::shared_ptr<Operation> operation = std::make_shared<Operation>();
    Tensors outs;
    size_t lists =
        0; /* the answer is that many lists of tensors, which `outs` has one after the other */
    uint64_t sequence = 0;

  private:
    bool done();
    c10::IValue answer() const;

    std::mutex end_lock, future_lock;
    c10::intrusive_ptr<c10::ivalue::Future> future;
};

/* Runs f in a thread that may wait, take the GIL and call Python. */
void run_later(std::function<void()> f);

/* ---- groups (backend.cpp) ---- */

class WeftBackend;

/* The group of PyTorch's name that this process is in, or NULL. */
weft_group *group_named(const std::string &name);

/* Symmetric memory (symm.cpp), where this PyTorch has its interface. */
void register_symmetric_memory();

} // namespace weft_torch

#endif
