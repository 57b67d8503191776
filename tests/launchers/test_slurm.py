# SPDX-License-Identifier: Apache-2.0
"""Ranks that Slurm's srun starts, by a cluster of one node that the test brings up and down."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "launch"))

from support import PATIENCE, RANK, LaunchTest, free_port  # noqa: E402
from surroundings import clean_environment  # noqa: E402

WORLD = 4
DAEMONS = ("munged", "slurmctld", "slurmd")  # in the order of starting
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
MISSING = [name for name in (*DAEMONS, "srun", "squeue", "sinfo", "scancel")
           if not shutil.which(name, path=PATH)]

CONF = """
ClusterName=parallax-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName={host} NodeAddr=127.0.0.1 CPUs={world} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)} (slurm-wlm, munge)")
@unittest.skipIf(os.geteuid(), "needs root: slurmd starts the steps")
class Srun(LaunchTest):
    def setUp(self):
        super().setUp()
        conf = os.path.join(self.folder, "slurm.conf")
        with open(conf, "w", encoding="ascii") as file:
            file.write(CONF.format(host=socket.gethostname().split(".")[0], user=getpass.getuser(),
                                   folder=self.folder, world=WORLD, controller=free_port(),
                                   node=free_port()))
        with open(self.path("munge.key"), "wb") as file:
            file.write(os.urandom(64))
        os.chmod(self.path("munge.key"), 0o400)
        os.mkdir(self.path("state"))
        os.mkdir(self.path("spool"))
        os.chmod(self.folder, 0o755)  # munged wants its socket's folder open
        self.environment = {"SLURM_CONF": conf, "PATH": PATH}
        self.daemon("munged", "--foreground", "--socket", self.path("munge.socket"), "--key-file",
                    self.path("munge.key"), "--pid-file", self.path("munge.pid"), "--seed-file",
                    self.path("munge.seed"), "--num-threads", "2")
        self.wait_until("munged listens", lambda: os.path.exists(self.path("munge.socket")))
        self.daemon("slurmctld", "-D", "-i")
        self.daemon("slurmd", "-D")
        self.addCleanup(self.end_jobs)
        self.wait_until("the node is idle",
                        lambda: self.say("sinfo", "--noheader", "--format=%t") == "idle")

    def path(self, name):
        return os.path.join(self.folder, name)

    def say(self, *command):
        return subprocess.run(command, env=clean_environment(**self.environment), text=True,
                              capture_output=True, timeout=PATIENCE, check=False).stdout.strip()

    def wait_until(self, what, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                logs = ""
                for name in DAEMONS:
                    if os.path.exists(self.path(name + ".log")):
                        with open(self.path(name + ".log"), encoding="utf-8") as file:
                            logs += f"\n{name}:\n{file.read()}"
                self.fail(f"never: {what}{logs}")
            time.sleep(0.1)

    def daemon(self, *command):
        with open(self.path(command[0] + ".log"), "wb") as log:
            process = subprocess.Popen(command, env=clean_environment(**self.environment),
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def end():
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self.addCleanup(end)

    def end_jobs(self):
        """Before the daemons go: a step that outlives its slurmd is nobody's."""
        self.say("scancel", "--user", getpass.getuser())
        self.wait_until("no job is left", lambda: self.say("squeue", "--noheader") == "")

    def srun(self, ranks):
        return self.start(["srun", "-n", str(ranks), RANK], **self.environment)

    def test_ranks_meet(self):
        job = self.srun(WORLD)
        self.assertEqual(job.wait(), 0, job.text)
        for rank in range(WORLD):
            self.assertIn(f"ok rank {rank} of {WORLD} on 1 hosts", job.text)

    def test_two_jobs_at_once(self):
        for job in [self.srun(WORLD // 2) for _ in range(2)]:
            self.assertEqual(job.wait(), 0, job.text)
            self.assertIn("ok rank 1 of 2 ", job.text)


if __name__ == "__main__":
    unittest.main()
