# SPDX-License-Identifier: Apache-2.0
"""UCX's own tcp ports, which take anyone: what docs/security.md says of them.

They lie on loopback as long as all ranks are on one machine. 1,000 strangers of each harmless kind
change nothing. A stranger with UCX's public magic may end the rank that it reaches, inside UCX, and
have it read an address of his choice; the others then name that rank, and nothing hangs.
"""

import os
import random
import socket
import struct
import unittest

from support import OK, PEER_LOST, LaunchTest, free_port, listeners

STRANGERS = 1000
MAGIC = struct.pack("<Q", 0xCAFEBABE12345678)
CONNECT_MESSAGE, RNDV_ATS = 32, 10
HARMLESS = {
    "silent": lambda source: b"",
    "another protocol": lambda source: b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
    "noise": lambda source: source.randbytes(source.randrange(8, 4000)),
    "half a magic": lambda source: MAGIC[:5],
    "a magic": lambda source: MAGIC,
}


class UcxPorts(LaunchTest):
    def setUp(self):
        super().setUp()
        libraries = os.path.join(os.path.dirname(os.path.dirname(os.environ["PARALLAX_TEST_RANK"])),
                                 "lib")
        if not os.path.exists(os.path.join(libraries, "libparallax_ucx.so")):
            self.skipTest("there is no UCX in this build (libucx-dev)")

    def start_job(self, **environment):
        """Two hosts on this machine, in the middle of training."""
        where = f"tcp:127.0.0.1:{free_port()}"
        ranks = [self.start_rank("--rank", rank, "--world", 2, "--rendezvous", where, "--host",
                                 f"h{rank}", "--transport", "ucx", "--steps", 300, "--pace-ms", 5,
                                 **environment)
                 for rank in range(2)]
        for rank in ranks:
            rank.await_line("open")
        return ranks

    def ports_of(self, rank):
        """UCX's alone: that of the rendezvous may still be on its way out."""
        address = rank.command[rank.command.index("--rendezvous") + 1]
        rendezvous_port = int(address.rpartition(":")[2])
        return [(host, port) for host, port in listeners(rank.pid) if port != rendezvous_port]

    def test_one_port_a_rank_on_loopback(self):
        ranks = self.start_job()
        for rank in ranks:
            self.assertEqual([host for host, _ in self.ports_of(rank)], ["127.0.0.1"])
        self.assert_all_ok(ranks)

    def test_a_range_can_be_given(self):
        ranks = self.start_job(UCX_TCP_PORT_RANGE="31000-31999")
        for rank in ranks:
            ports = [port for _, port in self.ports_of(rank)]
            self.assertTrue(ports and all(31000 <= port <= 31999 for port in ports), ports)
        self.assert_all_ok(ranks)

    def test_a_thousand_strangers_of_each_harmless_kind(self):
        for name, bytes_of in HARMLESS.items():
            with self.subTest(kind=name):
                source = random.Random(1)
                ranks = self.start_job()
                (where,) = self.ports_of(ranks[0])
                for _ in range(STRANGERS):
                    with socket.create_connection(where) as stranger:
                        try:
                            stranger.sendall(bytes_of(source))
                        except ConnectionError:
                            pass  # it was shown out already
                self.assert_all_ok(ranks)

    def test_a_bad_length_ends_one_rank_at_most_and_is_told(self):
        ranks = self.start_job()
        (where,) = self.ports_of(ranks[0])
        with socket.create_connection(where) as stranger:
            stranger.sendall(MAGIC + struct.pack("<BI", 1, 0x7fffffff) + bytes(64))
        status, sentence = ranks[1].outcome()
        if status == OK:  # a UCX that checks what it reads
            self.assertEqual(ranks[0].wait(), 0, ranks[0].text)
            return
        self.assertEqual(status, PEER_LOST, ranks[1].text)
        self.assertIn("rank 0 (host h0) is lost", sentence)
        print("\nreport: UCX ended rank 0 at a stranger's bad length, exit status "
              f"{ranks[0].wait()}")

    def test_an_address_of_a_strangers_choice_is_read(self):
        """UCX's own connect message, then one of its rendezvous, whose "request" UCX takes for a
        pointer. What this UCX makes of it is reported; nobody hangs, the others name the rank."""
        ranks = self.start_job()
        (where,) = self.ports_of(ranks[0])
        connect = struct.pack("<IBQ", 1, 0, 0) + struct.pack("<HH12x", socket.AF_INET, 0)
        answer = struct.pack("<Qi", 0x414141414140, 0)
        said = (MAGIC + struct.pack("<BI", CONNECT_MESSAGE, len(connect)) + connect
                + struct.pack("<BI", RNDV_ATS, len(answer)) + answer)
        self.assertEqual(len(said), 59)
        with socket.create_connection(where) as stranger:
            stranger.sendall(said)
            status, sentence = ranks[1].outcome()
        if status == OK:  # a UCX that looks for the request among its own
            self.assertEqual(ranks[0].wait(), 0, ranks[0].text)
            return
        self.assertEqual(status, PEER_LOST, ranks[1].text)
        self.assertIn("rank 0 (host h0) is lost", sentence)
        print("\nreport: UCX followed a stranger's address in rank 0, exit status "
              f"{ranks[0].wait()}")


if __name__ == "__main__":
    unittest.main()
