# SPDX-License-Identifier: Apache-2.0
"""The wheel: what is in it, what it needs of a machine, and that a program of the README runs with
it in an environment that has nothing else, without this tree."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARALLAX_TEST_BUILD", "")
TIMEOUT = 240

# PEP 600 by auditwheel's policies: what manylinux_2_36 takes for granted, as far as C++ needs it.
ALLOWED = re.compile(r"(lib(c|m|dl|pthread|rt)\.so\.[0-9]+|libgcc_s\.so\.1|libstdc\+\+\.so\.6"
                     r"|ld-linux-(x86-64\.so\.2|aarch64\.so\.1))")
NEWEST = {"CXXABI": {36: (1, 3, 13)}, "GLIBCXX": {36: (3, 4, 30)}}
# What the module for UCX alone needs: the machine's own, which is not put into a wheel.
UCX = {"libucp.so.0", "libucs.so.0", "libuct.so.0", "libucm.so.0"}

# Memory of a device, or why there is none.
DEVICES = """
import libparallax as px
with px.open() as job:
    try:
        array = job.empty(2, memory="cuda", device=1)
        print(array, px.library_path())
    except px.Unsupported as refusal:
        print(refusal.message)
"""

HERE = """
import libparallax as px
with px.open() as job:
    job.commit()
    job.barrier().wait()
print(px.__file__)
print(px.library_path())
print(px.core_path())
"""

# Python reads it before the program: whoever opens a file of this tree, or loads one, fails.
WATCH = """
import sys
def watch(event, arguments):
    if event in ("open", "import", "ctypes.dlopen"):
        for argument in arguments:
            if isinstance(argument, str) and argument.startswith({forbidden!r}):
                raise RuntimeError(f"{{event}} of {{argument}}, which is the tree's")
sys.addaudithook(watch)
"""

TWO_HOSTS = """
import sys
import numpy as np
import libparallax as px
with px.open(rank=int(sys.argv[1]), world=2, rendezvous="file:" + sys.argv[2],
             host="host" + sys.argv[1], transport="ucx", net_device="lo", timeout=60) as job:
    held = job.register("held", rows=4)
    job.commit()
    with job.step() as step:
        print(step.reduce(held, np.ones((4, 1), np.float32)).wait().sum())
