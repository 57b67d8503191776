# SPDX-License-Identifier: Apache-2.0
"""Two machines joined by a virtual wire; they meet over tcp, by a secret, and train over RDMA, also
where the wire loses packets, and where each has two devices."""

import json
import os
import re
import shutil
import tempfile
import unittest

from support import BIN, DEVICE, PEER_LOST, SHORT_LEASE, UCX, MachineTest

PORT = 7000
# 2% of what each machine sends. The wire's MTU leaves room for RoCE's own of 1024.
LOSS = "tc qdisc replace dev eth0 root netem loss 2%"
SILENCE = "tc qdisc replace dev eth0 root netem loss 100%"
# RoCE v2 is UDP to this port.
DROP_ROCE = ("tc qdisc add dev eth0 ingress && tc filter add dev eth0 parent ffff: protocol ip u32 "
             "match ip protocol 17 0xff match ip dport 4791 0xffff action drop")
DELAY = "tc qdisc replace dev eth1 root netem delay 30ms"
# Both interfaces of a machine are in one subnet: each answers for its own address.
ONE_SUBNET = "; ".join(f"echo {value} > /proc/sys/net/ipv4/conf/all/{name}" for name, value in
                       (("arp_ignore", 1), ("arp_announce", 2), ("rp_filter", 0)))
SECOND = "rxe1"
# More than one piece comes back for the widest variable.
WIDE = "--plan ar --compute-threads 0 --scale 200"


