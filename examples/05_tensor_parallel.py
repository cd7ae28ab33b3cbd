# SPDX-License-Identifier: Apache-2.0
# 05_tensor_parallel.c in PyTorch, all ranks (RANKS, 2) in one process; prints the same.
import os

import torch
import torch.nn.functional as F

import weft_random as weft

n = int(os.environ.get("RANKS", 2))
weft.seed(7)
x = weft.normal((32, 256))
parts = []
for rank in range(n):
    weft.seed(100 + rank)
    parts.append(torch.nn.ModuleList([weft.linear(256, 1024 // n, False), weft.linear(1024 // n, 256, False)]))
sgd = torch.optim.SGD([p for part in parts for p in part.parameters()], 5)
for step in range(4):
    y = sum(down(F.gelu(up(x))) for up, down in parts)
    loss = (y * y).mean()
    loss.backward()
    for rank, (up, down) in enumerate(parts):
        print(f"rank {rank}: step {step}: loss {loss.item():.5f}, gradient {up.weight.grad[0, 0].item():.4e}")
    sgd.step()
    sgd.zero_grad()
