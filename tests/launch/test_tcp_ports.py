# SPDX-License-Identifier: Apache-2.0
"""The ports of transport tcp, in processes: 10,000 strangers while ranks connect, silent, slow,
noisy, with the beginning of a handshake, or with the recorded hello of a rank. The job ends right,
a rank keeps few of them, and takes no memory for more. Once ranks are connected they have no
port."""

import collections
import contextlib
import os
import random
import re
import resource
import signal
import socket
import struct
import threading
import time
import unittest

from support import LaunchTest, free_port, keeping_nothing_freed, listeners

STRANGERS = 10000
STRANGERS_KEPT = 64       # kStrangersMax of tcp_strangers.h
OPEN_AT_ONCE = 300        # of those that stay
REFUSED = 2000            # of those that find no port
PORTS_TRIED = 32          # for six ranks, and others that may be there
FOUND_S = 60             # by then one of its ports is, on a loaded machine
LISTENING_S = 0.3         # by then all ranks do, or the test is as good
HELD_JOBS = 20            # until one is held while its ranks connect
LEASE_MS = 60000          # a rank is stopped for seconds
RESIDENT_KIB = 16 * 1024  # what they may cost a rank, with room: 64 of 2 KiB, and OpenSSL's state
KINDS = (
    lambda source: b"",
    lambda source: b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
    # A TLS record that promises more than comes, or more than is taken.
    lambda source: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + source.randbytes(40),
    lambda source: b"\x16\x03\x01" + struct.pack(">H", 16384) + source.randbytes(3000),
    # A whole record of a handshake that is none.
    lambda source: b"\x16\x03\x03\x00\x40\x01\x00\x00\x3c" + source.randbytes(60),
    # A frame as members send it, without a handshake.
    lambda source: struct.pack("<IBxxx", 400, 1) + source.randbytes(416),
    lambda source: source.randbytes(source.randrange(1, 4000)),
)


