#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AllReduces and steps of row ids: libparallax beside every other library that is installed.

The ranks of all contenders are started once and block; then, for each step (one tensor of a size,
or the gradients of a model), each contender runs in turn, and again, as often as --rounds says, so
that what the machine does meanwhile befalls all of them. A ratio is the best peer's time over ours,
both of the same round; its bounds are 95% of its median's. Every contender's sums are checked at
every step.

Ours is a whole step (begin, reduce and wait, end and wait), once from buffers of
parallax_buffer_alloc, side by side (alloc), and once from the caller's own (private); alloc-onewait
ends the step before it waits, once for all.
Peers reduce the tensors of a list one by one, and again fused (copied side by side into one
buffer); the better counts. A list is measured as one tensor of its bytes, too.

The limit is what plain loops over shared memory take, without any check or lease, of rows kept as
bf16 a Hogwild loop, which loses updates; between hosts (--hosts), what plain sockets take for the
bytes that must cross. "servers" is TensorFlow's way, over Open MPI: a parameter server on each
host.

A step of row ids looks up a row for each id, gives a gradient for each, and updates the rows: ours
by pull, push and step_end of managed variables, peers' by hand over Open MPI: all gradients to all
(gather, Horovod's way; gather-merged), or to the rows' owners (owners, by MPI_Alltoallv; ranges,
TensorFlow's way; balanced, ZEN's, whose owners send sums to all). All draw the same ids by Zipf's
law, sum and update by the same loops, and are compared with a serial oracle.
"""
import argparse
import contextlib
import json
import os
import platform
import signal
import sys
import tempfile
import time
from dataclasses import replace

import chart
import netns
from contenders import (PRICED, Absent, Failed, dense_contenders, priced_contenders,
                        sparse_contenders)
from figures import ranks_words
from report import (add_cliffs, add_methods, add_parts, beside_one, print_lists, print_methods,
                    print_parts, print_rows, row_of)
from setup import Setup
from sparse_steps import STEPS, SparseStep, sparse_step_of
from steps import DTYPES, LISTS, REDUCTIONS, one_of, step_of
from turns import Turns, refuse_too_large, say, start_all, stop_all

DEFAULT_STEPS = "8,512,4K,32K,64K,256K,2M,16M"


def step_argument(words):
    try:
        steps = [sparse_step_of(word) if word in STEPS or "x" in word else step_of(word)
                 for word in words.split(",")]
        if len({isinstance(step, SparseStep) for step in steps}) > 1:
            raise ValueError("steps of row ids are measured by a run of their own")
        if len({step.dtype for step in steps}) > 1:
            raise ValueError("steps of one type are measured by a run of their own")
        return steps
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from why


def counts_argument(words):
    try:
        return [int(word) for word in words.split(",")]
    except ValueError as why:
        raise argparse.ArgumentTypeError(f"'{words}' are no whole numbers") from why


def priced_argument(words):
    for word in words.split(","):
        if word not in PRICED:
            raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(PRICED)}")
    return words.split(",")


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=counts_argument, default=None,
                        help="of each host, or of one after the other, with commas, as 3,1 (2; 1 "
                             "between hosts)")
    parser.add_argument("--hosts", type=int, default=1,
                        help="network namespaces, joined by a bridge; needs root (1: none)")
    parser.add_argument("--mbit", type=float, default=None,
                        help="what the link of a host carries each way, by tbf (as much as it can)")
    parser.add_argument("--sizes", "--steps", type=step_argument, default=DEFAULT_STEPS,
                        help=f"bytes, or {', '.join(LISTS)}; of row ids {', '.join(STEPS)}, or in "
                             f"words, as 4*1000x16x64@1.1/adagrad; with commas ({DEFAULT_STEPS})")
    parser.add_argument("--reduction", choices=REDUCTIONS, default="sum",
                        help="of tensors; peers' mean is a pass over their sum")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="of tensors")
    parser.add_argument("--refill", action="store_true",
                        help="ranks write what they give anew before each step, off the clock")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice-ms", type=float, default=40,
                        help="about how long a contender's turn is (40)")
    parser.add_argument("--without", default="", help="contenders to leave out, with commas")
    parser.add_argument("--with", dest="priced", type=priced_argument, default=[],
                        help=f"settings to run ours with, too, in the same turns: "
                             f"{', '.join(PRICED)} (none)")
    parser.add_argument("--congestion", default="auto", help=netns.CONGESTION_HELP)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(__file__),
                                                        "../../build/release"))
    parser.add_argument("--out", default=None, help="results.json and ratios.svg go there")
    options = parser.parse_args(arguments)
    if options.ranks is None:
        options.ranks = [2 if options.hosts == 1 else 1]
    if len(options.ranks) == 1 and 1 <= options.hosts <= 16:
        options.ranks *= options.hosts
    if len(options.ranks) != options.hosts:
        parser.error("--ranks, --hosts: a count of ranks for all hosts, or one for each, 1 to 16")
    if min(options.ranks) < 1 or not 2 <= sum(options.ranks) <= 16:
        parser.error("--ranks, --hosts: 2 to 16 ranks in all")
    if (options.dtype, options.reduction) != ("f32", "sum"):
        if isinstance(options.sizes[0], SparseStep):
            parser.error("--dtype, --reduction: of tensors alone")
        options.sizes = [replace(step, dtype=options.dtype, reduction=options.reduction)
                         for step in options.sizes]
    if options.mbit is not None and (options.hosts == 1 or not 1 <= options.mbit <= 100_000):
        parser.error("--mbit: 1 to 100000, between several --hosts")
    if options.rounds < 3:
        parser.error("--rounds: at least 3")
    return options


def contenders_of(setup, options):
    return (sparse_contenders() if setup.sparse else dense_contenders()) + priced_contenders(
        options.priced, setup.sparse)


def measure(contenders, steps, options, absent):
    turns = Turns(contenders, steps, absent)
    turns.calibrate(options.slice_ms)
    for turn in range(options.rounds):
        turns.take_round(turn)
    return turns.times


def rows_of(step, contenders, options, absent):
    steps = [step, one_of(step)] if step.is_list else [step]
    times = measure(contenders, steps, options, absent)
    kinds = {}
    for contender in contenders:
        kinds.setdefault(contender.kind, []).append(contender.name)
    rows = [row_of(each, times, kinds) for each in steps]
    if step.is_list:
        beside_one(rows[0], *steps, times, kinds)
    for row, each in zip(rows, steps):
        add_parts(row, each, times, kinds)
    if isinstance(step, SparseStep):
        add_methods(rows[0], step, times, kinds)
    else:
        for row, each in zip(rows, steps):
            row["tensors"] = len(each.tensors)
    return rows


def write(options, setup, rows, absent):
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"ranks": options.ranks, "hosts": options.hosts, "mbit": options.mbit,
                   "congestion": options.congestion if options.hosts > 1 else None,
                   "processors": os.cpu_count(), "machine": platform.machine(),
                   "dtype": options.dtype, "reduction": options.reduction,
                   "refill": options.refill, "rounds": options.rounds, "rows": rows,
                   "absent": absent}, file, indent=1)
    what = "Steps of row ids" if setup.sparse else "AllReduce"
    if chart.write_ratios(os.path.join(options.out, "ratios.svg"), rows, options, what):
        print(f"written to {options.out}: results.json, ratios.svg")
    else:
        print(f"written to {options.out}: results.json; no chart without a peer")


def compare(options, setup):
    with tempfile.TemporaryDirectory(prefix="parallax_peers_") as folder:
        say(f"{setup.world} ranks on {os.cpu_count()} processors; contenders:")
        contenders, absent = start_all(
            contenders_of(setup, options), setup, folder, options.without.split(","),
            options.refill)
        rows = []
        try:
            for step in options.sizes:
                start = time.monotonic()
                rows += rows_of(step, contenders, options, absent)
                say(f"  {step.name}: {time.monotonic() - start:.0f} s")
        finally:
            stop_all(contenders)
    link = f", {options.mbit:g} Mbit/s" if options.mbit else ""
    where = f"{options.hosts} hosts{link}, " if options.hosts > 1 else ""
    way = f"tcp by {options.congestion}, " if options.hosts > 1 else ""
    what = "row ids" if setup.sparse else f"{options.reduction} of {options.dtype}"
    print(f"{where}{ranks_words(options.ranks)} ranks a host, {way}{what}; us, medians of "
          f"{options.rounds} interleaved rounds; ratio: best peer / ours, all of the step")
    add_cliffs(rows)
    print_rows(rows)
    print_lists(rows)
    print_methods(rows)
    print_parts(rows)
    for name, why in absent.items():
        print(f"absent: {name}: {why}")
    if options.out:
        write(options, setup, rows, absent)


def main():
    options = options_of(sys.argv[1:])
    # Ended by a signal, too, it takes its ranks and hosts along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.sizes = list(dict.fromkeys(options.sizes))
    steps = options.sizes + [one_of(step) for step in options.sizes if step.is_list]
    with contextlib.ExitStack() as stack:
        namespaces = None
        if options.hosts > 1:
            namespaces = stack.enter_context(
                netns.Namespaces(options.hosts, options.mbit, options.congestion))
            options.congestion = namespaces.congestion
        setup = Setup(os.path.abspath(options.build), steps, options.ranks, namespaces)
        if setup.sparse:
            refuse_too_large(setup, contenders_of(setup, options), options.without.split(","))
        compare(options, setup)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Absent, Failed, netns.NetworkError) as error:
        print(f"bench/peers: {error}", file=sys.stderr)
        sys.exit(2)
