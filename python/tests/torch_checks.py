# SPDX-License-Identifier: Apache-2.0
"""Checks of the backend of torch.distributed, run by the ranks of one job: test_torch_backend.py starts it.

Each check gets a group of its own and ends with a meeting of all ranks in the store, so that one that fails does not
disturb the next.  The last argument is the file for the results of rank 0, one line each: name, "ok" or the problem.
"""
import datetime
import json
import os
import signal
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist

FAR = datetime.timedelta(seconds=120)
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


def fails(words, call, kind=RuntimeError):
    try:
        call()
    except kind as error:
        assert words in str(error), (words, str(error))
        return str(error)
    raise AssertionError(f"nothing was raised, where {words!r} was expected")


def whole(me, value, dtype=torch.float32, count=1000):
    return torch.full((count,), value, dtype=dtype)


def check_all_reduce_dtypes(g, me, n):
    for dtype in FLOATS + INTS + [torch.uint16, torch.uint32, torch.uint64]:
        for asynchronous in (False, True):
            x = whole(me, me + 1, dtype)
            work = dist.all_reduce(x, group=g, async_op=asynchronous)
            if asynchronous:
                work.wait()
            assert x.tolist() == [n * (n + 1) // 2] * 1000, dtype


def check_reductions(g, me, n):
    op = dist.ReduceOp
    for kind, want in ((op.PRODUCT, [1, 2, 6, 24][n - 1]), (op.MIN, 1), (op.MAX, n), (op.AVG, (n + 1) / 2)):
        x = whole(me, me + 1.0)
        dist.all_reduce(x, kind, group=g)
        assert (x == want).all(), kind
    for kind, want in ((op.BAND, 0 if n > 1 else 1), (op.BOR, (1 << n) - 1), (op.BXOR, (1 << n) - 1)):
        x = whole(me, 1 << me, torch.int32)
        dist.all_reduce(x, kind, group=g)
        assert (x == want).all(), kind
    x = torch.tensor([me == 0, False, True])
    dist.all_reduce(x, op.BOR, group=g)
    assert x.tolist() == [True, False, True]


def check_premul(g, me, n):
    factor = dist._make_nccl_premul_sum(0.5)
    x = whole(me, 2.0 * (me + 1))
    dist.all_reduce(x, factor, group=g)
    assert (x == n * (n + 1) / 2).all()


def check_complex(g, me, n):
    for dtype in (torch.complex64, torch.complex128):
        x = torch.full((7,), complex(me, 1), dtype=dtype)
        dist.all_reduce(x, group=g)
        assert (x == complex(n * (n - 1) / 2, n)).all()
        out = [torch.empty(7, dtype=dtype) for _ in range(n)]
        dist.all_gather(out, torch.full((7,), complex(0, me), dtype=dtype), group=g)
        assert all((out[r] == complex(0, r)).all() for r in range(n))
    x = torch.ones(3, dtype=torch.complex64)
    fails("", lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=g), Exception)


def check_float8(g, me, n):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.full((9,), me + 1.0).to(dtype)
        dist.all_reduce(x, group=g)
        assert (x.float() == n * (n + 1) / 2).all()
    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):  # weft only moves them
        x = torch.full((9,), float(me)).to(dtype)
        dist.broadcast(x, n - 1, group=g)
        assert (x.float() == n - 1).all()
        fails("Invalid scalar type", lambda: dist.all_reduce(x, group=g))


def check_not_contiguous(g, me, n):
    base = torch.zeros(6, 8)
    x = base[:, ::2]
    x.fill_(me + 1)
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)
    pg.allreduce([x]).wait()
    assert (x == n * (n + 1) / 2).all() and (base[:, 1::2] == 0).all()
    channels = torch.full((2, 3, 4, 4), float(me)).to(memory_format=torch.channels_last)
    pg.broadcast([channels], dist.distributed_c10d.BroadcastOptions()).wait()
    assert (channels == 0).all() and channels.is_contiguous(memory_format=torch.channels_last)
    columns = torch.arange(12.0).view(3, 4).t() + 100 * me
    out = [torch.empty(3, 4).t() for _ in range(n)]
    pg.allgather([out], [columns]).wait()
    assert all((out[r] == torch.arange(12.0).view(3, 4).t() + 100 * r).all() for r in range(n))


