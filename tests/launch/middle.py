# SPDX-License-Identifier: Apache-2.0
"""A man in the middle: two hosts, network namespaces, between which every byte passes through this
process. Each host has a link to a namespace that bears the other's address, and what it connects
to there is connected on to the other from its own address: TCP itself is content at both ends,
whatever an attack does to what is said. An attack gets frames, and says what is passed on in their
place. Needs root and iproute2."""

import contextlib
import ctypes
import os
import re
import selectors
import shutil
import socket
import struct
import subprocess
import threading
import time

ADDRESSES = ("10.79.0.1", "10.79.0.2")  # of rank 0 and of rank 1
RENDEZVOUS, TRANSPORT = "rendezvous", "transport"
HEADER, TAG, MAC = 8, 16, 32  # bytes around a frame's body: of the transport's, of the rendezvous's
MESSAGE, WELCOME, GOODBYE = 1, 2, 3
SEALED_FROM = 16              # the first kind of frame of the rendezvous that has a MAC
TLS = range(20, 25)           # what a record of TLS begins with, before 03
RECORD = 0
PATIENCE = 60                 # seconds after which this process has failed

_libc = ctypes.CDLL(None, use_errno=True)


def why_not():
    """Why there can be no such hosts here; None where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip") or not shutil.which("unshare"):
        return "needs ip and unshare (iproute2, util-linux)"
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    return f"no network namespaces here: {probe.stderr.strip()}" if probe.returncode else None


def remove_left_behind():
    """Of tests that were killed before they could remove theirs."""
    for name in (line.split()[0] for line in ip("netns", "list").splitlines()):
        found = re.fullmatch(r"plxm(\d+)[rf]\d", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Hosts:
    """The namespaces: of each rank, and of the end of its link, which passes for the other rank."""

    def __init__(self):
        remove_left_behind()
        self.ranks = [f"plxm{os.getpid()}r{rank}" for rank in range(2)]
        self.faces = [f"plxm{os.getpid()}f{rank}" for rank in range(2)]
        try:
            for rank in range(2):
                self._join(rank)
            for name in self.ranks:
                self._await_link(name)
        except BaseException:
            self.close()
            raise

    def _join(self, rank):
        ends = ((self.ranks[rank], ADDRESSES[rank]), (self.faces[rank], ADDRESSES[1 - rank]))
        for name, _ in ends:
            ip("netns", "add", name)
        ip("-n", ends[0][0], "link", "add", "plx0", "type", "veth", "peer", "name", "plx0", "netns",
           ends[1][0])
        for name, address in ends:
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "plx0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "plx0", "up")

    @staticmethod
    def _await_link(name):
        """The kernel takes up to a second to see that both ends are up."""
        deadline = time.monotonic() + PATIENCE
        while " UP " not in ip("-br", "-n", name, "link", "show", "plx0"):
            if time.monotonic() > deadline:
                raise AssertionError(f"the link of {name} does not come up")
            time.sleep(0.02)

    def close(self):
        for name in self.ranks + self.faces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def socket_facing(self, rank):
        """One in the namespace at the end of that rank's link."""
        with open("/proc/thread-self/ns/net", encoding="ascii") as own, \
                open(f"/run/netns/{self.faces[rank]}", encoding="ascii") as there:
            enter(there)
            try:
                made = socket.socket()
            finally:
                enter(own)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


