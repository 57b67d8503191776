"""parallax bench: each operation is measured and right; files agree with the table; wrong usage.
parallax_kernels: every kernel runs."""

import csv
import json
import os
import shutil
import unittest

import support
from support import PARALLAX, environment, parallax, run

QUICK = ("-n", 2, "-w", 1, "-c", 2)
ROWS = ("--width", 4, "--table-rows", 1000)
OPERATIONS = {"allreduce": (), "allgatherv": ROWS, "reduce_rows": ROWS, "pushpull": ROWS}


def bench(ranks, *arguments, per_host=None):
    hosts = ("--ranks-per-host", per_host) if per_host else ()
    return parallax("run", "-n", ranks, *hosts, "--tag-output", "off", "--", PARALLAX, "bench",
                    *arguments)


GROUP = ("time", "algbw", "busbw", "#wrong")
NONE = ["N/A"] * len(GROUP)
COLUMNS_MAX = 96  # and 4 of the tag of parallax run


def table(text):
    """[{column: cell}], by the names of the heads; of nccl-tests' two groups of columns that which
    there is, and the cells of the same line in the second table."""
    lines = text.splitlines()
    assert max(len(l) for l in lines if l.startswith("#")) <= COLUMNS_MAX, text
    at = next(i for i, l in enumerate(lines) if l.startswith("#") and "busbw" in l)
    head = lines[at][1:].split()
    assert head == ["size", "count", "type", "redop", "root", *GROUP, *GROUP], head
    rows = []
    for line in (l for l in lines if l and not l.startswith("#")):
        cells = line.split()
        assert len(cells) == len(head), cells
        seconds = sum(len(cell) - len("999999.99") for cell in cells[5::4] if len(cell) > 9)
        assert len(line) <= COLUMNS_MAX + seconds, line
        out, within = cells[5:9], cells[9:13]
        assert (out == NONE) != (within == NONE), cells
        row = dict(zip(head[:5], cells[:5]))
        row.update(zip(GROUP, within if out == NONE else out))
        row["place"] = "in" if out == NONE else "out"
        rows.append(row)
    more = lines.index("# The same lines:") if "# The same lines:" in lines else len(lines)
    for row, line in zip(rows, lines[more + 3:]):
        cells = dict(zip(lines[more + 1][1:].split(), line[1:].split()))
        assert cells["size"] == row["size"], line
        row.update(cells)
    return rows


