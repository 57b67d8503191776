# SPDX-License-Identifier: Apache-2.0
"""What the launch tests share: ranks as processes with their lines, clean environments, ports."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "support"))

from surroundings import clean_environment, free_port, mpirun  # noqa: E402,F401

RANK = os.environ["PARALLAX_TEST_RANK"]  # the program of rank.c
PATIENCE = 90  # seconds after which a wait has failed; nothing here takes as long
OK, INVALID, TIMEOUT, PEER_LOST, MISMATCH, IO = 0, -1, -4, -5, -8, -10  # of parallax.h


def listeners(pid):
    """The tcp addresses at which a process listens: (host, port)."""
    lines = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in lines.splitlines():
        if f"pid={pid}," in line:
            host, _, port = line.split()[3].rpartition(":")
            found.append((host, int(port)))
    return found


def keeping_nothing_freed():
    """The environment of a process whose memory is looked at: AddressSanitizer would keep 256 MiB
    of what it has freed."""
    options = os.environ.get("ASAN_OPTIONS")
    return {"ASAN_OPTIONS": ":".join(filter(None, (options, "quarantine_size_mb=1")))}


class Process:
    """A program whose lines, of both outputs, are kept."""

    def __init__(self, command, environment):
        self.command = command
        self.text = ""
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.pid = self._process.pid

    def _read(self, seconds):
        """Reads what is there; false once all is read."""
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            return True
        read = os.read(self._process.stdout.fileno(), 65536)
        self.text += read.decode("utf-8", "replace")
        return bool(read)

    def await_line(self, start):
        deadline = time.monotonic() + PATIENCE
        while not self.has(start):
            if time.monotonic() > deadline or not self._read(0.1):
                raise AssertionError(f"no line {start!r} of {self.command}:\n{self.text}")

    def said(self, start):
        """Whether there is such a line by now."""
        self._read(0)
        return self.has(start)

    def has(self, start):
        return any(line.startswith(start) for line in self.text.splitlines())

    def wait(self):
        """Its exit status, negative for a signal."""
        deadline = time.monotonic() + PATIENCE
        while self._read(max(0.0, min(1.0, deadline - time.monotonic()))):
            if time.monotonic() > deadline:
                raise AssertionError(f"it hangs: {self.command}:\n{self.text}")
        return self._process.wait(PATIENCE)

    def signal(self, number):
        os.kill(self.pid, number)

    def outcome(self):
        """(status, sentence) as rank.c ends."""
        code = self.wait()
        if code == 0:
            return OK, ""
        for line in self.text.splitlines():
            if line.startswith("status "):
                status, _, sentence = line[len("status "):].partition(": ")
                return int(status), sentence
        raise AssertionError(f"ended with {code}: {self.command}:\n{self.text}")

    def end(self):
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class LaunchTest(unittest.TestCase):
    """Processes and a folder that end with the test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="parallax-launch-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, command, **environment):
        process = Process(command, clean_environment(**environment))
        self.addCleanup(process.end)
        return process

    def start_rank(self, *arguments, **environment):
        return self.start([RANK, *map(str, arguments)], **environment)

    def secret_file(self, secret="0123456789abcdef0123456789abcdef", name="secret", mode=0o600):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(secret + "\n")
        os.chmod(path, mode)
        return path

    def await_listener(self):
        """Until rank 0 listens at self.port; the connection that shows it says nothing and goes."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        self.fail("rank 0 does not listen")

    def assert_all_ok(self, ranks):
        for rank, process in enumerate(ranks):
            self.assertEqual(process.wait(), 0, process.text)
            self.assertIn(f"ok rank {rank} of {len(ranks)} ", process.text)

    def assert_ends(self, process, status, *parts):
        """It failed so, and its sentence has these parts; gives the sentence."""
        ended, sentence = process.outcome()
        self.assertEqual(ended, status, process.text)
        for part in parts:
            self.assertIn(part, sentence)
        return sentence
