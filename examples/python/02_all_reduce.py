# SPDX-License-Identifier: Apache-2.0
# 02_all_reduce.c in Python, the heart of tensor parallelism: each rank multiplies by its part of a matrix, and the
# partial results are added up where they lie.  Run: python -m weft run -n 4 02_all_reduce.py
import numpy as np
import weft

TOKENS, HIDDEN = 8, 512

world = weft.init()
random = np.random.default_rng(world.rank)  # every rank has a part of its own
x = random.random((TOKENS, HIDDEN // world.size), np.float32)
w = random.random((HIDDEN // world.size, HIDDEN), np.float32)

y = weft.symm.empty((TOKENS, HIDDEN), "f32", group=world)
np.matmul(x, w, out=y.array)
y.all_reduce()  # in place: every rank has the same bits now

print(f"rank {world.rank}: y[0] = {y.array[0, 0]:.6f}, y[last] = {y.array[-1, -1]:.6f}")
