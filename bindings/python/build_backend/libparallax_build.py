# SPDX-License-Identifier: Apache-2.0
"""A PEP 517 and PEP 660 backend that builds with CMake: the standard library is enough.

A wheel holds the package, its compiled core, libparallax.so with the libraries that it links and
that not every Linux has (graft.py), the module for UCX, which links the machine's own UCX and is
loaded only when ranks of different hosts meet, and the one for CUDA devices, which links nothing of
CUDA's and is loaded by the first call that has to do with a device. Nothing is written into the
source folder, which may be read-only.

    pip wheel . [--config-settings build-dir=BUILD]

build-dir: a folder that CMake has configured, such as build/release, to build in. Otherwise it is a
temporary one, with the arguments of the environment's CMAKE_ARGS.
"""

import base64
import hashlib
import io
import os
import platform
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import zipfile

import graft

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
_PYTHON = os.path.join(_ROOT, "bindings", "python")
_PACKAGE = "libparallax"
_KEPT = (".py", ".pyi", ".typed")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes at any time
_SOURCES = ("CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md",
            "pyproject.toml", "bindings", "cmake", "docs/man", "include", "packaging", "src")


def _read(*parts):
    with open(os.path.join(_ROOT, *parts), "rb") as file:
        return file.read()


def _version():
    text = _read(_PYTHON, _PACKAGE, "_version.py").decode()
    return re.search(r'^__version__ = "(.+)"$', text, re.M)[1]


def _metadata():
    return "\n".join([
        "Metadata-Version: 2.1",
        f"Name: {_PACKAGE}",
        f"Version: {_version()}",
        "Summary: Exact, planned communication of dense and sparse gradients",
        "License: Apache-2.0",
        "License-File: LICENSE",
        "Requires-Python: >=3.9",
        "Provides-Extra: numpy",
        "Requires-Dist: numpy; extra == 'numpy'",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: Implementation :: CPython",
        "Classifier: Typing :: Typed",
    ]) + "\n"


def _tag():
    """Any Python 3; this machine, with a C library as new as here."""
    machine = platform.machine()
    name, _, version = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")
    system = "manylinux_" + version.replace(".", "_") if name == "glibc" else "linux"
    return f"py3-none-{system}_{machine}"


def _package_files():
    """{path in the wheel: bytes} of the package's plain files."""
    folder = os.path.join(_PYTHON, _PACKAGE)
    return {f"{_PACKAGE}/{name}": _read(folder, name) for name in sorted(os.listdir(folder))
            if name.endswith(_KEPT)}


def _build(folder):
    """Builds what goes into a wheel, and gives the folder of the libraries."""
    if not os.path.exists(os.path.join(folder, "CMakeCache.txt")):
        ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
        subprocess.run(
            ["cmake", "-S", _ROOT, "-B", folder, *ninja, "-DCMAKE_BUILD_TYPE=Release",
             "-DPARALLAX_QUICK_BUILD=ON", "-DPARALLAX_BUILD_TESTS=OFF",
             "-DPARALLAX_BUILD_BENCH=OFF", "-DPARALLAX_BUILD_TOOL=OFF",
             *shlex.split(os.environ.get("CMAKE_ARGS", ""))], check=True)
    # `parallax` builds the modules and the core too, where there is what they need.
    subprocess.run(["cmake", "--build", folder, "--parallel", str(os.cpu_count()),
                    "--target", "parallax", "parallax_wheel"], check=True)
    return os.path.join(folder, "lib")


def _library_files(folder):
    """{name in the package: bytes} of what was built, and {name: bytes} of licences."""
    files = {}
    for name, path in (("libparallax_ucx.so", "libparallax_ucx.so"),
                       ("libparallax_cuda.so", "libparallax_cuda.so"),
                       ("_native.abi3.so", "python/_native.abi3.so")):
        path = os.path.join(folder, path)
        if os.path.exists(path):
            with open(path, "rb") as file:
                files[name] = file.read()
    grafted, licenses = graft.graft(os.path.join(folder, "wheel", "libparallax.so.0"))
    files.update(grafted)
    return files, licenses


def _record_line(path, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def _write_wheel(folder, files, tag, licenses=None):
    info = f"{_PACKAGE}-{_version()}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    files = dict(files)
    for name, content in {"LICENSE": _read("LICENSE"), **(licenses or {})}.items():
        files[f"{info}/licenses/{name}"] = content
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: libparallax_build\n"
                              f"Root-Is-Purelib: {pure}\nTag: {tag}\n").encode()
    record = [_record_line(path, content) for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    name = f"{_PACKAGE}-{_version()}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            mode = 0o100755 if ".so" in os.path.basename(path) else 0o100644
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    given = (config_settings or {}).get("build-dir")
    with tempfile.TemporaryDirectory() as temporary:
        libraries, licenses = _library_files(_build(given or temporary))
    files = {**_package_files(),
             **{f"{_PACKAGE}/{name}": content for name, content in libraries.items()}}
    return _write_wheel(wheel_directory, files, _tag(), licenses)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package where it lies; the library is found as from the tree, by PARALLAX_LIBRARY."""
    path_file = {f"__editable__.{_PACKAGE}.pth": (_PYTHON + "\n").encode()}
    return _write_wheel(wheel_directory, path_file, "py3-none-any")


def _source_files():
    for given in _SOURCES:
        path = os.path.join(_ROOT, given)
        if os.path.isfile(path):
            yield given
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), _ROOT)


def build_sdist(sdist_directory, config_settings=None):
    base = f"{_PACKAGE}-{_version()}"
    with tarfile.open(os.path.join(sdist_directory, f"{base}.tar.gz"), "w:gz") as archive:
        contents = [(path, _read(path)) for path in _source_files()]
        for path, content in [("PKG-INFO", _metadata().encode()), *contents]:
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return f"{base}.tar.gz"
