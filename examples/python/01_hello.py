# SPDX-License-Identifier: Apache-2.0
# 01_hello.c in Python: every rank shows its neighbour a number.  Run: python -m weft run -n 4 01_hello.py
import weft

world = weft.init()
me, n = world.rank, world.size
after, before = (me + 1) % n, (me - 1) % n

x = weft.symm.empty(1024, "f32", group=world)  # every rank can touch every rank's
x.array[:] = me
x.barrier()

print(f"rank {me}: rank {after} holds {x.peer(after)[0]:g}")

x.put_signal(before)  # "I have read yours"
x.wait_signal(after)
