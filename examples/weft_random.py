# SPDX-License-Identifier: Apache-2.0
"""weft's random numbers in PyTorch: with the same seed the same values, so that a twin starts where the example does.

Philox 4x32 with 10 rounds over (seed, counter); one step of the counter gives two words of 64 bits.
"""
import math

import torch

MASK = 0xFFFFFFFF
seed_now, counter = 0, 0


def seed(value):
    global seed_now, counter
    seed_now, counter = value, 0


def high(a, b):
    # Of a 64-bit product the upper half; a sign that wrapped round does not matter.
    return ((a * b) >> 32) & MASK


def steps(n):
    """Two words of each of the next n steps, as four tensors of 32 bits: low0, high0, low1, high1."""
    global counter
    count = torch.arange(counter, counter + n, dtype=torch.int64)
    counter += n
    x0, x1, x2, x3 = count & MASK, (count >> 32) & MASK, torch.zeros_like(count), torch.zeros_like(count)
    key0, key1 = seed_now & MASK, seed_now >> 32
    for _ in range(10):
        a, b, c, d = high(x2, 0xCD9E8D57), (x2 * 0xCD9E8D57) & MASK, high(x0, 0xD2511F53), (x0 * 0xD2511F53) & MASK
        x0, x1, x2, x3 = a ^ x1 ^ key0, b, c ^ x3 ^ key1, d
        key0, key1 = (key0 + 0x9E3779B9) & MASK, (key1 + 0xBB67AE85) & MASK
    return x0, x1, x2, x3


def words(n):
    """The next n words, as their upper and lower halves."""
    x0, x1, x2, x3 = steps((n + 1) // 2)
    return torch.stack([x1, x3], 1).flatten()[:n], torch.stack([x0, x2], 1).flatten()[:n]


def uniform(shape, low=0.0, high=1.0):
    upper, _ = words(math.prod(shape))
    draw = (upper >> 8).double() * 2.0**-24
    return (low + draw * (high - low)).float().view(shape)


def normal(shape):
    n = math.prod(shape)
    x0, x1, x2, x3 = steps((n + 1) // 2)
    first, second = (x1 << 21) | (x0 >> 11), (x3 << 21) | (x2 >> 11)
    radius = torch.sqrt(-2 * torch.log((first.double() + 1) * 2.0**-53))
    angle = 2 * math.pi * second.double() * 2.0**-53
    both = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], 1)
    return both.flatten()[:n].float().view(shape)


def integers(shape, low, high):
    upper, lower = words(math.prod(shape))
    drawn = [low + (((u << 32 | l) * (high - low)) >> 64) for u, l in zip(upper.tolist(), lower.tolist())]
    return torch.tensor(drawn).view(shape)


def linear(inputs, outputs, bias=True):
    """A layer with the values weft_nn_linear gives it."""
    layer = torch.nn.Linear(inputs, outputs, bias)
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        layer.weight.copy_(uniform((outputs, inputs), -bound, bound))
        if bias:
            layer.bias.copy_(uniform((outputs,), -bound, bound))
    return layer


def embedding(rows, width):
    layer = torch.nn.Embedding(rows, width)
    with torch.no_grad():
        layer.weight.copy_(normal((rows, width)))
    return layer
