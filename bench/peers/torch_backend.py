# SPDX-License-Identifier: Apache-2.0
"""all_reduce of torch.distributed over Gloo and over weft by turns, in one job; microseconds, the least and the median.

    python -m weft run -n 2 bench/peers/torch_backend.py [--max 67108864] [--turns 9]
"""
import argparse
import time

import torch
import torch.distributed as dist


def sync(x, group):
    dist.all_reduce(x, group=group)


def posted(x, group):
    dist.all_reduce(x, group=group, async_op=True).wait()


def future(x, group):
    dist.all_reduce(x, group=group, async_op=True).get_future().wait()


def main():
    q = argparse.ArgumentParser()
    q.add_argument("--max", type=int, default=64 << 20)
    q.add_argument("--turns", type=int, default=9)
    options = q.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks = list(range(dist.get_world_size()))
    groups = {name: dist.new_group(ranks, backend=name) for name in ("gloo", "weft")}
    if dist.get_rank() == 0:
        print(f"{'bytes':>10} {'way':>7} " + " ".join(f"{b + ' least':>12} {b + ' median':>12}" for b in groups) + "   ratio")
    for size in (8, 4 << 10, 1 << 20, 64 << 20):
        if size > options.max:
            break
        x = torch.zeros(max(1, size // 4) if size > 8 else 2)
        calls = max(1, min(50, (8 << 20) // size))
        for way in (sync, posted, future):
            times = {name: [] for name in groups}
            for _ in range(options.turns):
                for name, group in groups.items():
                    way(x, group)
                    begin = time.perf_counter()
                    for _ in range(calls):
                        way(x, group)
                    times[name].append((time.perf_counter() - begin) / calls * 1e6)
            if dist.get_rank() == 0:
                cells = [f"{min(t):12.1f} {sorted(t)[len(t) // 2]:12.1f}" for t in times.values()]
                print(f"{size:>10} {way.__name__:>7} " + " ".join(cells) +
                      f"   {min(times['weft']) / min(times['gloo']):.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
