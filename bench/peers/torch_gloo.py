#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's all_reduce over Gloo in bench/peers, in place. Variants: `default`, a call
for each tensor, all started before the first is waited for; `fused`, copied side by side into
buckets, as DistributedDataParallel does."""
import os
import sys

import serving
import torch
import torch.distributed as dist

BUCKET_ELEMENTS = (25 << 20) // 4  # DistributedDataParallel's default


def buckets_of(tensors):
    buckets, elements = [[]], 0
    for tensor in tensors:
        if buckets[-1] and elements + tensor.numel() > BUCKET_ELEMENTS:
            buckets.append([])
            elements = 0
        buckets[-1].append(tensor)
        elements += tensor.numel()
    return buckets


def all_reduce(variant, tensors):
    if variant != "fused":
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        return
    for bucket in buckets_of(tensors):
        flat = torch.cat(bucket)
        dist.all_reduce(flat)
        for tensor, part in zip(bucket, flat.split([each.numel() for each in bucket])):
            tensor.copy_(part)


def main():
    rank, world = int(os.environ["PEERS_RANK"]), int(os.environ["PEERS_WORLD"])
    folder = os.environ["PEERS_FOLDER"]
    dist.init_process_group("gloo", rank=rank, world_size=world,
                            init_method=f"file://{folder}/meet")
    serving.serve(all_reduce, rank, world, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
