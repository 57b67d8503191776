# SPDX-License-Identifier: Apache-2.0
"""What the tests of trainings share: a training as two processes, its numbers beside those of one
process in NumPy, and how many lines of it are the library's."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    np = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "bindings", "python", "examples")
PROGRAMS = os.environ.get("PARALLAX_TEST_PROGRAMS", "")
# Another Python than Debian's may have the frameworks that Debian has not.
PYTHON = os.environ.get("PARALLAX_FRAMEWORKS_PYTHON", sys.executable)
TIMEOUT = 240  # seconds
LINES_MAX = 40

# 40 steps, whose sums are taken in another order: float keeps 6e-8 of each.
RELATIVE, ABSOLUTE = 1e-4, 2e-6

# What shows that a line outside of the sections "libparallax" is the library's too.
USE = {
    ".c": re.compile(r"\b(parallax|PARALLAX)_\w|\b(must|finish)\("),
    ".cc": re.compile(r"\b(parallax|PARALLAX)_\w|\bparallax::|\bjob\."),
    ".py": re.compile(r"\b(px|job|step)\.[a-z]"),
}


def text_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def without_comments(path):
    text = text_of(path)
    if path.endswith(".py"):
        text = re.sub(r'"""(.*?)"""', lambda quoted: "\n" * quoted[1].count("\n"), text,
                      flags=re.S)
        return re.sub(r"(?m)(^| )# (?!----).*", "", text)
    text = re.sub(r"/\* (?!----).*?\*/", "", text, flags=re.S)
    return re.sub(r"// (?!----).*", "", text)


def library_lines(path):
    """The lines of a training that are the library's: those with a letter or a digit that stand
    below a rule "---- libparallax ----", and below any other rule those that name it. Comments and
    imports do not count."""
    use, ours, lines = USE[os.path.splitext(path)[1]], False, []
    for line in without_comments(path).splitlines():
        rule = re.match(r"\W*---- ([\w ]+) -", line)
        if rule:
            ours = rule[1] == "libparallax"
        elif not re.match(r"#include|import |from ", line) and re.search(r"\w", line):
            if ours or use.search(line):
                lines.append(line)
    return lines


def has(module):
    """Whether the Python of the trainings has a module."""
    if PYTHON == sys.executable:
        return importlib.util.find_spec(module) is not None
    return subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True,
                          check=False).returncode == 0


def run_ranks(command, world):
    """Runs a command as each of `world` processes of one job."""
    with tempfile.TemporaryDirectory() as folder:
        surroundings = {**os.environ, "PARALLAX_WORLD": str(world), "PARALLAX_TIMEOUT_MS": "60000",
                        "PARALLAX_RENDEZVOUS": "file:" + folder}
        ranks = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT,
                                  env={**surroundings, "PARALLAX_RANK": str(rank)})
                 for rank in range(world)]
        try:
            said = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(rank.returncode for rank in ranks):
            raise AssertionError("a rank failed:\n" + "\n".join(said))


def train(command, world):
    """Runs a training as `world` processes; what each wrote, by name."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        run_ranks([*command, out], world)
        written = []
        for rank in range(world):
            with open(f"{out}.{rank}", encoding="utf-8") as file:
                written.append({name: np.array(numbers, np.float64) for name, *numbers
                                in map(str.split, file)})
        return written


@unittest.skipIf(np is None, "NumPy is missing (python3-numpy)")
class TrainingCase(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, EXAMPLES)
        self.addCleanup(sys.path.remove, EXAMPLES)
        import model
        self.model = model

    def hold(self, source, command):
        """One rank and two learn what one process of NumPy does, in at most LINES_MAX lines of
        library use."""
        self.assertLessEqual(len(library_lines(source)), LINES_MAX, source)
        losses, values = self.model.reference()
        self.assertLess(losses[-1], losses[0] / 2)
        expected = {name: value.ravel() for (name, *_), value in zip(self.model.VARIABLES, values)}
        for world in (1, 2):
            ranks = train(command, world)
            of_all = sum(rank.pop("losses") for rank in ranks)
            np.testing.assert_allclose(of_all, losses, RELATIVE, ABSOLUTE)
            for rank in ranks:
                self.assertEqual(rank.keys(), expected.keys())
                for name, value in expected.items():
                    np.testing.assert_allclose(rank[name], value, RELATIVE, ABSOLUTE, err_msg=name)

    def hold_program(self, name, source):
        path = os.path.join(PROGRAMS, f"training_{name}")
        if not os.path.exists(path):
            self.skipTest(f"{name} is missing ({name}-dev)" if name == "libtorch" else
                          f"there is no {path} (PARALLAX_TEST_PROGRAMS)")
        self.hold(source, [path])

    def hold_script(self, name, module, package):
        if not has(module):
            self.skipTest(f"{module} is missing ({package})")
        source = os.path.join("bindings", "python", "examples", f"train_{name}.py")
        self.hold(source, [PYTHON, os.path.join(ROOT, source)])
