# SPDX-License-Identifier: Apache-2.0
"""Finds libparallax.so, checks that it is of this package's version, and declares its functions.

It is looked for in this order; the first that is there is loaded, and must fit:

1. the file that the environment variable PARALLAX_LIBRARY names;
2. beside this package: libparallax.so.0 in its folder, or the file named, relative to its folder,
   by library_path.txt there, which `cmake --install` writes;
3. where the loader looks: LD_LIBRARY_PATH, the system's folders.

Calls go through ctypes.CDLL, which releases the GIL while they run.
"""

from __future__ import annotations

import ctypes
import os
from typing import List, Optional, Tuple

from . import _abi
from ._version import __version__

_NAME = f"libparallax.so.{_abi.SOVERSION}"
_PATH_FILE = "library_path.txt"


def beside_package(folder: str) -> Optional[str]:
    """The library that lies beside the package in `folder`, or None."""
    candidates = [os.path.join(folder, _NAME)]
    try:
        with open(os.path.join(folder, _PATH_FILE), encoding="utf-8") as file:
            candidates.append(os.path.normpath(os.path.join(folder, file.read().strip())))
    except OSError:
        pass
    for path in candidates:
        if os.path.exists(path):
            return path
    return None


def find() -> Tuple[str, str]:
    """What to load, and where that came from."""
    named = os.environ.get("PARALLAX_LIBRARY")
    if named:
        if not os.path.exists(named):
            raise ImportError(f"libparallax: PARALLAX_LIBRARY is {named!r}, which does not exist; "
                              f"set it to the path of {_NAME}, or unset it")
        return os.path.abspath(named), "PARALLAX_LIBRARY"
    beside = beside_package(os.path.dirname(os.path.abspath(__file__)))
    if beside is not None:
        return beside, "beside the package"
    return _NAME, "the loader's path"


def _missing(path: str, origin: str, error: OSError) -> ImportError:
    if origin == "the loader's path":
        return ImportError(
            f"libparallax: {_NAME} was not found ({error}). Set PARALLAX_LIBRARY to its path, such "
            f"as build/release/lib/{_NAME}, or put its folder into LD_LIBRARY_PATH, or install "
            "libparallax where the loader looks and run ldconfig")
    return ImportError(f"libparallax: {path} ({origin}) cannot be loaded: {error}. It must be "
                       f"{_NAME} for this machine")


def _parts(version: str) -> List[int]:
    return [int(part) for part in version.split(".")]


def check_version(library: int, path: str) -> None:
    """Raises ImportError unless the library speaks this package's ABI.

    Before 1.0 a minor version may change the ABI, so it must be the same; from 1.0 on the library
    may be of a newer minor version, because fields and functions are only appended.
    """
    theirs = [library // 10000, library // 100 % 100]
    ours = _parts(__version__)[:2]
    same = theirs == ours if ours[0] == 0 else theirs[0] == ours[0] and theirs[1] >= ours[1]
    if same:
        return
    shown = ".".join(str(part) for part in (*theirs, library % 100))
    if theirs > ours:
        raise ImportError(
            f"libparallax: {path} is libparallax {shown}, too new for this package, {__version__}. "
            f"Install the Python package that came with libparallax {shown}, or set "
            f"PARALLAX_LIBRARY to a libparallax {ours[0]}.{ours[1]}")
    raise ImportError(
        f"libparallax: {path} is libparallax {shown}, too old for this package, {__version__}. "
        f"Install libparallax {ours[0]}.{ours[1]}, or set PARALLAX_LIBRARY to one")


def load() -> Tuple[ctypes.CDLL, str]:
    """The library with its functions declared, and its path."""
    path, origin = find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise _missing(path, origin, error) from None
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            if hasattr(library, "parallax_version"):
                check_version(int(library.parallax_version()), path)
            raise ImportError(
                f"libparallax: {path} has no function {name}, which this package, {__version__}, "
                "needs: it is too old, or no libparallax. Build and install libparallax anew, or "
                "set PARALLAX_LIBRARY to another") from None
        function.restype = result
        function.argtypes = arguments
    check_version(int(library.parallax_version()), path)
    return library, path


LIB, LIBRARY_PATH = load()


def last_error() -> str:
    """The sentence of this thread's last failed call."""
    return bytes(LIB.parallax_last_error()).decode("utf-8", "replace")


def library_version() -> str:
    """The version of the libparallax that is loaded."""
    return bytes(LIB.parallax_version_string()).decode()


def library_path() -> str:
    """The path of the libparallax that is loaded; its bare name if the loader found it."""
    return LIBRARY_PATH
