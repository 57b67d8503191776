# SPDX-License-Identifier: Apache-2.0
"""Strangers at the port of the rendezvous, in processes: 10,000 of them, with garbage or silent,
while ranks come and meet. Nobody is starved, nothing grows, values are right, and the port is gone
afterwards."""

import collections
import os
import random
import resource
import socket
import struct
import time
import unittest

import wire
from support import PATIENCE, RANK, LaunchTest, free_port, keeping_nothing_freed

STRANGERS = 10000
STRANGERS_KEPT = 256  # kStrangersMax of tcp_acceptor.h: what rank 0 keeps at once
OPEN_AT_ONCE = 400  # more than that, within this process's own limit
RESIDENT_KIB = 32 * 1024  # what 256 strangers may cost, with room: 2 KiB each and their state


def garbage(source):
    """What a stranger says: nothing, another protocol, half a frame, a huge length, a bent rank."""
    return source.choice((
        lambda: b"",
        lambda: b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
        lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + source.randbytes(500),
        lambda: struct.pack("<IB", 2048, wire.HELLO),
        lambda: struct.pack("<IB", 0xffffffff, wire.HELLO) + source.randbytes(100),
        lambda: wire.frame(wire.HELLO, wire.introduction(1, 3)[:-1]),
        lambda: wire.frame(wire.HELLO, wire.introduction(1, 3, secret=True)),
        lambda: wire.frame(wire.PROOF, source.randbytes(32)),
        lambda: source.randbytes(source.randrange(4000)),
    ))()


def facts(pid):
    """(open descriptors, resident KiB) of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return len(os.listdir(f"/proc/{pid}/fd")), resident


class Strangers(LaunchTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.secret = self.secret_file()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.staying = collections.deque()
        self.addCleanup(lambda: [stranger.close() for stranger in self.staying])

    def start_at(self, rank, *before, steps=5):
        return self.start([*before, RANK, "--rank", str(rank), "--world", "3", "--rendezvous",
                           f"tcp:127.0.0.1:{self.port}", "--secret-file", self.secret,
                           "--steps", str(steps)], **keeping_nothing_freed())

    def intrude(self, source, stays):
        stranger = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        try:
            stranger.sendall(garbage(source))
        except ConnectionError:
            pass  # it was shown out already
        if not stays:
            stranger.close()
            return
        self.staying.append(stranger)
        if len(self.staying) > OPEN_AT_ONCE:
            self.staying.popleft().close()

    def test_ten_thousand(self):
        source = random.Random(1)
        ranks = [self.start_at(0)]
        self.await_listener()
        descriptors, resident = facts(ranks[0].pid)
        most_descriptors = most_resident = 0
        for number in range(STRANGERS):
            self.intrude(source, stays=number % 2 == 0)
            if number == STRANGERS // 2:
                ranks.append(self.start_at(1))  # comes among them
            if number % 100 == 0:
                now = facts(ranks[0].pid)
                most_descriptors = max(most_descriptors, now[0])
                most_resident = max(most_resident, now[1])
        ranks.append(self.start_at(2))
        self.assert_all_ok(ranks)
        self.assertLessEqual(most_descriptors, descriptors + STRANGERS_KEPT + len(ranks))
        self.assertLess(most_resident, resident + RESIDENT_KIB)
        lines = [line for line in ranks[0].text.splitlines() if "turned away" in line]
        self.assertLessEqual(len(lines), 5, "the log is bounded")
        print(f"\nreport: {STRANGERS} strangers cost rank 0 at most "
              f"{most_descriptors - descriptors} descriptors and {most_resident - resident} KiB")

    def test_more_than_there_are_descriptors_for(self):
        """Rank 0 may open 64 descriptors: strangers take the rest, and go when ranks come."""
        source = random.Random(2)
        ranks = [self.start_at(0, "prlimit", "--nofile=64")]
        self.await_listener()
        for _ in range(OPEN_AT_ONCE):
            self.intrude(source, stays=True)
        ranks += [self.start_at(1), self.start_at(2)]
        self.assert_all_ok(ranks)

    def test_the_port_is_there_only_while_ranks_meet(self):
        ranks = [self.start_at(rank, steps=1000) for rank in range(3)]
        for rank in ranks:
            rank.await_line("open")
        deadline = time.monotonic() + PATIENCE
        refused = False
        while not refused and time.monotonic() < deadline:
            with socket.socket() as late:
                refused = late.connect_ex(("127.0.0.1", self.port)) != 0
        self.assertTrue(refused, "rank 0 listens though all have met")
        self.assert_all_ok(ranks)


if __name__ == "__main__":
    unittest.main()
