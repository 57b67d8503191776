#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cluster in a box: steps of row ids between hosts that are network namespaces, their links held
to a rate, by libparallax, by libparallax with one part after the other switched off, by hand over
Open MPI in the ways of Horovod, TensorFlow and ZEN and by MPI_Alltoallv, by ps-lite and by
torch.distributed, each at its best settings. All draw the same ids, take turns, and are compared
with a serial oracle.

Each combination of --hosts, --ranks, --mbit and step is a cell. Of each way a cell has the time of
a step, the bytes that a host received beside the formula's, by the kernel's counters, the time that
the busiest link needs for what it carried, and what of the step its ranks did not compute. Ratios
are the way's time over ours in the same round, with 95% bounds. bench/METRICS.md has the formulas.

Ours: "hybrid alloc" pulls, waits, computes, pushes, ends the step and waits; "hybrid fused" posts
push, step_end, step_begin and the next pull together and computes behind them. "naive-ps": every
rank sends for itself, no sum within the host; "ar": tables mirrored; "early-pull-off";
"coding-off": rows go as they are; "in-place-off": inside a host rows go by messages; "listed-off":
pushed rows have row keys, though they were pulled. Needs root.
"""
import argparse
import contextlib
import itertools
import json
import os
import platform
import signal
import sys
import tempfile
from dataclasses import replace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../peers"))
# pylint: disable=wrong-import-position
from contenders import (Absent, Contender, Failed, openmpi_sparse, ours_sparse,  # noqa: E402
                        ps_lite, torch_sparse)
from report import table  # noqa: E402
from setup import Setup  # noqa: E402  (it makes bench/lm known)
from sparse_steps import STEPS, sparse_step_of  # noqa: E402
from turns import Turns, refuse_too_large, say, start_all, stop_all  # noqa: E402
import children  # noqa: E402
import netns  # noqa: E402
import cells  # noqa: E402
import drawing  # noqa: E402
import loss  # noqa: E402

GRID_ROWS = 793_470  # words of LM-1B
RANKS_MAX = 16
OURS_DTYPES = ("f32", "bf16")
PARTS = {"naive-ps": {"settings": {"PARALLAX_PLAN_MODE": "ps"}, "apart": True},
         "ar": {"settings": {"PARALLAX_PLAN_MODE": "ar"}},
         "early-pull-off": {"settings": {"PARALLAX_PLAN_MODE": "hybrid",
                                         "PARALLAX_EARLY_PULL": "off"}},
         **{f"{part}-off": {"settings": {"PARALLAX_PLAN_MODE": "hybrid", setting: "off"}}
            for part, setting in {"early-pull": "PARALLAX_EARLY_PULL",
                                  "coding": "PARALLAX_ROW_CODING",
                                  "in-place": "PARALLAX_ROWS_IN_PLACE",
                                  "listed": "PARALLAX_PUSH_LISTED",
                                  "fuse": "PARALLAX_FUSE_TABLES"}.items()}}
NOT_HERE = {"ps": "with row ids alone it is hybrid's plan; --loss has both"}


def numbers(text):
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError as why:
        raise argparse.ArgumentTypeError(f"'{text}' are no numbers with commas") from why
    return [int(each) if each == int(each) else each for each in found]


def rates(text):
    return [None if word == "none" else numbers(word)[0] for word in text.split(",")]


def steps_argument(text):
    try:
        return [sparse_step_of(word) for word in text.split(",")]
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from why


def parser_of():
    parser = argparse.ArgumentParser(prog="bench/cluster/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=numbers, default=[2], help="with commas (2)")
    parser.add_argument("--ranks", type=numbers, default=[1], help="of each host, with commas (1)")
    parser.add_argument("--mbit", type=rates, default=[200],
                        help="of a link each way, by tbf, with commas; none: as it can (200)")
    parser.add_argument("--steps", type=steps_argument, default=None,
                        help=f"{', '.join(STEPS)}, or in words, as "
                             "4*1000x16x64@1.1/adagrad; with commas (w64)")
    parser.add_argument("--widths", type=numbers, default=[64],
                        help=f"with --densities: a grid of steps of {GRID_ROWS:,} rows (64)")
    parser.add_argument("--densities", type=numbers, default=None,
                        help="ids of a rank over rows, with commas")
    parser.add_argument("--skews", type=numbers, default=[1], help="Zipf's exponents (1)")
    parser.add_argument("--compute-ms", type=float, default=0,
                        help="that each rank computes in a step, asleep (0)")
    parser.add_argument("--loss", type=int, default=0, metavar="STEPS",
                        help="train bench/lm's model in each way, too, in the first cell's cluster")
    parser.add_argument("--corpus", nargs="+", metavar="FILE", default=None, help="of --loss")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice-ms", type=float, default=400,
                        help="about how long a way's turn is (400)")
    parser.add_argument("--without", default="", help="ways to leave out, with commas")
    parser.add_argument("--congestion", default="auto", help=netns.CONGESTION_HELP)
    parser.add_argument("--build", default=os.path.join(HERE, "../../build/release"))
    parser.add_argument("--out", default=os.path.join(HERE, "../out/cluster"),
                        help="results.json and charts go there (bench/out/cluster)")
    return parser


def options_of(arguments):
    parser = parser_of()
    options = parser.parse_args(arguments)
    for name in ("hosts", "ranks"):
        if not all(isinstance(each, int) and each >= 1 for each in getattr(options, name)):
            parser.error(f"--{name}: whole numbers from 1")
    for hosts, ranks in itertools.product(options.hosts, options.ranks):
        if hosts < 2 or hosts * ranks > RANKS_MAX:
            parser.error(f"--hosts, --ranks: 2 hosts or more and at most {RANKS_MAX} ranks in all, "
                         f"not {hosts} x {ranks}")
    if not all(rate is None or 1 <= rate <= 100_000 for rate in options.mbit):
        parser.error("--mbit: 1 to 100000, or none")
    if options.rounds < 3:
        parser.error("--rounds: at least 3")
    if options.loss and options.loss < loss.STEPS_MIN:
        parser.error(f"--loss: at least {loss.STEPS_MIN} steps")
    if not 0 <= options.compute_ms <= 10_000:
        parser.error("--compute-ms: 0 to 10000")
    options.steps = steps_of(options)
    if not options.steps or len({step.dtype for step in options.steps}) > 1:
        parser.error("--steps: at least one, and of one type in a run")
    options.build, options.out = map(os.path.abspath, (options.build, options.out))
    return options


def steps_of(options):
    steps = list(options.steps or ([] if options.densities else [STEPS["w64"]]))
    for width, density, skew in itertools.product(options.widths, options.densities or (),
                                                  options.skews):
        ids = max(1, round(density * GRID_ROWS))
        steps.append(sparse_step_of(f"{GRID_ROWS}x{width}x{ids}@{skew}"))
    compute_us = round(options.compute_ms * 1000)
    return list(dict.fromkeys(replace(step, compute_us=compute_us) for step in steps))


def yields_of(world):
    """Peers yield where ranks outnumber processors, since there they are slower by far without."""
    return (True,) if world > os.cpu_count() else (False, True)


def contenders_of(world):
    hybrid = {"PARALLAX_PLAN_MODE": "hybrid"}
    parts = [Contender(name, "part", ours_sparse(**how), ("alloc", "fused"), dtypes=OURS_DTYPES)
             for name, how in PARTS.items()]
    return [Contender("hybrid", "ours", ours_sparse(settings=hybrid), ("alloc", "fused"),
                      dtypes=OURS_DTYPES), *parts, *openmpi_sparse(yields_of(world)), *ps_lite(),
            torch_sparse()]


def kinds_of(contenders):
    kinds = {}
    for contender in contenders:
        kinds.setdefault(contender.kind, []).append(contender.name)
    return kinds


def measure(step, contenders, namespaces, options, absent):
    turns = Turns(contenders, [step], absent, namespaces.sent_bytes)
    turns.calibrate(options.slice_ms)
    for turn in range(options.rounds):
        turns.take_round(turn)
    return turns.times


def cluster_cells(options, hosts, ranks, mbit, namespaces):
    """The cells of one cluster: all its steps."""
    where = [ranks] * hosts
    setup = Setup(options.build, options.steps, where, namespaces)
    found, without = [], options.without.split(",")
    refuse_too_large(setup, contenders_of(setup.world), without)
    with tempfile.TemporaryDirectory(prefix="parallax_cluster_") as folder:
        say(f"{hosts} hosts of {ranks} ranks, {mbit or 'unlimited'} Mbit/s; ways:")
        there, absent = start_all(contenders_of(setup.world), setup, folder, without)
        try:
            for step in options.steps:
                kinds = kinds_of(there)
                rows = cells.rows_of(options.build, step, where)
                formulas = cells.formula_bytes(step, hosts, ranks, rows)
                times = measure(step, there, namespaces, options, absent)
                ways = cells.ways_of(step, times, kinds, formulas, mbit)
                for way in ways.values():
                    way["is_ours"] = way["by"] not in kinds.get("peer", ())
                found.append({"hosts": hosts, "ranks": ranks, "mbit": mbit, "step": step.name,
                              "congestion": namespaces.congestion,
                              "rounds": options.rounds, "compute_ms": options.compute_ms,
                              "rows": [vars(each) for each in rows[:4]], "ways": ways,
                              "absent": dict(absent, **NOT_HERE)})
                show(found[-1])
        finally:
            stop_all(there)
    return found


def tensorflow_by(options, setup, namespaces):
    """(by which contender the rows of bench/lm are quickest in TensorFlow's way, or None; why each
    of the others is not there)"""
    with tempfile.TemporaryDirectory(prefix="parallax_cluster_") as folder:
        peers = openmpi_sparse(yields_of(setup.world), ("ranges",))
        there, absent = start_all(peers, setup, folder, options.without.split(","))
        times = {}
        if there:
            try:
                times = measure(loss.ROWS, there, namespaces, options, absent)
            finally:
                stop_all(there)
    if not times:
        return None, absent
    return min(times, key=lambda key: cells.middle(times[key], cells.MEAN))[1], absent


def ratio_words(way, of):
    return "{:.2f} ({:.2f}-{:.2f})".format(*way["ratio"][of]) if of in way["ratio"] else "-"


def show(cell):
    link = f"{cell['mbit']:g} Mbit/s" if cell["mbit"] else "unlimited"
    print(f"{cell['step']}: {cell['hosts']} hosts of {cell['ranks']} ranks, {link}, tcp by "
          f"{cell['congestion']}, {cell['compute_ms']:g} ms computed; medians of "
          f"{cell['rounds']} rounds")
    ours = [name for name in cell["ways"] if name.startswith("hybrid ")]
    lines = [["way", "ms", "low-high", "exposed", "MB", "/ formula", "bound ms", "ms / bound",
              "/ queue", *(f"/ {name}" for name in ours), "by"]]
    for name, way in cell["ways"].items():
        lines.append([
            name, f"{way['ms']:.2f}", f"{way['low_ms']:.2f}-{way['high_ms']:.2f}",
            f"{way['exposed_ms']:.2f}", f"{way['received_bytes'] / 1e6:.3f}",
            f"{way['over_formula']:.3f}",
            *(f"{way[key]:.3f}" if key in way else "-"
              for key in ("bound_ms", "over_bound", "over_queue")),
            *(ratio_words(way, name) for name in ours), way["by"]])
    table(lines)
    for name, why in cell["absent"].items():
        print(f"absent: {name}: {why}")
    sys.stdout.flush()


def show_losses(found):
    print(f"loss {found['quality']:.3f} by bench/lm's training, {found['hosts']} hosts of "
          f"{found['ranks']} ranks, {found['mbit'] or 'unlimited'} Mbit/s")
    lines = [["way", "step ms", "exposed ms", "seconds to it", "/ hybrid"]]
    first = found["runs"]["hybrid"]["to_quality_s"]
    for run in found["runs"].values():
        reached = run["to_quality_s"]
        lines.append([run["title"], f"{run['step_ms']:.2f}", f"{run['exposed_ms']:.2f}",
                      *(("-", "-") if reached is None else
                        (f"{reached:.2f}", f"{reached / first:.2f}"))])
    table(lines)
    for name, why in found["absent"].items():
        print(f"absent in TensorFlow's way: {name}: {why}")


def write(options, found, losses):
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"processors": os.cpu_count(), "machine": platform.machine(), "cells": found,
                   "loss": losses}, file, indent=1)
    for cell in found:
        mbit = f"{cell['mbit']:g}" if cell["mbit"] else "unlimited"
        step = cell["step"].replace("/", "-").replace("*", "x")
        name = f"{step}-{cell['hosts']}x{cell['ranks']}-{mbit}.svg"
        drawing.write_cell(os.path.join(options.out, name), cell)
    if losses and losses["mbit"]:
        drawing.write_losses(os.path.join(options.out, "loss.svg"), losses)
    print(f"written to {options.out}: results.json and charts")


def main():
    options = options_of(sys.argv[1:])
    # Ended by a signal, too, it takes its ranks and hosts along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found, losses = [], None
    clusters = list(itertools.product(options.hosts, options.ranks, options.mbit))
    for at, (hosts, ranks, mbit) in enumerate(clusters):
        with contextlib.ExitStack() as stack:
            namespaces = stack.enter_context(netns.Namespaces(hosts, mbit, options.congestion))
            found += cluster_cells(options, hosts, ranks, mbit, namespaces)
            if options.loss and at == 0:
                setup = Setup(options.build, [loss.ROWS], [ranks] * hosts, namespaces)
                by, absent = tensorflow_by(options, setup, namespaces)
                losses = loss.measure(options, setup, mbit, namespaces, by)
                losses["absent"] = absent
                show_losses(losses)
        write(options, found, losses)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Absent, Failed, netns.NetworkError, children.ChildError) as error:
        print(f"bench/cluster: {error}", file=sys.stderr)
        sys.exit(2)
