"""parallax doctor and the paths between hosts, where ranks listen as transport tcp of a job would:
each finding is provoked by breaking what it looks at. Two hosts are two network namespaces."""

import subprocess
import sys

import support
from doctor_case import DoctorCase

SECRET = "0123456789abcdef" * 2
HOLD = ("import socket, sys, time\n"
        "held = socket.socket()\n"
        "held.bind(('10.78.0.2', int(sys.argv[1])))\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n")


class Paths(DoctorCase):
    def setUp(self):
        super().setUp()
        self.hosts = self.namespaces(joined=True)

    def on_host(self, host, *words):
        subprocess.run([*self.hosts[host], *words], check=True)

    def doctors(self, second=(), **both):
        """The findings of a rank on each host; `second`: variables of the second alone."""
        common = {"PARALLAX_NET_DEVICE": "plx0", "PARALLAX_SECRET": SECRET, **both}
        return self.ranks({"prefix": self.hosts[0], "variables": common},
                          {"prefix": self.hosts[1], "variables": {**common, **dict(second)}})

    def test_ports_and_address_of_a_job(self):
        self.on_host(1, "ip", "addr", "add", "10.78.0.9/24", "dev", "plx0")
        ranks = self.doctors({"PARALLAX_TCP_ADDRESS": "10.78.0.9"},
                             PARALLAX_TCP_PORTS="31000-31999")
        self.assertEqual([status for status, _ in ranks], [0, 0], ranks)
        self.expect(ranks[0][1], "reach", "OK", "rank 1 (host host1) at 10.78.0.9:31000")
        self.expect(ranks[1][1], "reach", "OK", "rank 0 (host host0) at 10.78.0.1:31000")
        self.expect(ranks[0][1], "firewall", "OK", "across tcp_ports", "4 of 4 tried")
        self.expect(ranks[0][1], "mtu", "OK", "packets of that length pass")
        self.expect(ranks[0][1], "path", "OK", "GB/s to rank 1 (host host1) and back")

    def test_the_address_of_a_job_on_one_host_alone(self):
        """The other one names none, so a job takes the one of its addresses that it reaches."""
        self.on_host(1, "ip", "addr", "add", "10.78.0.9/24", "dev", "plx0")
        self.on_host(0, "ip", "addr", "add", "10.77.0.1/24", "dev", "plx0")
        self.on_host(1, "ip", "route", "add", "prohibit", "10.77.0.1/32")
        ranks = self.doctors({"PARALLAX_TCP_ADDRESS": "10.78.0.9"})
        self.assertEqual([status for status, _ in ranks], [0, 0], ranks)
        self.expect(ranks[0][1], "reach", "OK", "rank 1 (host host1) at 10.78.0.9:")
        self.expect(ranks[1][1], "reach", "OK", "rank 0 (host host0) at 10.78.0.1:")

    def test_the_address_of_a_job_out_of_reach(self):
        """Its interface has another one, at which it could be reached."""
        self.on_host(1, "ip", "addr", "add", "10.78.0.9/24", "dev", "plx0")
        self.on_host(0, "ip", "route", "add", "prohibit", "10.78.0.9/32")
        first, second = self.doctors({"PARALLAX_TCP_ADDRESS": "10.78.0.9"})
        self.expect(first[1], "reach", "FAIL", "rank 1 (host host1)", "10.78.0.9:")
        # From which the second host connects, too.
        self.expect(second[1], "reach", "FAIL", "rank 0 (host host0)", "10.78.0.1:")
        self.assertEqual((first[0], second[0]), (1, 1))

    def test_ports_of_a_job_that_are_taken(self):
        holder = support.start(*self.hosts[1], sys.executable, "-c", HOLD, 31000)
        self.addCleanup(support.end, holder)
        self.assertEqual(holder.stdout.readline(), "held\n")
        first, second = self.doctors(PARALLAX_TCP_PORTS="31000-31000")
        self.assertEqual((first[0], second[0]), (1, 1))
        self.expect(second[1], "reach", "FAIL", "Address already in use",
                    "each of ports 31000 to 31000 (tcp_ports)")
        self.expect(first[1], "reach", "FAIL", "no address to listen at")

    def test_a_rail_out_of_reach(self):
        self.on_host(0, "ip", "link", "add", "plx5", "type", "veth", "peer", "name", "plx5",
                     "netns", self.hosts[1][-1])
        for host in range(2):
            self.on_host(host, "ip", "addr", "add", f"10.79.0.{host + 1}/24", "dev", "plx5")
            self.on_host(host, "ip", "link", "set", "plx5", "up")
        rails = {"PARALLAX_TCP_RAILS": "plx5"}
        for status, found in self.doctors(**rails):
            self.assertEqual(status, 0, found)
            self.assertEqual([text.split(", rail ")[1][0] for _, text, _ in found["reach"]],
                             ["0", "1"])
        for status, found in self.doctors(rails):
            self.assertEqual(status, 1)
            self.expect(found, "reach", "FAIL", "rails, this rank has", "tcp_rails")
        self.on_host(0, "ip", "route", "add", "prohibit", "10.79.0.2/32")
        first, _ = self.doctors(**rails)
        self.expect(first[1], "reach", "OK", "10.78.0.2", "rail 0")
        self.expect(first[1], "reach", "FAIL", "rank 1 (host host1)", "10.79.0.2:")

    def test_a_path_that_swallows_long_packets(self):
        """What is longer than 1000 bytes does not arrive at the second host, which does not say so:
        it still announces what its interface took before."""
        for host in range(2):
            self.on_host(host, "ip", "link", "set", "plx0", "gso_max_segs", "1")
        self.on_host(1, "ip", "link", "set", "plx0", "mtu", "1000")
        self.on_host(1, "ip", "route", "replace", "10.78.0.0/24", "dev", "plx0", "src", "10.78.0.2",
                     "advmss", "1460")
        first, _ = self.doctors()
        self.assertEqual(first[0], 1)
        self.expect(first[1], "reach", "OK")
        self.expect(first[1], "mtu", "FAIL", "long packets to rank 1 (host host1)", "ip link set")
        self.assertNotIn("path", first[1])

    def test_two_secrets(self):
        for second, there, here in (("f" * 32, "another secret than this", "another secret than"),
                                    ("", "has no secret", "has a secret, this rank has none")):
            first, last = self.doctors({"PARALLAX_SECRET": second})
            self.assertEqual((first[0], last[0]), (1, 1))
            self.expect(first[1], "secret", "FAIL", "rank 1 (host host1)", there,
                        "PARALLAX_SECRET_FILE")
            self.expect(last[1], "secret", "FAIL", "rank 0 (host host0)", here)
            self.assertNotIn("FAIL", [verdict for verdict, _, _ in first[1].get("job", [])])


if __name__ == "__main__":
    support.main()
