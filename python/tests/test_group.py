# SPDX-License-Identifier: Apache-2.0
"""Every method of groups, of works and of symmetric memory, between ranks."""
import pytest


@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives(ranks, size):
    ranks(size, """
        x = np.full(1000, me + 1, np.float32)
        assert world.all_reduce(x) is x and (x == n * (n + 1) / 2).all()
        y = np.empty(1000, np.float32)
        assert world.all_reduce(np.full(1000, me, np.float32), "max", out=y) is y and (y == n - 1).all()
        for root in range(n):
            x[:] = me
            world.broadcast(x, root); assert (x == root).all()
            out = np.zeros((n, 5)) if me == root else None
            world.gather(out, np.full(5, float(me)), root)
            assert me != root or (out == np.arange(n)[:, None]).all()
            part = np.zeros(3)
            world.scatter(part, np.arange(3.0 * n) if me == root else None, root)
            assert part.tolist() == [3 * me, 3 * me + 1, 3 * me + 2]
            z = np.full(4, me + 1)
            world.reduce(z, root, "product")
            assert me != root or (z == np.prod(np.arange(1, n + 1))).all()
        out = np.zeros((n, 3)); world.all_gather(out, np.full(3, float(me)))
        assert (out == np.arange(n)[:, None]).all()
        out = np.zeros(3); world.reduce_scatter(out, np.arange(3.0 * n))
        assert (out == n * np.arange(3 * me, 3 * me + 3)).all()
        out = np.zeros(n); world.all_to_all(out, np.arange(n) + 10.0 * me)
        assert (out == 10 * np.arange(n) + me).all()
        world.barrier(); world.barrier(timeout=30); world.monitored_barrier(30)
        assert world.sequence > 0 and world.ranks == list(range(n)) and world.name == "0"
    """)


def test_lists(ranks):
    ranks(3, """
        outs = [np.zeros(r + 1) for r in range(n)]
        assert world.all_gather(outs, np.full(me + 1, float(me))) is outs
        assert [o.tolist() for o in outs] == [[0], [1, 1], [2, 2, 2]]
        got = [np.zeros(r + 1) for r in range(n)] if me == 1 else None
        world.gather(got, np.full(me + 1, float(me)), 1, parts=True)
        assert me != 1 or [o.tolist() for o in got] == [[0], [1, 1], [2, 2, 2]]
        part = np.zeros(me + 1)
        world.scatter(part, [np.full(r + 1, 5.0 + r) for r in range(n)] if me == 2 else None, 2, parts=True)
        assert part.tolist() == [5.0 + me] * (me + 1)
        part = np.zeros(2)
        world.reduce_scatter(part, [np.full(2, float(r)) for r in range(n)])
        assert part.tolist() == [3.0 * me] * 2
        outs = [np.zeros(q + 1) for q in range(n)]
        world.all_to_all(outs, [np.full(me + 1, 10.0 * me + q) for q in range(n)])
        assert [o[0] for o in outs] == [10 * q + me for q in range(n)]
        raises(TypeError, lambda: world.all_to_all(outs, np.zeros(3)), "two lists")
        raises(TypeError, lambda: world.gather(np.zeros(3), np.zeros(1), me, parts=True), "gives a list")
    """)


def test_splits(ranks):
    ranks(2, """
        rows = np.arange(8.0).reshape(4, 2) + 100 * me
        mine = [1, 3]  # rows to rank 0, to rank 1
        take = [1, 1] if me == 0 else [3, 3]
        out = np.zeros((sum(take), 2))
        world.all_to_all(out, rows, take, mine)
        assert out[:, 0].tolist() == ([0, 100] if me == 0 else [2, 4, 6, 102, 104, 106])
        raises(ValueError, lambda: world.all_to_all(out, rows, [1], mine), "2 splits")
    """)


def test_messages(ranks):
    ranks(3, """
        x = np.full(100000, float(me))
        if me:
            world.send(x, 0, tag=me)
            assert world.recv(x, 0) == 0 and x[0] == 7
        else:
            assert world.recv(x, 2, 2) == 2 and x[-1] == 2
            assert world.recv(x, weft.ANY, 1) == 1 and x[-1] == 1
            x[:] = 7
            works = [world.send(x, r, wait=False) for r in (1, 2)]
            for w in works: w.wait()
        w = world.recv(x, (me + 1) % n, wait=False)
        world.send(np.full(100000, 30.0 + me), (me - 1) % n)
        w.wait(); assert w.source == (me + 1) % n and x[5] == 30 + (me + 1) % n
        assert world.send(np.zeros(4, np.int8), weft.NOBODY) is None
    """)


