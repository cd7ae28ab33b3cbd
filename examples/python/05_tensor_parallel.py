# SPDX-License-Identifier: Apache-2.0
# 05_tensor_parallel.c in PyTorch: a layer pair cut over the ranks by PyTorch's own tensor parallelism, on weft.  It prints
# what ../05_tensor_parallel.py prints, which computes all ranks in one process.
# Run: python -m weft run -n 2 05_tensor_parallel.py
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import weft_random as weft  # noqa: E402

dist.init_process_group("weft")
rank, n = dist.get_rank(), dist.get_world_size()

weft.seed(7)
x = weft.normal((32, 256))
parts = []
for part in range(n):
    weft.seed(100 + part)
    parts.append((weft.linear(256, 1024 // n, False), weft.linear(1024 // n, 256, False)))
net = torch.nn.Sequential(torch.nn.Linear(256, 1024, False), torch.nn.GELU(), torch.nn.Linear(1024, 256, False))
with torch.no_grad():
    net[0].weight.copy_(torch.cat([up.weight for up, _ in parts]))
    net[2].weight.copy_(torch.cat([down.weight for _, down in parts], 1))
mesh = init_device_mesh("cpu", (n,))
parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

sgd = torch.optim.SGD(net.parameters(), 5)
for step in range(4):
    y = net(x)
    loss = (y * y).mean()
    loss.backward()
    gradient = net[0].weight.grad.to_local()[0, 0].item()
    print(f"rank {rank}: step {step}: loss {loss.item():.5f}, gradient {gradient:.4e}")
    sgd.step()
    sgd.zero_grad()
dist.destroy_process_group()
