# SPDX-License-Identifier: Apache-2.0
"""A man in the middle of two hosts, through whom passes all that they say. He reads everything:
nothing of it under encrypt. He alters, repeats, swaps, leaves out, sends back, makes up and cuts
off frames of transport tcp and of the rendezvous: each ends the job by an error that names the
peer, with no wrong value before. Under security handshake he does what he likes, as the documents
say."""

import itertools
import random
import struct
import unittest

import middle
from middle import ADDRESSES, GOODBYE, MESSAGE, RECORD, RENDEZVOUS, SEALED_FROM, TRANSPORT
from support import PEER_LOST, RANK, TIMEOUT, LaunchTest

STEPS = 400
PACE_MS = 2
LEASE_MS = 4000
WRONG_VALUE = 1  # as rank.c ends
SECRET = "a secret that is long enough for ranks"
# The row that rank 1 has pushed twice, as its owner, rank 0, gets it; and another gradient.
PUSHED = struct.pack("<4f", *[2.0] * 4)
OTHER = struct.pack("<4f", *[3.0] * 4)
ALTERED = "a frame of its connection was altered, repeated or left out on the way"
BROKE = "its connection broke (closed without a goodbye"
MESSAGES = 60  # one of the first so many of a rank is struck: of commit, or of a step
SEALED = 1     # what a rank says sealed in the rendezvous: the other waits for more behind it

ports = itertools.count(31000)  # none is taken twice, so none waits for the end of an earlier job's


def flipped(data, at):
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def flip(at):
    return lambda attack, frame: (flipped(frame.data, at), b"", False)


def swap(attack, frame):
    attack.held = frame.data
    return b"", b"", False


