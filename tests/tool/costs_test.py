"""Ranks of several processes measure what their links and memory take, and go by it; the setting
costs says otherwise."""

import re

import support
from support import PARALLAX, environment, parallax


def costs(**variables):
    """Of two ranks that reduce: how it ended, and the constants that were agreed on, by name."""
    said = parallax("run", "-n", 2, "--tag-output", "off", "--", PARALLAX, "bench", "allreduce",
                    "-b", 1024, "-e", 1024, "-n", 1, "-w", 1,
                    env=environment(PARALLAX_DEBUG="info", PARALLAX_DEBUG_SUBSYS="plan",
                                    **variables))
    found = re.findall(r"costs of the job: (\S+)", said.stderr + said.stdout)
    return said, [dict(item.split("=") for item in each.split(",")) for each in found]


class Costs(support.Case):
    def test_measured(self):
        said, found = costs()
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(len(found), 1, said.stderr)  # once for a job, by rank 0
        # Faster than any machine, slower than any that passes these tests.
        for name, least, most in (("inside_byte_ps", 1, 100_000), ("copy_byte_ps", 1, 100_000),
                                  ("sum_f32_byte_ps", 1, 100_000)):
            self.assertTrue(least <= int(found[0][name]) <= most, found)
        self.assertEqual(found[0]["between_byte_ps"], "800")  # one host: the standard

    def test_given(self):
        said, found = costs(PARALLAX_COSTS="inside_byte_ps=4321")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(found[0]["inside_byte_ps"], "4321")

    def test_standard(self):
        said, found = costs(PARALLAX_COSTS="standard")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(found, [])

    def test_wrong(self):
        said, _ = costs(PARALLAX_COSTS="inside_byte_ps=fast")
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("costs: inside_byte_ps is 'fast'", said.stderr + said.stdout)


if __name__ == "__main__":
    support.main()
