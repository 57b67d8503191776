# SPDX-License-Identifier: Apache-2.0
"""Who takes part in bench/peers: how each is started, and what is missing where it cannot be."""
import os
import select
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


class Absent(Exception):
    """Not on this machine; the text says what is missing."""


class Failed(Exception):
    """A contender that was started and does not answer, or answers what is wrong."""


class Contender:
    """Ranks of one library, which block until they are told to run."""

    def __init__(self, name, kind, variants, start):
        self.name, self.kind, self.variants = name, kind, variants
        self._start = start
        self._processes, self._commands, self._answers = [], [], []
        self._log = None

    def start(self, world, folder, setup):
        folder = os.path.join(folder, self.name)
        os.makedirs(folder)
        for rank in range(world):
            for end in ("in", "out"):
                os.mkfifo(os.path.join(folder, f"{rank}.{end}"))
        commands = self._start(setup, world, folder)
        self._log = os.path.join(folder, "log")
        for rank in range(world):
            # Opened for both ways an end of a FIFO does not wait for the other.
            self._commands.append(os.open(os.path.join(folder, f"{rank}.in"), os.O_RDWR))
            self._answers.append(os.open(os.path.join(folder, f"{rank}.out"), os.O_RDWR))
        with open(self._log, "w", encoding="utf-8") as log:
            for command, own in commands:
                self._processes.append(subprocess.Popen(
                    command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True))

    def run(self, variant, size, iterations, timeout_s):
        """Figures of the slowest rank, in us: (reduce, reduce p99, step, step p99)."""
        line = f"{variant} {size} {iterations}\n".encode()
        for command in self._commands:
            os.write(command, line)
        worst = [0.0] * 4
        for rank, answer in enumerate(self._answers):
            text = self._read_line(rank, answer, timeout_s)
            *times, wrong = map(int, text.split())
            if wrong:
                raise Failed(f"{self.name}: {wrong} wrong numbers at {size} bytes on rank {rank}")
            worst = [max(have, ns / 1000) for have, ns in zip(worst, times)]
        return worst

    def _read_line(self, rank, answer, timeout_s):
        text = b""
        deadline = time.monotonic() + timeout_s
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([answer], [], [], 0.2)
            if ready:
                text += os.read(answer, 4096)
            elif any(process.poll() is not None for process in self._processes):
                raise Failed(f"{self.name}: ended before rank {rank} had answered: "
                             f"{self._last_words()}")
            elif time.monotonic() > deadline:
                raise Failed(f"{self.name}: rank {rank} has not answered within {timeout_s} s: "
                             f"{self._last_words()}")
        return text.decode()

    def _last_words(self):
        with open(self._log, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines()
        return lines[-1] if lines else "it is empty"

    def stop(self):
        for end in self._commands + self._answers:
            os.close(end)
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes, self._commands, self._answers = [], [], []


def _program(build, name, package):
    program = os.path.join(build, "bin", name)
    if not os.path.exists(program):
        raise Absent(f"{name} was not built{package}")
    return program


def _ours(setup, world, folder):
    launcher = os.path.join(setup.build, "bin", "parallax")
    program = _program(setup.build, "parallax_peer_ours", "")
    sizes = ",".join(map(str, setup.sizes))
    return [([launcher, "run", "-n", str(world), "--", program, folder, sizes], os.environ)]


def _limit(setup, world, folder):
    program = _program(setup.build, "parallax_peer_limit", "")
    memory = os.path.join(folder, "memory")
    return [([program, folder, str(rank), str(world), str(max(setup.sizes)), memory], os.environ)
            for rank in range(world)]


def _openmpi(transport, yielding):
    def start(setup, world, folder):
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            raise Absent("no mpirun (Debian: openmpi-bin)")
        version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
        if "Open MPI" not in version.stdout:
            raise Absent("mpirun is not Open MPI's")
        program = _program(setup.build, "parallax_peer_mpi", " (Debian: libopenmpi-dev)")
        command = [mpirun, "-n", str(world), "--oversubscribe", "--bind-to", "none",
                   "--mca", "mpi_yield_when_idle", "1" if yielding else "0", *transport]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        return [([*command, program, folder], os.environ)]
    return start


def _gloo(_setup, world, folder):
    found = subprocess.run(
        [PYTHON, "-c", "import torch.distributed as d; d.is_gloo_available() or exit(1)"],
        capture_output=True, check=False)
    known = subprocess.run([PYTHON, "-c", "import torch.distributed as d; d.ProcessGroupGloo"],
                           capture_output=True, check=False)
    if found.returncode != 0 and known.returncode != 0:
        raise Absent("no torch.distributed with Gloo (Debian: python3-torch)")
    # The interface is named, so that it does not ask for the machine's name.
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
                       PEERS_FOLDER=folder, PEERS_WORLD=str(world))
    return [([PYTHON, os.path.join(HERE, "gloo.py")], dict(environment, PEERS_RANK=str(rank)))
            for rank in range(world)]


VADER = ("--mca", "pml", "ob1", "--mca", "btl", "vader,self")
# Open MPI takes UCX of itself only where there is a device of RDMA.
UCX = ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca",
       "opal_common_ucx_devices", "any", "-x", "UCX_TLS=posix,sysv,cma,self")


def all_contenders():
    return [
        Contender("libparallax", "ours", ("alloc", "private"), _ours),
        Contender("limit", "limit", ("alloc", "slots", "staged"), _limit),
        Contender("openmpi-vader", "peer", ("default",), _openmpi(VADER, False)),
        Contender("openmpi-vader-yield", "peer", ("default",), _openmpi(VADER, True)),
        Contender("openmpi-ucx", "peer", ("default",), _openmpi(UCX, False)),
        Contender("openmpi-ucx-yield", "peer", ("default",), _openmpi(UCX, True)),
        Contender("gloo", "peer", ("default",), _gloo),
    ]
