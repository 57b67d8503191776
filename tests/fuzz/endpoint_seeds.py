#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus/endpoint anew: what src/transport/endpoint.cc encodes, of
several kinds of ranks, and the same cut short. Run it after that layout, or the version, changed;
tests/fuzz/run --target endpoint --keep adds what it finds from there."""

import hashlib
import os
import re
import struct

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FOLDER = os.path.join(ROOT, "tests", "fuzz", "corpus", "endpoint")
MAGIC, ADDRESS_MAGIC = 0x45584c50, 0x41584c50  # "PLXE", "PLXA"


def version():
    with open(os.path.join(ROOT, "include", "parallax", "parallax.h")) as file:
        header = file.read()
    major, minor, patch = (int(re.search(rf"#define PARALLAX_VERSION_{part} (\d+)", header)[1])
                           for part in ("MAJOR", "MINOR", "PATCH"))
    return major * 10000 + minor * 100 + patch


def text(value):
    return struct.pack("<H", len(value)) + value


UCX, RDMA, TCP = 0, 1, 2  # NetworkCarrier


def endpoint(rank, host, carrier=TCP, machine=b"f00d-4711", lease_ms=5000, mask=b"\xff\x01",
             quota=0, group=0, messages_only=0):
    return (struct.pack("<III", MAGIC, version(), rank) + text(host) +
            struct.pack("<QqIBB", 0x0123456789abcdef, 4711, lease_ms, carrier, messages_only) +
            text(machine) + text(mask) + struct.pack("<IQ", quota, group))


def addresses(rank, shm, network, node=0xffffffff, cache=0xffffffff,  # NearMemory: not known
              trouble=b""):
    return (struct.pack("<IIII", ADDRESS_MAGIC, rank, node, cache) + text(shm) + text(network) +
            text(trouble))


def seeds():
    whole = [endpoint(0, b"a"), endpoint(3, b"node-17", UCX, lease_ms=100, quota=1500,
                                             group=1 << 40),
             endpoint(1, b"gpu", RDMA, messages_only=1), endpoint(2, b"", machine=b"", mask=b""),
             addresses(0, b"parallax-4711-0", b""), addresses(1, b"", bytes(range(200))),
             addresses(5, b"parallax-1-5", b"u" * 3072, 1, 3),
             addresses(2, b"", b"", trouble=b"open: there is no secret")]
    yield from whole
    for each in whole[:2] + whole[4:6]:
        yield each[:-1]
        yield each + b"\0"
    yield endpoint(0, b"a\x07")
    yield endpoint(0, b"a", 9)
    yield b""


def main():
    for name in os.listdir(FOLDER):
        os.remove(os.path.join(FOLDER, name))
    for seed in seeds():
        with open(os.path.join(FOLDER, hashlib.sha1(seed).hexdigest()), "wb") as file:
            file.write(seed)


if __name__ == "__main__":
    main()
