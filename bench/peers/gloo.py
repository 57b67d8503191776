#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's all_reduce over Gloo in bench/peers, in place; commands and answers are
those of contender.h."""
import os
import sys
import time

import torch
import torch.distributed as dist


def value_of(rank, count):
    return ((torch.arange(count) * 7 + rank * 3) % 11 + rank).to(torch.float32)


def quantile(ordered, share):
    return ordered[round((len(ordered) - 1) * share)]


def main():
    torch.set_num_threads(1)
    rank, world = int(os.environ["PEERS_RANK"]), int(os.environ["PEERS_WORLD"])
    folder = os.environ["PEERS_FOLDER"]
    dist.init_process_group("gloo", rank=rank, world_size=world,
                            init_method=f"file://{folder}/meet")
    with open(f"{folder}/{rank}.in") as commands, open(f"{folder}/{rank}.out", "w") as answers:
        for line in commands:
            _, size, iterations = line.split()
            count, iterations = int(size) // 4, int(iterations)
            values = value_of(rank, count)
            dist.all_reduce(values)
            want = sum(value_of(each, count) for each in range(world))
            wrong = int((values != want).sum())
            values.zero_()
            for _ in range(iterations // 10 + 2):
                dist.all_reduce(values)
            took = []
            for _ in range(iterations):
                start = time.monotonic_ns()
                dist.all_reduce(values)
                took.append(time.monotonic_ns() - start)
            took.sort()
            middle, late = quantile(took, 0.5), quantile(took, 0.99)
            print(middle, late, middle, late, wrong, file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