def check_sizes(g, me, n):
    for count in (0, 1, 3, 1024, 100003, 1 << 20):
        x = torch.full((count,), float(me))
        dist.all_reduce(x, group=g)
        assert (x == n * (n - 1) / 2).all()
        dist.broadcast(x, 0, group=g, async_op=True).wait()
    x = torch.tensor(float(me))  # of no dimension
    dist.all_reduce(x, group=g)
    assert x.item() == n * (n - 1) / 2


def check_broadcast_reduce(g, me, n):
    for root in range(n):
        x = whole(me, me, torch.int64)
        dist.broadcast(x, root, group=g)
        assert (x == root).all()
        x = whole(me, me + 1.0)
        dist.reduce(x, root, group=g)
        assert (x == (n * (n + 1) / 2 if me == root else me + 1)).all()


def check_gathers(g, me, n):
    out = [torch.empty(2, 3) for _ in range(n)]
    dist.all_gather(out, torch.full((2, 3), float(me)), group=g)
    assert all((out[r] == r).all() for r in range(n))
    flat = torch.empty(n * 4)
    for asynchronous in (False, True):
        flat.zero_()
        work = dist.all_gather_into_tensor(flat, torch.full((4,), float(me)), group=g, async_op=asynchronous)
        if work:
            work.wait()
        assert flat.tolist() == [float(r) for r in range(n) for _ in range(4)]
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(n)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(me)), torch.full((3,), me + 10.0)], group=g)
    assert all((lists[r][0] == r).all() and (lists[r][1] == r + 10).all() for r in range(n))
    for root in range(n):
        got = [torch.empty(3) for _ in range(n)] if me == root else None
        dist.gather(torch.full((3,), float(me)), got, root, group=g)
        assert me != root or all((got[r] == r).all() for r in range(n))
        part = torch.empty(3)
        dist.scatter(part, [torch.full((3,), 10.0 * root + r) for r in range(n)] if me == root else None, root, group=g)
        assert (part == 10 * root + me).all()


def check_reduce_scatters(g, me, n):
    part = torch.empty(2)
    dist.reduce_scatter(part, [torch.full((2,), float(r)) for r in range(n)], group=g)
    assert (part == n * me).all()
    for asynchronous in (False, True):
        part.zero_()
        work = dist.reduce_scatter_tensor(part, torch.arange(2.0 * n), group=g, async_op=asynchronous)
        if work:
            work.wait()
        assert part.tolist() == [2 * me * n, (2 * me + 1) * n]
    outs, ins = [torch.empty(1), torch.empty(2)], [torch.arange(1.0 * n), torch.arange(2.0 * n)]
    with dist.distributed_c10d._coalescing_manager(group=g):
        for out, x in zip(outs, ins):
            dist.reduce_scatter_tensor(out, x, group=g)
    assert outs[0].tolist() == [me * n] and outs[1].tolist() == [2 * me * n, (2 * me + 1) * n]


def check_coalesced(g, me, n):
    xs = [torch.full((k,), float(me + k)) for k in (1, 5, 0, 1000)]
    dist.all_reduce_coalesced(xs, group=g)
    for k, x in zip((1, 5, 0, 1000), xs):
        assert (x == n * (n - 1) / 2 + n * k).all()
    x = torch.full((4,), float(me))
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)
    pg.allreduce_coalesced([x, x]).wait()  # the same tensor twice
    assert (x == n * (n - 1) / 2).all()
    out = [torch.empty(n), torch.empty(2 * n)]
    with dist.distributed_c10d._coalescing_manager(group=g):
        dist.all_gather_into_tensor(out[0], torch.full((1,), float(me)), group=g)
        dist.all_gather_into_tensor(out[1], torch.full((2,), float(me)), group=g)
    assert out[1].tolist() == [float(r) for r in range(n) for _ in range(2)]


def check_several_tensors(g, me, n):
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)
    xs = [torch.full((3,), float(2 * me + i)) for i in range(2)]
    pg.allreduce(xs).wait()
    assert all((x == n * (2 * n - 1)).all() for x in xs)
    xs = [torch.full((3,), float(10 * me + i)) for i in range(2)]
    opts = dist.distributed_c10d.BroadcastOptions()
    opts.rootRank, opts.rootTensor = n - 1, 1
    pg.broadcast(xs, opts).wait()
    assert all((x == 10 * (n - 1) + 1).all() for x in xs)
    outs = [[torch.empty(3) for _ in range(2 * n)] for _ in range(2)]
    pg.allgather(outs, [torch.full((3,), 2.0 * me + i) for i in range(2)]).wait()
    assert all((out[k] == k).all() for out in outs for k in range(2 * n))


