#!/usr/bin/env python3
"""Compares two builds of the library by parallax_many, interleaved: a run of one, a run of the
other, and again, so that what the machine does meanwhile befalls both. Prints the median over the
runs of each run's median step, and of its shortest one, and the ratios.

  bench/many/compare.py OLD NEW [--rounds N] [--ranks N]

OLD and NEW are folders of a build, such as build/release, with bin/parallax and lib/libparallax.so.
The program parallax_many is NEW's in both; only the library and the launcher differ.
"""
import argparse
import json
import os
import statistics
import subprocess

SHAPES = (
    ("1000 sparse, reduce", ["--variables", "1000", "--form", "sparse"]),
    ("1000 sparse, pushpull", ["--variables", "1000", "--form", "sparse", "--call", "pushpull"]),
    ("1000 sparse, a call each", ["--variables", "1000", "--form", "sparse", "--batch", "1"]),
    ("4096 sparse, reduce", ["--variables", "4096", "--form", "sparse"]),
    ("4096 dense, reduce", ["--variables", "4096", "--form", "dense"]),
    ("4096 dense, pushpull", ["--variables", "4096", "--form", "dense", "--call", "pushpull"]),
)


def measure(build, program, ranks, shape):
    environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "lib"))
    command = [os.path.join(build, "bin/parallax"), "run", "-n", str(ranks), "--", program, *shape]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if "p50_us" in line)
    return json.loads(line[line.index("{"):])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    options = parser.parse_args()
    builds = {"old": os.path.abspath(options.old), "new": os.path.abspath(options.new)}
    program = os.path.join(builds["new"], "bin/parallax_many")
    three = f"{'old':>9}{'new':>9}{'new/old':>9}"
    print(f"{'ms':26}{'median step':>27}{'shortest step':>27}{'commit':>27}")
    print(f"{'':26}{three * 3}", flush=True)
    for name, shape in SHAPES:
        if options.only not in name:
            continue
        figures = {which: [] for which in builds}
        for _ in range(options.rounds):
            for which, build in builds.items():
                figures[which].append(measure(build, program, options.ranks, shape))

        def median_ms(which, key):
            return statistics.median(each[key] for each in figures[which]) / 1000

        def columns(key):
            old, new = median_ms("old", key), median_ms("new", key)
            return f"{old:9.2f}{new:9.2f}{new / old:9.2f}"

        print(f"{name:26}{columns('p50_us')}{columns('min_us')}{columns('commit_us')}", flush=True)


if __name__ == "__main__":
    main()
