# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: ranks as threads, scripts in processes of their own."""

import itertools
import os
import subprocess
import sys
import threading
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "support"))

from surroundings import free_port  # noqa: E402,F401

try:
    import numpy
except ImportError:
    numpy = None

TIMEOUT = 60  # seconds after which a wait has failed; nothing here takes as long
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_rendezvous_numbers = itertools.count()

needs_numpy = unittest.skipIf(numpy is None, "NumPy is missing (python3-numpy)")


def run_ranks(world, body, **options):
    """Runs body(job) on `world` ranks, threads of this process; gives what each returned. The first
    failure is raised, so that an assertion in a body fails the test."""
    import libparallax as px

    results, failures = [None] * world, []
    rendezvous = f"inproc:python-{os.getpid()}-{next(_rendezvous_numbers)}"

    def run(rank):
        try:
            with px.open(rank=rank, world=world, rendezvous=rendezvous,
                               **{"timeout": TIMEOUT, **options}) as job:
                results[rank] = body(job)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT)
        if thread.is_alive():
            raise AssertionError(f"a rank hangs; failures so far: {failures}")
    for failure in failures:
        if not isinstance(failure, px.Aborted):  # those only repeat what another raised
            raise failure
    if failures:
        raise failures[0]
    return results


def start(script, *arguments, **environment):
    """Starts a script in a Python of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, **environment})


def finish(process):
    """Waits for it and gives (exit status, stdout, stderr)."""
    try:
        out, error = process.communicate(timeout=2 * TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        raise AssertionError(f"the script hangs; stdout:\n{out}\nstderr:\n{error}") from None
    return process.returncode, out, error


def compile_c(*arguments):
    """Runs the C compiler, which is not looked at by a sanitizer's runtime that tests preload."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([os.environ.get("PARALLAX_TEST_CC", "cc"), *arguments], check=True, env=plain)


def run_script(script, *arguments, **environment):
    return finish(start(script, *arguments, **environment))
