"""What the tests of the tool share: starting it, waiting, and skipping with a reason.

The environment names what to test: TOOL_BIN_DIR is the folder of the programs. A test runs
without the caller's own settings.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "support"))

from surroundings import clean_environment, free_port, mpirun  # noqa: E402,F401

BIN = os.environ["TOOL_BIN_DIR"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARALLAX = os.path.join(BIN, "parallax")
PATIENCE_S = 60


def environment(**extra):
    """This environment without settings and without what any launcher has put there; no HOME, so
    that no file of the user's is read."""
    return clean_environment(("HOME",), **extra)


def run(*command, env=None, timeout=PATIENCE_S, **kwargs):
    """Runs to the end; what it said is text."""
    return subprocess.run([str(c) for c in command], env=env or environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          check=False, **kwargs)


def parallax(*arguments, **kwargs):
    return run(PARALLAX, *arguments, **kwargs)


def start(*command, env=None, **kwargs):
    return subprocess.Popen([str(c) for c in command], env=env or environment(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


def end(process):
    """Kills it if it still runs."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        pipe.close()


def command_lines():
    """Of every process that lives."""
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines.append(file.read().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            pass
    return lines


def wait_until(condition, what):
    """Until it holds; a wait that lasts forever is a failure, how long it lasts is not."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.02)


def marked_sleep(case):
    """A command that sleeps, and a word that finds it among all processes."""
    word = f"9{os.getpid()}.{abs(hash(case.id())) % 100000}"
    return f"sleep {word}", word


def alive(word):
    return [line for line in command_lines() if line.startswith("sleep") and word in line]


def need_root(case):
    if os.geteuid() != 0:
        case.skipTest("needs root: it makes namespaces")
    if not shutil.which("unshare") or not shutil.which("ip"):
        case.skipTest("needs unshare and ip (util-linux, iproute2)")
    probe = subprocess.run(["unshare", "-n", "-m", "true"], capture_output=True, text=True,
                           check=False)
    if probe.returncode != 0:
        case.skipTest(f"namespaces are not allowed here: {probe.stderr.strip()}")


def read_only_folder(case):
    """(A prefix of commands, a folder that cannot be written under it), even by root."""
    need_root(case)
    folder = case.folder()
    script = f"mount -t tmpfs -o ro tmpfs {folder} && exec \"$@\""
    return ("unshare", "-m", "sh", "-c", script, "sh"), folder


class Case(unittest.TestCase):
    maxDiff = None

    def folder(self):
        path = tempfile.mkdtemp(prefix="parallax-tool-test-")
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def write(self, text, name="file", mode=0o644, folder=None):
        path = os.path.join(folder or self.folder(), name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path


def main():
    """As unittest's, but one that skips says so as the others of the suite do."""
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.skipped and len(result.skipped) == result.testsRun:
        print(f"Skipped\n{result.skipped[0][1]}")
        sys.exit(77)
    sys.exit(0 if result.testsRun else 1)