def check_all_to_all(g, me, n):
    out = torch.empty(n)
    dist.all_to_all_single(out, torch.arange(n) + 10.0 * me, group=g)
    assert out.tolist() == [10.0 * r + me for r in range(n)]
    rows = torch.full((sum(range(1, n + 1)), 2), float(me))  # r + 1 rows for rank r
    out = torch.empty((me + 1) * n, 2)
    dist.all_to_all_single(out, rows, [me + 1] * n, [r + 1 for r in range(n)], group=g)
    assert out[:, 0].tolist() == [float(r) for r in range(n) for _ in range(me + 1)]
    outs = [torch.empty(me + 1, dtype=torch.int32) for _ in range(n)]
    dist.all_to_all(outs, [torch.full((r + 1,), 10 * me + r, dtype=torch.int32) for r in range(n)], group=g)
    assert all((outs[r] == 10 * r + me).all() for r in range(n))


def check_messages(g, me, n):
    if n == 1:
        return
    after, before = (me + 1) % n, (me - 1) % n
    x, y = torch.full((5,), float(me)), torch.empty(5)
    works = [dist.isend(x, after, group=g), dist.irecv(y, before, group=g)]
    for work in works:
        work.wait()
    assert (y == before).all()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after, g), dist.P2POp(dist.irecv, y, before, g)]):
        work.wait()
    if me == 0:
        seen = set()
        for _ in range(n - 1):
            y = torch.empty(1)
            source = dist.recv(y, group=g)
            assert y.item() == source
            seen.add(source)
        assert seen == set(range(1, n))
        for r in range(1, n):  # by tag, in another order than sent
            a, b = torch.empty(1), torch.empty(1)
            dist.recv(b, r, group=g, tag=2)
            dist.recv(a, r, group=g, tag=1)
            assert (a.item(), b.item()) == (1, 2)
    else:
        dist.send(torch.tensor([float(me)]), 0, group=g)
        works = [dist.isend(torch.tensor([float(tag)]), 0, group=g, tag=tag) for tag in (1, 2)]
        for work in works:
            work.wait()
    odd = torch.zeros(4, 4).t()[1:]  # not contiguous
    if me == 1:
        dist.send(torch.full((3, 4), 7.0), 0, group=g)
    elif me == 0:
        pg = dist.distributed_c10d._resolve_process_group(g.group_name)
        pg.recv([odd], 1, 0).wait()
        assert (odd == 7).all()


def check_message_waited_for(g, me, n):
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)
    work = pg.recv([torch.empty(3)], (me + 1) % n, 77)
    assert not work.is_completed()
    fails("Timed out waiting", lambda: work.wait(datetime.timedelta(milliseconds=50)))
    assert not work.is_completed()  # the wait has ended, not the receive: the end of the group ends it


def check_futures(g, me, n):
    x = whole(me, me + 1.0)
    future = dist.all_reduce(x, group=g, async_op=True).get_future()
    after = future.then(lambda f: f.value()[0].sum().item())
    assert after.wait() == 1000 * n * (n + 1) / 2
    futures = [dist.all_reduce(torch.full((1 << k,), 1.0), group=g, async_op=True).get_future() for k in range(18)]
    for k, f in enumerate(futures):
        f.wait()
        assert (f.value()[0] == n).all(), k

    def nested(f):  # waits for another in the callback of the first
        y = torch.ones(4)
        return dist.all_reduce(y, group=g, async_op=True).get_future().wait()[0]

    inner = dist.all_reduce(torch.ones(1 << 16), group=g, async_op=True).get_future().then(nested)
    assert (inner.wait() == n).all()


def check_future_fails(g, me, n):
    if n == 1:
        return
    x = torch.ones(3 + me)  # other ranks have other sizes
    future = dist.all_reduce(x, group=g, async_op=True).get_future()
    fails("all_reduce", future.wait)


def check_dropped_work(g, me, n):
    """Work that nobody waits for goes on, and its operands live as long."""
    for _ in range(50):
        dist.all_reduce(torch.ones(10000), group=g, async_op=True)
    base = torch.full((100, 2), float(me + 1))
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)
    pg.allreduce([base[:, 0]])  # copied back though it is dropped
    dist.barrier(group=g)
    deadline = time.time() + 60
    while (base[:, 0] != n * (n + 1) / 2).any() and time.time() < deadline:
        time.sleep(0.01)
    assert (base[:, 0] == n * (n + 1) / 2).all() and (base[:, 1] == me + 1).all()


