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


def carried(device):
    """Bytes that an interface has received and sent so far."""
    if device == "-":
        return 0, 0
    found = []
    for way in ("rx", "tx"):
        with open(f"/sys/class/net/{device}/statistics/{way}_bytes", encoding="ascii") as file:
            found.append(int(file.read()))
    return found


def serve_steps(prepare, meet, rank, folder):
    """`prepare(variant, words)` makes and checks steps of a kind: (how many numbers are wrong, a
    step, what writes anew what this rank gives). `meet` returns when all ranks have called it."""
    torch.set_num_threads(1)
    with open(f"{folder}/{rank}.in", encoding="ascii") as commands, \
            open(f"{folder}/{rank}.out", "w", encoding="ascii") as answers:
        for line in commands:
            variant, words, iterations, refills, device = line.split()
            wrong, step, refill = prepare(variant, words)
            for _ in range(int(iterations) // 10 + 1):
                step()
            took = []
            if device != "-":
                meet()
            before = carried(device)
            # Nobody sends what is counted before everybody has read.
            if device != "-":
                meet()
            for _ in range(int(iterations)):
                if refills == "1":
                    refill()
                start = time.monotonic_ns()
                step()
                took.append(time.monotonic_ns() - start)
            if device != "-":
                meet()
            bytes_carried = (after - then for after, then in zip(carried(device), before))
            # There is no step beside the sum.
            print(wrong, *bytes_carried, *(ns for ns in took for _ in range(2)), file=answers,
                  flush=True)


def serve(all_reduce, rank, world, folder):
    """`all_reduce(variant, tensors)` sums each tensor over all ranks, in place."""

    def prepare(variant, words):
        dtype, mean, counts = read_step(words)
        tensors = [value_of(rank, at, count).to(dtype) for at, count in enumerate(counts)]

        def step():
            all_reduce(variant, tensors)
            for tensor in tensors if mean else ():
                tensor.div_(world)

        def refill():
            for tensor in tensors:
                tensor.zero_()

        step()
        wrong = count_wrong(tensors, world, mean)
        refill()
        return wrong, step, refill

    serve_steps(prepare, lambda: all_reduce("default", [torch.zeros(1)]), rank, folder)
