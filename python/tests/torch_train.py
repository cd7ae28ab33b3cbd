# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with PyTorch's own patterns over Gloo and over weft: the losses have the same bits.

The argument is the file for the results of rank 0: the pattern, whether the bits are equal, milliseconds a step of both.
"""
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, STEPS = 32, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def model():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 1))


def ddp(group, mesh):
    return DistributedDataParallel(model(), process_group=group)


def fsdp(group, mesh):
    m = model()
    for block in m[:2]:
        fully_shard(block, mesh=mesh)
    return fully_shard(m, mesh=mesh)


def tensor_parallel(group, mesh):
    m = model()
    for block in m[:2]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return m


def compiled(group, mesh):
    return torch.compile(DistributedDataParallel(model(), process_group=group), backend="aot_eager")


def losses(m, seed):
    optimizer = torch.optim.SGD(m.parameters(), 0.01)
    data = torch.Generator().manual_seed(seed)
    values, best = [], float("inf")
    for _ in range(STEPS):
        begin = time.perf_counter()
        x = torch.randn(16, WIDTH, generator=data)
        loss = (m(x) - x.mean(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        best = min(best, time.perf_counter() - begin)
        values.append(loss.item())
    return values, best * 1e3


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = {name: dist.new_group(list(range(size)), backend=name) for name in ("gloo", "weft")}
    meshes = {name: DeviceMesh.from_group(group, "cpu") for name, group in groups.items()}
    patterns = [p for p in (ddp, fsdp, tensor_parallel, compiled) if len(sys.argv) < 3 or p.__name__ in sys.argv[2:]]
    for pattern in patterns:
        got = {name: losses(pattern(groups[name], meshes[name]), 0 if pattern is tensor_parallel else rank)
               for name in groups}
        if rank == 0:
            with open(sys.argv[1], "a") as out:
                out.write(json.dumps([pattern.__name__, {name: v for name, (v, _) in got.items()},
                                      {name: ms for name, (_, ms) in got.items()}]) + "\n")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