def check_order(g, me, n):
    """Posted and synchronous calls keep their order."""
    x = torch.ones(100)
    works = [dist.all_reduce(x, group=g, async_op=True)]
    dist.all_reduce(x, group=g)
    works.append(dist.all_reduce(x, group=g, async_op=True))
    for work in works:
        work.wait()
    assert (x == n ** 3).all()


def check_autograd_threads(g, me, n):
    """Calls from the threads of autograd, while this one waits with the GIL released."""
    results = []

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            grad = grad.clone()
            dist.all_reduce(grad, group=g)
            results.append(threading.current_thread().name)
            return grad

    x = torch.ones(5, requires_grad=True)
    Sum.apply(x).sum().backward()
    assert (x.grad == n).all() and results


def check_gil_is_free(g, me, n):
    if n == 1:
        return
    ticks = []

    def tick():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.01)

    stop = threading.Event()
    thread = threading.Thread(target=tick)
    if me == 0:
        thread.start()
        before = len(ticks)
        dist.barrier(group=g)  # the others come late
        assert len(ticks) - before >= 3, len(ticks)
        stop.set()
        thread.join()
    else:
        time.sleep(1)
        dist.barrier(group=g)


def check_limits(g, me, n):
    if n == 1:
        return
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)
    opts = dist.distributed_c10d.AllreduceOptions()
    opts.timeout = datetime.timedelta(milliseconds=100)
    if me == 0:
        for asynchronous in (True, False):
            if hasattr(opts, "asyncOp"):
                opts.asyncOp = asynchronous
            text = fails("Timed out waiting 100ms", lambda: (pg.allreduce([torch.ones(3)], opts) or pg).wait())
            assert "rank 1" in text, text
            break  # an operation that broke off has ended the group
    time.sleep(0)


def check_group_timeout(g, me, n):
    if n == 1:
        return
    short = dist.new_group(list(range(n)), timeout=datetime.timedelta(milliseconds=300), backend="weft")
    if me == 0:
        fails("Timed out waiting 300ms", lambda: dist.all_reduce(torch.ones(2), group=short))


def check_mismatch(g, me, n):
    if n == 1:
        return
    text = fails("[weft]", lambda: dist.all_reduce(torch.ones(2 + me), group=g), dist.DistBackendError)
    assert "rank" in text, text


def check_monitored_barrier(g, me, n):
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)  # dist has it for Gloo alone, before 2.15
    pg.monitored_barrier(datetime.timedelta(seconds=60))
    pg.monitored_barrier(datetime.timedelta(seconds=60), wait_all_ranks=True)
    if n == 1 or me == n - 1:
        return
    words = f"Rank {n - 1} failed to pass monitoredBarrier in 300 ms" if me == 0 else \
        f"Rank {me} successfully reached monitoredBarrier"
    fails(words, lambda: pg.monitored_barrier(datetime.timedelta(milliseconds=300)))


def check_abort(g, me, n):
    if n == 1:
        return
    backend = dist.distributed_c10d._resolve_process_group(g.group_name)._get_backend(torch.device("cpu"))
    if me == 0:
        threading.Timer(0.3, backend.abort).start()
        fails("revoked", lambda: dist.all_reduce(torch.ones(3), group=g))
    elif me == 1:
        time.sleep(0.6)
        fails("revoked", lambda: dist.all_reduce(torch.ones(3), group=g))


def check_split(g, me, n):
    half = [r for r in range(n) if r % 2 == me % 2]
    backend = dist.distributed_c10d._resolve_process_group(g.group_name)._get_backend(torch.device("cpu"))
    if not hasattr(backend, "supports_splitting") or not backend.supports_splitting:
        return
    evens = dist.new_subgroups_by_enumeration([[r for r in range(n) if r % 2 == p] for p in range(min(2, n))],
                                              backend="weft")[0]
    x = torch.ones(2)
    dist.all_reduce(x, group=evens)
    assert (x == len(half)).all()


