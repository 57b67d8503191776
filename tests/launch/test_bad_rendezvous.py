# SPDX-License-Identifier: Apache-2.0
"""Rendezvous that go wrong: who is absent, slow, dead, double, of another version or without the
secret is named by every rank, in one sentence, and the others meet where they can."""

import os
import signal
import socket
import struct
import time
import unittest

import wire
from wire import Impostor, Member
from support import (INVALID, IO, MISMATCH, PATIENCE, PEER_LOST, TIMEOUT, LaunchTest, free_port)

SECRET = "0123456789abcdef0123456789abcdef"

# Short, for the tests that sit one out, and still one that a loaded machine can hold: ranks have
# four fifths of it to connect to each other.
LEASE_MS = 3000
SILENCE_MS = LEASE_MS * 4 // 5


class RendezvousTest(LaunchTest):
    """Ranks that are told a port of 127.0.0.1."""

    def setUp(self):
        super().setUp()
        self.port = free_port()

    def start_at(self, rank, world, *arguments, port=None, **environment):
        return self.start_rank("--rank", rank, "--world", world, "--rendezvous",
                               f"tcp:127.0.0.1:{port or self.port}", "--host", f"h{rank}",
                               *arguments, **environment)

    def join(self, rank, world, **said):
        self.await_listener()
        member = Member(self.port, rank, world, **said)
        self.addCleanup(member.close)
        return member.join()

    def await_all_but(self, member, missing):
        """Until rank 0 says that these alone have not come to the first round."""
        while True:
            code, sentence, who = member.missing(0)
            self.assertEqual(code, 0, sentence)
            if who == missing:
                return


