"""parallax doctor in the middle of a rendezvous: ranks that are lost there, and strangers at the
port at which the ranks try each other. A rank is held where the test wants it (hold.c)."""

import json
import os
import random
import resource
import socket
import struct
import threading

import support
from doctor_case import HOLD, DoctorCase

STRANGERS = 10000
OPEN_AT_ONCE = 400
SILENT = 300  # that stay to the end: more than the doctor keeps
# The doctor's second card, which says where it listens, and its third: it has tried the others.
SECOND, THIRD = "blob.1", "blob.2"


def garbage(source):
    """What a stranger says: nothing, another protocol, half a question, one with a wrong secret."""
    return source.choice((
        lambda: b"",
        lambda: b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
        lambda: struct.pack("<Q", 0x3f72746f63646c70),
        lambda: struct.pack("<QQ", 0x3f72746f63646c70, source.getrandbits(64)),
        lambda: source.randbytes(source.randrange(1, 4000)),
    ))()


class Held(DoctorCase):
    """Rank 1 stops before it gives a card to the rendezvous."""

    def start_held(self, card):
        """(The ranks, the folder of the rendezvous), once rank 0 waits for that card of rank 1."""
        self.gate = self.folder()
        rendezvous = os.path.join(self.folder(), "rendezvous")
        held = {"variables": {"LD_PRELOAD": HOLD, "FAKE_HOLD": card + ".1",
                              "FAKE_HOLD_FOLDER": self.gate}}
        ranks = self.start_ranks({}, held, rendezvous=rendezvous, timeout_ms=60000)
        for path in (os.path.join(self.gate, "held"), os.path.join(rendezvous, card + ".0")):
            support.wait_until(lambda path=path: os.path.exists(path), path)
        return ranks, rendezvous

    def let_go(self):
        with open(os.path.join(self.gate, "go"), "w", encoding="ascii"):
            pass

    def lost(self, card):
        """Rank 1 is killed there; what rank 0 finds."""
        ranks, _ = self.start_held(card)
        ranks[1].kill()
        [(status, found)] = self.findings(ranks[:1])
        self.assertEqual(status, 1)
        fails = [(check, text, remedy) for check, all_ in found.items()
                 for verdict, text, remedy in all_ if verdict == "FAIL"]
        self.assertEqual(len(fails), 1, "what follows from the loss is no finding")
        self.assertEqual(fails[0][0], "rendezvous")
        self.assertIn("rank 1 (host host1) ended without a word", fails[0][1])
        self.assertEqual(fails[0][2], "see what that rank said")
        self.assertNotIn("job", found)
        return found

    def test_a_rank_lost_before_it_listens(self):
        self.assertNotIn("reach", self.lost(SECOND))

    def test_a_rank_lost_while_ranks_try_each_other(self):
        self.expect(self.lost(THIRD), "reach", "OK", "rank 1 (host host1)")

    def test_what_the_rendezvous_left_cannot_be_removed(self):
        """Somebody put a file into the folder of the rendezvous, which the ranks leave alone."""
        ranks, rendezvous = self.start_held(THIRD)
        theirs = os.path.join(rendezvous, "somebody's notes")
        with open(theirs, "w", encoding="ascii") as file:
            file.write("keep")
        self.let_go()
        first, second = self.findings(ranks)
        self.assertEqual((first[0], second[0]), (0, 0), (first, second))
        self.expect(first[1], "rendezvous", "WARN", "cannot remove " + rendezvous,
                    "remove it by hand")
        self.assertNotIn("WARN", [verdict for verdict, _, _ in second[1]["rendezvous"]])
        self.assertTrue(os.path.exists(theirs))

    def port_of(self, rendezvous, rank):
        """Where a rank listens, as its card in that folder says behind the job's id."""
        with open(os.path.join(rendezvous, f"{SECOND}.{rank}"), "rb") as file:
            [[address, port]] = json.loads(file.read()[8:])["endpoints"]
        self.assertEqual(address, "127.0.0.1")
        return port

    def test_strangers_starve_nobody(self):
        """10,000 at the port of rank 0 before rank 1 tries it, and on while it does, beside silent
        ones that stay."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        ranks, rendezvous = self.start_held(SECOND)
        port = self.port_of(rendezvous, 0)
        enough, stop = threading.Event(), threading.Event()
        came = []

        def flood():
            source = random.Random(1)
            staying = []
            try:
                while not stop.is_set():
                    stranger = socket.create_connection(("127.0.0.1", port), support.PATIENCE_S)
                    try:
                        stranger.sendall(garbage(source))
                    except ConnectionError:
                        pass  # it was shown out already
                    came.append(1)
                    staying.append(stranger)
                    if len(staying) > OPEN_AT_ONCE:
                        staying.pop(0).close()
                    if len(came) >= STRANGERS:
                        enough.set()
            except ConnectionError:
                pass  # the ranks are done, and their port is gone
            finally:
                enough.set()
                for stranger in staying:
                    stranger.close()

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            enough.wait()
            silent = [socket.create_connection(("127.0.0.1", port), support.PATIENCE_S)
                      for _ in range(SILENT)]
            for each in silent:
                self.addCleanup(each.close)
            descriptors = len(os.listdir(f"/proc/{ranks[0].pid}/fd"))
            self.let_go()
            found = self.findings(ranks)
        finally:
            stop.set()
            flooding.join()
        self.assertGreaterEqual(len(came), STRANGERS)
        self.assertLess(descriptors, 256, "what strangers cost is bounded")
        for status, each in found:
            self.assertEqual(status, 0, each)
            self.expect(each, "reach", "OK")
            self.expect(each, "job", "OK")


if __name__ == "__main__":
    support.main()