def check_sparse(g, me, n):
    x = torch.sparse_coo_tensor([[0, me], [1, 2]], [1.0, me + 1.0], (max(n, 2), 3))
    want = torch.zeros(max(n, 2), 3)
    for r in range(n):
        want += torch.sparse_coo_tensor([[0, r], [1, 2]], [1.0, r + 1.0], (max(n, 2), 3)).to_dense()
    dist.all_reduce(x, group=g)
    assert (x.to_dense() == want).all()
    x = torch.sparse_coo_tensor([[me]], torch.full((1, 4), 2.0), (n, 4))  # rows of values
    work = dist.all_reduce(x, group=g, async_op=True)
    assert (work.get_future().wait()[0].to_dense() == 2).all()
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0), (5,))
    dist.all_reduce(empty, group=g)
    assert empty._nnz() == 0
    fails("only SUM", lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=g))


def check_bad_operands(g, me, n):
    pg = dist.distributed_c10d._resolve_process_group(g.group_name)
    fails("non-empty", lambda: pg.allreduce([], dist.distributed_c10d.AllreduceOptions()))
    opts = dist.distributed_c10d.BroadcastOptions()
    opts.rootRank = 99
    fails("invalid root", lambda: pg.broadcast([torch.ones(2)], opts))
    fails("same type", lambda: dist.all_gather_into_tensor(torch.empty(n), torch.ones(1, dtype=torch.int32), group=g),
          Exception)
    fails("same size", lambda: dist.reduce_scatter_tensor(torch.empty(3), torch.ones(n), group=g), Exception)
    fails("doesn't match", lambda: dist.all_to_all_single(torch.empty(n), torch.ones(n), [5] * n, [5] * n, group=g))
    x = torch.ones(2)
    dist.all_reduce(x, group=g)  # nothing of that has disturbed the group
    assert (x == n).all()


def check_objects(g, me, n):
    out = [None] * n
    dist.all_gather_object(out, {"rank": me, "text": "x" * (me + 1)}, group=g)
    assert out == [{"rank": r, "text": "x" * (r + 1)} for r in range(n)]
    box = [me, None] if me == 0 else [None, None]
    dist.broadcast_object_list(box, 0, group=g)
    assert box == [0, None]


def check_functional(g, me, n):
    import torch.distributed._functional_collectives as fc

    x = torch.full((4,), float(me))
    assert (fc.all_reduce(x, "sum", g) == n * (n - 1) / 2).all()
    assert fc.all_gather_tensor(x, 0, g)[::4].tolist() == [float(r) for r in range(n)]
    assert (fc.reduce_scatter_tensor(torch.ones(2 * n), "sum", 0, g) == n).all()


def check_profile(g, me, n):
    from torch.autograd import profiler

    with profiler.profile() as p:
        dist.all_reduce(torch.ones(3), group=g)
        dist.all_reduce(torch.ones(3), group=g, async_op=True).wait()
        dist.broadcast(torch.ones(3), 0, group=g, async_op=True).wait()
    names = [e.name for e in p.function_events]
    assert names.count("weft:all_reduce") == 2 and "weft:broadcast" in names, names


def check_many_groups(g, me, n):
    """Groups come and go, and leave nothing open."""
    def turn():
        group = dist.new_group(list(range(n)), backend="weft", timeout=FAR)
        x = torch.ones(3)
        dist.all_reduce(x, group=group)
        dist.destroy_process_group(group)

    turn()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        turn()
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def check_interrupt(g, me, n):
    """Ctrl-C ends a wait soon.  The group is used no more after it."""
    if n == 1:
        return
    if me == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.time()
        fails("", lambda: dist.all_reduce(torch.ones(3), group=g), KeyboardInterrupt)
        assert time.time() - begin < 30


def main():
    dist.init_process_group("weft", timeout=FAR)
    me, n = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    checks = [(name, f) for name, f in globals().items() if name.startswith("check_")]
    if len(sys.argv) > 2:
        checks = [c for c in checks if c[0] in sys.argv[2:]]
    for name, check in checks:
        problem = "ok"
        try:
            group = dist.new_group(list(range(n)), timeout=FAR, backend="weft", group_desc=name)
            check(group, me, n)
        except BaseException:
            problem = f"rank {me}: " + traceback.format_exc()
        store.set(f"{name}/{me}", problem)
        all_of_them = [store.get(f"{name}/{r}").decode() for r in range(n)]
        if me == 0:
            bad = [p for p in all_of_them if p != "ok"]
            with open(sys.argv[1], "a") as out:
                out.write(json.dumps([name, "\n".join(bad) or "ok"]) + "\n")
        store.add(f"{name}/read", 1)
        while int(store.add(f"{name}/read", 0)) < n:
            time.sleep(0.002)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
