# SPDX-License-Identifier: Apache-2.0
"""Checks of PyTorch's symmetric memory on CPU tensors, run as those of torch_checks.py are, by test_torch_symm.py."""
import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import torch_checks
from torch_checks import fails


def filled(g, value, *shape, dtype=torch.float32):
    x = symm_mem.empty(*shape, dtype=dtype, device="cpu")
    x.fill_(value)
    return x, symm_mem.rendezvous(x, g)


def check_rendezvous(g, me, n):
    x, handle = filled(g, me, 64)
    assert (handle.rank, handle.world_size) == (me, n) and handle.buffer_size >= 256
    handle.barrier()
    for r in range(n):
        assert (handle.get_buffer(r, (64,), torch.float32) == r).all()
    handle.barrier()
    assert symm_mem.rendezvous(x, g) is not None  # the same handle again, without the others


def check_peers_write(g, me, n):
    x, handle = filled(g, -1, n, 4)
    handle.barrier()
    for r in range(n):
        handle.get_buffer(r, (n, 4), torch.float32)[me] = me
    handle.barrier()
    assert all((x[r] == r).all() for r in range(n))


def check_offsets(g, me, n):
    x, handle = filled(g, me, 8, 8)
    handle.barrier()
    peer = (me + 1) % n
    assert (handle.get_buffer(peer, (2, 8), torch.float32, 16) == peer).all()
    fails("", lambda: handle.get_buffer(peer, (1000, 8), torch.float32), Exception)


def check_signals(g, me, n):
    x, handle = filled(g, 0, 16)
    handle.barrier(channel=1)
    for turn in range(3):
        if n > 1:
            handle.put_signal(dst_rank=(me + 1) % n, channel=0)
            handle.wait_signal(src_rank=(me - 1) % n, channel=0)
    handle.barrier(channel=1)
    if n > 1 and me == 0:
        fails("Timed out waiting", lambda: handle.wait_signal(src_rank=1, channel=0, timeout_ms=100))


def check_sums(g, me, n):
    ops, name = torch.ops.symm_mem, g.group_name
    for dtype in (torch.float32, torch.bfloat16):
        x, handle = filled(g, me + 1, 1000, dtype=dtype)
        want = n * (n + 1) / 2
        handle.barrier()
        assert (ops.one_shot_all_reduce(x, "sum", name) == want).all()
        out = torch.empty(1000, dtype=dtype)
        ops.one_shot_all_reduce_out(x, "sum", name, out)
        assert (out == want).all()
        assert (ops.one_shot_all_reduce_copy(x, torch.full((1000,), me + 1.0, dtype=dtype), "sum", name) == want).all()
        x.fill_(me + 1)
        handle.barrier()
        assert (ops.multimem_one_shot_all_reduce(x, "sum", name) == want).all()
        handle.barrier()
        ops.two_shot_all_reduce_(x, "sum", name)
        assert (x == want).all()
        handle.barrier()
        x.fill_(me + 1)
        handle.barrier()
        ops.multimem_all_reduce_(x, "sum", name)
        assert (x == want).all()


def check_reduce_scatter(g, me, n):
    x, handle = filled(g, me + 1, 4, 8 * n)
    handle.barrier()
    out = torch.empty(4, 8)
    torch.ops.symm_mem.reduce_scatter_out(x, g.group_name, True, out)
    assert (out == n * (n + 1) / 2).all()


def check_gather(g, me, n):
    x, handle = filled(g, 0, 5 * n)
    torch.ops.symm_mem.multimem_all_gather_out(torch.full((5,), float(me)), g.group_name, x)
    assert all((x[5 * r:5 * r + 5] == r).all() for r in range(n))


def check_ordinary_refused(g, me, n):
    fails("symmetric memory", lambda: torch.ops.symm_mem.one_shot_all_reduce(torch.ones(4), "sum", g.group_name))
    x, handle = filled(g, 1, 4)
    fails("", lambda: torch.ops.symm_mem.one_shot_all_reduce(x, "median", g.group_name), Exception)
    fails("", lambda: torch.ops.symm_mem.one_shot_all_reduce(x, "sum", "no such group"), Exception)


def check_collectives_on_it(g, me, n):
    """Plain collectives take these tensors as any other."""
    x, handle = filled(g, me + 1, 1 << 18)
    dist.all_reduce(x, group=g)
    assert (x == n * (n + 1) / 2).all()


def check_two_groups(g, me, n):
    other = dist.new_group(list(range(n)), backend="weft", timeout=torch_checks.FAR)
    x = symm_mem.empty(32, device="cpu").fill_(me)
    a, b = symm_mem.rendezvous(x, g), symm_mem.rendezvous(x, other)
    a.barrier()
    b.barrier()
    assert (b.get_buffer((me + 1) % n, (32,), torch.float32) == (me + 1) % n).all()
    a.barrier()
    dist.destroy_process_group(other)


def check_hosts(g, me, n):
    """Memory of another host has no address here: a sentence, and no tensor at address 0."""
    if n == 1:
        return
    os.environ["WEFT_HOST_ID"] = f"pretended{me}"
    try:
        other = dist.new_group(list(range(n)), backend="weft", timeout=torch_checks.FAR)
    finally:
        del os.environ["WEFT_HOST_ID"]
    x = symm_mem.empty(32, device="cpu").fill_(me)
    handle = symm_mem.rendezvous(x, other)
    handle.barrier()
    fails("is on another host", lambda: handle.get_buffer((me + 1) % n, (32,), torch.float32))
    fails("is on another host", lambda: handle.buffer_ptrs)
    fails("is on another host", lambda: handle.get_signal_pad((me + 1) % n))
    handle.barrier()
    dist.destroy_process_group(other)


def check_persistent(g, me, n):
    def empty():
        return torch._C._distributed_c10d._SymmetricMemory.empty_strided_p2p(
            (16,), (1,), torch.float32, torch.device("cpu"), g.group_name, 4711)

    x = empty()
    where = x.data_ptr()
    fails("", empty, Exception)  # still in use
    del x
    gc.collect()
    assert empty().data_ptr() == where


def check_freed(g, me, n):
    """Memory comes back: a hundred blocks of 8 MiB do not pile up."""
    for _ in range(100):
        x = symm_mem.empty(2 << 20, device="cpu")
        x[0] = 1
        del x
    with open("/proc/self/status") as status:
        shared = [int(line.split()[1]) for line in status if line.startswith("RssShmem")]
    assert shared[0] < 400 << 10


if __name__ == "__main__":
    for name in [name for name in vars(torch_checks) if name.startswith("check_")]:
        delattr(torch_checks, name)
    vars(torch_checks).update({name: f for name, f in globals().items() if name.startswith("check_")})
    torch_checks.main()