# What is done to one frame: (attack, frame) to what Middle takes.
ACTS = {
    "a bit of its length": flip(0),
    "a bit of its type": flip(4),
    "a bit of its body": flip(12),
    "a bit of its tag": flip(-1),
    "twice": lambda attack, frame: (2 * frame.data, b"", False),
    "an earlier one again": lambda attack, frame: (frame.data + attack.earlier[0], b"", False),
    "swapped with the next": swap,
    "left out": lambda attack, frame: (b"", b"", False),
    "sent back too": lambda attack, frame: (frame.data, frame.data, False),
    "sent back": lambda attack, frame: (b"", frame.data, False),
    "another job's": lambda attack, frame: (attack.recorded, b"", False),
    "one made up": lambda attack, frame: (
        struct.pack("<IBxxx", 5, MESSAGE) + b"hello" + bytes(16) + frame.data, b"", False),
    "a goodbye made up": lambda attack, frame: (
        struct.pack("<IBxxx", 0, GOODBYE) + bytes(16), b"", True),
    "cut short": lambda attack, frame: (frame.data[:len(frame.data) // 2], b"", True),
    "cut off behind it": lambda attack, frame: (frame.data, b"", True),
}
CUTS = ("cut short", "cut off behind it")
TO_ITS_SENDER = ("sent back too", "sent back")


class Attack:
    """Does something to one frame of one rank's: that of this number among its messages, or among
    what it says sealed in the rendezvous."""

    def __init__(self, wire, sender, number, act, recorded=b""):
        self.of = (wire, sender)
        self.number = number
        self.act = act
        self.recorded = recorded
        self.earlier = []
        self.held = b""
        self.happened = False

    def __call__(self, frame):
        if (frame.wire, frame.sender) != self.of or not is_sealed(frame):
            return frame.data, b"", False
        if len(self.earlier) == self.number and not self.happened:
            self.happened = True
            return self.act(self, frame)
        self.earlier.append(frame.data)
        held, self.held = self.held, b""
        return frame.data + held, b"", False


def is_sealed(frame):
    return frame.kind >= SEALED_FROM if frame.wire == RENDEZVOUS else frame.kind == MESSAGE


class Flips:
    """Flips a bit of that record of TLS that a rank says in a connection: of the first, or of
    every one."""

    def __init__(self, sender, number, always=False):
        self.of = (sender, number)
        self.always = always
        self.counts = [0, 0]
        self.happened = 0

    def __call__(self, frame):
        if frame.wire != TRANSPORT or frame.kind != RECORD:
            return frame.data, b"", False
        if frame.sender == 0 and self.counts[1] > 0 and frame.data[0] == 22:
            self.counts = [0, 0]  # a hello: it tries again
        number = self.counts[frame.sender]
        self.counts[frame.sender] += 1
        if (frame.sender, number) != self.of or (self.happened and not self.always):
            return frame.data, b"", False
        self.happened += 1
        return flipped(frame.data, len(frame.data) // 2), b"", False


class OtherRail:
    """In place of a message of a rank's on one rail, passes on that of the same number on the
    other: between ranks that have two."""

    NUMBER = 5

    def __init__(self, sender):
        self.sender = sender
        self.said = {}  # by port
        self.happened = False

    def __call__(self, frame):
        if (frame.sender, frame.kind) != (self.sender, MESSAGE) or frame.wire != TRANSPORT:
            return frame.data, b"", False
        said = self.said.setdefault(frame.port, [])
        said.append(frame.data)
        others = [other for port, other in self.said.items() if port != frame.port]
        if len(said) < self.NUMBER or self.happened or not others or len(others[0]) < len(said):
            return frame.data, b"", False
        self.happened = True
        return others[0][len(said) - 1], b"", False


def other_gradient(frame):
    """Every one that rank 1 pushes, where it can be seen."""
    if frame.wire == TRANSPORT and frame.sender == 1 and frame.kind == MESSAGE:
        return frame.data.replace(PUSHED, OTHER), b"", False
    return frame.data, b"", False


class ManInTheMiddle(LaunchTest):
    @classmethod
    def setUpClass(cls):
        why = middle.why_not()
        if why is not None:
            raise unittest.SkipTest(why)
        cls.hosts = middle.Hosts()
        cls.addClassCleanup(cls.hosts.close)

    def run_job(self, security, attack=None, *, steps=STEPS, timeout_ms=60000, rails=1):
        """The man in the middle, and both ranks, which have ended."""
        at = {RENDEZVOUS: [next(ports)], TRANSPORT: [next(ports) for _ in range(rails)]}
        tag_bytes = 0 if security == "handshake" else middle.TAG
        between = middle.Middle(self.hosts, at, attack, tag_bytes)
        try:
            ranks = [self.start_at(rank, at, security, steps, timeout_ms) for rank in range(2)]
            for rank in ranks:
                rank.wait()
        finally:
            between.close()
        return between, ranks

    def start_at(self, rank, at, security, steps, timeout_ms):
        return self.start(
            ["ip", "netns", "exec", self.hosts.ranks[rank], RANK, "--rank", str(rank), "--world",
             "2", "--rendezvous", f"tcp:{ADDRESSES[0]}:{at[RENDEZVOUS][0]}", "--host", f"h{rank}",
             "--steps", str(steps), "--pace-ms", str(PACE_MS), "--lease-ms", str(LEASE_MS),
             "--timeout-ms", str(timeout_ms)],
            PARALLAX_SECRET=SECRET, PARALLAX_SECURITY=security,
            PARALLAX_TCP_ADDRESS=ADDRESSES[rank],
            PARALLAX_TCP_RAILS=",".join(["plx0"] * (len(at[TRANSPORT]) - 1)),
            PARALLAX_TCP_PORTS=f"{at[TRANSPORT][0]}-{at[TRANSPORT][-1]}")

    def recorded(self, security):
        """Of a job that nobody disturbed, by wire and sender: what was said sealed, in order."""
        between, ranks = self.run_job(security, steps=5)
        self.assert_all_ok(ranks)
        return {(wire, sender): [frame.data for frame in between.frames
                                 if (frame.wire, frame.sender) == (wire, sender)
                                 and is_sealed(frame)]
                for wire in (RENDEZVOUS, TRANSPORT) for sender in range(2)}

    def test_he_reads_what_is_not_encrypted(self):
        for security in ("encrypt", "authenticate", "handshake"):
            between, ranks = self.run_job(security, steps=5)
            self.assert_all_ok(ranks)
            self.assertEqual(PUSHED in between.heard[TRANSPORT], security != "encrypt")
            self.assertIn(b"from=0 to=1", between.heard[TRANSPORT])  # who speaks to whom
            self.assertIn(b"\x02\x00h1", between.heard[RENDEZVOUS])  # of which host
            for heard in between.heard.values():
                self.assertNotIn(SECRET.encode(), heard)

    def test_what_he_does_to_a_frame_ends_the_job(self):
        random_number = random.Random(13)
        for security in ("encrypt", "authenticate"):
            recorded = self.recorded(security)
            for act, sender in itertools.product(ACTS, range(2)):
                number = random_number.randrange(1, MESSAGES)
                earlier_job = recorded[TRANSPORT, sender]
                with self.subTest(act=act, security=security, sender=sender, number=number):
                    attack = Attack(TRANSPORT, sender, number, ACTS[act],
                                    earlier_job[min(number, len(earlier_job) - 1)])
                    _, ranks = self.run_job(security, attack)
                    self.assertTrue(attack.happened)
                    struck = sender if act in TO_ITS_SENDER else 1 - sender
                    for rank, process in enumerate(ranks):
                        seen = ALTERED if rank == struck and act not in CUTS else BROKE
                        if act == "sent back" and rank != struck:
                            seen = ""  # it may see that one is missing, or that the other left
                        self.assert_ends(process, PEER_LOST,
                                         f"rank {1 - rank} (host h{1 - rank}) is lost: {seen}")

    def test_a_frame_of_another_rail_ends_the_job(self):
        for sender in range(2):
            attack = OtherRail(sender)
            _, ranks = self.run_job("encrypt", attack, rails=2)
            self.assertTrue(attack.happened)
            self.assert_ends(ranks[1 - sender], PEER_LOST,
                             f"rank {sender} (host h{sender}) is lost: {ALTERED}")
            self.assert_ends(ranks[sender], PEER_LOST,
                             f"rank {1 - sender} (host h{1 - sender}) is lost: ")

    def test_what_he_does_in_the_rendezvous_ends_it(self):
        recorded = self.recorded("encrypt")
        for act, sender in itertools.product(ACTS, range(2)):
            with self.subTest(act=act, sender=sender):
                attack = Attack(RENDEZVOUS, sender, SEALED, ACTS[act],
                                recorded[RENDEZVOUS, sender][SEALED])
                between, ranks = self.run_job("encrypt", attack)
                self.assertTrue(attack.happened)
                self.assertEqual(between.heard[TRANSPORT], b"", "it was not met")
                for rank, process in enumerate(ranks):
                    self.assert_ends(process, PEER_LOST, f"rank {1 - rank} (host h{1 - rank}) ",
                                     " while ranks met at ")

    def test_an_altered_handshake_is_no_connection_and_the_next_one_is(self):
        for sender, number in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
            with self.subTest(sender=sender, number=number):
                attack = Flips(sender, number)
                _, ranks = self.run_job("encrypt", attack, steps=5)
                self.assertEqual(attack.happened, 1)
                self.assert_all_ok(ranks)

    def test_ranks_whose_every_handshake_is_altered_name_each_other(self):
        attack = Flips(1, 0, always=True)
        _, ranks = self.run_job("encrypt", attack, steps=5, timeout_ms=LEASE_MS // 2)
        self.assertGreater(attack.happened, 1)
        for rank, process in enumerate(ranks):
            ended, sentence = process.outcome()
            self.assertIn(ended, (TIMEOUT, PEER_LOST), process.text)
            self.assertIn(f"rank {1 - rank} (host h{1 - rank})", sentence)
            self.assertIn("no connection by the deadline", sentence)

    def test_gradients_of_his_own(self):
        """They are summed where frames are not protected, and no job is hurt where he sees none."""
        _, ranks = self.run_job("handshake", other_gradient, steps=20)
        self.assertEqual(ranks[1].wait(), WRONG_VALUE, ranks[1].text)
        self.assertIn("this rank's row", ranks[1].text)
        _, ranks = self.run_job("authenticate", other_gradient, steps=20)
        self.assert_ends(ranks[0], PEER_LOST, f"rank 1 (host h1) is lost: {ALTERED}")
        self.assert_ends(ranks[1], PEER_LOST, "rank 0 (host h0) is lost: ")
        _, ranks = self.run_job("encrypt", other_gradient, steps=20)
        self.assert_all_ok(ranks)


if __name__ == "__main__":
    unittest.main()
