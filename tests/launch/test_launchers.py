# SPDX-License-Identifier: Apache-2.0
"""The same program under every launcher, unchanged: rendezvous "env", and the ways without one."""

import os
import socket
import unittest

from support import INVALID, RANK, LaunchTest, free_port, mpirun

WORLD = 4


class Mpirun(LaunchTest):
    """Debian's Open MPI, on this machine."""

    def mpirun(self, *arguments, **environment):
        return self.start([*mpirun(self), *arguments], **environment)

    def test_ranks_meet(self):
        job = self.mpirun("-n", str(WORLD), RANK)
        self.assertEqual(job.wait(), 0, job.text)
        for rank in range(WORLD):
            self.assertIn(f"ok rank {rank} of {WORLD} on 1 hosts", job.text)

    def test_asked_for_from_outside(self):
        """A program that says nothing of a rendezvous."""
        job = self.mpirun("-n", "2", "-x", "PARALLAX_RENDEZVOUS", RANK, "--rendezvous", "",
                          PARALLAX_RENDEZVOUS="env")
        self.assertEqual(job.wait(), 0, job.text)
        self.assertIn("ok rank 1 of 2 ", job.text)

    def test_asked_for_from_outside_at_a_rendezvous_of_ones_own(self):
        job = self.mpirun("-n", "2", "-x", "PARALLAX_RENDEZVOUS", RANK, "--rendezvous", "",
                          PARALLAX_RENDEZVOUS="file:" + self.folder + "/meet")
        self.assertEqual(job.wait(), 0, job.text)
        self.assertIn("ok rank 1 of 2 ", job.text)

    def test_two_jobs_at_once(self):
        jobs = [self.mpirun("-n", "2", RANK) for _ in range(2)]
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.text)
            self.assertIn("ok rank 1 of 2 ", job.text)

    def test_its_own_rendezvous_may_be_given(self):
        job = self.mpirun("-n", "2", "-x", "PARALLAX_RENDEZVOUS", RANK,
                          PARALLAX_RENDEZVOUS="file:" + self.folder + "/meet")
        self.assertEqual(job.wait(), 0, job.text)
        self.assertIn("ok rank 1 of 2 ", job.text)

    @unittest.skipUnless(os.environ.get("PARALLAX_TEST_BESIDE_MPI"), "needs MPI (libopenmpi-dev)")
    def test_beside_mpi(self):
        """A program that calls MPI_Allreduce while a reduce of its job is pending."""
        for arguments, hosts in (([], 1), (["hosts"], WORLD)):
            job = self.mpirun("-n", str(WORLD), os.environ["PARALLAX_TEST_BESIDE_MPI"], *arguments)
            self.assertEqual(job.wait(), 0, job.text)
            for rank in range(WORLD):
                self.assertIn(f"ok rank {rank} of {WORLD} on {hosts} hosts beside MPI", job.text)