class Absent(RendezvousTest):
    def test_rank_0_never_comes(self):
        rank = self.start_at(1, 2, "--timeout-ms", 300)
        self.assert_ends(rank, TIMEOUT, "rank 0 never came",
                         f"connecting to 127.0.0.1:{self.port}: Connection refused")

    def test_others_never_come(self):
        zero, two = self.start_at(0, 4), self.start_at(2, 4, "--timeout-ms", 2000)
        late = (f"the rendezvous at 127.0.0.1:{self.port} passed its deadline: ranks 1 and 3 never "
                "came; see what is printed there, or allow more in timeout_ms")
        self.assertEqual(self.assert_ends(two, TIMEOUT), late)
        self.assert_ends(zero, PEER_LOST, "rank 2 (host h2) gave up before all ranks had met: "
                         + late)

    def test_slow_ranks_are_waited_for(self):
        """Late is not lost, however short the lease, and who begins and stays stops nobody."""
        ranks = {1: self.start_at(1, 3, "--lease-ms", LEASE_MS)}
        time.sleep(LEASE_MS / 1000)
        ranks[0] = self.start_at(0, 3, "--lease-ms", LEASE_MS)
        self.await_listener()
        dawdler = Member(self.port, 2, 3)
        self.addCleanup(dawdler.close)
        dawdler.greet()
        time.sleep(LEASE_MS / 1000)
        ranks[2] = self.start_at(2, 3, "--lease-ms", LEASE_MS)
        self.assert_all_ok([ranks[rank] for rank in range(3)])

    def test_a_silent_listener_is_no_rank_0(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        rank = self.start_at(1, 2, "--timeout-ms", 500, port=listener.getsockname()[1])
        self.assert_ends(rank, TIMEOUT, "rank 0 never came")

    def test_a_full_backlog_is_no_rank_0(self):
        """A connection that nobody answers, as when rank 0's host is behind a silent firewall."""
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            self.addCleanup(filler.close)
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        rank = self.start_at(1, 2, "--timeout-ms", 500, port=listener.getsockname()[1])
        self.assert_ends(rank, TIMEOUT, "rank 0 never came")


class Lost(RendezvousTest):
    """Ranks 0, 1 and 2 have come, rank 3 (this test) holds the rendezvous open."""

    def lose(self, victim, number):
        ranks = [self.start_at(rank, 4, "--lease-ms", LEASE_MS) for rank in range(3)]
        member = self.join(3, 4, lease_ms=LEASE_MS)
        self.await_all_but(member, "rank 3 came but has not got this far")
        ranks[victim].signal(number)
        survivors = [rank for rank in range(3) if rank != victim]
        sentences = {self.assert_ends(ranks[rank], PEER_LOST, f"rank {victim} (host h{victim}) ")
                     for rank in survivors}
        self.assertEqual(len(sentences), 1, sentences)
        sentence = sentences.pop()
        if victim != 0:
            self.assertEqual(wire.status_of(member.hear(wire.VERDICT))[:2],
                             (PEER_LOST, sentence))
        return sentence

    def test_killed(self):
        self.assertIn("its connection closed", self.lose(2, signal.SIGKILL))

    def test_killed_rank_0(self):
        self.assertIn("its connection closed", self.lose(0, signal.SIGKILL))

    def test_stopped(self):
        self.assertIn(f"sent no keepalive for {SILENCE_MS} ms", self.lose(1, signal.SIGSTOP))

    def test_stopped_rank_0(self):
        self.assertIn(f"sent no keepalive for {SILENCE_MS} ms", self.lose(0, signal.SIGSTOP))

    def test_a_member_that_falls_silent(self):
        ranks = [self.start_at(rank, 3, "--lease-ms", LEASE_MS) for rank in range(2)]
        member = self.join(2, 3, lease_ms=LEASE_MS, host=b"mute")
        self.await_all_but(member, "rank 2 came but has not got this far")
        for rank in ranks:
            self.assert_ends(rank, PEER_LOST,
                             f"rank 2 (host mute) sent no keepalive for {SILENCE_MS} ms")
        self.assertIn("rank 2 (host mute)",
                      wire.status_of(member.hear(wire.VERDICT))[1])

    def test_a_member_that_leaves_says_why_and_all_repeat_it(self):
        ranks = [self.start_at(rank, 3) for rank in range(2)]
        member = self.join(2, 3)
        self.await_all_but(member, "rank 2 came but has not got this far")
        why = b"no descriptors are left"
        member.say(wire.LEAVE, struct.pack("<i", -9) + wire.text(why))
        sentences = {self.assert_ends(rank, PEER_LOST, why.decode()) for rank in ranks}
        self.assertEqual(sentences, {"rank 2 (host python) gave up before all ranks had met: "
                                     "no descriptors are left"})

    def test_a_member_whose_blob_is_garbage_is_named(self):
        ranks = [self.start_at(rank, 3) for rank in range(2)]
        member = self.join(2, 3)
        self.await_all_but(member, "rank 2 came but has not got this far")
        member.bring(0, os.urandom(300))
        for rank in ranks:
            self.assertIn("rank 2", rank.outcome()[1], rank.text)

    def test_a_member_whose_frame_is_altered_is_lost(self):
        ranks = [self.start_at(rank, 3) for rank in range(2)]
        member = self.join(2, 3)
        self.await_all_but(member, "rank 2 came but has not got this far")
        bent = bytearray(member.sealed(wire.BRING, struct.pack("<Q", 0) + b"blob"))
        bent[-40] ^= 1
        member.send(bytes(bent))
        for rank in ranks:
            self.assert_ends(rank, PEER_LOST, "rank 2 (host python)")


class Disagree(RendezvousTest):
    def test_worlds(self):
        other = self.start_at(1, 3)
        ranks = [self.start_at(rank, 2) for rank in range(1)]
        self.assert_ends(other, MISMATCH, "rank 1 (host h1) says world 3, rank 0 (host h0) says 2")
        ranks.append(self.start_at(1, 2))
        self.assert_all_ok(ranks)

    def test_one_number_twice(self):
        ranks = [self.start_at(rank, 3) for rank in range(2)]
        member = self.join(2, 3)
        self.await_all_but(member, "rank 2 came but has not got this far")
        double = self.start_at(2, 3)
        self.assert_ends(double, INVALID, "where rank 2 of host python is already",
                         "two ranks have one number")
        member.say(wire.LEAVE, struct.pack("<i", 0) + wire.text(b""))
        for rank in ranks:
            self.assert_ends(rank, PEER_LOST, "rank 2 (host python) gave up")

    def test_two_ranks_0(self):
        first = self.start_at(0, 2)
        self.await_listener()
        self.assert_ends(self.start_at(0, 2), IO, f"cannot listen at 127.0.0.1:{self.port}",
                         "give another")
        self.assert_all_ok([first, self.start_at(1, 2)])

    def test_two_jobs_at_one_port(self):
        where = f"tcp:127.0.0.1:{self.port}#"
        ranks = [self.start_rank("--rank", 0, "--world", 2, "--rendezvous", where + "one")]
        other = self.start_rank("--rank", 1, "--world", 2, "--rendezvous", where + "two")
        self.assert_ends(other, MISMATCH, "of job 'one'", "of job 'two'",
                         "two jobs met at one port")
        ranks.append(self.start_rank("--rank", 1, "--world", 2, "--rendezvous", where + "one"))
        self.assert_all_ok(ranks)

    def test_a_rank_of_another_version(self):
        ranks = [self.start_at(0, 2)]
        self.await_listener()
        for said in ({"version": 20304}, {"protocol": 7}):
            member = Member(self.port, 1, 2, **said)
            self.addCleanup(member.close)
            kind, body = member.greet()
            self.assertEqual(kind, wire.REFUSAL)
            code, sentence, _ = wire.status_of(body)
            self.assertEqual(code, MISMATCH)
            self.assertIn("install one version on every host", sentence)
            self.assertIn("rank 1 (host python) runs libparallax "
                          + ("2.3.4" if "version" in said else "0.2.0"), sentence)
        ranks.append(self.start_at(1, 2))
        self.assert_all_ok(ranks)

    def test_a_rank_0_of_another_version(self):
        zero = Impostor()
        self.addCleanup(zero.close)
        rank = self.start_at(1, 2, port=zero.port)
        zero.accept()
        zero.frame()
        zero.send(wire.frame(wire.CHALLENGE, wire.introduction(0, 2, version=20304)))
        self.assert_ends(rank, MISMATCH, "rank 0 (host python) runs libparallax 2.3.4",
                         "rank 1 (host h1) runs 0.2.0")


class Secrets(RendezvousTest):
    def test_wrong_and_missing_secrets_are_told_and_the_others_meet(self):
        right, wrong = self.secret_file(), self.secret_file("f" * 32, "wrong")
        ranks = [self.start_at(0, 3, "--secret-file", right)]
        self.assert_ends(self.start_at(2, 3, "--secret-file", wrong), INVALID, "wrong secret")
        self.assert_ends(self.start_at(2, 3), INVALID, "rank 0 (host h0) was given a secret",
                         "rank 2 (host h2) was not")
        ranks.append(self.start_at(1, 3, PARALLAX_SECRET_FILE=right))
        ranks.append(self.start_at(2, 3, PARALLAX_SECRET=SECRET))
        self.assert_all_ok(ranks)
        self.assertIn("turned away 127.0.0.1:", ranks[0].text)
        for rank in ranks:
            self.assertNotIn(SECRET, rank.text)

    def test_other_addresses_take_one(self):
        for rank in range(2):
            ended = self.start_rank("--rank", rank, "--world", 2, "--rendezvous",
                                    f"tcp:0.0.0.0:{self.port}")
            self.assert_ends(ended, INVALID, "open to other machines", "there is no secret",
                             "mode 0600", "127.0.0.1")

    def test_a_file_that_others_can_read(self):
        path = self.secret_file(mode=0o644)
        sentence = self.assert_ends(self.start_at(0, 2, "--secret-file", path), INVALID,
                                    "chmod 600 " + path)
        self.assertNotIn(SECRET, sentence)

    def test_an_impostor_of_rank_0_is_not_believed(self):
        """It knows everything but the secret, and sends back what it was sent."""
        for answer in (os.urandom(32), None):
            zero = Impostor()
            self.addCleanup(zero.close)
            rank = self.start_at(1, 2, "--secret-file", self.secret_file(), port=zero.port)
            zero.accept()
            zero.frame()
            zero.send(wire.frame(wire.CHALLENGE, wire.introduction(0, 2, secret=True)))
            kind, proof = zero.frame()
            self.assertEqual(kind, wire.PROOF)
            welcome = struct.pack("<i", 0) + wire.text(b"")
            zero.send(wire.frame(wire.WELCOME, welcome + (answer or proof)))
            self.assert_ends(rank, INVALID, "does not know the secret")

    def test_an_impostor_that_takes_the_secret_away_is_not_followed(self):
        zero = Impostor()
        self.addCleanup(zero.close)
        rank = self.start_at(1, 2, "--secret-file", self.secret_file(), port=zero.port)
        zero.accept()
        zero.frame()
        zero.send(wire.frame(wire.CHALLENGE, wire.introduction(0, 2, secret=False)))
        self.assert_ends(rank, INVALID, "rank 1 (host h1) was given a secret",
                         "rank 0 (host python) was not")

    def test_replays_and_reflections_fail(self):
        secret = self.secret_file()
        ranks = [self.start_at(0, 3, "--secret-file", secret)]
        honest = self.join(2, 3, secret=SECRET.encode())
        # All that an honest rank said, once more, as the rank that has not come yet and as itself.
        replay = Member(self.port, 2, 3, secret=b"unknown")
        self.addCleanup(replay.close)
        replay.send(honest.sent)
        self.assertEqual(replay.frame()[0], wire.CHALLENGE)
        kind, body = replay.frame()
        self.assertEqual(kind, wire.REFUSAL)
        self.assertIn("wrong secret", wire.status_of(body)[1])
        self.assertTrue(replay.hangs_up())
        # Rank 0's own words, sent back to it as a rank's.
        mirror = Member(self.port, 1, 3, secret=b"unknown")
        self.addCleanup(mirror.close)
        mirror.hello = honest.challenge[:10] + struct.pack("<I", 1) + honest.challenge[14:]
        self.assertEqual(mirror.greet()[0], wire.CHALLENGE)
        mirror.send(wire.frame(wire.PROOF, honest.welcome[-32:]))
        self.assertEqual(mirror.frame()[0], wire.REFUSAL)
        # A proof of one session in another.
        swap = Member(self.port, 1, 3, secret=b"unknown")
        self.addCleanup(swap.close)
        self.assertEqual(swap.greet()[0], wire.CHALLENGE)
        swap.send(wire.frame(wire.PROOF, honest.proof))
        self.assertEqual(swap.frame()[0], wire.REFUSAL)
        # A sealed frame a second time ends the member that it came from, and no other.
        ranks.append(self.start_at(1, 3, "--secret-file", secret))
        self.await_all_but(honest, "rank 2 came but has not got this far")
        seal = honest.sealed(wire.KEEPALIVE)
        honest.send(seal + seal)
        for rank in ranks:
            self.assert_ends(rank, PEER_LOST, "rank 2 (host python)")


if __name__ == "__main__":
    unittest.main()
