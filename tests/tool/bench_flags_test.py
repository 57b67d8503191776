"""parallax bench for who comes from nccl-tests: flags, columns, launchers; and full disks."""

import csv
import json
import os
import signal
import socket

import support
from bench_test import GROUP, NONE, OPERATIONS, QUICK, ROWS, bench, table
from support import PARALLAX, environment, parallax

TRUE_HERE = ("-g", 1, "-t", 1, "-r", 0, "-p", 1, "-z", 1, "-G", 0, "-R", 0, "-y", 0, "-S", 0)


def cells(text):
    return [l.split() for l in text.splitlines() if l and not l.startswith("#")]


def say(case, *ranks):
    """(exit status, standard output, standard error) of each; none outlives the test."""
    for rank in ranks:
        case.addCleanup(rank.kill)
    said = [rank.communicate(timeout=support.PATIENCE_S) for rank in ranks]
    return [(rank.returncode, *texts) for rank, texts in zip(ranks, said)]


class Flags(support.Case):
    def lines(self, *arguments, ranks=2, per_host=None):
        """The lines of JSON and of the table."""
        path = os.path.join(self.folder(), "json")
        said = bench(ranks, *arguments, "--json", path, per_host=per_host)
        self.assertEqual(said.returncode, 0, said.stderr)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["lines"], table(said.stdout)

    def test_a_command_line_of_nccl_tests_runs(self):
        said = bench(2, "allreduce", "-b", 8, "-e", 64, "-f", 2, *QUICK, *TRUE_HERE)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([l["size"] for l in table(said.stdout)], ["8", "16", "32", "64"])
        said = parallax("bench", "allreduce", "--minbytes=64", *QUICK, "--ngpus=1",
                        "--nthreads=1", "--root=-1", "--parallel_init=0", "--blocking=1",
                        "--cudagraph=0", "--local_register=0")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([l["size"] for l in table(said.stdout)], ["64"])

    def test_what_is_not_true_here_is_refused_with_the_reason(self):
        for flag, value, words in (
                ("-g", "4", "a rank is one process here"),
                ("--ngpus", "0", "a rank is one process here"),
                ("-t", "2", "a rank is one process with one calling thread"),
                ("-r", "1", "no operation here has a root"),
                ("-r", "all", "no operation here has a root"),
                ("-p", "2", "ranks start in parallel anyway"),
                ("-z", "0", "each step is waited for"),
                ("-G", "10", "there is no graph to replay"),
                ("-R", "1", "not registered beforehand"),
                ("-y", "1", "there are no CUDA streams"),
                ("-S", "1", "no time of day"),
                ("-J", "out.json", "write ours with --json FILE"),
                ("-o", "prod", "summed or averaged"), ("-o", "min", "summed or averaged"),
                ("-o", "max", "summed or averaged"), ("-o", "mulsum", "summed or averaged"),
                ("-d", "uint8", "no such type"), ("-d", "f8e4m3", "no such type")):
            said = parallax("bench", "allreduce", flag, value)
            self.assertEqual(said.returncode, 2, (flag, value))
            short = {"--ngpus": "-g"}.get(flag, flag)
            self.assertIn(f"parallax bench: {short} {value} is not supported: ", said.stderr)
            self.assertIn(words, said.stderr)
            self.assertEqual(said.stdout, "")

    def test_values_out_of_range_are_wrong_usage(self):
        for arguments, words in ((("-m", 0), "--agg_iters"), (("-m", 4097), "--agg_iters"),
                                 (("-N", -1), "--run_cycles"), (("-C", 2), "--report_cputime"),
                                 (("-T", 0), "-T 0: give seconds, 1 to 4294967"),
                                 (("-T", "soon"), "-T soon: give seconds"),
                                 (("-T", 1, "--timeout-ms", 1), "excludes"),
                                 (("-N", 0, "--json", "x"), "-N 0 goes on until it is ended")):
            said = parallax("bench", "allreduce", *arguments)
            self.assertEqual(said.returncode, 2, arguments)
            self.assertIn(words, said.stderr + said.stdout)

    def test_columns_that_scripts_cut_are_where_nccl_tests_has_them(self):
        for operation, arguments in OPERATIONS.items():
            said = bench(2, operation, "-b", "1K", *QUICK, *arguments)
            self.assertEqual(said.returncode, 0, said.stderr)
            lines = said.stdout.splitlines()
            names = next(i for i, l in enumerate(lines) if "busbw" in l)
            self.assertEqual(lines[names - 1].split(), ["#", "out-of-place", "in-place"])
            self.assertEqual(lines[names][1:].split()[:13],
                             ["size", "count", "type", "redop", "root", *GROUP, *GROUP])
            [line] = cells(said.stdout)
            self.assertEqual(line[:5], ["1024", "256", "float", "sum", "-1"])
            out, within = line[5:9], line[9:13]
            there, missing = (within, out) if operation == "allreduce" else (out, within)
            self.assertEqual(missing, NONE)
            self.assertGreater(float(there[0]), 0)
            self.assertEqual(there[3], "0")
            # A title ends where the last column of its group does.
            end = lines[names].index("#wrong") + len("#wrong")
            self.assertEqual(lines[names - 1].index("out-of-place") + len("out-of-place"), end)

    def test_operations_launched_together(self):
        """Each is right, and each one's bytes are there: the figures are of one, not of a part."""
        for operation, arguments in OPERATIONS.items():
            said = {}
            for together in (1, 4):
                [line], _ = self.lines(operation, "-b", "64K", *QUICK, "-m", together, *arguments)
                self.assertEqual((line["wrong"], line["agg_iters"], line["size"]),
                                 (0, together, 65536), operation)
                self.assertAlmostEqual(line["algbw_gb_s"] * line["time_us"] * 1e3, 65536, 3)
                self.assertGreaterEqual(line["step_us"], line["time_us"])
                said[together] = line["local_bytes"]
            # What is summed where it was copied to is told of by a few notes, or none.
            if operation == "allreduce":
                continue
            # A quarter would be a part's. Rows are read where they lie: what is sent of them is
            # notes, which share messages; so do some of the others, as ranks meet.
            shared = 0.2 if operation == "pushpull" else 0.5
            self.assertGreater(said[4], shared * said[1], operation)
            self.assertLess(said[4], 1.2 * said[1], operation)

    def test_operations_launched_together_between_hosts(self):
        for operation, arguments in OPERATIONS.items():
            [line], _ = self.lines(operation, "-b", "16K", *QUICK, "-m", 3, "-o", "avg",
                                   *arguments, ranks=3, per_host=1)
            self.assertEqual(line["wrong"], 0, operation)
            self.assertGreater(line["wire_bytes"], 0)

    def test_cycles(self):
        lines, rows = self.lines("allreduce", "-b", 64, "-e", 128, *QUICK, "-N", 3)
        self.assertEqual([(l["cycle"], l["size"]) for l in lines],
                         [(0, 64), (0, 128), (1, 64), (1, 128), (2, 64), (2, 128)])
        self.assertEqual(len(rows), 6)

    def test_cycles_without_end(self):
        path = os.path.join(self.folder(), "csv")
        rank = support.start(PARALLAX, "bench", "allreduce", "-b", 64, *QUICK, "-N", 0, "--csv",
                             path)

        def cycles():
            if not os.path.exists(path):
                return []
            with open(path, encoding="utf-8", newline="") as file:
                return [each["cycle"] for each in csv.DictReader(file)]
        try:
            support.wait_until(lambda: "3" in cycles(), "a fourth cycle")
            self.assertIsNone(rank.poll())
        finally:
            rank.send_signal(signal.SIGTERM)
            rank.communicate(timeout=support.PATIENCE_S)
        self.assertEqual(cycles()[:4], ["0", "1", "2", "3"])

    def test_processor_time(self):
        [line], [row] = self.lines("allreduce", "-b", "64K", *QUICK, "-C", 1)
        self.assertEqual(row["time"], format(line["cpu_us"], ".2f"))
        self.assertGreater(line["cpu_us"], 0)
        self.assertNotEqual(line["cpu_us"], line["time_us"])
        self.assertAlmostEqual(line["algbw_gb_s"] * line["time_us"] * 1e3, line["size"], 3)
        [line], [row] = self.lines("allreduce", "-b", "64K", *QUICK, "-C", 0)
        self.assertEqual(row["time"], format(line["time_us"], ".2f"))

    def test_all_types_and_operations(self):
        lines, _ = self.lines("pushpull", "-b", 64, *QUICK, "-d", "all", "-o", "all", *ROWS)
        self.assertEqual([(l["type"], l["redop"], l["wrong"]) for l in lines],
                         [(dtype, redop, 0) for dtype in ("int32", "int64", "half", "float",
                                                          "double", "bfloat16")
                          for redop in ("sum", "avg") if redop == "sum" or dtype[0] != "i"])

    def test_a_rank_that_never_comes_is_waited_for_as_long_as_said(self):
        # Without -T this would outlast support.PATIENCE_S.
        said = parallax("bench", "allreduce", "-T", 1, "--rank", 0, "--world", 2, "--rendezvous",
                        f"file:{self.folder()}/meet")
        self.assertEqual(said.returncode, 1)
        self.assertIn("rank 1 never came", said.stderr)


