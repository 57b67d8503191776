# SPDX-License-Identifier: Apache-2.0
"""Loss against time: the training of bench/lm between hosts of a limited link, in each way."""
import argparse
import json
import os
import statistics

import jobs
import children
from contenders import Failed, command_by_openmpi
from sparse_steps import SparseStep

MODES = {"hybrid": "HYBRID", "ps": "PS, summed within hosts", "naive-ps": "PS, each rank alone",
         "ar": "AR"}
PROGRAMS = {"trainer": "parallax_lm", "corpus": "parallax_lm_corpus"}
TENSORFLOW = "parallax_lm_servers"
STEPS_MIN = 24  # plans are made after 8
SMOOTH_STEPS = 10  # of the loss that says whether a quality is reached
# What the trainer looks up of 100,000 words (bench/lm/model.h): the four before each of 128, 64
# wide, and those and 512 sampled ones, with a bias. Both are trained on the same ids each step.
ROWS = SparseStep("lm", ((100_000, 64, 4 * 128), (100_000, 65, 128 + 512)))


class Bench(jobs.Bench):
    """`apart`: every rank says that it has a host for itself."""
    apart = False

    def host_name(self, rank):
        return super().host_name(rank) + f"r{rank}" * self.apart

    def train_by_mpi(self, title, setup, contender, steps, *extra):
        """In TensorFlow's way, as that contender of bench/peers is started."""
        logs = self._logs("tensorflow")
        words = [os.path.join(setup.build, "bin", TENSORFLOW),
                 *self._common(os.path.join(logs, "rank-RANK.json"), steps), *extra]
        progress = children.Progress(title, steps, loss="rank 0's loss")
        children.run_all(title, [command_by_openmpi(setup, contender, words)],
                         [os.path.join(logs, "mpirun.log")], ["mpirun"], self._seconds(steps),
                         progress)
        progress.end("done")
        outcomes = []
        for rank in range(self.world):
            with open(os.path.join(logs, f"rank-{rank}.json"), encoding="utf-8") as file:
                outcomes.append(json.load(file))
        return outcomes


def smoothed(losses):
    return [statistics.fmean(losses[max(0, at - SMOOTH_STEPS + 1):at + 1])
            for at in range(len(losses))]


def settled(seconds):
    """The median of the second half: the plan is settled by then."""
    return statistics.median(seconds[len(seconds) // 2:])


def sums(numbers):
    total, found = 0.0, []
    for number in numbers:
        total += number
        found.append(total)
    return found


def run_of(title, losses, step_seconds):
    return {"title": title, "losses": losses, "seconds": sums(step_seconds),
            "step_ms": 1000 * settled(step_seconds)}


def run_of_outcomes(title, outcomes):
    of_ranks = {key: list(zip(*(outcome[key] for outcome in outcomes)))
                for key in ("losses", "step_seconds", "wait_seconds")}
    run = run_of(title, smoothed([statistics.fmean(each) for each in of_ranks["losses"]]),
                 [max(each) for each in of_ranks["step_seconds"]])
    # How long ranks waited for others' bytes.
    run["exposed_ms"] = 1000 * settled([min(each) for each in of_ranks["wait_seconds"]])
    return run


def trained(bench, mode, steps):
    bench.apart = mode == "naive-ps"
    return run_of_outcomes(MODES[mode], bench.train(
        MODES[mode], mode, "ps" if bench.apart else mode, steps, "--evaluate", "0"))


def to_quality(runs, quality):
    for run in runs.values():
        reached = (at for at, loss in enumerate(run["losses"]) if loss <= quality)
        first = next(reached, None)
        run["to_quality_s"] = None if first is None else run["seconds"][first]


def measure(options, setup, mbit, namespaces, tensorflow_by):
    """`tensorflow_by`: the contender by which TensorFlow's way is quickest, or None where it is
    absent."""
    hosts, ranks = setup.hosts, setup.ranks[0]
    settings = argparse.Namespace(out=os.path.join(options.out, "loss"), hosts=hosts, seed=1,
                                  ranks_per_host=ranks, steps=options.loss, memory="host",
                                  corpus=options.corpus)
    programs = {key: os.path.join(options.build, "bin", name) for key, name in PROGRAMS.items()}
    for program in programs.values():
        if not os.access(program, os.X_OK):
            raise Failed(f"{program} was not built: start bench/cluster/run")
    os.makedirs(settings.out, exist_ok=True)
    bench = Bench(settings, programs, namespaces)
    bench.make_corpus()
    runs = {mode: trained(bench, mode, options.loss) for mode in MODES}
    if tensorflow_by is not None:
        title = f"TensorFlow's way ({tensorflow_by})"
        runs["tensorflow"] = run_of_outcomes(title, bench.train_by_mpi(
            title, setup, tensorflow_by, options.loss, "--evaluate", "0"))
    quality = min(runs["hybrid"]["losses"][-SMOOTH_STEPS:])
    quality += 0.1 * (runs["hybrid"]["losses"][0] - quality)
    to_quality(runs, quality)
    return {"hosts": hosts, "ranks": ranks, "mbit": mbit, "quality": quality, "runs": runs}
