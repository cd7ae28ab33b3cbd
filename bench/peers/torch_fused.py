#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fused products beside `weft bench fused --device cuda`, ranks as processes on one GPU.

    torch_fused.py [RANKS [MxNxK]]      2 and 4096x8192x8192; the slowest rank's median of a call

Each operation, the product alone and the two calls one after the other take turns, as weft's do.  The pair gathers and
scatters through symmetric memory, since NCCL does not take two ranks of one GPU.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing as processes

TURNS, CALLS = 11, 8


def turn(call):
    torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3 / CALLS


def slowest(value):
    seen = [None] * dist.get_world_size()
    dist.all_gather_object(seen, value)
    return max(seen)


def agree(fine):
    """Whether all ranks can do it: who cannot must not leave the others waiting."""
    seen = [None] * dist.get_world_size()
    dist.all_gather_object(seen, fine)
    return next((reason for reason in seen if reason), None)


def attempt(call):
    try:
        call()
        torch.cuda.synchronize()
        return None
    except Exception as error:  # an operation that this version does not have, or refuses
        return f'{type(error).__name__}: {str(error).splitlines()[0][:100]}'


def compare(title, calls):
    """calls: 'product' first, then what is compared with it."""
    able = {}
    for name, call in calls.items():
        reason = agree(attempt(call))
        if reason is None:
            able[name] = call
        elif dist.get_rank() == 0:
            print(f'  torch {title:10} {name:8} not measured: {reason}', flush=True)
    took = {name: [] for name in able}
    for k in range(-1, TURNS):
        for name, call in able.items():
            ms = turn(call)
            if k >= 0:
                took[name].append(ms)
    medians = {name: slowest(statistics.median(values)) for name, values in took.items()}
    for name, ms in medians.items():
        share = f'{100 * medians["product"] / ms:6.1f} % of the product' if 'product' in medians else ''
        if dist.get_rank() == 0:
            print(f'  torch {title:10} {name:8} {ms:9.4f} ms {share}', flush=True)


def gather_by_symm(shard, ranks, group):
    """All shards, read from everybody's symmetric memory."""
    mem = symm_mem.rendezvous(shard, group)
    out = torch.empty((shard.shape[0] * ranks, shard.shape[1]), dtype=shard.dtype, device='cuda')

    def call():
        mem.barrier(channel=0)
        for step in range(ranks):
            peer = (mem.rank + step) % ranks
            out[peer * shard.shape[0]:(peer + 1) * shard.shape[0]].copy_(
                mem.get_buffer(peer, shard.shape, shard.dtype))
        mem.barrier(channel=1)
        return out
    return call


def scatter_by_symm(shape, ranks, group):
    whole = symm_mem.empty(*shape, dtype=torch.bfloat16, device='cuda')
    symm_mem.rendezvous(whole, group)
    part = torch.empty((shape[0] // ranks, shape[1]), dtype=torch.bfloat16, device='cuda')

    def call(product):
        whole.copy_(product)
        return torch.ops.symm_mem.reduce_scatter_out(whole.view(-1), group, False, part.view(-1))
    return call


def symmetric(x, group):
    shared = symm_mem.empty(*x.shape, dtype=x.dtype, device='cuda')
    shared.copy_(x)
    symm_mem.rendezvous(shared, group)
    return shared


def plain(ranks, m, n, k, group):
    shard = torch.rand(m // ranks, k, device='cuda').bfloat16()
    a, b = torch.rand(m, k, device='cuda').bfloat16(), torch.rand(k, n, device='cuda').bfloat16()
    ops = torch.ops.symm_mem
    gathered = gather_by_symm(symmetric(shard, group), ranks, group)
    scatter = scatter_by_symm((m, n), ranks, group)
    compare('bf16', {
        'product': lambda: a @ b,
        'gather': lambda: ops.fused_all_gather_matmul(shard, [b], 0, group),
        'pair ag': lambda: gathered() @ b,
        'scatter': lambda: ops.fused_matmul_reduce_scatter(a, b, 'sum', 0, group),
        'pair rs': lambda: scatter(a @ b)})


def scaled_scatter(a, b, a_scale, b_scale, group):
    """Its arguments changed between versions: the scatter dimension before and after a view."""
    op = torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter
    names = [argument.name for argument in op.default._schema.arguments]
    if 'orig_scatter_dim' in names:
        return lambda: op(a, b, a_scale, b_scale, 'sum', 0, 0, group, [a.shape[0], b.shape[1]],
                          out_dtype=torch.bfloat16)
    return lambda: op(a, b, a_scale, b_scale, 'sum', 0, group, out_dtype=torch.bfloat16)


def scaled(ranks, m, n, k, group, rows):
    def small(*shape):
        return torch.rand(*shape, device='cuda').to(torch.float8_e4m3fn)

    def scale(*shape):
        return torch.full(shape if rows else (), 0.5, device='cuda')
    shard, a, b = small(m // ranks, k), small(m, k), small(n, k).t()
    of_shard, of_a, of_b = scale(m // ranks, 1), scale(m, 1), scale(1, n)
    gather = torch.ops.symm_mem.fused_all_gather_scaled_matmul
    compare('fp8 rows' if rows else 'fp8', {
        'product': lambda: torch._scaled_mm(a, b, scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16),
        'gather': lambda: gather(shard, [b], of_shard, [of_b], 0, group, [None], [None], [torch.bfloat16], [False]),
        'scatter': scaled_scatter(a, b, of_a, of_b, group)})


def be_rank(rank, ranks, shape):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29733', RANK=str(rank), WORLD_SIZE=str(ranks),
                      TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES='1')
    torch.cuda.set_device(0)
    dist.init_process_group('gloo', rank=rank, world_size=ranks)
    group = dist.group.WORLD.group_name
    symm_mem.enable_symm_mem_for_group(group)
    m, n, k = (int(word) for word in shape.split('x'))
    plain(ranks, m, n, k, group)
    scaled(ranks, m, n, k, group, False)
    scaled(ranks, m, n, k, group, True)
    dist.destroy_process_group()


if __name__ == '__main__':
    wanted = sys.argv[1:] + ['2', '4096x8192x8192'][len(sys.argv) - 1:]
    print(f'torch {torch.__version__}, {wanted[1]}, {wanted[0]} ranks', flush=True)
    processes.spawn(be_rank, (int(wanted[0]), wanted[1]), int(wanted[0]))
