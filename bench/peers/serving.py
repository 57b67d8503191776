# SPDX-License-Identifier: Apache-2.0
"""contender.cc for contenders in Python: commands, answers and numbers are those of contender.h."""
import time

import torch


def value_of(rank, tensor, count):
    at = torch.arange(count) + tensor * 5
    return ((at * 7 + rank * 3) % 11 + rank).to(torch.float32)


def serve(all_reduce, rank, world, folder):
    """`all_reduce(variant, tensors)` sums each tensor over all ranks, in place."""
    torch.set_num_threads(1)
    with open(f"{folder}/{rank}.in", encoding="ascii") as commands, \
            open(f"{folder}/{rank}.out", "w", encoding="ascii") as answers:
        for line in commands:
            variant, sizes, iterations, refill = line.split()
            counts, iterations = [int(size) // 4 for size in sizes.split(",")], int(iterations)
            tensors = [value_of(rank, at, count) for at, count in enumerate(counts)]
            all_reduce(variant, tensors)
            wrong = 0
            for at, tensor in enumerate(tensors):
                want = sum(value_of(each, at, tensor.numel()) for each in range(world))
                wrong += int((tensor != want).sum())
                tensor.zero_()
            for _ in range(iterations // 10 + 1):
                all_reduce(variant, tensors)
            took = []
            for _ in range(iterations):
                if refill == "1":
                    for tensor in tensors:
                        tensor.zero_()
                start = time.monotonic_ns()
                all_reduce(variant, tensors)
                took.append(time.monotonic_ns() - start)
            # There is no step beside the sum.
            print(wrong, *(ns for ns in took for _ in range(2)), file=answers, flush=True)
