# SPDX-License-Identifier: Apache-2.0
# The network of 04_mlp.c in PyTorch, trained by all ranks: each has a part of the batch, and DDP averages the gradients
# over weft.  Run: python -m weft run -n 4 04_mlp.py
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("weft")
me, n = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1234)  # the same everywhere
net = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
x, label = torch.rand(64, 784), torch.randint(10, (64,))
x, label = x.chunk(n)[me], label.chunk(n)[me]

model = DistributedDataParallel(net)
adam = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(51):
    loss = F.cross_entropy(model(x), label)
    loss.backward()
    adam.step()
    adam.zero_grad()
    if step % 10 == 0:
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if me == 0:
            print(f"step {step}: loss {mean.item():.4f}")
dist.destroy_process_group()
