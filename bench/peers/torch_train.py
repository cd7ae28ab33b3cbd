# SPDX-License-Identifier: Apache-2.0
# The step of tools/weft/bench_train.c in PyTorch, eagerly, one thread: milliseconds.
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
LAYERS, WIDTH, HEADS, TIME, BATCH, SYMBOLS, TURNS = 4, 256, 8, 64, 4, 64, 15


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


net = nn.Sequential(
    nn.Embedding(SYMBOLS, WIDTH),
    *(Block() for _ in range(LAYERS)),
    nn.LayerNorm(WIDTH),
    nn.Linear(WIDTH, SYMBOLS),
)
adam = torch.optim.AdamW(net.parameters(), 1e-4)
x, y = torch.randint(SYMBOLS, (BATCH, TIME)), torch.randint(SYMBOLS, (BATCH, TIME))
taken = []
for _ in range(TURNS + 1):
    start = time.perf_counter_ns()
    F.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()
    adam.step()
    adam.zero_grad()
    taken.append((time.perf_counter_ns() - start) * 1e-6)
print(sorted(taken[1:])[int(0.1 * (TURNS - 1) + 0.5)])
