# SPDX-License-Identifier: Apache-2.0
# What the rows of tools/weft/bench_compile.c take in PyTorch, one thread: nanoseconds, eager and torch.compile, one line
# each, in their order.
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
torch.set_grad_enabled(False)


def chain(x, first=torch.relu):
    x = first(x * 1.5 + 0.25)
    x = x * x - 1
    return torch.clamp_min((-x).abs(), 0.5)


def chain_tanh(x):
    return chain(x, torch.tanh)


def block(x, weight, bias):
    return torch.softmax(F.layer_norm(x * 0.5, (x.shape[-1],), weight, bias) + x, -1)


def network(x, weight, bias):
    return torch.softmax(F.gelu(x @ weight + bias) @ weight + bias, -1)


def measure(call, args):
    taken = []
    for _ in range(8):
        start = time.perf_counter_ns()
        call(*args)
        taken.append(time.perf_counter_ns() - start)
    return sorted(taken[1:])[1]


large, weight, bias = torch.randn(16384, 1024), torch.rand(1024), torch.rand(1024)
net = (torch.randn(256, 1024), torch.randn(1024, 1024) / 32, weight)
for call, args in (chain, (large,)), (chain_tanh, (large,)), (block, (large, weight, bias)), (network, net):
    print(measure(call, args), flush=True)
    try:
        print(measure(torch.compile(call), args), flush=True)
    except Exception:
        print(0, flush=True)
