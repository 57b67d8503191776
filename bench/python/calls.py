#!/usr/bin/python3
"""What a call from Python costs: one rank, so that nothing but the call itself takes time.

  PYTHONPATH=bindings/python PARALLAX_LIBRARY=build/release/lib/libparallax.so bench/python/calls.py

Each row is the median, and the tenth and ninetieth percentile, of many calls, in microseconds: by
the compiled core where that is built, and by ctypes alone. On a machine with other work the tenth
percentile says what the call costs: exit status 1 if that of a reduce and its wait, by the compiled
core, is more than --most. "ctypes, no more" makes the three C calls of a reduce with
structs made beforehand: the least that a package without a core can take.
"""

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

import numpy as np

import libparallax as px
from libparallax._abi import SliceStruct
from libparallax._library import LIB

try:
    import torch
except ImportError:
    torch = None

TABLES = 100  # variables, each reduced once a step
ROWS, ELEMENTS = 16, 4
CORE = "compiled core"
REDUCE = "reduce and wait, NumPy"


def percentiles(samples_s):
    ordered = sorted(samples_s)
    return [1e6 * ordered[int(len(ordered) * part)] for part in (0.5, 0.1, 0.9)]


def timed(samples, call, *arguments, **named):
    started = time.perf_counter()
    result = call(*arguments, **named)
    samples.append(time.perf_counter() - started)
    return result


def each(job, variables, steps, call):
    """Times call(step, variable) for each variable of each step."""
    samples = []
    for _ in range(steps):
        with job.step(learning_rate=0.1) as step:
            for variable in variables:
                timed(samples, call, step, variable)
    return percentiles(samples)


def reduce_by_ctypes(job, held, steps, gradient):
    structs = [SliceStruct(variable=variable.id, values=gradient.ctypes.data) for variable in held]
    pointer, samples = job._core.pointer, []

    def call(number, struct):
        request = ctypes.c_void_p()
        LIB.parallax_reduce(pointer, number, struct, 1, ctypes.byref(request))
        LIB.parallax_wait(ctypes.byref(request), 1, -1)
        LIB.parallax_request_release(request)

    for _ in range(steps):
        with job.step() as step:
            for struct in structs:
                timed(samples, call, step.number, struct)
    return percentiles(samples)


def many(job, held, steps, gradient):
    samples = []
    for _ in range(steps):
        with job.step() as step:
            timed(samples, lambda: step.reduce_many([(v, gradient) for v in held]).wait())
    return [figure / len(held) for figure in percentiles(samples)]


def empty_steps(job, count):
    samples = []

    def call():
        with job.step():
            pass

    for _ in range(count):
        timed(samples, call)
    return percentiles(samples)


def measure(steps):
    figures = {}
    gradient = np.ones((ROWS, ELEMENTS), np.float32)
    ids = np.arange(ROWS)
    with px.open() as job:
        held = [job.register(f"held{n}", rows=ROWS, row_elements=ELEMENTS) for n in range(TABLES)]
        tables = [job.register(f"table{n}", rows=1000, row_elements=ELEMENTS, rows_max=ROWS,
                               rule="sgd") for n in range(TABLES)]
        job.commit()
        figures[REDUCE] = each(
            job, held, steps, lambda step, held: step.reduce(held, gradient).wait())
        if torch is not None:
            tensor = torch.ones(ROWS, ELEMENTS)
            figures["reduce and wait, PyTorch"] = each(
                job, held, steps, lambda step, held: step.reduce(held, tensor).wait())
        figures["reduce_many of 100, a tensor"] = many(job, held, 20 * steps, gradient)
        figures["pull 16 rows and wait"] = each(
            job, tables, steps, lambda step, table: step.pull(table, ids).wait())
        figures["push 16 rows"] = each(
            job, tables, steps, lambda step, table: step.push(table, ids, gradient))
        figures["an empty step"] = empty_steps(job, 50 * steps)
        figures["ctypes, no more: reduce and wait"] = reduce_by_ctypes(job, held, steps, gradient)
    return figures


def in_a_process(steps, library):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", "--steps",
                           str(steps)], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PARALLAX_LIBRARY": library})
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of 100 calls; 20")
    parser.add_argument("--most", type=float, default=10, metavar="US",
                        help="that a reduce and its wait may cost; 10")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.steps)))
        return
    columns = []
    if px.core_path() is not None:
        columns.append((CORE, in_a_process(options.steps, px.library_path())))
    with tempfile.TemporaryDirectory() as folder:  # where no core lies beside the library
        library = os.path.join(folder, "libparallax.so.0")
        os.symlink(os.path.abspath(px.library_path()), library)
        columns.append(("ctypes alone", in_a_process(options.steps, library)))
    print(f"{'us a call: median (10%, 90%)':34}" + "".join(f"{name:>24}" for name, _ in columns))
    for row in columns[0][1]:
        cells = ("{:.2f} ({:.2f}, {:.2f})".format(*figures[row]) for _, figures in columns)
        print(f"{row:34}" + "".join(f"{cell:>24}" for cell in cells))
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; "
          f"load {os.getloadavg()[0]:.1f}")
    name, figures = columns[0]
    least = figures[REDUCE][1]
    if name == CORE and least > options.most:
        sys.exit(f"a reduce and its wait cost {least:.2f} us, at most {options.most:g}")


if __name__ == "__main__":
    main()