class TwoGuests(MachineTest):
    @classmethod
    def boot_all(cls):
        folder = tempfile.mkdtemp(prefix="parallax-wire-")
        cls.addClassCleanup(shutil.rmtree, folder, True)
        wire = os.path.join(folder, "wire")
        cls.guests = []
        for host, kind in enumerate(("listen", "connect")):
            guest = cls.boot(cpus=1, memory_mib=768, link=f"{kind}:{wire}", nics=2)
            cls.guests.append(guest)
            guest.run(f"set -e; {ONE_SUBNET}; ip addr add 10.9.0.{host + 1}/24 dev eth0; "
                      f"ip link set eth0 up; rdma link add {DEVICE} type rxe netdev eth0")
        cls.guests[0].run("ping -c 1 -w 20 10.9.0.2 || busybox ping -c 1 -w 20 10.9.0.2")

    def start(self, port, steps, options="", environment="", hosts=(0, 1)):
        command = (f"PARALLAX_SECRET=of-this-test-alone {UCX} {environment} exec "
                   f"{BIN}/parallax_net_trainer --transport rdma --rendezvous tcp:10.9.0.1:{port} "
                   f"--hosts {','.join(map(str, hosts))} --lease-ms 20000 --plan-after 3 "
                   f"--steps {steps} {options}")
        return [self.guests[host].start(f"{command} --rank {rank}", 240)
                for rank, host in enumerate(hosts)]

    def assert_trained(self, ranks):
        sums = [[line for line in rank.check().splitlines() if line.startswith("checksum")]
                for rank in ranks]
        self.assertEqual(len(sums[0]), 1)
        self.assertEqual(sums[0], sums[1])

    def sent_packets(self, device):
        """By each machine."""
        return [int(guest.run(f"cat /sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts"))
                for guest in self.guests]

    def add_second_device(self):
        for host, guest in enumerate(self.guests):
            self.addCleanup(guest.run, f"rdma link delete {SECOND}; ip link set eth1 down; "
                                       "ip addr flush dev eth1")
            guest.run(f"set -e; ip addr add 10.9.0.{host + 11}/24 dev eth1; ip link set eth1 up; "
                      f"rdma link add {SECOND} type rxe netdev eth1")

    def test_train(self):
        for port, plan in ((PORT, "ps"), (PORT + 4, "ar")):
            with self.subTest(plan=plan):
                before = self.sent_packets(DEVICE)
                self.assert_trained(self.start(port, 6, f"--plan {plan}"))
                for first, now in zip(before, self.sent_packets(DEVICE)):
                    self.assertGreater(now, first + 100)

    def test_two_devices_of_a_rank(self):
        """The second is slow: what the first says of a piece comes after it all the same."""
        self.add_second_device()
        for guest in self.guests:
            guest.run(DELAY)
            self.addCleanup(guest.run, "tc qdisc del dev eth1 root")
        ranks = self.start(PORT + 5, 5, WIDE)
        self.assert_trained(ranks)
        for rank, packets in zip(ranks, self.sent_packets(SECOND)):
            rails = json.loads(rank.wait_line("stats "))["remote_writes"]["rails"]
            self.assertEqual([rail["device"] for rail in rails], [f"{DEVICE}:1", f"{SECOND}:1"])
            self.assertEqual([rail["peers"] for rail in rails], [1, 1])
            self.assertGreater(min(rail["pieces"] for rail in rails), 0)
            self.assertGreater(packets, rails[1]["piece_bytes"] // 1024)

    def test_two_ranks_of_a_host_have_a_device_each(self):
        self.add_second_device()
        ranks = self.start(PORT + 6, 3, "--scale 20", "PARALLAX_DEBUG=info", hosts=(0, 0, 1, 1))
        self.assert_trained(ranks)
        for number, rank in enumerate(ranks):
            device = (DEVICE, SECOND)[number % 2]
            self.assertIn(f"rc,dc,ud on {device}:1 (of 2 active ports of this host: ",
                          rank.output())
        for packets in self.sent_packets(SECOND):
            self.assertGreater(packets, 100)

    def doctors(self):
        """What both find with RDMA asked for, by check: verdict, and text with remedy."""
        command = (f"PARALLAX_SECRET=of-this-test-alone {UCX} PARALLAX_TRANSPORT=rdma "
                   f"{BIN}/parallax doctor --rendezvous tcp:10.9.0.1:{PORT + 7} --world 2 --json")
        running = [guest.start(f"PARALLAX_HOST=host{rank} {command} --rank {rank} 2>/dev/null; "
                               "true", 180) for rank, guest in enumerate(self.guests)]
        found = []
        for each in running:
            listed = json.loads(each.check().strip().splitlines()[-1])["findings"]
            found.append({one["check"]: (one["verdict"], one["text"] + " -> " + one["remedy"])
                          for one in listed})
        return found

    def test_the_doctor_on_a_sound_wire(self):
        for rank, found in enumerate(self.doctors()):
            self.assertEqual(found["rdma_ranks"][0], "OK", found)
            verdict, text = found["rdma_reach"]
            self.assertEqual(verdict, "OK", found)
            self.assertIn(f"rank {1 - rank} (host host{1 - rank}) at {DEVICE}:1, ", text)
            self.assertIn(f"by rc_verbs/{DEVICE}:1 to {DEVICE}:1", text)
            self.assertEqual(found["job"][0], "OK", found)

    def test_the_doctor_where_mtus_differ_and_a_firewall_drops_roce(self):
        """TCP passes."""
        self.guests[0].run("ip link set eth0 mtu 4200")
        self.addCleanup(self.guests[0].run, "ip link set eth0 mtu 1500")
        self.guests[1].run(DROP_ROCE)
        self.addCleanup(self.guests[1].run, "tc qdisc del dev eth0 ingress")
        for rank, found in enumerate(self.doctors()):
            self.assertEqual(found["reach"][0], "OK", found)
            self.assertEqual(found["rdma_ranks"][0], "WARN", found)
            theirs, ours = ((1024, 4096), (4096, 1024))[rank]
            self.assertIn(f"MTU {theirs} there, {ours} here", found["rdma_ranks"][1])
            verdict, text = found["rdma_reach"]
            self.assertEqual(verdict, "FAIL", found)
            self.assertIn(f"packets of {DEVICE}:1 do not pass between this rank and rank "
                          f"{1 - rank} ", text)
            self.assertIn("UDP port 4791", text)
            self.assertNotIn("job", found)

    def test_train_while_packets_are_lost(self):
        for guest in self.guests:
            guest.run(LOSS)
        try:
            self.assert_trained(self.start(PORT + 1, 12, environment="UCX_RC_TIMEOUT=20ms"))
            said = [guest.run("tc -s qdisc show dev eth0") for guest in self.guests]
            dropped = [int(re.search(r"dropped (\d+),", each).group(1)) for each in said]
            self.assertGreater(sum(dropped), 0, said)
        finally:
            for guest in self.guests:
                guest.run("tc qdisc del dev eth0 root")

    def test_a_wire_that_is_silent_for_a_while(self):
        """The job goes on when it speaks again, within the lease."""
        ranks = self.start(PORT + 2, 20, "--pace-ms 50")
        for rank in ranks:
            rank.wait_line("phase wait step 5")
        self.guests[0].run(f"{SILENCE}; sleep 1; tc qdisc del dev eth0 root")
        self.assert_trained(ranks)

    def test_a_machine_that_is_gone_is_named(self):
        """All packets are lost, both ways. With an interface down instead, the kernel's rxe frees
        what it had sent later than its queue pair, and crashes."""
        ranks = self.start(PORT + 3, 500, f"--pace-ms 50 {SHORT_LEASE}")
        for rank in ranks:
            rank.wait_line("phase wait step 5")
        for guest in self.guests:
            guest.run(SILENCE)
            self.addCleanup(guest.run, "tc qdisc del dev eth0 root")
        self.assertEqual(ranks[0].wait(), PEER_LOST, ranks[0].output())
        self.assertIn("rank 1 (host host1)", ranks[0].wait_line("status PEER_LOST"))
        self.assertEqual(ranks[1].wait(), PEER_LOST, ranks[1].output())


if __name__ == "__main__":
    unittest.main()
