# SPDX-License-Identifier: Apache-2.0
"""Which library is loaded, and what is said when it is missing or of another version."""

import os
import shutil
import tempfile
import unittest

import libparallax as px

from support import ROOT, compile_c, run_script

IMPORT = "import libparallax as px; print(px.library_path())"
LIBRARY = os.path.abspath(os.environ["PARALLAX_LIBRARY"])


class Library(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def refusal(self, **environment):
        """The ImportError's sentence of an import that must fail."""
        status, _, error = run_script(IMPORT, **environment)
        self.assertEqual(status, 1, error)
        last = error.strip().splitlines()[-1]
        self.assertRegex(last, "^ImportError: libparallax: ")
        return last

    def stub(self, version, functions=()):
        """A library of another version."""
        source, library = (os.path.join(self.folder, name) for name in ("stub.c", "stub.so"))
        with open(source, "w", encoding="utf-8") as file:
            file.write(f"unsigned parallax_version(void) {{ return {version}; }}\n")
            for name in functions:
                if name != "parallax_version":
                    file.write(f"int {name}(void) {{ return 0; }}\n")
        compile_c("-shared", "-fPIC", source, "-o", library)
        return library

    def package_copy(self):
        """The package alone in a folder."""
        shutil.copytree(os.path.join(ROOT, "bindings", "python", "libparallax"),
                        os.path.join(self.folder, "libparallax"))
        return os.path.join(self.folder, "libparallax")

    def test_variable_wins(self):
        package = self.package_copy()
        os.symlink(os.path.join(self.folder, "missing"),
                   os.path.join(package, "libparallax.so.0"))
        status, out, error = run_script(IMPORT, PYTHONPATH=self.folder, PARALLAX_LIBRARY=LIBRARY)
        self.assertEqual((status, out.strip()), (0, LIBRARY), error)

    def test_beside_the_package(self):
        package = self.package_copy()
        beside = os.path.join(package, "libparallax.so.0")
        os.symlink(LIBRARY, beside)
        status, out, error = run_script(IMPORT, PYTHONPATH=self.folder, PARALLAX_LIBRARY="")
        self.assertEqual((status, out.strip()), (0, beside), error)

    def test_path_file_beside_the_package(self):
        package = self.package_copy()
        with open(os.path.join(package, "library_path.txt"), "w", encoding="utf-8") as file:
            file.write(os.path.relpath(LIBRARY, package) + "\n")
        status, out, error = run_script(IMPORT, PYTHONPATH=self.folder, PARALLAX_LIBRARY="")
        self.assertEqual(status, 0, error)
        self.assertTrue(os.path.samefile(out.strip(), LIBRARY))

    def test_core(self):
        # The same tests run over the compiled core and without it; here is which of them this is.
        expected = os.environ.get("PARALLAX_TEST_CORE") or "None"
        program = "import libparallax as px; print(px.core_path())"
        status, out, error = run_script(program)
        self.assertEqual((status, out.strip()), (0, expected), error)

    def test_core_of_another_version_is_left_alone(self):
        core = os.environ.get("PARALLAX_TEST_CORE")
        if not core:
            self.skipTest("there is no compiled core (python3-dev >= 3.11), or it is not used here")
        package = self.package_copy()
        program = ("import libparallax as px; print(px.core_path()); "
                   "job = px.open(); job.commit(); job.barrier().wait(); job.close()")
        beside = os.path.join(package, "_native.abi3.so")
        for content, expected in ((None, beside), (b"no library", "None"), ("older", "None")):
            with self.subTest(content=content):
                with open(core, "rb") as file:
                    whole = file.read()
                version = px.__version__.encode() + b"\0"
                self.assertIn(version, whole)
                older = whole.replace(version, b"9" * (len(version) - 1) + b"\0")
                with open(beside, "wb") as file:
                    file.write({None: whole, "older": older}.get(content, content))
                status, out, error = run_script(program, PYTHONPATH=self.folder)
                self.assertEqual((status, out.strip()), (0, expected), error)

    def test_loader_path(self):
        status, out, error = run_script(IMPORT, PARALLAX_LIBRARY="",
                                        LD_LIBRARY_PATH=os.path.dirname(LIBRARY))
        self.assertEqual((status, out.strip()), (0, "libparallax.so.0"), error)

    def test_missing(self):
        sentence = self.refusal(PARALLAX_LIBRARY="", LD_LIBRARY_PATH="")
        self.assertIn("libparallax.so.0 was not found", sentence)
        self.assertIn("Set PARALLAX_LIBRARY to its path", sentence)

    def test_variable_names_nothing(self):
        path = os.path.join(self.folder, "nothing.so")
        self.assertIn(f"PARALLAX_LIBRARY is '{path}', which does not exist",
                      self.refusal(PARALLAX_LIBRARY=path))

    def test_no_library(self):
        path = os.path.join(self.folder, "text.so")
        with open(path, "w", encoding="utf-8") as file:
            file.write("no library")
        self.assertIn(f"{path} (PARALLAX_LIBRARY) cannot be loaded",
                      self.refusal(PARALLAX_LIBRARY=path))

    def test_too_new(self):
        sentence = self.refusal(PARALLAX_LIBRARY=self.stub(9912))
        self.assertIn("is libparallax 0.99.12, too new for this package", sentence)
        self.assertIn("Install the Python package that came with libparallax 0.99.12", sentence)

    def test_too_old(self):
        import libparallax._abi as abi
        sentence = self.refusal(PARALLAX_LIBRARY=self.stub(3, abi.FUNCTIONS))
        self.assertIn("is libparallax 0.0.3, too old for this package", sentence)

    def test_same_version_without_a_function(self):
        major, minor, patch = (int(part) for part in px.__version__.split("."))
        sentence = self.refusal(PARALLAX_LIBRARY=self.stub(major * 10000 + minor * 100 + patch))
        self.assertIn("has no function parallax_status_string", sentence)
        self.assertIn("Build and install libparallax anew", sentence)

    def test_no_parallax_at_all(self):
        library = os.path.join(self.folder, "empty.so")
        compile_c("-shared", "-fPIC", "-x", "c", "/dev/null", "-o", library)
        self.assertIn("too old, or no libparallax", self.refusal(PARALLAX_LIBRARY=library))


if __name__ == "__main__":
    unittest.main()
