#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gloo in bench/transports, by torch.distributed: one of the two ranks, and the same sums.

  gloo_rank.py RANK FILE TRIPS MEGABYTES      (FILE: where they find each other)
"""
import json
import resource
import sys
import time

import torch
import torch.distributed as dist

TRIP_BYTES = 64
MESSAGE_BYTES = (60 << 10, 16 << 20)
WINDOW = 16  # messages under way, as the library's transports have


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Link:
    def __init__(self, rank):
        self.rank = rank

    def trips(self, count):
        ones, came = torch.ones(TRIP_BYTES // 4), torch.zeros(TRIP_BYTES // 4)
        for _ in range(count):
            if self.rank == 1:
                dist.send(ones, 0)
            dist.recv(came, 1 - self.rank)
            if self.rank == 0:
                dist.send(ones, 1)

    def one_way(self, count, message_bytes):
        window = 2 if message_bytes == MESSAGE_BYTES[1] else WINDOW
        answer = torch.ones(TRIP_BYTES // 4)
        if self.rank == 1:
            ones = torch.ones(message_bytes // 4)
            under_way = []
            for _ in range(count):
                if len(under_way) == window:
                    under_way.pop(0).wait()
                under_way.append(dist.isend(ones, 0))
            for each in under_way:
                each.wait()
            dist.recv(answer, 0)
            return
        total = torch.zeros(message_bytes // 4)
        places = [torch.zeros(message_bytes // 4) for _ in range(window)]
        under_way = [dist.irecv(places[at], 1) for at in range(min(window, count))]
        for at in range(count):
            under_way[at % window].wait()
            total += places[at % window]
            if at + window < count:
                under_way[at % window] = dist.irecv(places[at % window], 1)
        if not bool((total == count).all()):
            sys.exit("gloo_rank.py: a sum is wrong")
        dist.send(answer, 1)


def main():
    rank, file, trips, megabytes = sys.argv[1:]
    trips, megabytes = int(trips), int(megabytes)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + file, rank=int(rank), world_size=2)
    link = Link(int(rank))
    link.trips(max(trips // 10, 1))
    began = time.monotonic()
    link.trips(trips)
    figures = {"trip_us": 1e6 * (time.monotonic() - began) / trips, "gb_per_s": [],
               "cpu_s_per_gb": []}
    for message_bytes in MESSAGE_BYTES:
        count = max(megabytes * 1000000 // message_bytes, 1)
        link.one_way(max(count // 10, 1), message_bytes)
        cpu, began = cpu_seconds(), time.monotonic()
        link.one_way(count, message_bytes)
        gigabytes = 1e-9 * count * message_bytes
        figures["gb_per_s"].append(gigabytes / (time.monotonic() - began))
        figures["cpu_s_per_gb"].append((cpu_seconds() - cpu) / gigabytes)
    print("figures", json.dumps(figures), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
