/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of torch.ops.symm_mem for tensors on the CPU. */
#include "symm.h"

#include <ATen/core/stack.h>
#include <torch/library.h>

namespace weft_torch
{

/* The group and the scope of one call. */
struct SymmCall {
    weft_group *group;

    explicit SymmCall(const std::string &name) : group(group_named(name))
    {
        TORCH_CHECK(group, "weft: the group \"", name, "\" has no backend weft");
        heed_signals();
        weft_scope_open();
    }
    ~SymmCall()
    {
        weft_scope_close();
    }

    /* What peers read or write. */
    weft_tensor *shared(const at::Tensor &tensor) const
    {
        weft_tensor *view = symmetric_view(tensor);
        TORCH_CHECK(view, "weft: this operand must be in symmetric memory (symm_mem.empty)");
        return view;
    }

    /* Any memory, with its shape. */
    weft_tensor *plain(const at::Tensor &tensor) const
    {
        if (weft_tensor *view = symmetric_view(tensor))
            return view;
        TORCH_CHECK(tensor.is_contiguous(), "weft: the operand must be contiguous");
        weft_shape shape{};
        shape.ndim = (int)tensor.dim();
        for (int i = 0; i < shape.ndim; i++)
            shape.dim[i] = tensor.size(i);
        return weft_view(wrap(view_of(tensor, Use::computes)), shape);
    }

