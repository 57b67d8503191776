"""The kernels' bits: the same at each level of vector code, and on another architecture."""

import os
import re
import shutil
import tempfile
import unittest

import support
from support import run

DIGEST = os.path.join(support.BIN, "parallax_kernels_digest")
CROSS = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
SOURCES = ("tests/tool/kernels_digest.cc", "src/base/number.cc", "src/base/half_numbers.cc",
           "src/base/vector_code.cc")


def by_level(said):
    """{level: {what: bits}} of what the program printed."""
    levels = {}
    for line in said.splitlines():
        level, what, bits = re.fullmatch(r"(\S+) (.+) ([0-9a-f]{16})", line).groups()
        levels.setdefault(level, {})[what] = bits
    return levels


def float_flags():
    """What the build tells the compiler of floating point."""
    with open(os.path.join(support.SOURCE, "cmake/flags.cmake"), encoding="utf-8") as file:
        return sorted(set(re.findall(r" (-f(?:fp-|no-math|no-trapping)[\w=-]+)", file.read())))


class Kernels(support.Case):
    def digests(self, *command):
        said = run(*command, timeout=300)
        self.assertEqual(said.returncode, 0, said.stderr)
        return by_level(said.stdout)

    def test_each_level_has_the_same_bits(self):
        levels = self.digests(DIGEST)
        self.assertGreaterEqual(len(levels), 1)
        baseline = next(iter(levels.values()))
        self.assertEqual(len(baseline), 9)
        for level, found in levels.items():
            self.assertEqual(found, baseline, level)

    @unittest.skipUnless(shutil.which(CROSS) and shutil.which(EMULATOR),
                         f"{CROSS} or {EMULATOR} is not installed")
    def test_aarch64_has_the_same_bits(self):
        here = next(iter(self.digests(DIGEST).values()))
        flags = float_flags()
        self.assertIn("-ffp-contract=off", flags)
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "digest")
            built = run(CROSS, "-std=c++20", "-O2", "-ftree-vectorize", "-static", *flags,
                        "-I" + os.path.join(support.SOURCE, "src"),
                        "-I" + os.path.join(support.SOURCE, "include"),
                        *(os.path.join(support.SOURCE, source) for source in SOURCES),
                        "-o", program, timeout=300)
            self.assertEqual(built.returncode, 0, built.stderr)
            for cpu, names in (("cortex-a57", {"NEON"}), ("max", {"NEON", "SVE"})):
                levels = self.digests(EMULATOR, "-cpu", cpu, program)
                self.assertEqual(set(levels), names, cpu)
                for level, found in levels.items():
                    self.assertEqual(found, here, f"{level} of {cpu}")
