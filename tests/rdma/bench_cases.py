# SPDX-License-Identifier: Apache-2.0
"""The tool on a machine that has an RDMA device: what `parallax bench wire` times over it, and what
`parallax info` shows of it."""

import json
import unittest

from support import BIN, DEVICE, UCX, GuestTest

VERBS = ("verbs_send", "verbs_write", "verbs_read")


class Bench(GuestTest):
    def wire(self, *options, environment="PARALLAX_TRANSPORT=rdma"):
        """What rank 0 prints, and its JSON."""
        folder = self.guest.run("mktemp -d").strip()
        both = [self.guest.start(
            f"{UCX} {environment} PARALLAX_HOST=host{rank} PARALLAX_LEASE_MS=20000 "
            f"{BIN}/parallax bench wire --rank {rank} --world 2 --rendezvous file:{folder}/meet "
            f"-n 2 -w 1 -N 1 --json {folder}/json{rank} {' '.join(options)} 2>{folder}/said{rank} "
            f"|| {{ cat {folder}/said{rank}; false; }}", 240)
            for rank in range(2)]
        text = both[0].check()
        both[1].check()
        return text, json.loads(self.guest.run(f"cat {folder}/json0"))

    def test_every_way_is_timed_and_right(self):
        text, whole = self.wire("-b", "4K", "-e", "64K", "-f", "16")
        for way in VERBS:
            self.assertRegex(text, rf"(?m)^# {way}: RC on {DEVICE}:1")
        self.assertRegex(text, rf"(?m)^# ucx: rc,dc,ud on {DEVICE}:1")
        self.assertRegex(text, rf"(?m)^# allreduce: the library, over rc,dc,ud on {DEVICE}:1")
        lines = {(line["size"], line["way"], line["form"]): line for line in whole["lines"]}
        raw = ("tcp", "ucx", *VERBS)
        wanted = {(size, way, form) for size in (4096, 65536)
                  for way, form in [(way, form) for way in raw
                                    for form in ("ping-pong", "stream")] +
                  [("allreduce", "step"), ("push_pull", "step")]}
        self.assertEqual(set(lines), wanted)
        for key, line in lines.items():
            self.assertGreater(line["time_us"], 0, key)
            if line["form"] != "ping-pong":
                self.assertEqual(line["wrong"], 0, key)

    def test_a_port_that_is_down_says_why(self):
        self.guest.run("ip link set wire0 down")
        try:
            text, whole = self.wire("-b", "4K", "-e", "4K", "--ways", "tcp,verbs_write",
                                    environment="")
        finally:
            self.guest.run("ip link set wire0 up")
        self.assertRegex(text, rf"(?m)^# verbs_write: NOT RUN: .*{DEVICE}:1: it is down")
        self.assertEqual({line["way"] for line in whole["lines"]}, {"tcp"})


class Info(GuestTest):
    def test_the_device_is_drawn(self):
        text = self.guest.run(f"{BIN}/parallax info -t")
        self.assertRegex(text, rf"NIC {DEVICE}")
        self.assertRegex(text, r"port 1: active, Ethernet, [0-9.]+ Gbit/s, MTU 4096 of 4096")
        self.assertRegex(text, r"GID \d+: ::ffff:10\.9\.0\.1 \(RoCE v2, IPv4, wire0\), the one "
                               "that UCX takes")
        self.assertRegex(text, r"GID \d+: fe80::\S+ \(RoCE v2, link-local, wire0\)")
        self.assertIn(f"`-- local rank 0: {DEVICE}:1, ", text)

    def test_ports_as_data(self):
        whole = json.loads(self.guest.run(f"{BIN}/parallax info --json -t"))
        found = [nic for nic in whole["topology"]["nics"] if nic["name"] == DEVICE]
        self.assertEqual(len(found), 1, whole)
        port = found[0]["ports"][0]
        self.assertEqual((port["number"], port["state"], port["link_layer"]),
                         (1, "active", "ethernet"))
        self.assertGreater(port["rate_mbit_s"], 0)
        self.assertIn("roce_v2", {gid["type"] for gid in port["gids"]})


if __name__ == "__main__":
    unittest.main()
