# SPDX-License-Identifier: Apache-2.0
# A small GPT that learns a poem, as 06_gpt.c does, with its parameters sharded over the ranks by FSDP2, on weft.
# Run: python -m weft run -n 4 06_gpt.py
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

LAYERS, WIDTH, HEADS, TIME, BATCH, STEPS, SYMBOLS = 2, 64, 4, 32, 8, 100, 28
ALPHABET = "abcdefghijklmnopqrstuvwxyz ."
text = (
    "tyger tyger burning bright. in the forests of the night. what immortal hand or eye. could "
    "frame thy fearful symmetry. in what distant deeps or skies. burnt the fire of thine eyes. on "
    "what wings dare he aspire. what the hand dare seize the fire. "
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.heads, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                 nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        parts = (h.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for h in self.heads(self.norm(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbol, self.place = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(TIME, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, SYMBOLS))

    def forward(self, x):
        x = self.symbol(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.last(x)


dist.init_process_group("weft")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(42)  # the same weights everywhere
net = GPT()
for block in net.blocks:
    fully_shard(block)
fully_shard(net)
adam = torch.optim.AdamW(net.parameters(), 3e-3)

symbols = torch.tensor([ALPHABET.index(c) for c in text])
data = torch.Generator().manual_seed(rank)  # another part of the batch for every rank
for step in range(STEPS + 1):
    start = torch.randint(len(text) - TIME, (BATCH,), generator=data)
    batch = torch.stack([symbols[s : s + TIME + 1] for s in start])
    loss = F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1)
    adam.step()
    adam.zero_grad()
    if step % 20 == 0:
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"step {step}: loss {mean.item():.3f}")
dist.destroy_process_group()