class FullDisks(support.Case):
    def ranks(self, *arguments):
        meet = f"file:{self.folder()}/meet"
        return say(self, *(support.start(PARALLAX, "bench", "allreduce", "-b", 64, *QUICK,
                                         *arguments, "--rank", rank, "--world", 2, "--rendezvous",
                                         meet) for rank in range(2)))

    def test_a_full_file_ends_all_ranks(self):
        for flag in ("--csv", "--json"):
            first, second = self.ranks(flag, "/dev/full")
            self.assertEqual((first[0], second[0]), (1, 1), flag)
            self.assertEqual(first[2], "parallax bench: /dev/full is not complete: No space left "
                             "on device; make room\n", flag)
            self.assertEqual(second[1:], ("", ""), flag)

    def test_a_full_file_is_noticed_at_its_first_line(self):
        (status, out, _), _ = self.ranks("-N", 0, "--csv", "/dev/full")  # which would never end
        self.assertEqual(status, 1)
        self.assertEqual(len(table(out)), 1)

    def test_the_table_on_a_full_disk(self):
        said = support.run("sh", "-c", 'exec "$0" bench allreduce -b 64 -n 1 >/dev/full', PARALLAX)
        self.assertEqual(said.returncode, 1)
        self.assertIn("standard output is not complete: No space left on device", said.stderr)


