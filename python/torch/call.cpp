/* SPDX-License-Identifier: Apache-2.0 */
/* One call: at once in the caller's thread, or posted. */
#include "backend.h"

namespace weft_torch
{

/* A row in a profile for a call without a work. */
struct Row {
    at::RecordFunction record{at::RecordScope::USER_SCOPE};

    Row(const char *title, const at::Tensor &tensor)
    {
        if (!record.isActive())
            return;
        record._setAsync();
        c10::IValue in[] = {tensor};
        record.before(titled(title), c10::ArrayRef<const c10::IValue>(in, 1));
    }
};

static Millis limit_of(Millis asked, Millis usual)
{
    return asked.count() > 0 ? asked : usual;
}

void WeftBackend::at_once(const char *title, const at::Tensor &tensor, Millis timeout,
                          const std::function<weft_status()> &call)
{
    alive();
    heed_signals();
    Row row(title, tensor);
    Limit limit(timeout);
    std::lock_guard<std::mutex> guard(collectives);
    ++sequence;
    weft_status status = call();
    if (status >= 0)
        return;
    raise_interrupt();
    fail_as(status, weft_last_error(), limit_of(timeout, options->timeout));
}

Call::Call(WeftBackend &b, c10d::OpType type, const char *title, const Tensors &in, Tensors out,
           Millis timeout)
    : backend(b)
{
    backend.alive();
    heed_signals();
    work = c10::make_intrusive<WeftWork>(backend.rank_, type, title, in);
    work->operation->keep = in;
    work->operation->keep.insert(work->operation->keep.end(), out.begin(), out.end());
    work->operation->limit = limit_of(timeout, backend.options->timeout);
    work->outs = std::move(out);
    weft_scope_open();
    limited = timeout.count() > 0 && weft_limit_open(timeout.count()) >= 0;
}

Call::~Call()
{
    if (limited)
        weft_limit_close();
    weft_scope_close();
}

weft_tensor *Call::wrapped(const at::Tensor &tensor, Use use, const c10d::ReduceOp *op)
{
    View view = view_of(tensor, use, op);
    work->operation->bytes += tensor.nbytes();
    return wrap(view);
}

at::Tensor Call::staged_in(const at::Tensor &tensor)
{
    if (tensor.is_contiguous())
        return tensor;
    work->operation->keep.push_back(tensor.contiguous());
    return work->operation->keep.back();
}

at::Tensor Call::staged_out(const at::Tensor &tensor)
{
    if (tensor.is_contiguous())
        return tensor;
    at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
    work->operation->keep.push_back(copy);
    afterwards([tensor, copy] { tensor.copy_(copy); });
    return copy;
}

weft_tensor *Call::in(const at::Tensor &tensor, Use use, const c10d::ReduceOp *op)
{
    return wrapped(tensor.layout() == at::kStrided ? staged_in(tensor) : tensor, use, op);
}

weft_tensor *Call::out(const at::Tensor &tensor, Use use, const c10d::ReduceOp *op)
{
    return wrapped(tensor.layout() == at::kStrided ? staged_out(tensor) : tensor, use, op);
}

weft_tensor *Call::inout(const at::Tensor &tensor, Use use, const c10d::ReduceOp *op)
{
    if (use == Use::computes ? dense(tensor) : tensor.is_contiguous())
        return wrapped(tensor, use, op);
    if (tensor.layout() != at::kStrided)
        return wrapped(tensor, use, op); /* which refuses it */
    at::Tensor copy = staged_out(tensor);
    at::NoGradGuard no_grad;
    copy.copy_(tensor);
    return wrapped(copy, use, op);
}

void Call::add(weft_work *posted)
{
    if (!posted) {
        raise_interrupt();
        fail_as(weft_last_status(), weft_last_error(), work->operation->limit);
    }
    work->operation->works.push_back((weft_work *)weft_keep(posted));
}

void Call::post(const std::function<weft_work *()> &start)
{
    std::lock_guard<std::mutex> guard(backend.collectives);
    work->sequence = ++backend.sequence;
    add(start());
}

void Call::post_message(const std::function<weft_work *()> &start)
{
    std::lock_guard<std::mutex> guard(backend.messages);
    add(start());
}

WorkPtr Call::done(bool asynchronous)
{
    if (!asynchronous)
        work->wait(Millis(0));
    return work;
}

} // namespace weft_torch
