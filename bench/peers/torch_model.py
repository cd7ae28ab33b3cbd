# SPDX-License-Identifier: Apache-2.0
# The steps of tools/weft/bench_model.c in PyTorch: milliseconds eagerly, and compiled, each the middle of some steps.
# The size is that of WEFT_BENCH_MODEL, layers x width x batch x time; products are of WEFT_BENCH_DTYPE.
import contextlib
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, BATCH, TIME = map(int, os.environ["WEFT_BENCH_MODEL"].split("x"))
DTYPE = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[os.environ["WEFT_BENCH_DTYPE"]]
HEADS, SYMBOLS, STEPS = WIDTH // 64, 50304, 3


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        heads = lambda h: h.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
        seen = F.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True
        )
        return self.out(seen.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(WIDTH), Attention())
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(SYMBOLS, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(TIME, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))

    def forward(self, x, y):
        h = self.blocks(self.tokens(x) + self.positions)
        return F.cross_entropy(F.linear(h, self.tokens.weight).flatten(0, 1).float(), y.flatten())


def measure(compiled):
    model = Model()
    run = torch.compile(model) if compiled else model
    adam = torch.optim.AdamW(model.parameters(), 1e-4)
    x, y = torch.randint(SYMBOLS, (BATCH, TIME)), torch.randint(SYMBOLS, (BATCH, TIME))
    taken = []
    for _ in range(STEPS + 2):
        start = time.perf_counter_ns()
        cast = torch.autocast("cpu", DTYPE) if DTYPE != torch.float32 else contextlib.nullcontext()
        with cast:
            loss = run(x, y)
        loss.backward()
        adam.step()
        adam.zero_grad()
        taken.append((time.perf_counter_ns() - start) * 1e-6)
    return sorted(taken[2:])[STEPS // 2]


print(measure(False), flush=True)
try:
    print(measure(True), flush=True)
except Exception:  # no compiler here
    print(0, flush=True)
