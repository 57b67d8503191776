# SPDX-License-Identifier: Apache-2.0
"""The wire of the tcp rendezvous, written a second time from docs/rendezvous.md: what a stranger,
an impostor, a recorder or a rank of another version would send."""

import hashlib
import hmac
import os
import socket
import struct

HELLO, CHALLENGE, PROOF, WELCOME, REFUSAL = 1, 2, 3, 4, 5
KEEPALIVE, BRING, BLOBS, LEAVE, VERDICT, ASK, ANSWER, BYE = 16, 17, 18, 19, 20, 21, 22, 23
LISTEN, PARENT, COMPLETE, FETCH = 24, 25, 26, 27
MAGIC, PROTOCOL, VERSION = b"PLXM", 2, 200  # version 0.2.0
PATIENCE = 60


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def derive(key, label, context=b""):
    return mac(key, b"parallax rendezvous 1: " + label + b"\0", context)


def text(value):
    return struct.pack("<H", len(value)) + value


def frame(kind, body):
    return struct.pack("<IB", len(body), kind) + body


def introduction(rank, world, *, host=b"python", secret=False, lease_ms=5000, job=None,
                 protocol=PROTOCOL, version=VERSION):
    if job is None:
        job = b"" if secret else f"session {os.getsid(0)} of user {os.geteuid()}".encode()
    return (MAGIC + struct.pack("<HII", protocol, version, rank) + text(host)
            + struct.pack("<BII", secret, world, lease_ms) + text(job) + os.urandom(32))


def status_of(body):
    """(status, sentence, rest) of a status in a frame."""
    code, size = struct.unpack_from("<iH", body)
    return code, body[6:6 + size].decode(), body[6 + size:]


class Closed(Exception):
    """The other side hung up."""


class Wire:
    """Frames over one connection."""

    def __init__(self, connection):
        connection.settimeout(PATIENCE)
        self.connection = connection
        self.sent = b""  # all that went out, for replays

    def send(self, data):
        self.sent += data
        self.connection.sendall(data)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            try:
                read = self.connection.recv(count - len(data))
            except ConnectionError:
                read = b""
            if not read:
                raise Closed
            data += read
        return data

    def frame(self):
        """(kind, body) of the next frame."""
        size, kind = struct.unpack("<IB", self.exactly(5))
        return kind, self.exactly(size)

    def close(self):
        self.connection.close()

    def hangs_up(self):
        """Whether the other side closes the connection, whatever it still says."""
        try:
            while self.connection.recv(4096):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True


class Member(Wire):
    """A rank that comes to rank 0, up to where the caller takes it."""

    def __init__(self, port, rank, world, *, secret=b"", **said):
        super().__init__(socket.create_connection(("127.0.0.1", port), PATIENCE))
        self.key = derive(secret, b"key of a job")
        self.hello = introduction(rank, world, secret=bool(secret), **said)
        self.challenge = b""
        self.counts = [0, 0]  # frames sent, frames received

    def greet(self):
        """HELLO; gives (kind, body) of the answer."""
        self.send(frame(HELLO, self.hello))
        kind, body = self.frame()
        if kind == CHALLENGE:
            self.challenge = body
        return kind, body

    def prove(self):
        """PROOF; gives (kind, body) of the answer."""
        session = self.hello + self.challenge
        self.proof = mac(derive(self.key, b"proof of a client"), session)
        self.send(frame(PROOF, self.proof))
        kind, self.welcome = self.frame()
        body = self.welcome
        if kind == WELCOME:
            expected = mac(derive(self.key, b"proof of rank 0"), session, self.proof,
                           body[:-32])
            assert hmac.compare_digest(expected, body[-32:]), "rank 0's proof"
            self.up = derive(self.key, b"frames to rank 0", session)
            self.down = derive(self.key, b"frames from rank 0", session)
        return kind, body

    def join(self):
        kind, body = self.greet()
        assert kind == CHALLENGE, status_of(body)
        kind, body = self.prove()
        assert kind == WELCOME and status_of(body)[0] == 0, status_of(body)
        return self

    def sealed(self, kind, body=b""):
        head = frame(kind, body)
        self.counts[0] += 1
        return head + mac(self.up, struct.pack("<Q", self.counts[0] - 1), head)

    def say(self, kind, body=b""):
        self.send(self.sealed(kind, body))

    def hear(self, wanted):
        """The body of the next frame of this kind; others are passed over."""
        while True:
            kind, body = self.frame()
            seal = self.exactly(32)
            expected = mac(self.down, struct.pack("<Q", self.counts[1]), frame(kind, body))
            assert hmac.compare_digest(expected, seal), "the seal of a frame from rank 0"
            self.counts[1] += 1
            if kind == wanted:
                return body

    def bring(self, number, blob):
        self.say(BRING, struct.pack("<Q", number) + blob)

    def missing(self, number):
        """(status, sentence, who is missing in a round), as rank 0 says."""
        self.say(ASK, struct.pack("<Q", number))
        code, sentence, rest = status_of(self.hear(ANSWER))
        return code, sentence, rest[2:].decode()


class Impostor(Wire):
    """Who listens where rank 0 should, and answers one connection."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.port = self.listener.getsockname()[1]

    def accept(self):
        connection, _ = self.listener.accept()
        super().__init__(connection)
        return self

    def close(self):
        self.listener.close()
        if hasattr(self, "connection"):
            super().close()
