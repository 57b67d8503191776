# SPDX-License-Identifier: Apache-2.0
"""What tests that start processes take from the machine: ports, an environment that no launcher has
marked, and a launcher to themselves."""

import os
import shutil
import socket
import tempfile

LAUNCHERS = ("PARALLAX_", "UCX_", "OMPI_", "PMIX_", "PRTE_", "SLURM_", "TORCHELASTIC_", "MASTER_")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def clean_environment(without=(), /, **more):
    """This process's environment without settings, without what any launcher has put there, and
    without the names given."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(LAUNCHERS) and name not in NAMES and name not in without}
    return {**kept, **{name: str(value) for name, value in more.items()}}


# Tests that run beside each other have pids that are near, so they start far apart.
_first = os.getpid() * 97 % 10000
_ports = (20000 + (_first + i) % 10000 for i in range(10000))


def free_port():
    """A port of 127.0.0.1 that was free a moment ago, below those that the system gives out;
    another one each time."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def mpirun(case):
    """Open MPI's, on this machine. Each has a folder of its own, or one of this user's that ends
    takes away what another is about to make its session's folder in."""
    folder = tempfile.mkdtemp(prefix="parallax-mpi-")
    case.addCleanup(shutil.rmtree, folder, True)
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm", "isolated", "--mca",
            "btl", "self,vader", "--mca", "orte_tmpdir_base", folder]