class Launchers(support.Case):
    """What launchers put into the environment of the processes that they start; nothing else is
    said of the rendezvous."""

    def assert_ranks_meet(self, environment_of):
        said = say(self, *(support.start(PARALLAX, "bench", "allreduce", "-b", 64, *QUICK,
                                         env=environment(**{name: str(value) for name, value in
                                                            environment_of(rank).items()}))
                           for rank in range(2)))
        self.assertEqual([status for status, _, _ in said], [0, 0], said)
        text = said[0][1]
        self.assertIn(", 2 ranks, 1 hosts\n", text)
        self.assertEqual([l["#wrong"] for l in table(text)], ["0"])
        self.assertEqual(said[1][1], "")

    def test_torchrun(self):
        # torch's own store listens there.
        with socket.create_server(("127.0.0.1", support.free_port())) as store:
            port = store.getsockname()[1]
            self.assert_ranks_meet(lambda rank: {
                "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2,
                "GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                "TORCHELASTIC_RUN_ID": "none"})

    def test_slurm(self):
        self.assert_ranks_meet(lambda rank: {
            "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0, "SLURM_PROCID": rank,
            "SLURM_LOCALID": rank, "SLURM_NTASKS": 2, "SLURM_NNODES": 1,
            "SLURM_STEP_NUM_TASKS": 2, "SLURM_STEP_NUM_NODES": 1,
            "SLURM_JOB_NODELIST": "gpu007", "SLURM_STEP_NODELIST": "gpu007"})


if __name__ == "__main__":
    support.main()
