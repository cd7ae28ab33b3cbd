#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's symmetric memory beside `weft bench --device cuda`: all_reduce, ranks as processes on one GPU.

    torch_symm.py RANKS [SIZE ...]      bytes; prints eager and replayed microseconds, the slowest rank's median
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing as processes

REPEATS, WARMUP = 9, 2


def calls_of(size):
    return min(200, max(8, (256 << 20) // (size + 1)))


def meet():
    torch.cuda.synchronize()
    dist.barrier()


def timed(body, calls):
    took = []
    for k in range(-WARMUP, REPEATS):
        meet()
        start = time.perf_counter()
        body()
        torch.cuda.synchronize()
        if k >= 0:
            took.append((time.perf_counter() - start) * 1e6 / calls)
    return statistics.median(took)


def measure(call, calls):
    def loop():
        for _ in range(calls):
            call()
    loop()
    eager = timed(loop, calls)
    graph = torch.cuda.CUDAGraph()
    meet()
    with torch.cuda.graph(graph):
        loop()
    return eager, timed(graph.replay, calls)


def slowest(value):
    seen = [None] * dist.get_world_size()
    dist.all_gather_object(seen, value)
    return max(seen)


def be_rank(rank, ranks, sizes):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29731', RANK=str(rank), WORLD_SIZE=str(ranks),
                      TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES='1')
    torch.cuda.set_device(0)
    dist.init_process_group('gloo', rank=rank, world_size=ranks)
    name = dist.group.WORLD.group_name
    symm_mem.enable_symm_mem_for_group(name)
    ops = torch.ops.symm_mem
    for size in sizes:
        x = symm_mem.empty(size // 2, dtype=torch.bfloat16, device='cuda').fill_(0)
        symm_mem.rendezvous(x, name)
        calls = calls_of(size)
        ways = {'two-shot': lambda: ops.two_shot_all_reduce_(x, 'sum', name)}
        if size <= 64 << 20:
            ways['one-shot'] = lambda: ops.one_shot_all_reduce(x, 'sum', name)
        for way, call in ways.items():
            eager, replayed = (slowest(value) for value in measure(call, calls))
            if rank == 0:
                print(f'  torch {way:9} {size:>10} bytes, {ranks} ranks: eager {eager:8.2f} us, replayed {replayed:8.2f} us',
                      flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    wanted = [int(word) for word in sys.argv[2:]] or [4096 << (2 * i) for i in range(9)]
    processes.spawn(be_rank, (int(sys.argv[1]), wanted), int(sys.argv[1]))
