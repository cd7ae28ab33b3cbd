# SPDX-License-Identifier: Apache-2.0
# What the rows of tools/weft/bench_op.c take in PyTorch, one thread: nanoseconds, one line each, in their order.
import time

import torch

torch.set_num_threads(1)
torch.set_grad_enabled(False)


def measure(call, turns, calls, prepare=None):
    taken = []
    end = time.perf_counter() + 3  # a bf16 product without instructions for it takes seconds
    for _ in range(turns):
        if taken and time.perf_counter() > end:
            break
        if prepare:
            prepare()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        taken.append((time.perf_counter_ns() - start) / calls)
    return sorted(taken)[int(0.1 * (len(taken) - 1) + 0.5)]


one, few, total = torch.ones(1), torch.ones(16), torch.zeros(16)
large = torch.randn(4096, 1024)
out = torch.zeros_like(large)
weight, bias = torch.rand(1024), torch.rand(1024)
a = torch.rand(1024, 1024)
h = a.to(torch.bfloat16)
leaf, large_leaf, weight_leaf, bias_leaf = (x.detach().requires_grad_() for x in (one, large, weight, bias))
NODES = 1000
chain = None


def build_chain():
    global chain
    with torch.enable_grad():
        chain = leaf
        for _ in range(NODES):
            chain = torch.add(chain, one)


def both_ways(forward, *leaves):
    def run():
        with torch.enable_grad():
            return torch.autograd.grad(forward(*leaves), leaves, out)

    return run


small = [
    lambda: torch.add(one, one),
    lambda: torch.add(few, few),
    lambda: total.add_(few),
    lambda: few.view(4, 4),
]
big = [
    lambda: torch.neg(large, out=out),
    lambda: torch.exp(large, out=out),
    lambda: torch.tanh(large, out=out),
    lambda: torch._C._nn.gelu(large, out=out),
    lambda: torch.softmax(large, -1),
    lambda: torch.nn.functional.layer_norm(large, (1024,), weight, bias, 1e-5),
    both_ways(torch.nn.functional.gelu, large_leaf),
    both_ways(lambda x: torch.softmax(x, -1), large_leaf),
    both_ways(lambda x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b, 1e-5), large_leaf, weight_leaf, bias_leaf),
    lambda: torch.sum(large),
    lambda: torch.matmul(a, a),
    lambda: torch.matmul(h, h),
]
for call in small:
    print(measure(call, 51, 2000))
with torch.enable_grad():  # outside of what is timed
    print(measure(lambda: torch.add(leaf, one), 51, 2000))
print(measure(lambda: torch.autograd.grad(chain, leaf), 51, 1, build_chain) / NODES)
for call in big:
    print(measure(call, 9, 1))
