# SPDX-License-Identifier: Apache-2.0
"""A cell of bench/cluster: one step of row ids, on some hosts, at some rate of their links; what
each way has to receive there by its formula, and what is made of the times that were taken."""
import os
import statistics
import subprocess
from dataclasses import dataclass

from contenders import Failed
from figures import ratio
from report import BUSIEST, HEADERS, MEAN, RECEIVED, column, middle

ID_BYTES = 4
NUMBER_BYTES = {"f32": 4, "bf16": 2}
# Of our contenders; peers' methods have formulas of their own names.
FORMULA_OF = {"hybrid": "push_pull", "early-pull-off": "push_pull", "coding-off": "push_pull",
              "in-place-off": "push_pull", "listed-off": "push_pull_keys", "fuse-off": "push_pull",
              "naive-ps": "naive_ps", "ar": "replicated"}


@dataclass(frozen=True)
class Rows:
    """Of a table: how many different rows a rank, a host and the job touch in a step; means."""
    rank: float
    host: float
    world: float


def rows_of(build, step, ranks):
    """Of each table, counted in the very ids that all contenders draw. `ranks`: of each host."""
    program = os.path.join(build, "bin/parallax_cluster_rows")
    try:
        done = subprocess.run([program, step.words(), ",".join(map(str, ranks))],
                              capture_output=True, text=True, check=False)
    except OSError as why:
        raise Failed(f"{program} cannot be run ({why.strerror}): start bench/cluster/run") from why
    if done.returncode != 0:
        raise Failed(f"{program}: {done.stderr.strip()}")
    return [Rows(*map(float, line.split())) for line in done.stdout.splitlines()]


def formula_bytes(step, hosts, ranks_per_host, rows):
    """{way: bytes that a host has to receive in a step, the mean over hosts}. `rows` of each table.

    With N hosts of M ranks, and of each table k ids a rank, d different ones a rank, s a host and u
    in all: see METRICS.md. What ranks of one host give each other is not counted."""
    far = (hosts - 1) / hosts
    total = {}
    for (count, width, ids), each in zip(step.tables, rows):
        values = width * NUMBER_BYTES[step.dtype]
        row = values + ID_BYTES
        sums = width * NUMBER_BYTES["f32"] + ID_BYTES  # gradients are widened before they are sent
        of_table = {
            "push_pull": far * each.host * (sums - ID_BYTES + row),
            "push_pull_keys": far * each.host * (sums + row),
            "naive_ps": far * ranks_per_host * each.rank * (sums - ID_BYTES + row),
            "replicated": min((hosts - 1) * each.host * sums,
                              far * (each.host + each.world) * sums,
                              2 * far * count * (sums - ID_BYTES)),
            "gather": (hosts - 1) * ranks_per_host * ids * row,
            "gather-merged": (hosts - 1) * ranks_per_host * each.rank * row,
            "owners": far * ranks_per_host * each.rank * (2 * values + ID_BYTES),
            "torch-sparse": (hosts - 1) * ranks_per_host * each.rank * (row + ID_BYTES),
            "ranges": far * ranks_per_host * ids * 2 * row,
            # Keys of 8 bytes: asked for, answered and pushed.
            "ps-lite": far * ranks_per_host * each.rank * (2 * values + 3 * 8),
            "balanced": far * (ranks_per_host * each.rank + each.world) * row}
        for way, size in of_table.items():
            total[way] = total.get(way, 0) + size
    return total


def wire_ms(size, mbit):
    return size * 8 / mbit / 1000


def figures_of(times, formula, step, mbit):
    """Of one contender and variant, of its turns."""
    ms = middle(times, MEAN) / 1000
    found = {"ms": ms, "rounds_ms": [each / 1000 for each in column(times, MEAN)],
             "low_ms": min(column(times, MEAN)) / 1000, "high_ms": max(column(times, MEAN)) / 1000,
             "exposed_ms": ms - step.compute_us / 1000,
             "received_bytes": middle(times, RECEIVED), "busiest_bytes": middle(times, BUSIEST),
             "formula_bytes": formula, "over_formula": middle(times, RECEIVED) / formula}
    if mbit is not None:
        found["bound_ms"] = wire_ms(found["busiest_bytes"], mbit)
        found["over_bound"] = statistics.median(
            each[MEAN] / 1000 / wire_ms(each[BUSIEST], mbit) for each in times)
        found["over_queue"] = statistics.median(
            each[MEAN] / 1000 / wire_ms(each[BUSIEST] * each[HEADERS], mbit) for each in times)
    return found


def ways_of(step, times, kinds, formulas, mbit):
    """{way: figures}: each of ours, and each method of the peers at its best setting, whose ratios
    are its time over that of each of `kinds["ours"]`."""
    of_step = {key[1:]: each for key, each in times.items() if key[0] == step}
    ours = {key: each for key, each in of_step.items() if key[0] in kinds["ours"]}
    best = {}
    for (name, variant), each in of_step.items():
        method = variant if name in kinds.get("peer", ()) else f"{name} {variant}"
        if method not in best or middle(each, MEAN) < middle(best[method][1], MEAN):
            best[method] = (name, each)
    ways = {}
    for method, (name, each) in best.items():
        found = figures_of(each, formulas[FORMULA_OF.get(name, method)], step, mbit)
        found["by"] = name
        found["ratio"] = {" ".join(key): ratio(column(each, MEAN), column(own, MEAN))
                          for key, own in ours.items() if key != (name, method.split(" ")[-1])}
        ways[method] = found
    return ways
