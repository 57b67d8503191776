# SPDX-License-Identifier: Apache-2.0
"""Starts the programs of a run, shows their progress, and ends them whatever happens."""

import os
import subprocess
import sys
import threading
import time

POLL_SECONDS = 0.05
GRACE_SECONDS = 2.0
LAST_LINES = 12
LOGS_SHOWN = 3
SAY_SECONDS = 8.0


class ChildError(Exception):
    """A child failed or passed its deadline; the message shows the last lines of each log."""


class Progress:
    """On standard error: one line that is drawn over on a terminal; elsewhere a line per quarter
    and at least every SAY_SECONDS."""

    WIDTH = 28

    def __init__(self, title, steps, now="starting", loss="loss"):
        self.title, self.steps, self.loss = title, max(steps, 1), loss
        self.start = time.monotonic()
        self.live = sys.stderr.isatty()
        self.quarter = 0
        self.drawn = self.start
        self._write(f"\r  {title:<22} {now} " if self.live else f"  {title:<22} {now}\n")

    def show(self, step, loss):
        now = time.monotonic()
        if self.live:
            if now - self.drawn < 0.1 and step < self.steps:
                return
            self.drawn = now
            filled = self.WIDTH * step // self.steps
            bar = "#" * filled + "." * (self.WIDTH - filled)
            rate = step / max(now - self.start, 1e-9)
            self._write(f"\r  {self.title:<22} [{bar}] {step}/{self.steps}  {self.loss} {loss:6.3f}"
                        f"  {rate:5.1f} steps/s ")
        elif step * 4 // self.steps > self.quarter or now - self.drawn > SAY_SECONDS:
            self.drawn = now
            self.quarter = step * 4 // self.steps
            self._write(f"  {self.title:<22} step {step}/{self.steps}, {self.loss} {loss:.3f}, "
                        f"{now - self.start:.1f} s\n")

    def end(self, text):
        head = "\r" if self.live else ""
        tail = "\x1b[K\n" if self.live else "\n"
        self._write(f"{head}  {self.title:<22} {text}, {time.monotonic() - self.start:.1f} s{tail}")

    @staticmethod
    def _write(text):
        sys.stderr.write(text)
        sys.stderr.flush()


class Child:
    """One process. Its output goes to a log; lines "progress STEP LOSS" also to `progress`."""

    def __init__(self, command, log, progress=None):
        self.log = log
        self.command = command
        with open(log, "wb") as errors:
            errors.write((" ".join(command) + "\n").encode())
            errors.flush()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=errors,
                stdout=subprocess.PIPE if progress else errors)
        self.reader = None
        if progress:
            self.reader = threading.Thread(target=self._read, args=(progress,), daemon=True)
            self.reader.start()

    def _read(self, progress):
        with open(self.log, "ab") as log:
            for line in self.process.stdout:
                words = line.split()
                if len(words) == 3 and words[0] == b"progress":
                    progress.show(int(words[1]), float(words[2]))
                else:
                    log.write(line)

    def last_lines(self):
        if self.reader:
            self.reader.join(timeout=1)
        with open(self.log, "rb") as log:
            lines = log.read().decode("utf-8", "replace").splitlines()
        return "\n".join("    " + line for line in lines[1:][-LAST_LINES:])


def end_all(children):
    """Ends what still runs, politely first; each by its own process id."""
    for signal_one in (lambda p: p.terminate(), lambda p: p.kill()):
        running = [c.process for c in children if c.process.poll() is None]
        for process in running:
            signal_one(process)
        deadline = time.monotonic() + GRACE_SECONDS
        while any(p.poll() is None for p in running) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    for child in children:
        if child.reader:
            child.reader.join(timeout=1)


def state_of(code):
    if code is None:
        return "was still running"
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"


def failure(what, children, labels):
    """What each child came to and the last words of some, those killed from outside first. Called
    before the children that still run are ended, whose state would then say nothing."""
    codes = [child.process.poll() for child in children]
    end_all(children)
    parts = [what]
    order = sorted(range(len(children)),
                   key=lambda i: (codes[i] is None, codes[i] is not None and codes[i] >= 0, i))
    shown = 0
    for i in order:
        if codes[i] == 0:
            continue
        parts.append(f"  {labels[i]} {state_of(codes[i])}; its log: {children[i].log}")
        lines = children[i].last_lines()
        if lines and shown < LOGS_SHOWN:
            parts.append(lines)
            shown += 1
    return ChildError("\n".join(parts))


def run_all(title, commands, logs, labels, deadline_seconds, progress=None):
    """Runs the commands side by side; the first one feeds the progress. Raises ChildError."""
    children = []
    try:
        for i, (command, log) in enumerate(zip(commands, logs)):
            children.append(Child(command, log, progress if i == 0 else None))
        deadline = time.monotonic() + deadline_seconds
        failed_at = None
        while True:
            codes = [child.process.poll() for child in children]
            if all(code is not None for code in codes):
                break
            now = time.monotonic()
            if failed_at is None and any(codes):
                failed_at = now  # the others learn of it by themselves: their words are worth it
            if failed_at is not None and now > failed_at + GRACE_SECONDS * 2:
                break
            if now > deadline:
                raise failure(f"{title}: not done after {deadline_seconds:.0f} s", children, labels)
            time.sleep(POLL_SECONDS)
        if any(child.process.poll() != 0 for child in children):
            raise failure(f"{title} failed", children, labels)
    finally:
        end_all(children)


def make_folder(path):
    os.makedirs(path, exist_ok=True)
    return path
