# SPDX-License-Identifier: Apache-2.0
"""Installing: pip in a virtual environment, offline and without setuptools; cmake --install."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from support import ROOT, TIMEOUT

PROJECT = os.path.join(ROOT, "bindings", "python")
BUILD = os.environ.get("PARALLAX_TEST_BUILD", "")
PYTHON_DIR = os.environ.get("PARALLAX_TEST_PYTHON_DIR", "")

try:
    import ensurepip
except ImportError:
    ensurepip = None

PROGRAM = """
import libparallax as px
with px.open() as job:
    job.commit()
    job.barrier().wait()
print(px.__file__)
print(px.library_path())
"""


def run(*command, **environment):
    # Nothing of this tree may help: neither PYTHONPATH nor an index.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, check=False,
                          timeout=4 * TIMEOUT, env={**kept, **environment}, cwd="/")


class Pip(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def environment(self):
        if ensurepip is None:
            self.skipTest("ensurepip is missing (python3-venv)")
        venv = os.path.join(self.folder, "venv")
        made = run(sys.executable, "-m", "venv", venv)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        return os.path.join(venv, "bin")

    def test_venv(self):
        binaries = self.environment()
        pip, python = os.path.join(binaries, "pip"), os.path.join(binaries, "python")
        run(pip, "uninstall", "--yes", "setuptools")  # Ubuntu 24.04 has none to begin with
        before = sorted(os.listdir(PROJECT))
        installed = run(pip, "install", "--no-index", "--no-build-isolation", PROJECT)
        self.assertEqual(installed.returncode, 0, installed.stdout + installed.stderr)
        self.assertEqual(sorted(os.listdir(PROJECT)), before, "pip left files in the source tree")
        imported = run(python, "-c", PROGRAM)
        self.assertEqual(imported.returncode, 0, imported.stderr)
        package = os.path.dirname(imported.stdout.splitlines()[0])
        self.assertTrue(package.startswith(os.path.dirname(binaries)), package)
        self.assertTrue(os.path.exists(os.path.join(package, "py.typed")))
        shown = run(pip, "show", "--files", "libparallax").stdout
        self.assertIn("libparallax/_abi.py", shown)
        self.assertEqual(run(pip, "check").returncode, 0)
        removed = run(pip, "uninstall", "--yes", "libparallax")
        self.assertEqual(removed.returncode, 0, removed.stderr)
        self.assertFalse(os.path.exists(package))

    def test_isolated_and_editable(self):
        binaries = self.environment()
        pip, python = os.path.join(binaries, "pip"), os.path.join(binaries, "python")
        installed = run(pip, "install", "--no-index", "--editable", PROJECT)
        self.assertEqual(installed.returncode, 0, installed.stdout + installed.stderr)
        imported = run(python, "-c", PROGRAM)
        self.assertEqual(imported.returncode, 0, imported.stderr)
        self.assertTrue(imported.stdout.startswith(os.path.join(PROJECT, "libparallax")))

    def test_wheel_holds_the_package_and_no_more(self):
        sys.path.insert(0, os.path.join(PROJECT, "build_backend"))
        self.addCleanup(sys.path.pop, 0)
        import libparallax_build
        name = libparallax_build.build_wheel(self.folder)
        with zipfile.ZipFile(os.path.join(self.folder, name)) as wheel:
            packed = {path for path in wheel.namelist() if ".dist-info/" not in path}
            record = wheel.read(name.partition("-py3")[0] + ".dist-info/RECORD").decode()
            self.assertEqual({line.split(",")[0] for line in record.splitlines()},
                             set(wheel.namelist()))
        ours = {"libparallax/" + path for path in os.listdir(os.path.join(PROJECT, "libparallax"))
                if not path.startswith("__pycache__")}
        self.assertEqual(packed, ours)
        archive = libparallax_build.build_sdist(self.folder)
        shutil.unpack_archive(os.path.join(self.folder, archive), self.folder)
        unpacked = os.path.join(self.folder, archive[:-len(".tar.gz")])
        for path in ("build_backend/libparallax_build.py", "libparallax/_abi.py"):
            self.assertTrue(os.path.exists(os.path.join(unpacked, path)), path)


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
            package, library = imported.stdout.split()
            self.assertTrue(package.startswith(moved) and library.startswith(moved),
                            imported.stdout)


if __name__ == "__main__":
    unittest.main()