def facts(pid):
    """(open descriptors, resident KiB) of a process; None once it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            resident = [int(line.split()[1]) for line in file if line.startswith("VmRSS")]
        return (len(os.listdir(f"/proc/{pid}/fd")), resident[0]) if resident else None
    except (FileNotFoundError, ProcessLookupError):
        return None


class Hellos:
    """What ranks on loopback say first to each other, by port; nothing where this user may not look
    at packets."""

    def __init__(self):
        self.by_port = {}
        self.may_look = True
        try:
            self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
            self._packets.bind(("lo", 0))
            self._packets.setblocking(False)
        except PermissionError:
            self._packets = None
            self.may_look = False

    def listen(self):
        while self._packets is not None:
            try:
                packet = self._packets.recv(65536)
            except BlockingIOError:
                return
            segment = packet[4 * (packet[0] & 15):]
            said = segment[4 * (segment[12] >> 4):]
            if packet[9] == socket.IPPROTO_TCP and b"libparallax tcp 1 from=" in said:
                self.by_port[int.from_bytes(segment[2:4], "big")] = said

    def close(self):
        if self._packets is not None:
            self._packets.close()
            self._packets = None


class Crowd(threading.Thread):
    """Strangers at some ports, one after the other until `count` have come or it is told to go:
    every third stays and, now and then, says one byte more. `found` gets the ports where somebody
    listens."""

    def __init__(self, ports, count=STRANGERS, hellos=None):
        super().__init__(daemon=True)
        self.ports = ports
        self.count = count
        self.hellos = hellos
        self.came = self.repeated = self.refused = 0
        self.found = []
        self.ranks_wait = False  # no other port will be found
        self.gone = threading.Event()

    def choose(self, source):
        """(port, what to say there)"""
        if self.hellos is not None and self.came < self.count // 2:
            self.hellos.listen()
        recorded = self.hellos.by_port if self.hellos is not None else {}
        if recorded and source.randrange(len(KINDS) + 1) == 0:
            self.repeated += 1
            return source.choice(sorted(recorded.items()))
        known = self.found if self.ranks_wait and self.found else self.ports
        return source.choice(known), source.choice(KINDS)(source)

    def run(self):
        source = random.Random(1)
        staying = collections.deque()
        while self.came < self.count and not self.gone.is_set():
            port, words = self.choose(source)
            stranger = socket.socket()
            stranger.settimeout(1)
            try:
                stranger.connect(("127.0.0.1", port))
                if port not in self.found:
                    self.found.append(port)
                stranger.sendall(words)
                self.came += 1
            except OSError as failure:
                stranger.close()  # no rank listens yet or any more, or it was shown out
                if isinstance(failure, ConnectionRefusedError):
                    self.refused += 1
                    if port in self.found:
                        self.found.remove(port)
                    time.sleep(0.0002)  # the ranks need the core
                continue
            if self.came % 3 != 0:
                stranger.close()
                continue
            staying.append(stranger)
            with contextlib.suppress(OSError):
                source.choice(staying).sendall(b"\x16")
            if len(staying) > OPEN_AT_ONCE:
                staying.popleft().close()
        for stranger in staying:
            stranger.close()

    def leave(self):
        self.gone.set()
        self.join()


class TcpPorts(LaunchTest):
    def setUp(self):
        super().setUp()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def start_job(self, *arguments, hosts=2, **environment):
        """Hosts of one rank on this machine."""
        self.meeting = free_port()
        return [self.start_rank("--rank", rank, "--world", hosts, "--rendezvous",
                                f"tcp:127.0.0.1:{self.meeting}", "--host", f"h{rank}",
                                *arguments, **keeping_nothing_freed(), **environment)
                for rank in range(hosts)]

    def ports_of(self, rank):
        """Of the transport alone: that of the rendezvous may still be on its way out."""
        return [(host, port) for host, port in listeners(rank.pid) if port != self.meeting]

    def crowd(self, ports, **options):
        crowd = Crowd(ports, **options)
        self.addCleanup(crowd.leave)
        crowd.start()
        return crowd

    def hold(self, ranks, crowd):
        """Stops the last rank as soon as the crowd has found a port, and seen a hello where it may,
        so that the others wait for it with theirs open, until all of the crowd have come. Gives
        what that cost them: (open descriptors, resident KiB) at most; None: too late, all were
        connected."""
        give_up = time.monotonic() + FOUND_S
        while (all(port == self.meeting for port in crowd.found)
               or crowd.hellos.may_look and not crowd.hellos.by_port):
            self.assertTrue(crowd.is_alive() and time.monotonic() < give_up, "no port was found")
            if any(rank.said("open") for rank in ranks):
                crowd.leave()
                return None
            time.sleep(0.0002)
        ranks[-1].signal(signal.SIGSTOP)
        costs = [0, 0]
        first = [facts(rank.pid) for rank in ranks]
        began = time.monotonic()
        while crowd.is_alive():
            time.sleep(0.02)
            if any(rank.said("open") for rank in ranks):
                crowd.leave()
                return None
            crowd.ranks_wait = time.monotonic() - began > LISTENING_S
            for (descriptors, resident), rank in zip(first, ranks):
                now = facts(rank.pid)
                costs = [max(costs[0], now[0] - descriptors), max(costs[1], now[1] - resident)]
        return costs

    def test_strangers_while_ranks_connect(self):
        """They are there before the ranks are, at every port that these may take, one of which the
        rendezvous may have, and as many as are meant to come before the last is connected."""
        first = free_port()  # below those that the system gives out, as those after it
        ports = range(first, first + PORTS_TRIED)
        hellos = Hellos()
        self.addCleanup(hellos.close)
        costs = None
        for _ in range(HELD_JOBS):
            crowd = self.crowd(ports, hellos=hellos)
            ranks = self.start_job("--steps", 3, "--lease-ms", LEASE_MS, hosts=6,
                                   PARALLAX_TCP_PORTS=f"{ports[0]}-{ports[-1]}")
            costs = self.hold(ranks, crowd)
            ranks[-1].signal(signal.SIGCONT)
            self.assert_all_ok(ranks)
            hellos.by_port.clear()
            if costs is not None:
                break
        self.assertIsNotNone(costs, "no job was held in time")
        self.assertEqual(crowd.came, STRANGERS)
        if hellos.may_look:
            self.assertGreater(crowd.repeated, STRANGERS // 20)
        self.assertLessEqual(costs[0], STRANGERS_KEPT + 8)  # and connections of the job's own
        self.assertLess(costs[1], RESIDENT_KIB)
        print(f"\nreport: {crowd.came} strangers while six ranks connect, {crowd.repeated} with a "
              f"recorded hello, cost a rank at most {costs[0]} descriptors and {costs[1]} KiB")

    def test_no_port_once_all_are_connected(self):
        """Whoever comes in mid-run finds none to come to."""
        first = free_port()  # below those that the system gives out: nobody else takes them
        ranks = self.start_job("--steps", 500, "--pace-ms", 5, PARALLAX_DEBUG="info",
                               PARALLAX_TCP_PORTS=f"{first}-{first + PORTS_TRIED - 1}")
        ports = []
        for rank in ranks:
            rank.await_line("open")
            self.assertEqual(self.ports_of(rank), [])
            listened = re.search(r"between hosts.*: (\S+):(\d+) on (\w+), security", rank.text)
            self.assertEqual((listened[1], listened[3]), ("127.0.0.1", "lo"))
            ports.append(int(listened[2]))
        before = [facts(rank.pid) for rank in ranks]
        crowd = self.crowd(ports)
        while crowd.is_alive() and crowd.refused < REFUSED:
            time.sleep(0.01)
        crowd.leave()
        after = [facts(rank.pid) for rank in ranks]
        self.assertEqual([rank.said("ok rank") for rank in ranks], [False] * 2, "over too soon")
        self.assert_all_ok(ranks)
        self.assertEqual(crowd.came, 0)
        self.assertGreaterEqual(crowd.refused, REFUSED)
        self.assertEqual([descriptors for descriptors, _ in after],
                         [descriptors for descriptors, _ in before])


if __name__ == "__main__":
    unittest.main()