    void run(const std::function<weft_status()> &call) const
    {
        WithoutGil others_go_on;
        weft_status status = call();
        if (status >= 0)
            return;
        raise_interrupt();
        fail_as(status, weft_last_error(), Millis(0));
    }
};

static weft_reduction op_of(const std::string &op)
{
    for (int i = 0; i < WEFT_REDUCTIONS; i++)
        if (op == weft_reduction_name((weft_reduction)i) && i != WEFT_PREMUL_SUM)
            return (weft_reduction)i;
    TORCH_CHECK_VALUE(false, "weft: unsupported reduction \"", op, "\"");
}

/* ---- sums ---- */

typedef weft_status (*out_function)(weft_tensor *, weft_tensor *, weft_reduction, weft_group *);
typedef weft_status (*in_place_function)(weft_tensor *, weft_reduction, weft_group *);

template <out_function f>
static at::Tensor into(const at::Tensor &x, std::string op, std::string name, at::Tensor out)
{
    SymmCall call(name);
    weft_tensor *in = call.shared(x), *o = call.plain(out);
    call.run([&] { return f(o, in, op_of(op), call.group); });
    return out;
}

template <out_function f>
static at::Tensor fresh(const at::Tensor &x, std::string op, std::string name)
{
    return into<f>(x, op, name, at::empty_like(x));
}

template <in_place_function f>
static at::Tensor in_place(at::Tensor x, std::string op, std::string name)
{
    SymmCall call(name);
    weft_tensor *in = call.shared(x);
    call.run([&] { return f(in, op_of(op), call.group); });
    return x;
}

static at::Tensor copy_into(const at::Tensor &buffer, const at::Tensor &local, std::string op,
                            std::string name, at::Tensor out)
{
    SymmCall call(name);
    weft_tensor *b = call.shared(buffer), *x = call.plain(local), *o = call.plain(out);
    call.run(
        [&] { return weft_symm_one_shot_all_reduce_copy_out(o, b, x, op_of(op), call.group); });
    return out;
}

static at::Tensor copy_fresh(const at::Tensor &buffer, const at::Tensor &local, std::string op,
                             std::string name)
{
    return copy_into(buffer, local, op, name, at::empty_like(local));
}

static at::Tensor reduce_scatter_into(at::Tensor x, std::string name, bool split_last_dim,
                                      at::Tensor out)
{
    SymmCall call(name);
    weft_tensor *in = call.shared(x), *o = call.plain(out);
    call.run(
        [&] { return weft_symm_reduce_scatter_out(o, in, split_last_dim, WEFT_SUM, call.group); });
    return out;
}

static at::Tensor reduce_to_root(const at::Tensor &x, std::string op, int64_t root,
                                 std::string name, at::Tensor out)
{
    SymmCall call(name);
    weft_tensor *in = call.shared(x);
    weft_tensor *o = weft_rank(call.group) == root ? call.plain(out) : nullptr;
    call.run([&] {
        return weft_symm_multimem_one_shot_reduce_out(o, in, op_of(op), (int)root, call.group);
    });
    return out;
}

/* ---- moving ---- */

static at::Tensor gather_into(const at::Tensor &x, std::string name, at::Tensor out)
{
    SymmCall call(name);
    weft_tensor *in = call.plain(x), *o = call.shared(out);
    call.run([&] { return weft_symm_multimem_all_gather_out(o, in, call.group); });
    return out;
}

static void all_to_all(const at::Tensor &in, at::Tensor out, const at::Tensor &splits,
                       at::Tensor out_splits, std::string name)
{
    SymmCall call(name);
    weft_tensor *x = call.shared(in), *o = call.shared(out), *s = call.shared(splits),
                *os = call.shared(out_splits);
    call.run([&] { return weft_symm_all_to_all_vdev(o, os, x, s, call.group); });
}

static void all_to_all_2d(const at::Tensor &in, at::Tensor out, const at::Tensor &splits,
                          at::Tensor out_splits, std::string name, std::optional<int64_t> align)
{
    SymmCall call(name);
    weft_tensor *x = call.shared(in), *o = call.shared(out), *s = call.shared(splits),
                *os = call.shared(out_splits);
    call.run(
        [&] { return weft_symm_all_to_all_vdev_2d(o, os, x, s, align.value_or(1), call.group); });
}

static void all_to_all_2d_offset(const at::Tensor &in, at::Tensor out, const at::Tensor &splits,
                                 at::Tensor out_splits, std::string name)
{
    SymmCall call(name);
    weft_tensor *x = call.shared(in), *o = call.shared(out), *s = call.shared(splits),
                *os = call.shared(out_splits);
    call.run([&] { return weft_symm_all_to_all_vdev_2d_offset(o, os, x, s, call.group); });
}

/* ---- words ---- */

static at::Tensor word_call(at::Tensor x, const std::function<weft_status(weft_tensor *)> &f)
{
    weft_scope_open();
    weft_tensor *view = symmetric_view(x);
    weft_status status = f(view ? view : wrap(view_of(x, Use::moves)));
    weft_scope_close();
    if (status < 0)
        fail_as(status, weft_last_error(), Millis(0));
    return x;
}

static at::Tensor memset32(at::Tensor x, int64_t offset, int64_t value, int64_t count)
{
    return word_call(x,
                     [&](weft_tensor *w) { return weft_symm_memset32(w, offset, value, count); });
}

static at::Tensor write_value32(at::Tensor x, int64_t offset, int64_t value)
{
    return word_call(
        x, [&](weft_tensor *w) { return weft_symm_stream_write_value32(w, offset, value); });
}

/* ---- registration ---- */

/* Kernels that take their arguments from the dispatcher's stack: typed ones would have to agree, to
 * the letter, with those that this PyTorch has for GPUs. */
template <auto function> struct Boxed;

template <class R, class... Args, R (*function)(Args...)> struct Boxed<function> {
    template <size_t... i>
    static auto arguments(const torch::jit::Stack &stack, std::index_sequence<i...>)
    {
        size_t first = stack.size() - sizeof...(Args);
        return std::tuple<std::decay_t<Args>...>(stack[first + i].to<std::decay_t<Args>>()...);
    }

    static void call(const c10::OperatorHandle &, torch::jit::Stack *stack)
    {
        auto args = arguments(*stack, std::index_sequence_for<Args...>{});
        stack->resize(stack->size() - sizeof...(Args));
        if constexpr (std::is_void_v<R>)
            std::apply(function, std::move(args));
        else
            stack->emplace_back(std::apply(function, std::move(args)));
    }
};

template <auto function> static torch::CppFunction boxed()
{
    return torch::CppFunction::makeFromBoxedFunction<&Boxed<function>::call>();
}

void register_symmetric_operators()
{
    /* For as long as the process lives. */
    auto &m = *new torch::Library(torch::Library::IMPL, "symm_mem", c10::DispatchKey::CPU, __FILE__,
                                  __LINE__);
    m.impl("one_shot_all_reduce", boxed<fresh<weft_symm_one_shot_all_reduce_out>>());
    m.impl("one_shot_all_reduce_out", boxed<into<weft_symm_one_shot_all_reduce_out>>());
    m.impl("one_shot_all_reduce_copy", boxed<copy_fresh>());
    m.impl("one_shot_all_reduce_copy_out", boxed<copy_into>());
    m.impl("two_shot_all_reduce_", boxed<in_place<weft_symm_two_shot_all_reduce>>());
    m.impl("two_shot_all_reduce_out", boxed<into<weft_symm_two_shot_all_reduce_out>>());
    m.impl("reduce_scatter_out", boxed<reduce_scatter_into>());
    m.impl("multimem_all_reduce_", boxed<in_place<weft_symm_multimem_all_reduce>>());
    m.impl("multimem_one_shot_all_reduce",
           boxed<fresh<weft_symm_multimem_one_shot_all_reduce_out>>());
    m.impl("multimem_one_shot_all_reduce_out",
           boxed<into<weft_symm_multimem_one_shot_all_reduce_out>>());
    m.impl("multimem_one_shot_reduce_out", boxed<reduce_to_root>());
    m.impl("multimem_all_gather_out", boxed<gather_into>());
    m.impl("all_to_all_vdev", boxed<all_to_all>());
    m.impl("all_to_all_vdev_2d", boxed<all_to_all_2d>());
    m.impl("all_to_all_vdev_2d_offset", boxed<all_to_all_2d_offset>());
    m.impl("memset32_", boxed<memset32>());
    m.impl("stream_write_value32_", boxed<write_value32>());
}

} // namespace weft_torch
