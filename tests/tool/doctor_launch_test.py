"""parallax doctor under launchers: the ranks meet and check each other, as a job of theirs would.
Where the environment says that there are others, but not where to meet, the doctor says so."""

import json
import os
import shutil
import socket

import support
from doctor_case import DoctorCase, verdicts
from support import PARALLAX, environment, start

WORLD = 2


def torchrun(rank, port):
    return {"RANK": rank, "WORLD_SIZE": WORLD, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": WORLD,
            "MASTER_ADDR": socket.gethostname(), "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "none"}


class Environments(DoctorCase):
    """What launchers put into the environment of the processes that they start."""

    def doctors(self, environment_of, *arguments):
        """(status, verdicts) by rank."""
        processes = [start(PARALLAX, "doctor", "--json", *arguments,
                           env=environment(**environment_of(rank))) for rank in range(WORLD)]
        for process in processes:
            self.addCleanup(support.end, process)
        return self.findings(processes)

    def together(self, found, launcher):
        for status, each in found:
            self.assertEqual(status, 0, each)
            self.expect(each, "launcher", "OK", f"{launcher} started {WORLD} ranks")
            self.expect(each, "rendezvous", "OK", f"{WORLD} ranks met")
            self.expect(each, "job", "OK", "opened, passed a barrier and closed")

    def test_torchrun_on_one_host(self):
        port = support.free_port()
        found = self.doctors(lambda rank: torchrun(rank, port))
        self.together(found, "torchrun")
        for _, each in found:
            self.expect(each, "shared memory", "OK", "attached to 1 rank")

    def test_torchrun_on_two_hosts(self):
        """Two agents of a rank each; the address is loopback, so that no secret is needed."""
        port = support.free_port()
        found = self.doctors(lambda rank: {
            **torchrun(rank, port), "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": "127.0.0.1", "PARALLAX_HOST": f"node{rank}"})
        self.together(found, "torchrun")
        for rank, (_, each) in enumerate(found):
            self.expect(each, "reach", "OK", f"rank {1 - rank} (host node{1 - rank})")

    def test_slurm(self):
        self.together(self.doctors(lambda rank: {
            "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 3, "SLURM_PROCID": rank,
            "SLURM_NTASKS": WORLD, "SLURM_NNODES": 1}), "Slurm")

    def test_our_own_names(self):
        port = support.free_port()
        self.together(self.doctors(lambda rank: {
            "PARALLAX_RANK": rank, "PARALLAX_WORLD": WORLD,
            "PARALLAX_RENDEZVOUS": f"tcp:127.0.0.1:{port}"}), "parallax run")

    def test_asked_for_from_outside(self):
        port = support.free_port()
        self.together(self.doctors(lambda rank: {
            **torchrun(rank, port), "PARALLAX_RENDEZVOUS": "env"}), "torchrun")

    def test_another_rendezvous_on_the_command_line(self):
        rendezvous = "file:" + os.path.join(self.folder(), "rendezvous")
        found = self.doctors(lambda rank: torchrun(rank, 1), "--rendezvous", rendezvous)
        self.together(found, "torchrun")
        self.expect(found[0][1], "launcher", "OK", rendezvous)

    def test_the_command_line_counts_before_a_launcher(self):
        [(status, found), _] = self.doctors(lambda rank: torchrun(rank, 1), "--world", "1")
        self.assertEqual(status, 0)
        self.assertNotIn("launcher", found)
        self.assertNotIn("rendezvous", found)

    def test_one_that_contradicts_the_command_line(self):
        for status, found in self.doctors(lambda rank: torchrun(rank, 1), "--world", "3",
                                          "--rendezvous", "env"):
            self.assertEqual(status, 1)
            self.expect(found, "launcher", "FAIL", "of 2", "--world 1 checks this machine alone")

    def test_where_to_meet_is_missing(self):
        """Each rank says what is missing, checks its machine, and waits for nobody."""
        cases = (
            ({"RANK": 0, "WORLD_SIZE": 2}, "MASTER_ADDR is not"),
            ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2,
              "OMPI_COMM_WORLD_LOCAL_SIZE": 1}, "mpirun -x MASTER_ADDR"),
            ({"SLURM_PROCID": 0, "SLURM_NTASKS": 2, "SLURM_NNODES": 2}, "SLURM_JOB_NODELIST"),
            ({"PARALLAX_RANK": 0, "PARALLAX_WORLD": 2}, "PARALLAX_RENDEZVOUS is not"),
            ({"PARALLAX_WORLD": 2}, "PARALLAX_RANK is not set"),
        )
        for variables, said in cases:
            with self.subTest(said):
                process = start(PARALLAX, "doctor", "--json", env=environment(**variables))
                self.addCleanup(support.end, process)
                [(status, found)] = self.findings([process])
                self.assertEqual(status, 1)
                self.expect(found, "launcher", "FAIL", said, "for every rank",
                            "PARALLAX_RENDEZVOUS", "tcp:HOST:PORT")
                self.expect(found, "descriptors", "OK")
                self.assertNotIn("rendezvous", found)

    def test_one_rank_of_a_launcher(self):
        process = start(PARALLAX, "doctor", "--json", env=environment(RANK=0, WORLD_SIZE=1))
        self.addCleanup(support.end, process)
        [(status, found)] = self.findings([process])
        self.assertEqual(status, 0, found)
        self.expect(found, "launcher", "OK", "torchrun started this rank alone")

    def test_a_secret_of_a_file_of_settings(self):
        """A rendezvous that other machines could reach takes the secret, wherever that is set."""
        port = support.free_port()
        secret = self.write("0123456789abcdef0123456789abcdef\n", "secret", 0o600)
        config = self.write(f"secret_file = {secret}\n")
        self.together(self.doctors(lambda rank: {
            "PARALLAX_RANK": rank, "PARALLAX_WORLD": WORLD, "PARALLAX_CONFIG_FILE": config,
            "PARALLAX_RENDEZVOUS": f"tcp:0.0.0.0:{port}"}), "parallax run")


class Mpirun(DoctorCase):
    """The launcher itself, where it is installed."""

    def launched(self, *command):
        # mpirun mixes the output of its ranks within lines: a file for each.
        folder = self.folder()
        said = support.run(*command, "sh", "-c",
                           f'"{PARALLAX}" doctor --json >{folder}/$OMPI_COMM_WORLD_RANK')
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        ranks = []
        for rank in range(WORLD):
            with open(os.path.join(folder, str(rank)), encoding="utf-8") as file:
                ranks.append(json.load(file))
        self.assertEqual([each["rank"] for each in ranks], list(range(WORLD)))
        for each in ranks:
            self.assertEqual(each["world"], WORLD)
            found = verdicts(json.dumps(each))
            self.expect(found, "shared memory", "OK", "attached to 1 rank of this host")
            self.expect(found, "job", "OK", "opened, passed a barrier and closed")

    def test_ranks_meet(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun (openmpi-bin)")
        self.launched(*support.mpirun(self), "-n", WORLD)

    def test_lines_have_their_rank(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun (openmpi-bin)")
        said = support.run(*support.mpirun(self), "-n", WORLD, PARALLAX, "doctor", "-v")
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        for rank in range(WORLD):
            self.assertIn(f"[{rank}] OK    launcher: Open MPI started 2 ranks", said.stdout)


if __name__ == "__main__":
    support.main()