def test_posted(ranks):
    ranks(2, """
        xs = [np.full(k, me + 1.0) for k in (1, 1000, 100000)]
        works = [world.all_reduce(x, wait=False) for x in xs]
        assert "all_reduce of 1 f64" in repr(works[0])
        told = []
        works[1].add_done_callback(lambda w: told.append(w))
        works[1].add_done_callback(lambda w: told.append(w.done()))
        for w in reversed(works): w.wait(60)
        for w in works: assert w.done() and w.test() and w.sequence
        while len(told) < 2: time.sleep(0.001)
        assert told[0] is works[1] and told[1] is True
        late = []; works[2].add_done_callback(late.append); assert late == [works[2]]
        assert all((x == 3).all() for x in xs)
        world.barrier(wait=False).wait()
        a = np.zeros((n, 4)); world.all_gather(a, np.full(4, float(me)), wait=False).wait(); assert a[1, 0] == 1
        b = np.zeros(2); world.reduce_scatter(b, np.ones(2 * n), wait=False).wait(); assert b[0] == n
        c = np.full(2, float(me)); world.broadcast(c, 1, wait=False).wait(); assert c[0] == 1
        d = np.ones(2); world.reduce(d, 0, wait=False).wait(); assert me or d[0] == 2
        e = np.zeros(2); world.all_to_all(e, np.full(2, float(me)), wait=False).wait(); assert e.tolist() == [0, 1]
        f = np.zeros(4) if me == 0 else None
        world.gather(f, np.full(2, float(me)), wait=False).wait(); assert me or f.tolist() == [0, 0, 1, 1]
        g = np.zeros(2); world.scatter(g, f, wait=False).wait(); assert g.tolist() == [me, me]
    """)


def test_dropped_work(ranks):
    """Operands stay until the operation is over, though nobody holds the work."""
    ranks(2, """
        import gc, weakref
        class Block(np.ndarray): pass
        for _ in range(50):
            x = np.full(50000, 1.0).view(Block)
            gone = weakref.ref(x)
            world.all_reduce(x, wait=False)
            world.recv(np.zeros(3).view(Block), 1 - me, wait=False)
            world.send(np.ones(3), 1 - me)
            del x
        world.barrier()
        world.all_reduce(np.ones(3)); gc.collect()
        for _ in range(1000):
            if gone() is None: break
            time.sleep(0.01)
        assert gone() is None
    """)


def test_cancel(ranks):
    ranks(2, """
        world.barrier()
        w = world.recv(np.zeros(3), 1 - me, 9, wait=False)
        w.cancel()
        assert raises(weft.CancelledError, w.wait, "tag 9").scope == "op"
        world.barrier()
    """)


def test_asyncio(ranks):
    ranks(2, """
        import asyncio
        world.all_reduce(np.zeros(2))  # the first operation of a group waits for all, also posted
        async def wrap(w): await w
        async def main():
            x, y, ticks = np.ones(10), np.zeros(1000), [0]
            async def tick():
                while True:
                    ticks[0] += 1
                    await asyncio.sleep(0.001)
            t = asyncio.create_task(tick())
            if me == 1: await asyncio.sleep(0.2)
            await world.all_reduce(x, wait=False)
            assert me or ticks[0] > 5
            works = world.recv(y, 1 - me, wait=False), world.send(np.full(1000, 5.0 + me), 1 - me, wait=False)
            await asyncio.gather(*[wrap(w) for w in works])
            assert x[0] == 2 and y[-1] == 6 - me
            t.cancel()
        asyncio.run(main())
    """)


def test_objects(ranks):
    ranks(3, """
        assert world.all_gather_object({"rank": me}) == [{"rank": r} for r in range(n)]
        assert world.gather_object(me, 1) == ([0, 1, 2] if me == 1 else None)
        assert world.broadcast_object("hello" if me == 2 else None, 2) == "hello"
        assert world.broadcast_object() is None
        assert world.scatter_object([r * 1.5 for r in range(n)] if me == 0 else None) == me * 1.5
        assert (world.all_gather_object(np.full(100000, me))[2] == 2).all()
        raises(TypeError, lambda: world.all_gather_object(threading.Lock()), "pickle")
        raises(ValueError, lambda: world.scatter_object([1], root=me), "a list of 3")
        world.barrier()
    """)