def enter(namespace):
    if _libc.setns(namespace.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Frame:
    """What is passed on as one: a frame, or a record of TLS."""

    def __init__(self, way, kind, data):
        self.wire = way.wire      # RENDEZVOUS or TRANSPORT
        self.port = way.port      # of the connection: each rail has another
        self.sender = way.sender  # its rank
        self.kind = kind          # of the frame; RECORD: of TLS
        self.data = data


def first_frame(way, tag_bytes):
    """The next one that was heard; None: it is not all there."""
    data = way.unread
    if len(data) < HEADER:
        return None
    if way.wire == RENDEZVOUS:
        body, kind = struct.unpack_from("<IB", data)
        whole = 5 + body + (MAC if kind >= SEALED_FROM else 0)
    elif data[0] in TLS and data[1] == 3 and data[2] in (1, 3):
        kind, whole = RECORD, 5 + struct.unpack_from(">H", data, 3)[0]
    else:
        body, kind = struct.unpack_from("<IB", data)
        whole = HEADER + body + tag_bytes
    return Frame(way, kind, data[:whole]) if len(data) >= whole else None


class Way:
    """What one rank says on one connection."""

    def __init__(self, wire, port, sender, heard, said):
        self.wire = wire
        self.port = port
        self.sender = sender
        self.heard = heard  # the socket it comes from
        self.said = said    # the socket it goes to
        self.unread = b""
        self.back = None    # the other way of the connection
        self.over = False


class Middle(threading.Thread):
    """Passes on what the ranks of one job say, until closed. attack(frame) gives what goes to its
    receiver in the frame's place, what goes back to its sender, and whether both are hung up on
    behind that. `ports`: those at which ranks listen, by wire. `heard`: all that was said, by wire;
    `frames`: all that were passed on or not."""

    def __init__(self, hosts, ports, attack=None, tag_bytes=TAG):
        super().__init__(daemon=True)
        self.heard = {RENDEZVOUS: b"", TRANSPORT: b""}
        self.frames = []
        self._failure = None
        self._hosts = hosts
        self._attack = attack or (lambda frame: (frame.data, b"", False))
        self._tag_bytes = tag_bytes
        self._selector = selectors.DefaultSelector()
        self._sockets = []
        self._closed = threading.Event()
        for wire, port, rank in ((wire, port, rank) for wire, some in ports.items()
                                 for port in some for rank in range(2)):
            listener = self._socket_facing(rank)
            listener.bind((ADDRESSES[1 - rank], port))
            listener.listen()
            self._selector.register(listener, selectors.EVENT_READ, (wire, port, rank))
        self.start()

    def close(self):
        self._closed.set()
        self.join()
        self._selector.close()
        for each in self._sockets:
            each.close()
        if self._failure is not None:
            raise self._failure

    def run(self):
        try:
            while not self._closed.is_set():
                for key, _ in self._selector.select(0.05):
                    if isinstance(key.data, Way):
                        self._pass_on(key.data)
                    else:
                        self._join_on(key.fileobj, *key.data)
        except Exception as failure:  # close() raises it
            self._failure = failure

    def _socket_facing(self, rank):
        made = self._hosts.socket_facing(rank)
        self._sockets.append(made)
        return made

    def _join_on(self, listener, wire, port, rank):
        near, _ = listener.accept()
        self._sockets.append(near)
        far = self._socket_facing(1 - rank)
        try:
            far.bind((ADDRESSES[rank], 0))
            far.connect((ADDRESSES[1 - rank], port))
        except OSError:  # it does not listen yet, or any more
            near.close()
            return
        there, back = Way(wire, port, rank, near, far), Way(wire, port, 1 - rank, far, near)
        there.back, back.back = back, there
        for way in (there, back):
            way.heard.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            way.heard.settimeout(PATIENCE)
            self._selector.register(way.heard, selectors.EVENT_READ, way)

    def _pass_on(self, way):
        try:
            data = way.heard.recv(1 << 18)
        except OSError:
            data = b""
        if way.over or not data:
            self._end(way)
            return
        way.unread += data
        self.heard[way.wire] += data
        while (frame := first_frame(way, self._tag_bytes)) is not None:
            way.unread = way.unread[len(frame.data):]
            self.frames.append(frame)
            there, back, hangs_up = self._attack(frame)
            self._say(way, there)
            self._say(way.back, back)
            if hangs_up:
                self._end(way)
                self._end(way.back)
                return

    @staticmethod
    def _say(way, data):
        with contextlib.suppress(ConnectionError):  # its receiver has gone
            way.said.sendall(data)

    def _end(self, way):
        """Its receiver hears of it as of its sender's end."""
        if not way.over:
            self._selector.unregister(way.heard)
        way.over = True
        with contextlib.suppress(OSError):
            way.said.shutdown(socket.SHUT_WR)
