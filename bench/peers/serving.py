# SPDX-License-Identifier: Apache-2.0
"""contender.cc and dense.cc for contenders in Python: commands, answers and numbers are theirs."""
import time

import torch


def value_of(rank, tensor, count):
    at = torch.arange(count) + tensor * 5
    return ((at * 7 + rank * 3) % 11 + rank).to(torch.float32)


def read_step(words):
    """(torch's dtype, whether it is a mean, how many numbers each tensor has)"""
    dtype, reduction, sizes = words.split("/")
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    number = torch.tensor([], dtype=dtype).element_size()
    return dtype, reduction == "mean", [int(size) // number for size in sizes.split(",")]


def count_wrong(tensors, world, mean):
    """As dense.cc: what has 16 bits is rounded at each rank, and a mean by its division."""
    wrong = 0
    for at, tensor in enumerate(tensors):
        want = sum(value_of(each, at, tensor.numel()) for each in range(world))
        if mean:
            want /= world
        float_tolerance = 2 ** -22 if mean else 0
        tolerance = {torch.float32: float_tolerance, torch.float16: world * 2 ** -11,
                     torch.bfloat16: world * 2 ** -8}[tensor.dtype]
        wrong += int((~((tensor.float() - want).abs() <= tolerance * want)).sum())
    return wrong


def serve(all_reduce, rank, world, folder):
    """`all_reduce(variant, tensors)` sums each tensor over all ranks, in place."""
    torch.set_num_threads(1)

    def step(variant, tensors, mean):
        all_reduce(variant, tensors)
        for tensor in tensors if mean else ():
            tensor.div_(world)

    with open(f"{folder}/{rank}.in", encoding="ascii") as commands, \
            open(f"{folder}/{rank}.out", "w", encoding="ascii") as answers:
        for line in commands:
            variant, words, iterations, refill = line.split()
            dtype, mean, counts = read_step(words)
            tensors = [value_of(rank, at, count).to(dtype) for at, count in enumerate(counts)]
            step(variant, tensors, mean)
            wrong = count_wrong(tensors, world, mean)
            for tensor in tensors:
                tensor.zero_()
            for _ in range(int(iterations) // 10 + 1):
                step(variant, tensors, mean)
            took = []
            for _ in range(int(iterations)):
                if refill == "1":
                    for tensor in tensors:
                        tensor.zero_()
                start = time.monotonic_ns()
                step(variant, tensors, mean)
                took.append(time.monotonic_ns() - start)
            # There is no step beside the sum.
            print(wrong, *(ns for ns in took for _ in range(2)), file=answers, flush=True)
