/* SPDX-License-Identifier: Apache-2.0 */
/* Operands: what weft sees of PyTorch's tensors. */
#include "weft_torch.h"

namespace weft_torch
{

weft_dtype dtype_of(at::ScalarType type)
{
    switch (type) {
    case at::kDouble:
        return WEFT_F64;
    case at::kFloat:
        return WEFT_F32;
    case at::kHalf:
        return WEFT_F16;
    case at::kBFloat16:
        return WEFT_BF16;
    case at::kFloat8_e4m3fn:
        return WEFT_F8E4M3;
    case at::kFloat8_e5m2:
        return WEFT_F8E5M2;
    case at::kChar:
        return WEFT_I8;
    case at::kShort:
        return WEFT_I16;
    case at::kInt:
        return WEFT_I32;
    case at::kLong:
        return WEFT_I64;
    case at::kByte:
        return WEFT_U8;
    case at::kUInt16:
        return WEFT_U16;
    case at::kUInt32:
        return WEFT_U32;
    case at::kUInt64:
        return WEFT_U64;
    case at::kBool:
        return WEFT_BOOL;
    default:
        return WEFT_DTYPE_COUNT;
    }
}

/* Complex numbers are pairs of reals. */
static weft_dtype part_of(at::ScalarType type)
{
    return type == at::kComplexDouble ? WEFT_F64 : type == at::kComplexFloat ? WEFT_F32 : WEFT_F16;
}

View view_of(const at::Tensor &tensor, Use use, const c10d::ReduceOp *op)
{
    TORCH_CHECK(tensor.device().is_cpu(), "weft: unsupported device type ", tensor.device().type(),
                ": tensors must be on the CPU");
    TORCH_CHECK(tensor.layout() == at::kStrided, "weft: unsupported layout ", tensor.layout(),
                ": tensors must be dense");
    View view{tensor.numel() ? tensor.data_ptr() : nullptr, dtype_of(tensor.scalar_type()),
              tensor.numel(), 1};
    if (view.dtype != WEFT_DTYPE_COUNT)
        return view;
    if (tensor.is_complex()) {
        TORCH_CHECK(use == Use::moves || !op || c10d::isComplexViewAsRealAllowed(*op),
                    "weft: this reduction cannot be computed for complex numbers");
        view.dtype = part_of(tensor.scalar_type());
        view.scale = 2;
    } else {
        TORCH_CHECK(use == Use::moves, "weft: Invalid scalar type: ", tensor.scalar_type(),
                    " can be moved, but weft cannot compute with it");
        view.dtype = WEFT_U8;
        view.scale = (int64_t)tensor.element_size();
    }
    view.count *= view.scale;
    return view;
}

weft_tensor *wrap(const View &view)
{
    alignas(64) static char nothing[64];
    weft_shape shape{};
    shape.ndim = 1;
    shape.dim[0] = view.count;
    weft_tensor *tensor = weft_tensor_wrap(view.dtype, WEFT_CPU, shape,
                                           view.data ? view.data : nothing, nullptr, nullptr);
    if (!tensor)
        fail(std::string("[weft] ") + weft_last_error());
    return tensor;
}

weft_reduction reduction_of(const c10d::ReduceOp &op)
{
    if (op == c10d::ReduceOp::PREMUL_SUM) {
        auto *factor = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
        TORCH_CHECK(factor, "weft: PREMUL_SUM needs a factor");
        weft_set_premul(factor->tensor_factor.defined() ? factor->tensor_factor.item<double>()
                                                        : factor->double_factor);
        return WEFT_PREMUL_SUM;
    }
    TORCH_CHECK(op.op_ < c10d::ReduceOp::PREMUL_SUM, "weft: Unhandled ReduceOp");
    return (weft_reduction)(uint8_t)op.op_; /* the numbers are the same */
}

bool dense(const at::Tensor &tensor)
{
    return tensor.layout() == at::kStrided &&
           (tensor.is_contiguous() || tensor.is_non_overlapping_and_dense());
}

static_assert((int)c10d::ReduceOp::SUM == WEFT_SUM && (int)c10d::ReduceOp::AVG == WEFT_AVG &&
                  (int)c10d::ReduceOp::PRODUCT == WEFT_PRODUCT &&
                  (int)c10d::ReduceOp::MIN == WEFT_MIN && (int)c10d::ReduceOp::MAX == WEFT_MAX &&
                  (int)c10d::ReduceOp::BAND == WEFT_BAND && (int)c10d::ReduceOp::BOR == WEFT_BOR &&
                  (int)c10d::ReduceOp::BXOR == WEFT_BXOR,
              "the reductions of PyTorch and of weft are numbered alike");

void check_like(const char *name, const Tensors &tensors, const at::Tensor &first)
{
    for (size_t i = 0; i < tensors.size(); i++) {
        const at::Tensor &t = tensors[i];
        TORCH_CHECK(t.layout() == first.layout(), name, ": invalid tensor layout at index ", i,
                    " (expected ", first.layout(), ", got ", t.layout(), ")");
        TORCH_CHECK(t.scalar_type() == first.scalar_type(), name, ": invalid tensor type at index ",
                    i, " (expected ", first.scalar_type(), ", got ", t.scalar_type(), ")");
        TORCH_CHECK(t.sizes() == first.sizes(), name, ": invalid tensor size at index ", i,
                    " (expected ", first.sizes(), ", got ", t.sizes(), ")");
    }
}

} // namespace weft_torch
