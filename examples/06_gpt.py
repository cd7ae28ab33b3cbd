# SPDX-License-Identifier: Apache-2.0
# 06_gpt.c in PyTorch; prints the same.
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

import weft_random as weft

LAYERS, WIDTH, HEADS, TIME, BATCH, STEPS, SYMBOLS = 2, 64, 4, 32, 8, 200, 28
ALPHABET = "abcdefghijklmnopqrstuvwxyz ."
text = (
    "tyger tyger burning bright. in the forests of the night. what immortal hand or eye. could "
    "frame thy fearful symmetry. in what distant deeps or skies. burnt the fire of thine eyes. on "
    "what wings dare he aspire. what the hand dare seize the fire. "
)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (weft.linear(WIDTH, WIDTH) for _ in range(4))

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
            nn.LayerNorm(WIDTH), weft.linear(WIDTH, 4 * WIDTH), nn.GELU(), weft.linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbol = weft.embedding(SYMBOLS, WIDTH)
        self.place = weft.embedding(TIME, WIDTH)
        self.body = nn.Sequential(
            *(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH), weft.linear(WIDTH, SYMBOLS)
        )

    def forward(self, x):
        return self.body(self.symbol(x) + self.place(torch.arange(x.shape[1])))


weft.seed(42)
net = GPT()
# Matrices decay; biases and the numbers of norms do not.
wide, flat = ([p for p in net.parameters() if (p.ndim > 1) == matrices] for matrices in (True, False))
adam = torch.optim.AdamW([{"params": wide}, {"params": flat, "weight_decay": 0}], 6e-3)


def rate(step, warmup=10, peak=6e-3, least=6e-4):
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    return least + (peak - least) * (1 + math.cos(math.pi * min((step - warmup) / (STEPS - warmup), 1))) / 2


symbols = torch.tensor([ALPHABET.index(c) for c in text])
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS + 1):
    start = weft.integers((BATCH,), 0, len(text) - TIME)
    batch = torch.stack([symbols[s : s + TIME + 1] for s in start])
    loss = F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1)
    for group in adam.param_groups:
        group["lr"] = rate(step)
    adam.step()
    adam.zero_grad()
    if len(sys.argv) > 1:
        print(f"step {step}: loss {loss.item():.7f}")
    elif step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
if len(sys.argv) > 1:
    sys.exit()
window = symbols[: TIME // 2].tolist()
written = text[: TIME // 2] + "|"
with torch.no_grad():
    for _ in range(60):
        window.append(net(torch.tensor([window]))[0, -1].argmax().item())
        window = window[-TIME:]
        written += ALPHABET[window[-1]]
print(written)
