# SPDX-License-Identifier: Apache-2.0
# 04_mlp.c in PyTorch; prints the same.
import torch
import torch.nn.functional as F

import weft_random as weft

largest = 0.0


def watch(module, grad):
    global largest
    largest = grad[0].abs().max().item()


weft.seed(1234)
net = torch.nn.Sequential(weft.linear(784, 128), torch.nn.ReLU(), weft.linear(128, 10))
adam = torch.optim.AdamW(net.parameters(), 1e-3)
x = weft.uniform((64, 784))
label = weft.integers((64,), 0, 10)
net[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
net.register_full_backward_pre_hook(watch)
for step in range(51):
    loss = F.cross_entropy(net(x), label)
    loss.backward()
    adam.step()
    adam.zero_grad()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}, largest gradient {largest:.5f}")
