#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A product of 8192^3 in bf16 by PyTorch, beside that of cuda_op_bench."""
import statistics

import torch

a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
times = []
for run in range(8):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        torch.mm(a, b)
    end.record()
    end.synchronize()
    times.append(begin.elapsed_time(end) * 1000 / 20)
us = statistics.median(times[1:])
print(f"  torch mm bf16 8192^3 {us:.1f} us, {2 * 8192**3 / us / 1e6:.1f} TFLOP/s")
