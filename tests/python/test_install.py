# SPDX-License-Identifier: Apache-2.0
"""Installing by cmake --install. The wheel has a label of its own, wheel."""

import os
import subprocess
import sys
import tempfile
import unittest

from support import TIMEOUT

BUILD = os.environ.get("PARALLAX_TEST_BUILD", "")
PYTHON_DIR = os.environ.get("PARALLAX_TEST_PYTHON_DIR", "")

PROGRAM = """
import libparallax as px
with px.open() as job:
    job.commit()
    job.barrier().wait()
print(px.__file__)
print(px.library_path())
print(px.core_path())
"""


def run(*command, **environment):
    # Nothing of this tree may help: neither PYTHONPATH nor an index.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, check=False,
                          timeout=4 * TIMEOUT, env={**kept, **environment}, cwd="/")


class CMake(unittest.TestCase):
    def test_installed_tree_can_be_moved(self):
        if not BUILD:
            self.skipTest("no build folder to install is given (PARALLAX_TEST_BUILD)")
        with tempfile.TemporaryDirectory() as folder:
            first, moved = os.path.join(folder, "first"), os.path.join(folder, "moved")
            installed = run("cmake", "--install", BUILD, "--prefix", first)
            self.assertEqual(installed.returncode, 0, installed.stdout + installed.stderr)
            # A packager may name dist-packages, where Debian's python3-parallax has `parallax`.
            self.assertEqual(os.listdir(os.path.join(first, PYTHON_DIR)), ["libparallax"])
            os.rename(first, moved)
            imported = run(sys.executable, "-c", PROGRAM, PARALLAX_LIBRARY="",
                           PYTHONPATH=os.path.join(moved, PYTHON_DIR))
            self.assertEqual(imported.returncode, 0, imported.stderr)
            package, library, core = imported.stdout.split()
            if os.environ.get("PARALLAX_TEST_CORE"):
                self.assertEqual(core, os.path.join(os.path.dirname(package), "_native.abi3.so"))
            self.assertTrue(package.startswith(moved) and library.startswith(moved),
                            imported.stdout)


if __name__ == "__main__":
    unittest.main()
