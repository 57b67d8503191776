#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AllReduce on one host: libparallax beside every other library that is installed.

The ranks of all contenders are started once and block; then, for each size, each contender runs in
turn, and again, as often as --rounds says, so that what the machine does meanwhile befalls all of
them. A ratio is the best peer's time over ours, both of the same round; its bounds are 95% of its
median's. Every contender's sums are checked at every size.

Ours is a whole step (begin, reduce and wait, end and wait), once from buffers of
parallax_buffer_alloc and once from the caller's own; "reduce" is the reduce and its wait alone. The
limit is what plain loops over shared memory take, without any check or lease.
"""
import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

import chart
from contenders import Absent, Failed, all_contenders
from figures import ratio, size_words, time_words

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
REDUCE, REDUCE_P99, STEP, STEP_P99 = range(4)
ANSWER_TIMEOUT_S = 120
DEFAULT_SIZES = "8,512,4K,32K,64K,256K,2M,16M"


@dataclass
class Setup:
    build: str
    sizes: list


def bytes_of(word):
    digits = word.rstrip("KM")
    unit = word[len(digits):]
    if not digits.isdigit() or unit not in UNITS or int(digits) * UNITS[unit] % 4:
        raise argparse.ArgumentTypeError(f"'{word}' is no size: 4-byte numbers, such as 8, 4K, 16M")
    return int(digits) * UNITS[unit]


def sizes_of(words):
    return [bytes_of(word) for word in words.split(",")]


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=sizes_of, default=sizes_of(DEFAULT_SIZES),
                        help=f"bytes, with commas ({DEFAULT_SIZES})")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice-ms", type=float, default=40,
                        help="about how long a contender's turn is (40)")
    parser.add_argument("--without", default="", help="contenders to leave out, with commas")
    parser.add_argument("--build", default=os.path.join(os.path.dirname(__file__),
                                                        "../../build/release"))
    parser.add_argument("--out", default=None, help="results.json and ratios.svg go there")
    options = parser.parse_args(arguments)
    if not 2 <= options.ranks <= 16:
        parser.error("--ranks: 2 to 16")
    if options.rounds < 3:
        parser.error("--rounds: at least 3")
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def start_all(options, setup, folder):
    """({contenders that answer}, {name: why not})"""
    there, absent = [], {}
    for contender in all_contenders():
        if contender.name in options.without.split(","):
            absent[contender.name] = "left out by --without"
            continue
        try:
            contender.start(options.ranks, folder, setup)
            contender.run(contender.variants[0], 8, 3, ANSWER_TIMEOUT_S)
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


def measure(contenders, size, options):
    """{(name, variant): [times of each round]}"""
    runs = [(contender, variant) for contender in contenders for variant in contender.variants
            if not (variant == "slots" and size > 1 << 20)]
    iterations = {}
    for contender, variant in runs:
        took = contender.run(variant, size, 3, ANSWER_TIMEOUT_S)[STEP]
        wanted = options.slice_ms * 1000 / max(took, 0.1)
        iterations[contender.name, variant] = int(min(max(wanted, 3), 20000))
    times = {(contender.name, variant): [] for contender, variant in runs}
    for turn in range(options.rounds):
        # Nobody always comes after the same neighbour.
        first = turn % len(runs)
        for contender, variant in runs[first:] + runs[:first]:
            key = contender.name, variant
            times[key].append(contender.run(variant, size, iterations[key], ANSWER_TIMEOUT_S))
    return times


def middle(times, what):
    return statistics.median(each[what] for each in times)


def row_of(size, times, peers):
    """The figures of one size."""
    medians = {name: middle(times[name, "default"], STEP) for name in peers}
    row = {"bytes": size, "peers_us": medians, "ours": {}, "limit_us": {}}
    best = min(medians, key=medians.get) if medians else None
    row["best_peer"] = best
    for (name, variant), each in times.items():
        if name == "limit":
            row["limit_us"][variant] = middle(each, STEP)
        elif name == "libparallax":
            figures = {"step_us": middle(each, STEP), "reduce_us": middle(each, REDUCE),
                       "step_p99_us": middle(each, STEP_P99)}
            if best is not None:
                theirs = [turn[STEP] for turn in times[best, "default"]]
                for what, index in (("step", STEP), ("reduce", REDUCE)):
                    ours = [turn[index] for turn in each]
                    figures[f"{what}_ratio"] = ratio(theirs, ours)
            row["ours"][variant] = figures
    if best is not None:
        row["best_p99_us"] = middle(times[best, "default"], STEP_P99)
    return row


def ratio_words(figures, what):
    if f"{what}_ratio" not in figures:
        return "-"
    value, low, high = figures[f"{what}_ratio"]
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def print_rows(rows, peers):
    columns = ["size", "alloc step", "ratio", "private step", "ratio", "best peer", "limit alloc",
               *peers]
    lines = [columns]
    for row in rows:
        alloc, private = row["ours"]["alloc"], row["ours"]["private"]
        limit = row["limit_us"].get("alloc")
        lines.append([size_words(row["bytes"]), time_words(alloc["step_us"]),
                      ratio_words(alloc, "step"), time_words(private["step_us"]),
                      ratio_words(private, "step"), row["best_peer"] or "-",
                      "-" if limit is None else time_words(limit),
                      *(time_words(row["peers_us"][name]) for name in peers)])
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        print("  ".join(word.rjust(width) for word, width in zip(line, widths)))


def main():
    options = options_of(sys.argv[1:])
    setup = Setup(build=os.path.abspath(options.build), sizes=sorted(set(options.sizes)))
    with tempfile.TemporaryDirectory(prefix="parallax_peers_") as folder:
        say(f"{options.ranks} ranks on {os.cpu_count()} processors; contenders:")
        contenders, absent = start_all(options, setup, folder)
        peers = [contender.name for contender in contenders if contender.kind == "peer"]
        rows = []
        try:
            for size in setup.sizes:
                start = time.monotonic()
                rows.append(row_of(size, measure(contenders, size, options), peers))
                say(f"  {size_words(size)}: {time.monotonic() - start:.0f} s")
        finally:
            stop_all(contenders)
    print(f"us, medians of {options.rounds} interleaved rounds; ratio: best peer / ours, all of "
          "the step")
    print_rows(rows, peers)
    for name, why in absent.items():
        print(f"absent: {name}: {why}")
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump({"ranks": options.ranks, "processors": os.cpu_count(),
                       "machine": platform.machine(), "rounds": options.rounds, "rows": rows,
                       "absent": absent}, file, indent=1)
        chart.write_ratios(os.path.join(options.out, "ratios.svg"), rows, options.ranks)
        print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Absent, Failed) as why:
        print(f"bench/peers: {why}", file=sys.stderr)
        sys.exit(2)
