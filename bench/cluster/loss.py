# SPDX-License-Identifier: Apache-2.0
"""Loss against time: the training of bench/lm between hosts of a limited link, in each way."""
import argparse
import os
import statistics

import jobs
from contenders import Failed
from sparse_steps import SparseStep

MODES = {"hybrid": "HYBRID", "ps": "PS, summed within hosts", "naive-ps": "PS, each rank alone",
         "ar": "AR"}
PROGRAMS = {"trainer": "parallax_lm", "corpus": "parallax_lm_corpus"}
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


def trained(bench, mode, steps):
    """(its run, how long ranks waited for others' bytes in each step)"""
    bench.apart = mode == "naive-ps"
    outcomes = bench.train(MODES[mode], mode, "ps" if bench.apart else mode, steps,
                           "--evaluate", "0")
    of_ranks = {key: list(zip(*(outcome[key] for outcome in outcomes)))
                for key in ("losses", "step_seconds", "wait_seconds")}
    run = run_of(MODES[mode], smoothed([statistics.fmean(each) for each in of_ranks["losses"]]),
                 [max(each) for each in of_ranks["step_seconds"]])
    exposed = [min(each) for each in of_ranks["wait_seconds"]]
    run["exposed_ms"] = 1000 * settled(exposed)
    return run, exposed


def tensorflow(hybrid, exposed, exchange_ms):
    """TensorFlow's way trains by the same sums, so its losses are HYBRID's; a step takes what
    HYBRID's does without its exchange, and the rows' exchange as measured beside. Dense variables
    cost it nothing here, in its favour."""
    took = [after - before for before, after in zip([0] + hybrid["seconds"], hybrid["seconds"])]
    own = [step - wait + exchange_ms / 1000 for step, wait in zip(took, exposed)]
    return dict(run_of("TensorFlow's way, composed", hybrid["losses"], own),
                exposed_ms=exchange_ms)


def to_quality(runs, quality):
    for run in runs.values():
        reached = (at for at, loss in enumerate(run["losses"]) if loss <= quality)
        first = next(reached, None)
        run["to_quality_s"] = None if first is None else run["seconds"][first]


def measure(options, hosts, ranks, mbit, namespaces, exchange_ms):
    """`exchange_ms`: of ROWS in TensorFlow's way, or None where it is absent."""
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
    runs, waits = {}, {}
    for mode in MODES:
        runs[mode], waits[mode] = trained(bench, mode, options.loss)
    if exchange_ms is not None:
        runs["tensorflow"] = tensorflow(runs["hybrid"], waits["hybrid"], exchange_ms)
    quality = min(runs["hybrid"]["losses"][-SMOOTH_STEPS:])
    quality += 0.1 * (runs["hybrid"]["losses"][0] - quality)
    to_quality(runs, quality)
    return {"hosts": hosts, "ranks": ranks, "mbit": mbit, "quality": quality, "runs": runs}
