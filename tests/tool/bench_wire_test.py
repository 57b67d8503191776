"""parallax bench wire: every way is timed and right, on loopback and between network namespaces;
what cannot be run says why; flags, files, formats."""

import csv
import json
import os
import shutil

import support
from bench_flags_test import TRUE_HERE, say
from doctor_case import DoctorCase
from support import PARALLAX, environment, parallax

QUICK = ("-n", 3, "-w", 1, "-N", 2)
RAW = ("tcp", "ucx")
STEPS = ("allreduce", "push_pull")


def wire(*arguments, ranks=2, hosts=2, **variables):
    apart = ("--ranks-per-host", 1) if hosts > 1 else ()
    return parallax("run", "-n", ranks, *apart, "--tag-output", "off", "--", PARALLAX, "bench",
                    "wire", *arguments, env=environment(**variables))


def cells(text):
    return [l.split() for l in text.splitlines() if l and not l.startswith("#")]


class Wire(DoctorCase):
    def test_every_way_is_timed_and_right(self):
        folder = self.folder()
        said = wire("-b", 8, "-e", "128K", "-f", 128, *QUICK, "--csv", f"{folder}/csv", "--json",
                    f"{folder}/json")
        self.assertEqual(said.returncode, 0, said.stderr)
        rows = cells(said.stdout)
        kinds = [(way, form) for way in RAW for form in ("ping-pong", "stream")]
        kinds += [(way, "step") for way in STEPS]
        self.assertEqual([tuple(r[:3]) for r in rows], [(size, *kind) for size in
                                                        ("8", "1024", "131072") for kind in kinds])
        self.assertEqual({r[6] for r in rows}, {"0"})
        # A machine with other things to do may reach so little that its share rounds to nothing.
        self.assertTrue(all(float(r[3]) > 0 and float(r[5]) >= 0 for r in rows), rows)
        for size in ("8", "1024", "131072"):
            for form in ("ping-pong", "stream"):
                shares = [r[5] for r in rows if r[0] == size and r[2] == form]
                self.assertIn("1.00", shares, "the fastest is the wire")
        self.assertIn("# ucx: tcp on lo: tcp/lo to lo\n", said.stdout)
        for verbs in ("verbs_send", "verbs_write", "verbs_read"):
            if not os.path.exists("/sys/class/infiniband"):
                self.assertRegex(said.stdout, f"# {verbs}: NOT RUN: there is no RDMA device: the "
                                              "kernel has no RDMA device")
        self.assertIn("parallax bench wire: repeat 2 of 2, 131072 bytes\n", said.stderr)
        with open(f"{folder}/csv", encoding="utf-8", newline="") as file:
            from_csv = list(csv.DictReader(file))
        with open(f"{folder}/json", encoding="utf-8") as file:
            whole = json.load(file)
        self.assertEqual((whole["hosts"], whole["repeats"]), (2, 2))
        self.assertEqual(len(whole["lines"]), len(rows))
        for row, line, other in zip(rows, whole["lines"], from_csv):
            self.assertEqual(row[:3], [str(line["size"]), line["way"], line["form"]])
            self.assertEqual(row[3], format(line["time_us"], ".2f"))
            self.assertEqual(row[4], format(line["gb_s"], ".3f"))
            self.assertEqual(float(other["time_us"]), line["time_us"])
            self.assertLessEqual(line["time_us_min"], line["time_us"])

    def test_on_one_host_the_library_has_no_wire(self):
        said = wire("-b", 1024, "-e", 1024, *QUICK, hosts=1)
        self.assertEqual(said.returncode, 0, said.stderr)
        shares = {(r[1], r[2]): r[5] for r in cells(said.stdout)}
        self.assertEqual(shares["allreduce", "step"], "N/A")
        self.assertNotEqual(shares["tcp", "stream"], "N/A")
        self.assertIn("# allreduce: shared memory\n", said.stdout)
        self.assertIn("go through shared memory there", said.stdout)

    def test_between_namespaces(self):
        a, b = self.namespaces(joined=True)
        meet = f"file:{self.folder()}/meet"
        said = say(self, *(support.start(
            *prefix, PARALLAX, "bench", "wire", "-b", "1K", "-e", "64K", "-f", 64, *QUICK, "--rank",
            rank, "--world", 2, "--rendezvous", meet,
            env=environment(PARALLAX_HOST=f"host{rank}", PARALLAX_NET_DEVICE="plx0",
                            PARALLAX_TRANSPORT="ucx"))
            for rank, prefix in enumerate((a, b))))
        self.assertEqual([status for status, _, _ in said], [0, 0], said)
        text = said[0][1]
        self.assertIn("# tcp: one connection to 10.78.0.2\n", text)
        self.assertIn("# ucx: tcp on plx0: tcp/plx0 to plx0\n", text)
        self.assertIn("# allreduce: the library, over tcp on plx0\n", text)
        self.assertEqual({r[6] for r in cells(text)}, {"0"})
        self.assertEqual(said[1][1:], ("", ""), "rank 0 alone speaks")

    def test_some_ways(self):
        said = wire("-b", 64, "-e", 64, *QUICK, "--ways", "tcp,allreduce", "-c", 0)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([r[1] for r in cells(said.stdout)], ["tcp", "tcp", "allreduce"])
        self.assertEqual({r[6] for r in cells(said.stdout)}, {"N/A"})
        self.assertIn("NOT CHECKED", said.stdout)

    def test_a_way_that_cannot_be_opened_says_why(self):
        said = wire("-b", 64, "-e", 64, *QUICK, "--ways", "ucx,tcp", hosts=1,
                    PARALLAX_MODULE_DIR="/nonexistent")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, "# ucx: NOT RUN: .*/nonexistent/libparallax_ucx.so")
        self.assertEqual({r[1] for r in cells(said.stdout)}, {"tcp"})

    def test_layouts_of_others(self):
        few = ("-b", 64, "-e", 256, *QUICK, "--ways", "tcp", "--format")
        said = wire(*few, "osu")
        self.assertRegex(said.stdout, r"(?m)^# Size +Latency \(us\)\n"
                                      r"64 +\d+\.\d\d\n256 +\d+\.\d\d$")
        said = wire(*few, "ucx")
        self.assertEqual(len([l for l in said.stdout.splitlines() if l.startswith("Final:")]), 4)
        self.assertIn("| Message size: 256 ", said.stdout)

    def test_flags_of_nccl_tests(self):
        said = wire("-b", 64, "-e", 256, "-f", 2, *QUICK, "-c", 1, "--ways", "tcp", *TRUE_HERE,
                    "-d", "float", "-o", "sum", "-m", 1, "-a", 1, "-C", 0, "-T", 60)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([r[0] for r in cells(said.stdout)][::2], ["64", "128", "256"])

    def test_what_is_not_true_here_is_refused_with_the_reason(self):
        for flag, value, words in (("-d", "half", "raw messages are bytes"),
                                   ("--op", "max", "averages are measured by parallax bench"),
                                   ("-m", 8, "a step is one operation here"),
                                   ("-a", 0, "the average of both ranks"),
                                   ("--report_cputime", 1, "times are by the clock"),
                                   ("-g", 2, "a rank is one process here")):
            said = parallax("bench", "wire", flag, value)
            self.assertEqual(said.returncode, 2, (flag, value))
            short = {"--op": "-o", "--report_cputime": "-C"}.get(flag, flag)
            self.assertIn(f"parallax bench wire: {short} {value} is not supported: ", said.stderr)
            self.assertIn(words, said.stderr)

    def test_under_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed")
        said = support.run(*support.mpirun(self), "-n", 2, PARALLAX, "bench", "wire", "-b", 64,
                           "-e", 64, *QUICK, "--ways", "tcp,allreduce",
                           env=environment(HOME=self.folder()))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([r[1] for r in cells(said.stdout)], ["tcp", "tcp", "allreduce"])

    def test_under_slurm(self):
        """What srun puts into the environment of each of its processes."""
        said = say(self, *(support.start(
            PARALLAX, "bench", "wire", "-b", 64, "-e", 64, *QUICK, "--ways", "tcp",
            env=environment(SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_ID="1",
                            SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), SLURM_NTASKS="2",
                            SLURM_NNODES="1", SLURM_STEP_NUM_TASKS="2", SLURM_STEP_NUM_NODES="1",
                            SLURM_JOB_NODELIST="gpu007", SLURM_STEP_NODELIST="gpu007"))
            for rank in range(2)))
        self.assertEqual([status for status, _, _ in said], [0, 0], said)
        self.assertEqual(len(cells(said[0][1])), 2)

    def test_two_ranks_are_asked_for(self):
        for ranks in (1, 3):
            said = wire("-b", 64, *QUICK, ranks=ranks, hosts=1)
            self.assertEqual(said.returncode, 1)
            self.assertIn(f"a wire has two ends, and there are {ranks} ranks; start 2", said.stderr)

    def test_wrong_usage(self):
        for arguments, words in ((("--ways", "pigeon"), "--ways pigeon: give some of tcp,ucx"),
                                 (("-b", 4), "give sizes from 8 to 1G"),
                                 (("-b", 64, "-e", 32), "the first no larger"),
                                 (("-e", "2G"), "give sizes from 8 to 1G"),
                                 (("-f", 1), "-f must be more than 1"),
                                 (("-T", 0), "-T 0: give seconds"),
                                 (("--format", "xml"), "--format"),
                                 (("--csv", "x", "--json", "x"), "name the same file"),
                                 (("--rank", 2, "--world", 2), "--rank 2 is not below"),
                                 (("-N", 0), "--run_cycles")):
            said = parallax("bench", "wire", *arguments)
            self.assertEqual(said.returncode, 2, arguments)
            self.assertIn(words, said.stderr)

    def test_a_full_file_ends_both_ranks(self):
        said = wire("-b", 64, "-e", 64, *QUICK, "--ways", "tcp", "--json", "/dev/full")
        self.assertEqual(said.returncode, 1)
        self.assertIn("/dev/full is not complete: No space left on device", said.stderr)


if __name__ == "__main__":
    support.main()
