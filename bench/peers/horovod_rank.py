#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's allreduce in bench/peers, in place, of PyTorch's tensors: those of a step are handed
over together, and Horovod fuses them itself."""
import sys

import horovod.torch as hvd
import serving


def all_reduce(_variant, tensors):
    handles = [hvd.allreduce_async_(tensor, name=f"{len(tensors)}.{at}", op=hvd.Sum)
               for at, tensor in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)


def main():
    hvd.init()
    serving.serve(all_reduce, hvd.rank(), hvd.size(), sys.argv[1])
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
