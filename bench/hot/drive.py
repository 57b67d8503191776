#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs, or spares, to mirror hot rows: of all tables together the K that are drawn most
often are one dense variable, placed mirrored, and each table's others a sharded one; beside one
sharded variable for each table; and beside that with those rows merged by the program, so that it
gives each once, as it does where they are mirrored. Hosts are network namespaces of one rank, TCP,
encrypted.

Each combination of --hosts, --mbit and step is a cell, in which all ways take turns, draw the same
ids and are compared with a serial oracle. Of each way: MB that a host received in a step, by the
library's own counters (wire.received_bytes), the mean over hosts; the mean step of the slowest
rank; and both over those of one variable a table in the same round: medians, with 95% bounds
(bench/METRICS.md). Needs root.
"""
import argparse
import itertools
import json
import os
import platform
import signal
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../peers"))
# pylint: disable=wrong-import-position
from contenders import Absent, Contender, Failed, ours_hot  # noqa: E402
from figures import ratio  # noqa: E402
from report import MEAN, RECEIVED, column, middle, table  # noqa: E402
from setup import Setup  # noqa: E402  (it makes bench/lm known)
from sparse_steps import STEPS, sparse_step_of  # noqa: E402
from turns import Turns, refuse_too_large, say, start_all, stop_all  # noqa: E402
import netns  # noqa: E402

HOSTS_MAX = 16
DEFAULT_STEPS = "w64,793470x64x2560@1.3,t788"
ONE = "one variable a table"


def counts(text):
    found = [int(word) for word in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


def rates(text):
    found = [None if word == "none" else float(word) for word in text.split(",")]
    if not all(rate is None or 1 <= rate <= 100_000 for rate in found):
        raise ValueError
    return found


def steps_argument(text):
    try:
        steps = [sparse_step_of(word) for word in text.split(",")]
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from why
    for step in steps:
        if (step.rule, step.dtype) != ("sgd", "f32") or len({each[1] for each in step.tables}) > 1:
            raise argparse.ArgumentTypeError(f"{step.name}: of sgd, f32 and one width alone")
    return steps


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="bench/hot/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=counts, default=[2], help="with commas (2)")
    parser.add_argument("--mbit", type=rates, default=[None],
                        help="of a link each way, by tbf, with commas; none: as it can (none)")
    parser.add_argument("--rows", type=counts, default=[16, 256, 4096],
                        help="K, with commas (16,256,4096)")
    parser.add_argument("--steps", type=steps_argument, default=DEFAULT_STEPS,
                        help=f"{', '.join(STEPS)}, or in words, with commas ({DEFAULT_STEPS})")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice-ms", type=float, default=400,
                        help="about how long a way's turn is (400)")
    parser.add_argument("--congestion", default="auto", help=netns.CONGESTION_HELP)
    parser.add_argument("--build", default=os.path.join(HERE, "../../build/release"))
    parser.add_argument("--out", default=None, help="results.json goes there")
    options = parser.parse_args(arguments)
    if not all(2 <= hosts <= HOSTS_MAX for hosts in options.hosts):
        parser.error(f"--hosts: 2 to {HOSTS_MAX}")
    if options.rounds < 3:
        parser.error("--rounds: at least 3")
    options.build = os.path.abspath(options.build)
    return options


def contenders_of(rows):
    return [Contender(ONE, "ours", ours_hot(0, "mirrored")),
            *(Contender(f"K = {count:,}" + ", merged" * (way == "merged"), "part",
                        ours_hot(count, way))
              for way in ("mirrored", "merged") for count in rows)]


def ways_of(step, times):
    """{way: figures} of what Turns has of a step: both ratios are over ONE's of the same rounds."""
    of_step = {name: each for (of, name, _), each in times.items() if of == step}
    ways = {}
    for name, each in of_step.items():
        ways[name] = {"MB": middle(each, RECEIVED) / 1e6, "ms": middle(each, MEAN) / 1000}
        for what, at in (("bytes_ratio", RECEIVED), ("time_ratio", MEAN)):
            ways[name][what] = ratio(column(each, at), column(of_step[ONE], at))
    return ways


def measure(options, hosts, mbit):
    """The cells of one cluster: all its steps."""
    found = []
    with netns.Namespaces(hosts, mbit, options.congestion) as namespaces, \
            tempfile.TemporaryDirectory(prefix="parallax_hot_") as folder:
        setup = Setup(options.build, options.steps, [1] * hosts, namespaces)
        refuse_too_large(setup, contenders_of(options.rows))
        say(f"{hosts} hosts, {mbit or 'unlimited'} Mbit/s; ways:")
        there, absent = start_all(contenders_of(options.rows), setup, folder)
        try:
            for step in options.steps:
                turns = Turns(there, [step], absent, namespaces.sent_bytes)
                turns.calibrate(options.slice_ms)
                for turn in range(options.rounds):
                    turns.take_round(turn)
                found.append({"hosts": hosts, "mbit": mbit, "step": step.name,
                              "congestion": namespaces.congestion, "rounds": options.rounds,
                              "ways": ways_of(step, turns.times), "absent": dict(absent)})
                show(found[-1])
        finally:
            stop_all(there)
    return found


def show(cell):
    link = f"{cell['mbit']:g} Mbit/s" if cell["mbit"] else "unlimited"
    print(f"{cell['step']}: {cell['hosts']} hosts, {link}, tcp by {cell['congestion']}; medians of "
          f"{cell['rounds']} rounds")
    lines = [["way", "MB", "bytes / one", "ms", "time / one"]]
    for name, way in cell["ways"].items():
        bounds = [f"{value:.3f} ({low:.3f}-{high:.3f})"
                  for value, low, high in (way["bytes_ratio"], way["time_ratio"])]
        lines.append([name, f"{way['MB']:.3f}", bounds[0], f"{way['ms']:.2f}", bounds[1]])
    table(lines)
    for name, why in cell["absent"].items():
        print(f"absent: {name}: {why}")
    sys.stdout.flush()


def main():
    options = options_of(sys.argv[1:])
    # Ended by a signal, too, it takes its ranks and hosts along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = []
    for hosts, mbit in itertools.product(options.hosts, options.mbit):
        found += measure(options, hosts, mbit)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump({"processors": os.cpu_count(), "machine": platform.machine(),
                       "cells": found}, file, indent=1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Absent, Failed, netns.NetworkError) as error:
        print(f"bench/hot: {error}", file=sys.stderr)
        sys.exit(2)
