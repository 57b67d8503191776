#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training example: trains one language model as HYBRID, AR and PS over libparallax and as one
process by the oracle, compares them, and says what crossed the wire. bench/run builds and calls it.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import sys
import time

import charts
import checks
import children
import figures
import jobs
import netns
import tables

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AUTO_TAG_STEPS = 24
SPARSE = ("embedding", "softmax")
EVALUATIONS = 6  # of the oracle, over the run


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="bench/run", description=__doc__.strip(), allow_abbrev=False,
        epilog="METRICS.md in bench/ states the formula of every figure. Exit status: 0 if all "
               "checks passed, 1 if one failed, 2 if a run could not be finished.")
    parser.add_argument("--corpus", nargs="+", metavar="FILE",
                        help="text to train on; default: the C and C++ headers in /usr/include")
    parser.add_argument("--hosts", type=positive, default=4, help="hosts to emulate (4)")
    parser.add_argument("--ranks-per-host", type=positive, default=2, help="(2)")
    parser.add_argument("--steps", type=positive, default=300, help="steps of each run (300)")
    parser.add_argument("--deterministic-steps", type=positive, default=60,
                        help="steps of the runs compared bit for bit (60)")
    parser.add_argument("--plan", choices=["all", *jobs.TITLES], default="all",
                        help="all: HYBRID, AR, PS and AUTO tags (default); else one mode only")
    parser.add_argument("--netns", action="store_true",
                        help="a network namespace per host, instead of loopback; needs root")
    parser.add_argument("--memory", choices=["host", "cuda"], default="host",
                        help="cuda: gradients and pulled rows lie on CUDA devices (host)")
    parser.add_argument("--seed", type=int, default=1, help="of initial values and batches (1)")
    parser.add_argument("--out", default=os.path.join(ROOT, "bench", "out"),
                        help="folder for results.json, charts and logs (bench/out)")
    parser.add_argument("--options-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--programs", default=os.path.join(ROOT, "build", "release", "bin"),
                        help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for path in options.corpus or []:
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            parser.error(f"--corpus {path}: {error.strerror}")
    if options.seed < 0:
        parser.error("--seed must be 0 or more")
    options.deterministic_steps = min(options.deterministic_steps, options.steps)
    return options


def find_programs(folder):
    names = {"trainer": "parallax_lm", "oracle": "parallax_lm_oracle",
             "corpus": "parallax_lm_corpus"}
    programs = {key: os.path.join(folder, name) for key, name in names.items()}
    missing = [path for path in programs.values() if not os.access(path, os.X_OK)]
    if missing:
        raise children.ChildError("not built: " + ", ".join(missing) + "; start bench/run instead")
    return programs


def run_oracle(bench, options):
    every = max(1, options.steps // EVALUATIONS)
    outcome = bench.oracle([options.deterministic_steps], every)
    points = [{"step": point["step"],
               "held_out": figures.join_evaluations([point["held_out"]]),
               "training": figures.join_evaluations([point["training"]]),
               "counting": {part: point["counting_" + part] / point[part]["positions"]
                            for part in ("held_out", "training")}}
              for point in outcome["evaluations"]]
    return {"losses": [figures.mean(losses) for losses in outcome["losses"]],
            "rank_losses": outcome["losses"], "norms": outcome["norms"],
            "checksums": outcome["checksums"], "evaluations": points,
            "held_out": points[-1]["held_out"], "training": points[-1]["training"]}


def run_modes(bench, options, modes):
    results = {"runs": {}, "deterministic": {}, "gradient": {}}
    for mode in modes:
        outcomes = bench.train(jobs.TITLES[mode], mode, mode, options.steps)
        results["runs"][mode] = figures.summarize(outcomes, bench.mark_step, SPARSE)
        results["runs"][mode]["kernel"] = (
            figures.kernel_agreement(outcomes) if options.netns and options.hosts > 1 else None)
    for mode in modes:
        steps = options.deterministic_steps
        outcomes = bench.train(f"{jobs.TITLES[mode]} deterministic", f"deterministic-{mode}", mode,
                               steps, "--deterministic", "--evaluate", "0")
        run = figures.summarize(outcomes, min(bench.mark_step, steps - 1), SPARSE)
        run["rank_losses"] = [list(losses) for losses in zip(*(o["losses"] for o in outcomes))]
        run["norms"] = outcomes[0]["norms"]
        results["deterministic"][mode] = run
    if options.plan == "all":
        steps = min(options.steps, AUTO_TAG_STEPS)
        outcomes = bench.train("AUTO tags", "auto-tags", "auto", steps, "--tags", "auto",
                               "--evaluate", "0")
        results["auto_tags"] = {"plan": outcomes[0]["plan"],
                                "traffic": figures.traffic(outcomes, SPARSE)}
    for mode in modes:
        results["gradient"][mode] = bench.check_gradient(mode)
    return results


def print_results(results, options):
    print()
    print(tables.runs(results))
    if results.get("auto_tags"):
        print("\n" + tables.plan("AUTO tags, measured and settled", results["auto_tags"]))
        print("\n" + tables.plans(results["runs"]))
    for mode, run in results["runs"].items():
        if len(results["runs"]) == 1:
            print("\n" + tables.plan(jobs.TITLES[mode], run))
    print("\n" + tables.gradient(results))
    if options.netns and options.hosts > 1:
        print("\n" + tables.kernel(results))


def write_results(results, found, options, corpus, seconds):
    document = {
        "options": {key: value for key, value in vars(options).items()
                    if key not in ("programs", "options_only")},
        "machine": {"system": platform.platform(), "processors": os.cpu_count()},
        "corpus": corpus, "seconds": seconds, "checks": found.rows,
        "oracle": results["oracle"], "runs": results["runs"],
        "deterministic": results["deterministic"],
        "auto_tags": results.get("auto_tags"),
        "gradient": {mode: run["agreement"] for mode, run in results["gradient"].items()},
    }
    path = os.path.join(options.out, "results.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    losses = os.path.join(options.out, "losses.svg")
    charts.write_losses(losses, results, corpus, jobs.TITLES)
    written = [path, losses]
    if options.hosts > 1:
        wire = os.path.join(options.out, "bytes.svg")
        charts.write_bytes(wire, results, jobs.TITLES, options.hosts)
        written.append(wire)
    return written


def run(options):
    start = time.monotonic()
    children.make_folder(options.out)
    with contextlib.ExitStack() as stack:
        namespaces = None
        if options.netns and options.hosts > 1:
            namespaces = stack.enter_context(netns.Namespaces(options.hosts))
        bench = jobs.Bench(options, find_programs(options.programs), namespaces)
        corpus = bench.make_corpus()
        where = "network namespaces" if namespaces else "loopback"
        print(tables.wrapped(
            f"corpus: {corpus['files']} files, {corpus['bytes']:,} bytes, hash {corpus['hash']}, "
            f"{corpus['words']:,} words, vocabulary {corpus['vocabulary']:,}, "
            f"unigram entropy {corpus['unigram_entropy_nats']:.4f} nats"))
        print(tables.wrapped(
            f"job: {options.hosts} hosts x {options.ranks_per_host} ranks on {where}, "
            f"{options.steps} steps of {figures.BATCH} positions a rank, seed {options.seed}"
            + (", on CUDA devices" if options.memory == "cuda" else "")),
            flush=True)
        modes = jobs.MODES if options.plan == "all" else (options.plan,)
        oracle = run_oracle(bench, options)
        results = run_modes(bench, options, modes)
        results["oracle"] = oracle
    found = checks.run_all(results, options, corpus)
    print_results(results, options)
    print("\n" + tables.checks(found))
    seconds = time.monotonic() - start
    written = write_results(results, found, options, corpus, seconds)
    failed = found.failed()
    print("\n" + tables.wrapped(f"written: {', '.join(os.path.relpath(p) for p in written)}"))
    passed = sum(row["verdict"] == "PASS" for row in found.rows)
    skipped = len(found.rows) - passed - len(failed)
    print(f"{passed} passed, {len(failed)} failed, {skipped} not applicable; {seconds:.0f} s")
    return 1 if failed else 0


def main():
    def stop(number, _):
        signal.signal(number, signal.SIG_IGN)  # a second one must not cut the clean-up short
        raise SystemExit(128 + number)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    options = parse(sys.argv[1:])
    if options.options_only:
        return 0
    try:
        return run(options)
    except (children.ChildError, netns.NetworkError, OSError) as error:
        print(f"\nbench/run: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nbench/run: interrupted; every process it started has ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
