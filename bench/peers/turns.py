# SPDX-License-Identifier: Apache-2.0
"""Contenders that are started once, and take turns: round after round, each in another order."""
import sys

from contenders import Absent, Failed
from report import STEP
from sparse_steps import memory_bytes

ANSWER_TIMEOUT_S = 60


def say(text):
    print(text, file=sys.stderr, flush=True)


def refuse_too_large(setup, contenders, without=()):
    """Steps of row ids, by whom they are to be made: peers keep all tables in each rank, at each of
    their settings."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    kinds = [contender.kind for contender in contenders
             if contender.name not in without and setup.steps[0].dtype in contender.dtypes
             and contender.has_all_tables]
    for step in setup.steps:
        needed = memory_bytes(step, setup.world, setup.hosts, kinds.count("peer"),
                              kinds.count("ours") + kinds.count("part"))
        if needed > 0.9 * free:
            raise Failed(f"{step.name} takes about {needed / (1 << 30):.1f} GiB of the "
                         f"{free / (1 << 30):.1f} that are free: leave peers out (--without)")


def start_all(contenders, setup, folder, without=(), refills=False):
    """([contenders that answer], {name: why not}); Failed where ours does not."""
    there, absent = [], {}
    for contender in contenders:
        contender.refills = refills
        if contender.name in without:
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
    """The times of each contender, variant and step; who fails is stopped and named in `absent`.

    `carried()`, if any: bytes that interfaces, and their queues, have sent so far. Each turn's
    figures then end with the queues' over the interfaces'."""

    def __init__(self, contenders, steps, absent, carried=None):
        self._carried = carried
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
            if run not in self._iterations:
                continue  # dropped in this round
            contender, variant, step = run
            took = self._take(run, self._iterations[run])
            if took is not None:
                self.times.setdefault((step, contender.name, variant), []).append(took)

    def _take(self, run, iterations):
        contender, variant, step = run
        if contender not in self._contenders:
            return None
        try:
            before = self._carried and self._carried()
            figures = contender.run(variant, step, iterations, ANSWER_TIMEOUT_S)
            if self._carried:
                interface, queue = (now - then for then, now in zip(before, self._carried()))
                figures.append(queue / max(interface, 1))
            return figures
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