"""


def run(*command, **environment):
    # Nothing of this tree may help: neither PYTHONPATH nor a library, nor an index.
    kept = {name: value for name, value in os.environ.items()
            if name != "PYTHONPATH" and not name.startswith("PARALLAX_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT,
                          env={**kept, **environment}, cwd="/")


def must(*command, **environment):
    done = run(*command, **environment)
    if done.returncode != 0:
        raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def dynamic(path, tag):
    listing = must("readelf", "-dW", path)
    return re.findall(rf"\({tag}\).*\[(.*)\]", listing)


def environment_in(folder):
    """An empty virtual environment; its pip and its python."""
    must(sys.executable, "-m", "venv", folder)
    pip, python = (os.path.join(folder, "bin", name) for name in ("pip", "python"))
    run(pip, "uninstall", "--yes", "setuptools")  # newer environments have none to begin with
    return pip, python


@unittest.skipIf(importlib.util.find_spec("ensurepip") is None,
                 "there is no pip to make an environment with (python3-venv)")
@unittest.skipIf(not BUILD, "no build folder is given (PARALLAX_TEST_BUILD)")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.pip, cls.python = environment_in(os.path.join(cls.folder, "venv"))
        before = sorted(os.listdir(ROOT))
        must(cls.pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir",
             cls.folder, "--config-settings", f"build-dir={BUILD}", ROOT)
        cls.left = sorted(set(os.listdir(ROOT)) - set(before))
        cls.wheel, = (os.path.join(cls.folder, name) for name in os.listdir(cls.folder)
                      if name.endswith(".whl"))
        cls.unpacked = os.path.join(cls.folder, "unpacked")
        with zipfile.ZipFile(cls.wheel) as archive:
            archive.extractall(cls.unpacked)
        cls.package = os.path.join(cls.unpacked, "libparallax")
        must(cls.pip, "install", "--no-index", "--no-deps", cls.wheel)

    def libraries(self):
        names = sorted(name for name in os.listdir(self.package) if ".so" in name)
        self.assertIn("libparallax.so.0", names)
        return {name: os.path.join(self.package, name) for name in names}

    def test_pip_left_the_tree_alone(self):
        self.assertEqual(self.left, [])

    def test_files(self):
        plain = {name for name in os.listdir(self.package) if ".so" not in name}
        folder = os.path.join(ROOT, "bindings", "python", "libparallax")
        self.assertEqual(plain, set(os.listdir(folder)) - {"__pycache__"})
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            record, = (name for name in names if name.endswith(".dist-info/RECORD"))
            listed = {line.split(",")[0] for line in archive.read(record).decode().splitlines()}
        self.assertEqual(listed, set(names))
        self.assertTrue([name for name in names if name.endswith("licenses/LICENSE")])

    def test_tag(self):
        tag = os.path.basename(self.wheel)[:-len(".whl")].split("-", 2)[2]
        self.assertRegex(tag, r"^py3-none-manylinux_2_\d+_(x86_64|aarch64)$")

    def test_needs_what_every_linux_has(self):
        libraries = self.libraries()
        for name, path in libraries.items():
            with self.subTest(library=name):
                needed = set(dynamic(path, "NEEDED"))
                others = {each for each in needed if not ALLOWED.fullmatch(each)}
                others -= UCX if name == "libparallax_ucx.so" else set()
                self.assertLessEqual(others, set(libraries), "neither everywhere nor in the wheel")
                self.assertIn(dynamic(path, "RPATH"), ([], ["$ORIGIN"]))
        self.assertFalse([name for name in libraries
                          if re.match(r"lib(uc[pstm]\.|ibverbs|cuda)", name)])

    def test_grafted_libraries_have_names_and_licences_of_their_own(self):
        for name, path in self.libraries().items():
            if name.startswith(("libparallax", "_native")):
                continue
            with self.subTest(library=name):
                self.assertEqual(dynamic(path, "SONAME"), [name])
                system = {line.split()[0] for line in must("/sbin/ldconfig", "-p").splitlines()[1:]}
                self.assertTrue(name not in system, "a library of this machine has that name")
                with zipfile.ZipFile(self.wheel) as archive:
                    self.assertTrue([each for each in archive.namelist()
                                     if each.endswith(f".dist-info/licenses/{name}.copyright")])

    def test_auditwheel_finds_nothing_to_repair(self):
        """But for the module for UCX, which `show` cannot be told to leave out."""
        if shutil.which("auditwheel") is None:
            self.skipTest("auditwheel is missing (no Debian package: pip install auditwheel)")
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, os.path.basename(self.wheel))
            with zipfile.ZipFile(self.wheel) as given, zipfile.ZipFile(copy, "w") as kept:
                for name in given.namelist():
                    content = given.read(name)
                    if name.endswith(".dist-info/RECORD"):
                        content = re.sub(rb"(?m)^.*/libparallax_ucx\.so,.*\n", b"", content)
                    if not name.endswith("/libparallax_ucx.so"):
                        kept.writestr(name, content)
            shown = " ".join(must("auditwheel", "show", copy).split())
        consistent = re.search(r'consistent with the following platform tag: "manylinux_2_(\d+)_',
                               shown)
        self.assertIsNotNone(consistent, shown)
        self.assertLessEqual(int(consistent[1]), int(re.search(r"linux_2_(\d+)", self.wheel)[1]))

    def test_symbol_versions_are_those_of_the_tag(self):
        minor = int(re.search(r"manylinux_2_(\d+)", self.wheel)[1])
        for name, path in self.libraries().items():
            listing = must("readelf", "-VW", path)
            for family, dots in set(re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\b", listing)):
                version = tuple(map(int, dots.split(".")))
                newest = (2, minor) if family == "GLIBC" else NEWEST[family].get(minor, (99,))
                with self.subTest(library=name, needs=f"{family}_{dots}"):
                    self.assertLessEqual(version, newest)

    def installed(self):
        lines = must(self.python, "-c", HERE).splitlines()
        return [os.path.relpath(line, os.path.dirname(lines[0])) for line in lines], lines[0]

    def test_installed(self):
        paths, package = self.installed()
        self.assertTrue(package.startswith(os.path.join(self.folder, "venv")), package)
        core = "_native.abi3.so" if "_native.abi3.so" in self.libraries() else None
        if core and sys.version_info >= (3, 11):
            self.assertEqual(paths, ["__init__.py", "libparallax.so.0", core])
        else:
            self.assertEqual(paths[:2], ["__init__.py", "libparallax.so.0"])
        self.assertEqual(run(self.pip, "check").returncode, 0)

    def numpy_alone(self):
        """A folder with NumPy and nothing else of the system's Python."""
        found = importlib.util.find_spec("numpy")
        if found is None:
            self.skipTest("NumPy is missing (python3-numpy)")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.symlink(os.path.dirname(found.origin), os.path.join(folder.name, "numpy"))
        return folder.name

    def test_program_of_the_readme(self):
        folder = self.numpy_alone()
        program, = (block for block in re.findall(r"^```python\n(.*?)^```$", read("README.md"),
                                                  re.M | re.S) if "world=2" in block)
        path = os.path.join(self.folder, "two_ranks.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(program)
        promised = re.search(r"^It prints\n\n```\n(.*?)^```$", read("README.md"), re.M | re.S)[1]
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(WATCH.format(forbidden=(ROOT + os.sep, os.path.abspath(BUILD) + os.sep)))
        self.assertEqual(must(self.python, path, PYTHONPATH=folder), promised)
        library = os.path.join(BUILD, "lib", "libparallax.so.0")
        strange = run(self.python, path, PYTHONPATH=folder, PARALLAX_LIBRARY=library)
        self.assertIn("which is the tree's", strange.stderr)  # the watch does see it

    def test_ranks_of_two_hosts_meet_by_this_machines_ucx(self):
        if "libparallax_ucx.so" not in self.libraries():
            self.skipTest("UCX was not found by cmake (libucx-dev)")
        folder = self.numpy_alone()
        meet = os.path.join(self.folder, "meet")
        kept = {name: value for name, value in os.environ.items() if name[:9] != "PARALLAX_"}
        ranks = [subprocess.Popen([self.python, "-c", TWO_HOSTS, str(rank), meet], cwd="/",
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**kept, "PYTHONPATH": folder}) for rank in range(2)]
        for rank in ranks:
            out, error = rank.communicate(timeout=TIMEOUT)
            self.assertEqual((rank.returncode, out), (0, "8.0\n"), error)

    def test_devices_by_this_machines_driver(self):
        """The module for CUDA is in the wheel where it was built, and finds a driver, here the
        double's, at run time; without one it says so."""
        if "libparallax_cuda.so" not in self.libraries():
            self.skipTest("cuda.h was not found by cmake (docs/gpu.md)")
        double = os.path.join(BUILD, "lib", "cuda_double")
        needed = dynamic(self.libraries()["libparallax_cuda.so"], "NEEDED")
        self.assertFalse([each for each in needed if not ALLOWED.fullmatch(each)])
        if not os.path.exists("/proc/driver/nvidia"):
            self.assertIn("libcuda.so.1", must(self.python, "-c", DEVICES))
        if not os.path.exists(os.path.join(double, "libcuda.so.1")):
            self.skipTest(f"the driver's double is not built ({double})")
        said = must(self.python, "-c", DEVICES, LD_LIBRARY_PATH=double, CUDA_DOUBLE_LEAKS="fail")
        self.assertIn("DeviceArray (2,) float32 on CUDA:1> " + os.path.join(self.folder, "venv"),
                      said)

    def test_uninstalled(self):
        with tempfile.TemporaryDirectory() as folder:
            pip, python = environment_in(os.path.join(folder, "venv"))
            must(pip, "install", "--no-index", "--no-deps", self.wheel)
            self.assertIn("libparallax/_abi.py", must(pip, "show", "--files", "libparallax"))
            package = os.path.dirname(must(python, "-c", HERE).splitlines()[0])
            must(pip, "uninstall", "--yes", "libparallax")
            self.assertFalse(os.path.exists(package))

    def test_editable(self):
        with tempfile.TemporaryDirectory() as folder:
            pip, python = environment_in(os.path.join(folder, "venv"))
            must(pip, "install", "--no-index", "--editable", ROOT)
            out = must(python, "-c", HERE,
                       PARALLAX_LIBRARY=os.path.join(BUILD, "lib", "libparallax.so.0"))
            self.assertTrue(out.startswith(os.path.join(ROOT, "bindings", "python")), out)

    def sources_in(self, folder):
        """Makes the sdist; its name, and what of the tree it takes."""
        backend = os.path.join(ROOT, "bindings", "python", "build_backend")
        script = ("import sys; sys.path.insert(0, sys.argv[1]); import libparallax_build as build; "
                  "print(build.build_sdist(sys.argv[2]), *build._SOURCES)")
        name, *taken = must(sys.executable, "-B", "-c", script, backend, folder).split()
        return name, taken

    def test_sources_are_those_of_the_repository(self):
        if shutil.which("git") is None or not os.path.exists(os.path.join(ROOT, ".git")):
            self.skipTest("this tree is no clone, or git is missing (git)")
        with tempfile.TemporaryDirectory() as folder:
            name, taken = self.sources_in(folder)
            with tarfile.open(os.path.join(folder, name)) as archive:
                packed = {member.partition("/")[2] for member in archive.getnames()}
        kept = must("git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "ls-files", "--cached",
                    "--others", "--exclude-standard", "-z", "--", *taken)
        there = {path for path in kept.split("\0") if path and
                 os.path.exists(os.path.join(ROOT, path))}
        self.assertEqual(packed - {"PKG-INFO"}, there)

    def test_sources_can_be_configured(self):
        with tempfile.TemporaryDirectory() as folder:
            name, _ = self.sources_in(folder)
            shutil.unpack_archive(os.path.join(folder, name), folder)
            unpacked = os.path.join(folder, name[:-len(".tar.gz")])
            self.assertTrue(os.path.exists(os.path.join(unpacked, "pyproject.toml")))
            self.assertFalse([path for path, _, _ in os.walk(unpacked) if "__pycache__" in path])
            configured = must("cmake", "-S", unpacked, "-B", os.path.join(folder, "build"),
                              "-DPARALLAX_BUILD_TESTS=OFF", "-DPARALLAX_BUILD_BENCH=OFF",
                              "-DPARALLAX_BUILD_TOOL=OFF")
            self.assertRegex(configured, r"parallax +built")


if __name__ == "__main__":
    unittest.main()
