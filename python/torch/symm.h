/* SPDX-License-Identifier: Apache-2.0 */
/* Symmetric memory of PyTorch on CPU tensors; the allocator's interface is that of 2.8 and later. */
#pragma once

#include "backend.h"

namespace weft_torch
{

/* The tensor's place in its block, with its shape, in the open scope; NULL if it is in none. */
weft_tensor *symmetric_view(const at::Tensor &tensor);

/* Handles of a group that ends, of which the name may come again. */
void forget_handles(const std::string &group);

/* torch.ops.symm_mem for the CPU. */
void register_symmetric_operators();

} // namespace weft_torch
