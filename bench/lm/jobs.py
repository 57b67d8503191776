# SPDX-License-Identifier: Apache-2.0
"""The runs of the bench: one trainer process per rank, the oracle, and the corpus."""

import json
import os
import secrets
import shutil
import subprocess
import tempfile

import children

MODES = ("hybrid", "ar", "ps")
TITLES = {"hybrid": "HYBRID", "ar": "AR", "ps": "PS", "auto": "AUTO"}
PLAN_AFTER_STEPS = 8     # steps that AUTO and AR measure before their plan settles
MARK_AFTER_STEPS = 16    # the counters are read from here on: the plan has settled
SETUP_SECONDS = 120
TIMEOUT_MS = 60000


class Bench:
    """Where things are and what shape the job has; makes and runs the commands."""

    def __init__(self, options, programs, namespaces=None):
        self.options = options
        self.programs = programs
        self.namespaces = namespaces
        self.out = os.path.abspath(options.out)
        self.corpus = os.path.join(self.out, "corpus.bin")
        self.hosts = options.hosts
        self.world = options.hosts * options.ranks_per_host
        self.mark_step = min(MARK_AFTER_STEPS, options.steps // 2)
        # Between hosts ranks know each other by it; a user's own is as good.
        os.environ.setdefault("PARALLAX_SECRET", secrets.token_hex(32))

    def host_of(self, rank):
        return rank // self.options.ranks_per_host

    def host_name(self, rank):
        """As the library is told: ranks of one name share memory."""
        return f"h{self.host_of(rank)}"

    def _logs(self, name):
        return children.make_folder(os.path.join(self.out, "logs", name))

    def make_corpus(self):
        command = [self.programs["corpus"], "--out", self.corpus]
        if self.options.corpus:
            command += ["--corpus"] + [os.path.abspath(path) for path in self.options.corpus]
        progress = children.Progress("corpus", 1, "reading text and numbering its words")
        result = subprocess.run(command, check=False, capture_output=True, text=True,
                                timeout=SETUP_SECONDS)
        if result.returncode != 0:
            raise children.ChildError(result.stderr.strip())
        progress.end("done")
        return json.loads(result.stdout)

    def _common(self, out, steps):
        options = self.options
        # The learning rate falls over options.steps in every run: a shorter one is a prefix.
        return ["--corpus", self.corpus, "--world", str(self.world), "--steps", str(steps),
                "--decay-steps", str(options.steps), "--seed", str(options.seed), "--out", out]

    def _seconds(self, steps):
        """A deadline that a slow machine keeps: a tenth of the usual speed."""
        return SETUP_SECONDS + 0.25 * steps * self.world

    def oracle(self, checksum_steps, evaluate_every):
        options = self.options
        out = os.path.join(self._logs("oracle"), "oracle.json")
        command = [self.programs["oracle"], *self._common(out, options.steps),
                   "--ranks-per-host", str(options.ranks_per_host),
                   "--evaluate-every", str(evaluate_every)]
        if checksum_steps:
            command += ["--checksum-steps"] + [str(step) for step in checksum_steps]
        progress = children.Progress("oracle", options.steps)
        children.run_all("oracle", [command], [out[:-5] + ".log"], ["oracle"],
                         self._seconds(options.steps) * 2, progress)
        progress.end("done")
        with open(out, encoding="utf-8") as file:
            return json.load(file)

    def train(self, title, name, mode, steps, *extra):
        """Runs one job; returns the outcome of every rank, in order."""
        logs = self._logs(name)
        # Short, because sockets may lie in it.
        rendezvous = tempfile.mkdtemp(prefix="parallax-")
        commands, files, outs, labels = [], [], [], []
        for rank in range(self.world):
            host = self.host_of(rank)
            out = os.path.join(logs, f"rank-{rank}.json")
            if os.path.exists(out):
                os.remove(out)
            command = [self.programs["trainer"], *self._common(out, steps), "--rank", str(rank),
                       "--host", self.host_name(rank), "--plan", mode,
                       "--mark-step", str(self.mark_step),
                       "--plan-after-steps", str(PLAN_AFTER_STEPS),
                       "--timeout-ms", str(TIMEOUT_MS), "--memory", self.options.memory, *extra]
            if self.world > 1:
                command += ["--rendezvous", "file:" + os.path.join(rendezvous, "meet")]
            if self.hosts > 1:
                command += ["--net-device", "eth0" if self.namespaces else "lo"]
            if self.namespaces:
                command = self.namespaces.command(host, command)
            commands.append(command)
            files.append(os.path.join(logs, f"rank-{rank}.log"))
            outs.append(out)
            labels.append(f"rank {rank} on h{host}")
        progress = children.Progress(title, steps, loss="rank 0's loss")
        try:
            children.run_all(title, commands, files, labels, self._seconds(steps), progress)
        finally:
            shutil.rmtree(rendezvous, ignore_errors=True)
        progress.end("done")
        outcomes = []
        for out in outs:
            with open(out, encoding="utf-8") as file:
                outcomes.append(json.load(file))
        return outcomes

    def check_gradient(self, mode):
        """Compares the reduced gradient of one step with the oracle's; the figures by variable."""
        name = f"gradient-{mode}"
        values = os.path.join(self._logs(name), "values.bin")
        outcomes = self.train(f"{TITLES[mode]} gradient", name, mode, 1, "--gradient-check",
                              "--values", values)
        out = os.path.join(self._logs(name), "agreement.json")
        command = [self.programs["oracle"], *self._common(out, 1), "--gradient-check",
                   "--values", values]
        log = os.path.join(self._logs(name), "oracle.log")
        with open(log, "wb") as file:
            # Status 1 says that some element is off: the figures say so too.
            status = subprocess.run(command, check=False, stdout=file, stderr=file,
                                    timeout=self._seconds(1)).returncode
        os.remove(values)
        if status not in (0, 1):
            with open(log, encoding="utf-8", errors="replace") as file:
                raise children.ChildError("gradient check: " + file.read().strip())
        with open(out, encoding="utf-8") as file:
            return {"agreement": json.load(file), "outcomes": outcomes}