class Bench(support.Case):
    def files(self, said, folder):
        """The lines of table, CSV and JSON, which must agree."""
        self.assertEqual(said.returncode, 0, said.stderr)
        rows = table(said.stdout)
        with open(os.path.join(folder, "csv"), encoding="utf-8", newline="") as file:
            from_csv = list(csv.DictReader(file))
        with open(os.path.join(folder, "json"), encoding="utf-8") as file:
            whole = json.load(file)
        lines = whole["lines"]
        self.assertEqual(len(rows), len(lines))
        self.assertEqual(lines, [{k: v if isinstance(line[k], str) else json.loads(v)
                                  for k, v in row.items()}
                                 for line, row in zip(lines, from_csv)])
        names = {"size": "size", "count": "count", "type": "type", "redop": "redop",
                 "method": "method", "#wrong": "wrong", "wire": "wire_bytes",
                 "local": "local_bytes", "rows": "rows", "distinct": "distinct_rows",
                 "union": "union_rows", "root": "root", "place": "place"}
        rounded = {"time": ("time_us", ".2f"), "algbw": ("algbw_gb_s", ".3f"),
                   "busbw": ("busbw_gb_s", ".3f"), "p50": ("p50_us", ".2f"),
                   "p99": ("p99_us", ".2f"), "density": ("density", ".3g")}
        for row, line in zip(rows, lines):
            for column, cell in row.items():
                if column in names:
                    self.assertEqual(cell, str(line[names[column]]), column)
                else:
                    name, form = rounded[column]
                    self.assertEqual(cell, format(line[name], form), column)
        return whole

    def test_every_operation_is_right(self):
        for operation, arguments in OPERATIONS.items():
            folder = self.folder()
            said = bench(3, operation, "-b", "1K", "-e", "16K", "-f", 4, *QUICK, *arguments,
                         "--csv", f"{folder}/csv", "--json", f"{folder}/json")
            whole = self.files(said, folder)
            self.assertEqual((whole["operation"], whole["ranks"], whole["hosts"]),
                             (operation, 3, 1))
            self.assertEqual([l["size"] for l in whole["lines"]], [1024, 4096, 16384])
            for line in whole["lines"]:
                self.assertEqual((line["wrong"], line["root"], line["place"]),
                                 (0, -1, "in" if operation == "allreduce" else "out"))
                self.assertEqual(line["count"] * 4, line["size"])
                self.assertGreater(line["local_bytes"], 0)
                self.assertEqual(line["wire_bytes"], 0)
                self.assertLessEqual(line["p50_us"], line["p99_us"])
                share = line["size"] / (line["time_us"] * 1e3)
                self.assertAlmostEqual(line["algbw_gb_s"] / share, 1)
                if operation == "allreduce":
                    self.assertAlmostEqual(line["busbw_gb_s"] / line["algbw_gb_s"], 4 / 3)
                else:
                    self.assertEqual(line["rows"] * 16, line["size"])
                    self.assertLess(line["distinct_rows"], line["union_rows"])
                    self.assertAlmostEqual(line["density"], line["distinct_rows"] / 1000)
            self.assertIn("# Out of bounds values : 0 OK", said.stdout)

    def test_between_hosts_the_method_is_the_one_asked_for(self):
        methods = {"allreduce": "allreduce", "allgatherv": "allgatherv",
                   "reduce_rows": "reduce_rows", "pushpull": "push_pull"}
        for operation, method in methods.items():
            arguments = () if operation == "allreduce" else ROWS
            said = bench(3, operation, "-b", "16K", *QUICK, *arguments, per_host=1)
            self.assertEqual(said.returncode, 0, said.stderr)
            [line] = table(said.stdout)
            self.assertEqual((line["method"], line["#wrong"]), (method, "0"))
            self.assertGreater(int(line["wire"]), 0)

    def test_reduce_rows_is_measured_where_the_planner_would_take_another(self):
        said = bench(2, "reduce_rows", "-b", "1K", *QUICK, "--width", 4, per_host=1)
        self.assertEqual(said.returncode, 0, said.stderr)
        [line] = table(said.stdout)
        self.assertEqual((line["method"], line["#wrong"]), ("reduce_rows", "0"))

    def test_types_and_averages_are_right(self):
        for operation, arguments in OPERATIONS.items():
            for dtype in ("double", "half", "bfloat16", "int32", "i64"):
                averages = ("-o", "avg") if dtype[0] in "dhb" else ()
                said = bench(3, operation, "-b", "2K", "-d", dtype, *averages, *QUICK, *arguments)
                self.assertEqual(said.returncode, 0, said.stderr)
                [line] = table(said.stdout)
                self.assertEqual(line["#wrong"], "0", (operation, dtype))
                self.assertEqual(line["type"], "int64" if dtype == "i64" else dtype)

    def test_every_rule_and_plan_is_right(self):
        plans = ("auto", "hybrid", "ps", "ar")
        rules = ("sum", "sgd", "adagrad", "adam", "momentum", "rowwise_adagrad", "ftrl")
        for i, rule in enumerate(rules):
            plan = plans[i % len(plans)]
            said = bench(2, "pushpull", "-b", "2K", "--rule", rule, "--plan", plan, "-n", 3, "-c",
                         3, "-o", ("sum", "avg")[i % 2], *ROWS, per_host=1 + i % 2)
            self.assertEqual(said.returncode, 0, said.stderr)
            [line] = table(said.stdout)
            self.assertEqual(line["#wrong"], "0", (rule, plan))
            self.assertIn(f"rule {rule}", said.stdout)

    def test_sizes_may_be_densities(self):
        folder = self.folder()
        said = bench(2, "allgatherv", "--density", "0.01,0.5", "--skew", 0, *QUICK, *ROWS, "--csv",
                     f"{folder}/csv", "--json", f"{folder}/json")
        lines = self.files(said, folder)["lines"]
        self.assertEqual([l["rows"] for l in lines], [10, 500])
        self.assertEqual([l["skew"] for l in lines], [0, 0])

    def test_ids_follow_the_seed(self):
        said = [bench(2, "allgatherv", "-b", "8K", *QUICK, *ROWS, "--seed", seed)
                for seed in (7, 7, 8)]
        lines = [table(each.stdout)[0] for each in said]
        distinct = [(l["distinct"], l["union"]) for l in lines]
        self.assertEqual(distinct[0], distinct[1])
        self.assertNotEqual(distinct[0], distinct[2])

    def test_an_unchecked_run_says_so(self):
        said = bench(2, "allreduce", "-b", 64, "-n", 1, "-w", 0, "-c", 0)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(table(said.stdout)[0]["#wrong"], "N/A")
        self.assertIn("NOT CHECKED", said.stdout)

    def test_one_rank_needs_no_launcher(self):
        said = parallax("bench", "pushpull", "-b", "1K", *QUICK, *ROWS)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("one rank: nothing is sent; for more: parallax run -n 4", said.stdout)
        self.assertEqual(table(said.stdout)[0]["#wrong"], "0")

    def test_runs_under_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("needs mpirun (openmpi-bin)")
        said = run(*support.mpirun(self), "-n", 4, PARALLAX, "bench", "allreduce", "-b", 256, "-e",
                   "1K", *QUICK, env=environment(HOME=self.folder()))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("4 ranks", said.stdout)
        self.assertEqual([l["#wrong"] for l in table(said.stdout)], ["0", "0", "0"])

    def test_place_by_options(self):
        folder = self.folder()
        ranks = [support.start(PARALLAX, "bench", "allreduce", "-b", 64, *QUICK, "--rank", rank,
                               "--world", 2, "--rendezvous", f"file:{folder}/meet")
                 for rank in range(2)]
        said = [rank.communicate(timeout=support.PATIENCE_S) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        self.assertIn("2 ranks", said[0][0])
        self.assertEqual(said[1][0], "")

    def test_refuses_wrong_usage(self):
        for arguments, words in (
                ((), "operation is required"),
                (("alltoall",), "operation alltoall: it must be one of allgatherv, allreduce"),
                (("allreduce", "--no-such-flag"), "--no-such-flag"),
                (("allreduce", "-b", "8X"), "-b 8X: give a number of bytes"),
                (("allreduce", "-b", "0"), "-b 0: give a number of bytes"),
                (("allreduce", "-e", "2T"), "-e 2T: give a number of bytes"),
                (("allreduce", "-b", "2K", "-e", "1K"), "-b 2048 is more than -e 1024"),
                (("allreduce", "-f", "1"), "-f must be more than 1"),
                (("allreduce", "-f", "2", "-i", "8"), "excludes"),
                (("allreduce", "-e", "1G", "-i", "8"), "more than 1000 sizes"),
                (("allreduce", "-n", "0"), "--iters: Value 0 not in range"),
                (("allreduce", "-d", "fp8"), "-d fp8: it must be one of bf16"),
                (("allreduce", "-o", "least"), "-o least: it must be one of avg, sum, or all"),
                (("allreduce", "-d", "int32", "-o", "avg"), "integers take -o sum"),
                (("allreduce", "--density", "0.1"), "--density is for operations on rows"),
                (("allgatherv", "--density", "2"), "in (0, 1]"),
                (("allgatherv", "--rule", "sgd"), "--rule is for pushpull, not for allgatherv"),
                (("allgatherv", "--plan", "ar"), "--plan is for pushpull, not for allgatherv"),
                (("pushpull", "--rule", "lamb"), "--rule lamb: it must be one of adagrad"),
                (("pushpull", "--rule", "sgd", "-d", "int64"), "integers take --rule sum"),
                (("pushpull", "--plan", "best"), "--plan best: it must be one of ar, auto"),
                (("pushpull", "--width", "5000"), "--width"),
                (("pushpull", "--skew", "-1"), "--skew"),
                (("pushpull", "--table-rows", "4294967296"), "--table-rows"),
                (("allreduce", "--rank", "2", "--world", "2"), "--rank 2 is not below --world 2"),
                (("allreduce", "--csv", "x", "--json", "x"), "name the same file, x")):
            said = parallax("bench", *arguments)
            self.assertEqual(said.returncode, 2, arguments)
            self.assertIn(words, said.stderr + said.stdout, arguments)

    def test_a_file_that_cannot_be_written_ends_all(self):
        said = bench(2, "allreduce", "-b", 64, *QUICK, "--csv", "/no/such/folder/x")
        self.assertEqual(said.returncode, 1)
        self.assertIn("/no/such/folder/x cannot be written: No such file", said.stderr)

    def test_sums_that_are_not_exact_are_not_checked(self):
        said = parallax("bench", "allgatherv", "-b", "16M", "-n", 1, "-w", 0, "--width", 1,
                        "--table-rows", 2)
        self.assertEqual(said.returncode, 1)
        self.assertIn("leave the check out with -c 0", said.stderr)


class Kernels(support.Case):
    def test_every_kernel_runs(self):
        program = os.path.join(support.BIN, "parallax_kernels")
        if not os.path.exists(program):
            self.skipTest("needs Google Benchmark (libbenchmark-dev)")
        said = run(program, "--benchmark_min_time=0.00001", "--benchmark_format=json",
                   "--benchmark_filter=bytes:16384")
        self.assertEqual(said.returncode, 0, said.stderr)
        found = {}
        for each in json.loads(said.stdout)["benchmarks"]:
            self.assertNotIn("error_message", each)
            for counter in ("bytes_per_second", "memcpy_bytes_per_second", "of_memcpy"):
                self.assertGreater(each[counter], 0, each["name"])
            name, *arguments = each["name"].split("/")
            found.setdefault(name, []).append(arguments[0])
        by_width = [f"width:{width}" for width in (1, 8, 16, 64, 256, 1024, 4096)]
        floats = ("f32", "f16", "bf16")
        names = ([f"row_sum_{t}" for t in (*floats, "f64", "i32", "i64")] +
                 [f"{kernel}_{t}" for kernel in ("row_coalescer", "gather") for t in floats] +
                 [f"table_update_{r}_{t}" for r in ("SGD", "ADAGRAD") for t in floats] +
                 [f"update_{r}" for r in ("SGD", "ADAGRAD", "ADAM", "MOMENTUM", "ROWWISE_ADAGRAD",
                                          "SUM", "FTRL")] +
                 ["scatter_add", "gather_f32_as_f16", "gather_f32_as_bf16",
                  "table_update_SGD_bf16_by_chance"])
        expected = {name: by_width for name in names}
        expected.update({name: ["bytes:16384"] for name in
                         ("memcpy", "hash_to_owner", *(f"dense_accumulate_{t}" for t in floats))})
        self.assertEqual(found, expected)

    def test_refuses_unknown_flags(self):
        program = os.path.join(support.BIN, "parallax_kernels")
        if not os.path.exists(program):
            self.skipTest("needs Google Benchmark (libbenchmark-dev)")
        said = run(program, "--no-such-flag")
        self.assertEqual(said.returncode, 2)
        self.assertIn("--no-such-flag", said.stderr + said.stdout)


if __name__ == "__main__":
    support.main()