def test_groups(ranks):
    ranks(4, """
        half = world.split(me % 2, -me)
        assert half.size == 2 and half.ranks == [me % 2 + 2, me % 2]
        x = np.full(3, float(me)); half.all_reduce(x); assert x[0] == 2 * (me % 2) + 2
        alone = world.split(-1 if me else 0); assert (alone is None) == (me > 0)
        trio = world.new([0, 1, 3], name="trio", timeout=20)
        assert (trio is None) == (me == 2)
        if trio:
            assert trio.name == "trio" and trio.timeout == 20 and "trio" in repr(trio)
            trio.timeout = 15; assert trio.timeout == 15
            assert trio.all_gather_object(me) == [0, 1, 3]
            trio.finish()
            raises(weft.Error, trio.barrier, "finished")
        assert world.agree(~(1 << me) & 0xff) == (0xf0, True)
        again = world.new(); assert again.size == 4 and again.local_size == 4 and again.local_rank == me
    """)


def test_shrink(ranks):
    done = ranks(3, """
        world.barrier()
        if me == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        error = raises(weft.PeerDeadError, lambda: [world.barrier() for _ in range(1000000)], "rank 1")
        assert error.scope == "group" and error.status == "WEFT_ERR_PEER_DEAD"
        assert world.agree(3) == (3, False)
        rest = world.shrink()
        x = np.ones(5); rest.all_reduce(x)
        assert x[0] == 2 and rest.size == 2
        print("shrunk", flush=True)
    """, check=False)
    assert done.stdout.count("shrunk") == 2, done.stdout + done.stderr


def test_revoke(ranks):
    ranks(2, """
        g = world.new(name="g")
        g.barrier()
        if me: g.revoke()
        raises(weft.RevokedError, lambda: g.recv(np.zeros(2), 1 - me), "revoked")
        assert g.shrink().size == 2
    """)


def test_symm(ranks):
    ranks(2, """
        s = weft.symm.empty((4, 8), np.float32, group=world)
        assert s.shape == (4, 8) and s.dtype == "f32" and s.array.shape == (4, 8) and not s.array.any()
        s.array[:] = me; s.barrier()
        assert (s.peer(1 - me) == 1 - me).all()
        s.barrier()
        assert s.all_reduce() is s and (s.array == 1).all()
        s.barrier()
        if me == 0:
            s.put(1, np.full(3, 9, np.float32), 2); s.put_signal(1, 3)
        else:
            s.wait_signal(0, 3)
            assert s.array.ravel()[:6].tolist() == [1, 1, 9, 9, 9, 1]
        s.barrier(timeout=30)
        x = np.zeros(3, np.float32); assert s.get(1, x, 2) is x and x[0] == 9
        array, keep = s.array, s.peer(1 - me); world.barrier(); del s
        assert array[0, 0] == 1 and keep[0, 0] == 1  # the arrays hold the memory
        world.barrier()
        raises(TypeError, lambda: weft.symm.empty(3, "f99", group=world), "no dtype")
        raises(TypeError, lambda: weft.symm.empty(3), "a group is needed")
        b = weft.symm.empty(8, "bfloat16", group=world)
        assert b.dtype == "bf16" and b.memory.__dlpack_device__() == (1, 0) and b.channels > 1
        raises(BufferError, lambda: memoryview(b.memory), "bf16")
        assert weft.symm.empty(3, int, group=world).array.dtype == np.int64
        raises(weft.TimeoutError, lambda: b.wait_signal(1 - me, timeout=0.05))
        world.barrier()
    """)


def test_symm_operands(ranks):
    ranks(3, """
        s = weft.symm.empty(3000, "f64", group=world)
        s.array[:] = me
        world.all_reduce(s); assert (s.array == 3).all()
        out = weft.symm.empty(9000, "f64", group=world)
        world.all_gather(out, s, wait=False).wait(); assert (out.array == 3).all()
        world.broadcast(s, 1); world.reduce(s, 0)
        np.testing.assert_array_equal(np.from_dlpack(out), out.array)
    """)
