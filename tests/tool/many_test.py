"""parallax_many: the figures that it prints of a job of many variables."""

import json
import os

import support

MANY = os.path.join(support.BIN, "parallax_many")


def many(*flags, ranks=2, hosts=False):
    """What it prints; with `hosts`, each rank says that it is one."""
    as_host = ["sh", "-c", 'PARALLAX_HOST=h$PARALLAX_RANK exec "$0" "$@"'] if hosts else []
    done = support.parallax("run", "-n", ranks, "--", *as_host, MANY, *flags)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    line = next(line for line in done.stdout.splitlines() if "p50_us" in line)
    return json.loads(line[line.index("{"):])


class Many(support.Case):
    def test_messages_are_those_of_a_rank_and_step(self):
        shape = ("--variables", "40", "--steps", "10", "--warmups", "2")
        one = many(*shape)
        self.assertEqual((1, 0, 0), (one["hosts"], one["wire_messages"], one["messages_bound"]))
        self.assertLess(0, one["local_messages"])
        three = many(*shape, ranks=3, hosts=True)
        self.assertEqual((3, 0), (three["hosts"], three["local_messages"]))
        self.assertLessEqual(2, three["wire_messages"])
        self.assertLessEqual(three["wire_messages"], three["messages_bound"])
        # 8 rows of 8 floats of each variable: of their own at least a third goes to each other.
        self.assertLess(40 * 8 * 32 / 3, three["wire_bytes"])
        self.assertAlmostEqual(4 * 2 + three["wire_bytes"] / 61440, three["messages_bound"],
                               delta=0.1)

    def test_a_table_of_zeros_costs_nothing_before_it_is_touched(self):
        table = many("--variables", "1", "--call", "pushpull", "--rows", "300000000", "--width",
                     "64", "--dtype", "bf16", "--steps", "3", "--warmups", "2")
        self.assertLess(table["commit_cpu_us"], 1_000_000)
        # Of 38 GB.
        self.assertLess(table["committed_kib"] - table["opened_kib"], 64 << 10)

    def test_ranks_of_a_host_hold_a_table_once(self):
        # Of 100 MB, and its zeros are written.
        shape = ("--variables", "1", "--call", "pushpull", "--width", "64", "--steps", "10")
        table = many(*shape, "--rows", "400000", "--init", "written", ranks=4)
        self.assertEqual(100_000, table["tables_kib"])
        for when in ("copies_committed", "copies_stepped"):
            self.assertLess(0.95, table[when], when)
            self.assertLess(table[when], 1.5, when)
        # A dense one is each rank's.
        dense = many(*shape, "--form", "dense", "--given", "40000", "--init", "written", ranks=4)
        self.assertLess(3.5, dense["copies_committed"])
        self.assertNotIn("copies_committed", many("--variables", "1", "--init", "written"))

    def test_sums_of_16_bits_are_checked(self):
        # In 60 steps they become larger than what bf16 has without rounding.
        many("--variables", "30", "--call", "pushpull", "--dtype", "bf16", "--steps", "60", ranks=3)
        done = support.parallax("run", "-n", 2, "--", MANY, "--dtype", "bf16")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("--form sparse --call pushpull", done.stdout + done.stderr)


if __name__ == "__main__":
    support.main()
