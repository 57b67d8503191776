#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AllReduce: libparallax beside every other library that is installed.

The ranks of all contenders are started once and block; then, for each step (one tensor of a size,
or the gradients of a model), each contender runs in turn, and again, as often as --rounds says, so
that what the machine does meanwhile befalls all of them. A ratio is the best peer's time over ours,
both of the same round; its bounds are 95% of its median's. Every contender's sums are checked at
every step.

Ours is a whole step (begin, reduce and wait, end and wait), once from buffers of
parallax_buffer_alloc and once from the caller's own; "reduce" is the reduce and its wait alone.
Peers reduce the tensors of a list one by one, and again fused (copied side by side into one
buffer); the better counts. A list is measured as one tensor of its bytes, too.

The limit is what plain loops over shared memory take, without any check or lease; between hosts
(--hosts), what plain sockets take for the bytes that must cross. "servers" is TensorFlow's way,
over Open MPI: a parameter server on each host.
"""
import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time

import chart
import netns
from contenders import Absent, Failed, all_contenders
from figures import ratio, time_words
from setup import Setup
from steps import LISTS, one_of, step_of

REDUCE, REDUCE_P99, STEP, STEP_P99 = range(4)
ANSWER_TIMEOUT_S = 60
DEFAULT_STEPS = "8,512,4K,32K,64K,256K,2M,16M"


def step_argument(words):
    try:
        return [step_of(word) for word in words.split(",")]
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from why


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=None,
                        help="of each host (2; 1 between hosts)")
    parser.add_argument("--hosts", type=int, default=1,
                        help="network namespaces, joined by a bridge; needs root (1: none)")
    parser.add_argument("--mbit", type=float, default=None,
                        help="what the link of a host carries each way, by tbf (as much as it can)")
    parser.add_argument("--sizes", "--steps", type=step_argument, default=DEFAULT_STEPS,
                        help=f"bytes, or {', '.join(LISTS)}; with commas ({DEFAULT_STEPS})")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice-ms", type=float, default=40,
                        help="about how long a contender's turn is (40)")
    parser.add_argument("--without", default="", help="contenders to leave out, with commas")
    parser.add_argument("--build", default=os.path.join(os.path.dirname(__file__),
                                                        "../../build/release"))
    parser.add_argument("--out", default=None, help="results.json and ratios.svg go there")
    options = parser.parse_args(arguments)
    if options.ranks is None:
        options.ranks = 2 if options.hosts == 1 else 1
    if not 1 <= options.hosts <= 16 or not 2 <= options.ranks * options.hosts <= 16:
        parser.error("--ranks, --hosts: 2 to 16 ranks in all")
    if options.mbit is not None and (options.hosts == 1 or not 1 <= options.mbit <= 100_000):
        parser.error("--mbit: 1 to 100000, between several --hosts")
    if options.rounds < 3:
        parser.error("--rounds: at least 3")
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def start_all(options, setup, folder):
    """([contenders that answer], {name: why not})"""
    there, absent = [], {}
    for contender in all_contenders():
        if contender.name in options.without.split(","):
            absent[contender.name] = "left out by --without"
            continue
        try:
            contender.start(setup, folder)
            first = setup.steps[0]
            contender.run(contender.variants(first)[0], first, 1, ANSWER_TIMEOUT_S)
            there.append(contender)
            say(f"  {contender.name}")
        except (Absent, Failed) as why:
            contender.stop()
            if contender.kind == "ours":
                stop_all(there)
                raise
            absent[contender.name] = str(why)
            say(f"  {contender.name}: absent: {why}")
    return there, absent


def stop_all(contenders):
    for contender in contenders:
        contender.stop()


def runs_of(contenders, steps):
    for contender in contenders:
        for step in steps:
            if contender.kind == "way" and not (step.is_list or len(steps) == 1):
                continue  # servers hold tensors whole: one of all bytes is nobody's way
            for variant in contender.variants(step):
                if variant != "slots" or step.bytes <= 1 << 20:
                    yield contender, variant, step


class Turns:
    """The times of each contender, variant and step; who fails is stopped and named in `absent`."""

    def __init__(self, contenders, steps, absent):
        self.times = {}  # {(step, contender's name, variant): [times of each round]}
        self._contenders, self._steps, self._absent = contenders, steps, absent
        self._iterations = {}

    def calibrate(self, slice_ms):
        for run in list(runs_of(self._contenders, self._steps)):
            took = self._take(run, 1)
            if took is not None:
                wanted = slice_ms * 1000 / max(took[STEP], 0.1)
                self._iterations[run] = int(min(max(wanted, 1), 20000))

    def take_round(self, turn):
        runs = list(self._iterations)
        # Nobody always comes after the same neighbour.
        first = turn % len(runs)
        for run in runs[first:] + runs[:first]:
            contender, variant, step = run
            took = self._take(run, self._iterations[run])
            if took is not None:
                self.times.setdefault((step, contender.name, variant), []).append(took)

    def _take(self, run, iterations):
        contender, variant, step = run
        if contender not in self._contenders:
            return None
        try:
            return contender.run(variant, step, iterations, ANSWER_TIMEOUT_S)
        except Failed as why:
            if contender.kind == "ours":
                raise
            say(f"  {why}")
            self._drop(contender, str(why))
            return None

    def _drop(self, contender, why):
        contender.stop()
        self._contenders.remove(contender)
        self._absent[contender.name] = why
        self._iterations = {run: count for run, count in self._iterations.items()
                            if run[0] is not contender}
        self.times = {key: each for key, each in self.times.items() if key[1] != contender.name}


def measure(contenders, steps, options, absent):
    turns = Turns(contenders, steps, absent)
    turns.calibrate(options.slice_ms)
    for turn in range(options.rounds):
        turns.take_round(turn)
    return turns.times


def middle(times, what):
    return statistics.median(each[what] for each in times)


def column(times, what):
    return [each[what] for each in times]


def best_of(times, step, names):
    """(the quickest of these contenders and variants, {name: median of its quickest variant})"""
    medians = {}
    for (of, name, variant), each in times.items():
        if of == step and name in names:
            medians[name, variant] = middle(each, STEP)
    if not medians:
        return None, {}
    quickest = {}
    for (name, _), took in medians.items():
        quickest[name] = min(took, quickest.get(name, took))
    return min(medians, key=medians.get), quickest


def row_of(step, times, kinds):
    """The figures of one step; `kinds`: names of contenders by kind."""
    best, peers = best_of(times, step, kinds.get("peer", ()))
    way, ways = best_of(times, step, kinds.get("way", ()))
    row = {"step": step.name, "bytes": step.bytes, "tensors": len(step.tensors), "peers_us": peers,
           "best_peer": best and " ".join(best), "servers_us": ways, "ours": {}, "limit_us": {}}
    for (of, name, variant), each in times.items():
        if of != step:
            continue
        if name in kinds.get("limit", ()):
            row["limit_us"][variant if name == "limit" else name] = middle(each, STEP)
        elif name in kinds["ours"]:
            figures = {"step_us": middle(each, STEP), "reduce_us": middle(each, REDUCE),
                       "step_p99_us": middle(each, STEP_P99)}
            for what, other in (("", best), ("servers_", way)):
                if other is None:
                    continue
                theirs = column(times[step, *other], STEP)
                figures[what + "step_ratio"] = ratio(theirs, column(each, STEP))
                figures[what + "reduce_ratio"] = ratio(theirs, column(each, REDUCE))
            row["ours"][variant] = figures
            figures["step_tail"] = figures["step_p99_us"] / figures["step_us"]
    if best is not None:
        row["best_p99_us"] = middle(times[step, *best], STEP_P99)
        row["best_tail"] = row["best_p99_us"] / middle(times[step, *best], STEP)
    return row


def add_cliffs(rows):
    """To ours of each single tensor but the smallest: its time per byte over that of the size
    before it."""
    singles = sorted((row for row in rows if row["tensors"] == 1), key=lambda row: row["bytes"])
    for before, row in zip(singles, singles[1:]):
        for variant, figures in row["ours"].items():
            own = figures["step_us"] / row["bytes"]
            figures["cliff"] = own / (before["ours"][variant]["step_us"] / before["bytes"])


def beside_one(row, step, one, times, kinds):
    """To a list's row: the same bytes as one tensor, ours and the best peer's, over our list."""
    best, _ = best_of(times, one, kinds.get("peer", ()))
    (name,) = kinds["ours"]
    for variant, figures in row["ours"].items():
        ours = column(times[step, name, variant], STEP)
        figures["own_one_ratio"] = ratio(column(times[one, name, variant], STEP), ours)
        if best is not None:
            figures["peer_one_ratio"] = ratio(column(times[one, *best], STEP), ours)


def rows_of(step, contenders, options, absent):
    steps = [step, one_of(step)] if step.is_list else [step]
    times = measure(contenders, steps, options, absent)
    kinds = {}
    for contender in contenders:
        kinds.setdefault(contender.kind, []).append(contender.name)
    rows = [row_of(each, times, kinds) for each in steps]
    if step.is_list:
        beside_one(rows[0], *steps, times, kinds)
    return rows


def ratio_words(figures, what):
    if what not in figures:
        return "-"
    value, low, high = figures[what]
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def table(lines):
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        print("  ".join(word.rjust(width) for word, width in zip(line, widths)).rstrip())


def print_rows(rows, peers):
    lines = [["step", "alloc step", "ratio", "private step", "ratio", "best peer", "limit", *peers]]
    for row in rows:
        alloc, private = row["ours"]["alloc"], row["ours"]["private"]
        limit = row["limit_us"].get("alloc", row["limit_us"].get("wire"))
        lines.append([row["step"], time_words(alloc["step_us"]), ratio_words(alloc, "step_ratio"),
                      time_words(private["step_us"]), ratio_words(private, "step_ratio"),
                      row["best_peer"] or "-", "-" if limit is None else time_words(limit),
                      *(time_words(row["peers_us"][name]) if name in row["peers_us"] else "-"
                        for name in peers)])
    table(lines)
    print("p99 over median of the step; time per byte over that of the size before")
    lines = [["step", "alloc p99", "private p99", "best peer p99", "alloc cliff", "private cliff"]]
    for row in rows:
        ours = [row["ours"][each] for each in ("alloc", "private")]
        lines.append([row["step"], *(f"{each['step_tail']:.2f}" for each in ours),
                      f"{row['best_tail']:.2f}" if "best_tail" in row else "-",
                      *(f"{each['cliff']:.2f}" if "cliff" in each else "-" for each in ours)])
    table(lines)
    lists = [row for row in rows if "own_one_ratio" in row["ours"]["alloc"]]
    if lists:
        print("lists: time over that of our one call")
        table([["step", "buffers", "ours as one", "best peer as one", "servers"]] + [
            [row["step"], variant, ratio_words(figures, "own_one_ratio"),
             ratio_words(figures, "peer_one_ratio"), ratio_words(figures, "servers_step_ratio")]
            for row in lists for variant, figures in row["ours"].items()])


def write(options, rows, absent):
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"ranks": options.ranks, "hosts": options.hosts, "mbit": options.mbit,
                   "processors": os.cpu_count(), "machine": platform.machine(),
                   "rounds": options.rounds, "rows": rows, "absent": absent}, file, indent=1)
    if chart.write_ratios(os.path.join(options.out, "ratios.svg"), rows, options):
        print(f"written to {options.out}: results.json, ratios.svg")
    else:
        print(f"written to {options.out}: results.json; no chart without a peer")


def compare(options, setup):
    with tempfile.TemporaryDirectory(prefix="parallax_peers_") as folder:
        say(f"{setup.world} ranks on {os.cpu_count()} processors; contenders:")
        contenders, absent = start_all(options, setup, folder)
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
    print(f"{where}{options.ranks} ranks a host; us, medians of {options.rounds} interleaved "
          "rounds; ratio: best peer / ours, all of the step")
    add_cliffs(rows)
    print_rows(rows, list(dict.fromkeys(name for row in rows for name in row["peers_us"])))
    for name, why in absent.items():
        print(f"absent: {name}: {why}")
    if options.out:
        write(options, rows, absent)


def main():
    options = options_of(sys.argv[1:])
    # Ended by a signal, too, it takes its ranks and hosts along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.sizes = list(dict.fromkeys(options.sizes))
    steps = options.sizes + [one_of(step) for step in options.sizes if step.is_list]
    with contextlib.ExitStack() as stack:
        namespaces = None
        if options.hosts > 1:
            namespaces = stack.enter_context(netns.Namespaces(options.hosts, options.mbit))
        compare(options, Setup(os.path.abspath(options.build), steps, options.ranks, namespaces))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Absent, Failed, netns.NetworkError) as error:
        print(f"bench/peers: {error}", file=sys.stderr)
        sys.exit(2)