class Environments(LaunchTest):
    """What other launchers put into the environment of the processes that they start."""

    def start_all(self, environment_of, *arguments):
        # Rank 0 comes last: the others wait for it.
        ranks = {rank: self.start_rank(*arguments, **environment_of(rank))
                 for rank in reversed(range(WORLD))}
        return [ranks[rank] for rank in range(WORLD)]

    def test_torchrun_on_one_node(self):
        port = free_port()
        store = socket.create_server(("127.0.0.1", port))  # torch's own, which has MASTER_PORT
        self.addCleanup(store.close)
        self.assert_all_ok(self.start_all(lambda rank: {
            "RANK": rank, "WORLD_SIZE": WORLD, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": WORLD,
            "GROUP_RANK": 0, "MASTER_ADDR": socket.gethostname(), "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "none"}))

    def test_torchrun_on_two_nodes(self):
        """Two agents of two ranks; the address is loopback here, so that no secret is needed."""
        port = free_port()
        ranks = self.start_all(lambda rank: {
            "RANK": rank, "WORLD_SIZE": WORLD, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2,
            "GROUP_RANK": rank // 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "two-nodes", "PARALLAX_HOST": f"node{rank // 2}"})
        self.assert_all_ok(ranks)
        self.assertIn("on 2 hosts", ranks[0].text)

    def test_slurm_on_one_node(self):
        self.assert_all_ok(self.start_all(lambda rank: {
            "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0, "SLURM_PROCID": rank,
            "SLURM_LOCALID": rank, "SLURM_NTASKS": WORLD, "SLURM_NNODES": 1,
            "SLURM_STEP_NUM_TASKS": WORLD, "SLURM_STEP_NUM_NODES": 1,
            "SLURM_JOB_NODELIST": "gpu007", "SLURM_STEP_NODELIST": "gpu007"}))

    def test_slurm_on_two_nodes(self):
        self.assert_all_ok(self.start_all(lambda rank: {
            "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 1, "SLURM_PROCID": rank,
            "SLURM_LOCALID": rank % 2, "SLURM_NTASKS": WORLD, "SLURM_NNODES": 2,
            "SLURM_JOB_NODELIST": "localhost,gpu[008-009]", "PARALLAX_HOST": f"n{rank // 2}"}))

    def test_ours(self):
        port = free_port()
        self.assert_all_ok(self.start_all(lambda rank: {
            "PARALLAX_RANK": rank, "PARALLAX_WORLD": WORLD,
            "PARALLAX_RENDEZVOUS": f"tcp:127.0.0.1:{port}#mine"}))

    def test_alone(self):
        rank = self.start_rank(PARALLAX_RANK=0, PARALLAX_WORLD=1)
        self.assert_all_ok([rank])

    def test_half_an_identity(self):
        for identity in ({"PARALLAX_RANK": 0}, {"PARALLAX_RANK": 1}, {"PARALLAX_WORLD": 2}):
            with self.subTest(**identity):
                self.assert_ends(self.start_rank(**identity), INVALID, "PARALLAX_RANK",
                                 "PARALLAX_WORLD", "set both, or neither")

    def test_no_launcher(self):
        self.assert_all_ok([self.start_rank()])

    def test_half_a_launcher(self):
        for name, value in (("MASTER_ADDR", "a"), ("PARALLAX_RENDEZVOUS", "tcp:127.0.0.1:1")):
            with self.subTest(name=name):
                self.assert_ends(self.start_rank("--rendezvous", "env", **{name: value}), INVALID,
                                 f"{name} is set", "that of no launcher", "PARALLAX_RANK")

    def test_options_that_contradict_it(self):
        self.assert_ends(
            self.start_rank("--world", 3, PARALLAX_RANK=0, PARALLAX_WORLD=2,
                            PARALLAX_RENDEZVOUS="tcp:127.0.0.1:1"),
            INVALID, "options.rank and options.world are 0 and 3", "rank 0 of 2")


class Plain(LaunchTest):
    """Processes that were told rank, world and rendezvous by their caller."""

    def start_all(self, *arguments):
        return [self.start_rank("--rank", rank, "--world", WORLD, *arguments)
                for rank in range(WORLD)]

    def test_tcp(self):
        self.assert_all_ok(self.start_all("--rendezvous", f"tcp:127.0.0.1:{free_port()}"))

    def test_tcp_with_a_secret(self):
        self.assert_all_ok(self.start_all("--rendezvous", f"tcp:127.0.0.1:{free_port()}",
                                          "--secret-file", self.secret_file()))

    def test_every_address_with_a_secret(self):
        """A rendezvous that other machines could reach, which takes a secret."""
        self.assert_all_ok(self.start_all("--rendezvous", f"tcp:0.0.0.0:{free_port()}",
                                          "--secret-file", self.secret_file()))

    def test_file(self):
        self.assert_all_ok(self.start_all("--rendezvous", "file:" + self.folder + "/meet"))

    def test_unique_id(self):
        ranks = [self.start_rank("--rank", rank, "--world", WORLD, "--id-file",
                                 os.path.join(self.folder, "id"), PARALLAX_NET_DEVICE="lo")
                 for rank in range(WORLD)]
        self.assert_all_ok(ranks)


if __name__ == "__main__":
    unittest.main()
