# SPDX-License-Identifier: Apache-2.0
"""A PEP 517 and PEP 660 backend for a package of plain files: the standard library is enough.

A wheel is the package's files and the three files of its .dist-info. Nothing is compiled and
nothing is written into the source folder, which may be read-only.
"""

import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PACKAGE = "libparallax"
_KEPT = (".py", ".pyi", ".typed")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes at any time


def _read(*parts):
    with open(os.path.join(_ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def _version():
    return re.search(r'^__version__ = "(.+)"$', _read(_PACKAGE, "_version.py"), re.M)[1]


def _metadata():
    return "\n".join([
        "Metadata-Version: 2.1",
        f"Name: {_PACKAGE}",
        f"Version: {_version()}",
        "Summary: Exact, planned communication of dense and sparse gradients",
        "License: Apache-2.0",
        "Requires-Python: >=3.9",
        "Provides-Extra: numpy",
        "Requires-Dist: numpy; extra == 'numpy'",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: Implementation :: CPython",
        "Classifier: Typing :: Typed",
    ]) + "\n"


_WHEEL = ("Wheel-Version: 1.0\nGenerator: libparallax_build\nRoot-Is-Purelib: true\n"
          "Tag: py3-none-any\n")


def _files():
    """{path in the wheel: bytes} of the package."""
    files = {}
    for folder, folders, names in os.walk(os.path.join(_ROOT, _PACKAGE)):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(_KEPT):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    files[os.path.relpath(path, _ROOT)] = file.read()
    return files


def _record_line(path, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def _write_wheel(folder, files):
    info = f"{_PACKAGE}-{_version()}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    record = [_record_line(path, content) for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    name = f"{_PACKAGE}-{_version()}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, _files())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, {f"__editable__.{_PACKAGE}.pth": (_ROOT + "\n").encode()})


def build_sdist(sdist_directory, config_settings=None):
    base = f"{_PACKAGE}-{_version()}"
    files = dict(_files(), **{"PKG-INFO": _metadata().encode()})
    for path in ("pyproject.toml", "build_backend/libparallax_build.py"):
        files[path] = _read(*path.split("/")).encode()
    with tarfile.open(os.path.join(sdist_directory, f"{base}.tar.gz"), "w:gz") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return f"{base}.tar.gz"
