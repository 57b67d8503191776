# SPDX-License-Identifier: Apache-2.0
"""Who takes part in bench/peers: how each is started, and what is missing where it cannot be."""
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

from figures import quantile
from steps import DTYPES

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
AGENT = os.path.join(HERE, "agent")


class Absent(Exception):
    """Not on this machine, or not for this step; the text says what is missing."""


class Failed(Exception):
    """A contender that was started and does not answer, or answers what is wrong."""


class Contender:
    """Ranks of one library, which block until they are told to run.

    `kind`: "ours", "peer", "limit" (a bound of the machine), or "way" (how another system does it,
    which is no peer). `variants` of a step of one tensor, `list_variants` of one of many. `dtypes`:
    those that it knows; of others it is absent.
    """

    def __init__(self, name, kind, start, variants=("default",), list_variants=None,
                 dtypes=("f32",)):
        self.name, self.kind, self.dtypes = name, kind, dtypes
        self._variants, self._list_variants = variants, list_variants or variants
        self._start = start
        self.refills = False
        self.has_all_tables = True  # at one of its settings or another; else parts of them
        self._processes, self._commands, self._answers = [], [], []
        self._log = self._setup = self._device = None

    def variants(self, step):
        return self._list_variants if step.is_list else self._variants

    def start(self, setup, folder):
        dtype = setup.steps[0].dtype
        if dtype not in self.dtypes:
            raise Absent(f"knows no {dtype} here")
        folder = os.path.join(folder, self.name)
        os.makedirs(folder)
        for rank in range(setup.world):
            for end in ("in", "out"):
                os.mkfifo(os.path.join(folder, f"{rank}.{end}"))
        self._setup = setup
        self._device = setup.interface if setup.hosts > 1 else "-"
        commands = self._start(setup, folder)
        self._log = os.path.join(folder, "log")
        for rank in range(setup.world):
            # Opened for both ways an end of a FIFO does not wait for the other.
            self._commands.append(os.open(os.path.join(folder, f"{rank}.in"), os.O_RDWR))
            self._answers.append(os.open(os.path.join(folder, f"{rank}.out"), os.O_RDWR))
        with open(self._log, "w", encoding="utf-8") as log:
            for command, own in commands:
                self._processes.append(subprocess.Popen(
                    command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True))

    def run(self, variant, step, iterations, timeout_s):
        """Figures of the slowest rank of each iteration, and of the links: see report.py."""
        line = f"{variant} {step.words()} {iterations} {int(self.refills)} {self._device}\n"
        for command in self._commands:
            self._write(command, line.encode())
        slowest, means, received, busiest = None, [], [], 0
        for rank, answer in enumerate(self._answers):
            wrong, came, went, *times = map(int, self._read_line(rank, answer, timeout_s).split())
            if wrong:
                raise Failed(f"{self.name}, {variant}: {wrong} wrong numbers of {step.name} on "
                             f"rank {rank}")
            slowest = times if slowest is None else list(map(max, slowest, times))
            means.append(sum(times[1::2]) / iterations / 1000)
            if self._setup.is_first(rank):
                received.append(came / iterations)
                busiest = max(busiest, came / iterations, went / iterations)
        results, steps = sorted(slowest[::2]), sorted(slowest[1::2])
        return [ns / 1000 for ns in (quantile(results, 0.5), quantile(results, 0.99),
                                     quantile(steps, 0.5), quantile(steps, 0.99))] + [
            max(means), sum(received) / len(received), busiest]

    @staticmethod
    def _write(end, line):
        while line:
            line = line[os.write(end, line):]

    def _read_line(self, rank, answer, timeout_s):
        text = b""
        deadline = time.monotonic() + timeout_s
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([answer], [], [], 0.2)
            if ready:
                text += os.read(answer, 1 << 16)
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
        return lines[-1] if lines else "it said nothing"

    def stop(self):
        for end in self._commands + self._answers:
            os.close(end)
        deadline = time.monotonic() + 10
        for process in self._processes:
            try:
                process.wait(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes, self._commands, self._answers = [], [], []


def _program(setup, name, package=""):
    program = os.path.join(setup.build, "bin", name)
    if not os.path.exists(program):
        raise Absent(f"{name} was not built{package}")
    return program


def _ranks(setup, command_of, environment=None):
    """A process for each rank, on its host; `command_of(rank)`, and `environment(rank)` besides."""
    return [(setup.on_host(setup.host_of(rank), command_of(rank)),
             dict(os.environ, **(environment(rank) if environment else {})))
            for rank in range(setup.world)]


def _our_ranks(setup, folder, name, *words, settings=None, apart=False):
    """`settings`: of the environment, besides; `apart`: each rank says that it has a host for
    itself, so that no two share memory or sums."""
    program = _program(setup, name)
    secret = secrets.token_hex(32)

    def environment(rank):
        own = {"PARALLAX_RANK": str(rank), "PARALLAX_WORLD": str(setup.world),
               "PARALLAX_RENDEZVOUS": "file:" + os.path.join(folder, "meet")}
        if setup.hosts > 1:
            # Encrypted, unless PARALLAX_SECURITY or PARALLAX_TRANSPORT says otherwise.
            host = f"h{setup.host_of(rank)}" + f"r{rank}" * apart
            own.update(PARALLAX_HOST=host, PARALLAX_SECRET=secret,
                       PARALLAX_NET_DEVICE=setup.interface)
        # Its gradients are zeros here, of which coding would leave nothing.
        if any(getattr(step, "rule", "sgd") == "adagrad" for step in setup.steps):
            own["PARALLAX_ROW_CODING"] = "off"
        return dict(own, **(settings or {}))
    os.makedirs(os.path.join(folder, "meet"), mode=0o700)
    return _ranks(setup, lambda rank: [program, folder, str(rank), str(setup.world), *words],
                  environment)


def _ours(**how):
    return lambda setup, folder: _our_ranks(setup, folder, "parallax_peer_ours",
                                            ";".join(step.words() for step in setup.steps), **how)


def ours_sparse(**how):
    """Started with settings, or apart: see _our_ranks."""
    return lambda setup, folder: _our_ranks(setup, folder, "parallax_peer_ours_sparse", **how)


def ours_hot(rows, way):
    """So many of the hottest rows, mirrored or merged by the program; 0: none. Whether rows are
    coded is not left to each job, which may find its links otherwise than the next."""
    settings = {"PARALLAX_ROW_CODING": os.environ.get("PARALLAX_ROW_CODING", "off")}
    return lambda setup, folder: _our_ranks(setup, folder, "parallax_peer_hot", str(rows), way,
                                            settings=settings)


def _limit(setup, folder):
    if setup.hosts > 1:
        raise Absent("the limit of shared memory is one host's")
    program = _program(setup, "parallax_peer_limit")
    memory = os.path.join(folder, "memory")
    largest = max(step.bytes + 64 * len(step.tensors) for step in setup.steps)
    return _ranks(setup, lambda rank: [program, folder, str(rank), str(setup.world), str(largest),
                                       memory])


def _limit_sparse(setup, folder):
    if setup.hosts > 1:
        raise Absent("the limit of shared memory is one host's")
    program = _program(setup, "parallax_peer_limit_sparse")
    return [([program, folder, str(setup.world)], os.environ)]


def _wire(setup, folder):
    if setup.hosts == 1:
        raise Absent("one host has no wire")
    program = _program(setup, "parallax_peer_wire")
    return _ranks(setup, lambda rank: [
        program, folder, str(rank), str(setup.world), str(setup.host_of(rank)), str(setup.hosts),
        str(int(setup.is_first(rank))), setup.address(setup.host_of(rank))])


def _mpirun():
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise Absent("no mpirun (Debian: openmpi-bin)")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in version.stdout:
        raise Absent("mpirun is not Open MPI's")
    return mpirun


def _by_mpirun(setup, yielding, words, program):
    """`program` on every rank, started by Open MPI."""
    command = [_mpirun(), "-n", str(setup.world), "--oversubscribe", "--bind-to", "none",
               "--mca", "mpi_yield_when_idle", "1" if yielding else "0", *words]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    environment = os.environ
    if setup.hosts > 1:
        hosts = ",".join(f"{setup.address(host)}:{count}"
                         for host, count in enumerate(setup.ranks))
        command += ["--host", hosts, "--mca", "plm_rsh_agent", AGENT,
                    "--mca", "oob_tcp_if_include", setup.interface]
        environment = dict(environment, PEERS_HOSTS=setup.agent_words())
    return [(setup.on_host(0, command + program), environment)]


# How peers exchange rows: see mpi_ways.h.
METHODS = ("gather", "gather-merged", "owners", "ranges", "balanced")

# Open MPI takes UCX of itself only where there is a device of RDMA.
ANY_UCX = ("--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any")
SHARED = "posix,sysv,cma,self"


def _ob1(setup):
    words = ["--mca", "pml", "ob1", "--mca", "btl", "vader,self" + ",tcp" * (setup.hosts > 1)]
    return words + ["--mca", "btl_tcp_if_include", setup.interface] * (setup.hosts > 1)


def _ucx(setup):
    transports = SHARED if setup.hosts == 1 else f"tcp,{SHARED}"
    return ["--mca", "pml", "ucx", *ANY_UCX, "-x", f"UCX_TLS={transports}"]


def _openmpi(transport, yielding, name="parallax_peer_mpi"):
    def start(setup, folder):
        _mpirun()
        program = _program(setup, name, " (Debian: libopenmpi-dev)")
        return _by_mpirun(setup, yielding, transport(setup), [program, folder])
    return start


def _gloo(setup, folder):
    program = _program(setup, "parallax_peer_gloo", " (Debian: libgloo-dev)")
    return _ranks(setup, lambda rank: [program, folder, str(rank), str(setup.world),
                                       setup.interface])


def _ucc(setup, folder):
    program = _program(setup, "parallax_peer_ucc", " (pkg-config does not know ucc)")
    # Between hosts without shared memory: it would take it across the namespaces, too.
    transports = SHARED if setup.hosts == 1 else "tcp,self"
    return _ranks(setup, lambda rank: [program, folder, str(rank), str(setup.world)],
                  lambda rank: {"UCX_TLS": transports})


def _imports(statement):
    return subprocess.run([PYTHON, "-c", statement], capture_output=True, check=False,
                          stdin=subprocess.DEVNULL).returncode == 0


def _torch(setup, folder, name, **environment):
    if not _imports("import torch.distributed as d; d.ProcessGroupGloo"):
        raise Absent("no torch.distributed with Gloo (Debian: python3-torch)")
    # The interface is named, so that it does not ask for the machine's name.
    return _ranks(setup, lambda rank: [PYTHON, os.path.join(HERE, name)],
                  lambda rank: {**environment, "GLOO_SOCKET_IFNAME": setup.interface,
                                "OMP_NUM_THREADS": "1", "PEERS_FOLDER": folder,
                                "PEERS_WORLD": str(setup.world), "PEERS_RANK": str(rank)})


def _torch_gloo(setup, folder):
    return _torch(setup, folder, "torch_gloo.py")


def torch_sparse():
    """Sums of sparse tensors by torch.distributed."""
    def start(setup, folder):
        return _torch(setup, folder, "torch_sparse.py",
                      PEERS_ROWS=_program(setup, "parallax_cluster_rows"))
    return Contender("torch-gloo", "peer", start, ("torch-sparse",))


def _horovod(setup, folder):
    if not _imports("import horovod.torch"):
        raise Absent(f"{PYTHON} has no horovod.torch")
    program = [PYTHON, os.path.join(HERE, "horovod_rank.py"), folder]
    return _by_mpirun(setup, True, _ob1(setup), program)


# Settings whose price is what ours takes with them, over what it takes without.
PRICED = {"deterministic": {"PARALLAX_DETERMINISTIC": "1"}}


def priced_contenders(names, sparse):
    """Ours once more, for each of these settings."""
    start = ours_sparse if sparse else _ours
    return [Contender(name, "part", start(settings=PRICED[name]), ("alloc", "private"),
                      dtypes=("f32", "bf16") if sparse else DTYPES) for name in names]


def sparse_contenders():
    buffers = ("alloc", "private")
    return [
        Contender("libparallax", "ours", ours_sparse(), buffers, dtypes=("f32", "bf16")),
        Contender("limit", "limit", _limit_sparse, buffers, dtypes=("f32", "bf16")),
        *openmpi_sparse((False, True)), *ps_lite()]


OPENMPI = {f"openmpi-{name}{'-yield' * yielding}": (transport, yielding)
           for name, transport in (("ob1", _ob1), ("ucx", _ucx)) for yielding in (False, True)}


def openmpi_sparse(yields, methods=METHODS):
    """Exchanges by hand, for each transport, and for each of `yields`."""
    return [Contender(name, "peer", _openmpi(transport, yielding, "parallax_peer_mpi_sparse"),
                      methods)
            for name, (transport, yielding) in OPENMPI.items() if yielding in yields]


def command_by_openmpi(setup, name, words):
    """What starts a program with these words on every rank as contender `name` is started."""
    transport, yielding = OPENMPI[name]
    ((command, environment),) = _by_mpirun(setup, yielding, transport(setup), words)
    hosts = environment.get("PEERS_HOSTS")
    return command if hosts is None else ["env", f"PEERS_HOSTS={hosts}", *command]


def _ps_lite(servers_of, port):
    """`servers_of(setup)`: the host of each server. `port`: where all meet on the first host, if
    that is a namespace, which has all ports."""
    def start(setup, folder):
        program = _program(setup, "parallax_peer_pslite",
                           ": CMake found no ps/ps.h with libpslite or libps, and libzmq and "
                           "libprotobuf-lite; CMAKE_PREFIX_PATH says where else to look")
        servers = servers_of(setup)
        root = setup.address(0) if setup.hosts > 1 else "127.0.0.1"
        free = port if setup.hosts > 1 else _free_port()
        shared = {"DMLC_NUM_WORKER": str(setup.world), "DMLC_NUM_SERVER": str(len(servers)),
                  "DMLC_PS_ROOT_URI": root, "DMLC_PS_ROOT_PORT": str(free)}

        def process(role, host, *words):
            own = dict(os.environ, DMLC_ROLE=role, **shared)
            own["DMLC_NODE_HOST"] = setup.address(host) if setup.hosts > 1 else root
            return setup.on_host(host, [program, *words]), own
        return [process("scheduler", 0, "scheduler"),
                *(process("server", host, "server", str(setup.world)) for host in servers),
                *(process("worker", setup.host_of(rank), folder, str(rank), str(setup.world))
                  for rank in range(setup.world))]
    return start


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def ps_lite():
    """With a server for each rank, and with one for each host."""
    def each_rank(setup):
        return [setup.host_of(rank) for rank in range(setup.world)]

    def each_host(setup):
        return list(range(setup.hosts))
    made = [Contender("ps-lite", "peer", _ps_lite(each_rank, 9100), ("ps-lite",)),
            Contender("ps-lite-host", "peer", _ps_lite(each_host, 9101), ("ps-lite",))]
    for contender in made:
        contender.has_all_tables = False
    return made


def dense_contenders():
    two = ("default", "fused")
    return [
        Contender("libparallax", "ours", _ours(), ("alloc", "private", "alloc-onewait"),
                  dtypes=DTYPES),
        Contender("limit", "limit", _limit, ("alloc", "slots", "staged"), ("alloc", "staged")),
        Contender("wire", "limit", _wire, dtypes=DTYPES),
        Contender("openmpi-ob1", "peer", _openmpi(_ob1, False), list_variants=two),
        Contender("openmpi-ob1-yield", "peer", _openmpi(_ob1, True), list_variants=two),
        Contender("openmpi-ucx", "peer", _openmpi(_ucx, False), list_variants=two),
        Contender("openmpi-ucx-yield", "peer", _openmpi(_ucx, True), list_variants=two),
        Contender("ucc", "peer", _ucc, ("default", "yield"), ("default", "yield", "fused")),
        Contender("gloo", "peer", _gloo, ("default", "bcube", "hd"), two),
        Contender("torch-gloo", "peer", _torch_gloo, list_variants=two, dtypes=DTYPES),
        Contender("horovod", "peer", _horovod),
        Contender("tensorflow-ucx", "way", _openmpi(_ucx, True), ("servers",)),
        Contender("tensorflow-ob1", "way", _openmpi(_ob1, True), ("servers",)),
    ]
