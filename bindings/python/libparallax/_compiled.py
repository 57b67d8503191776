# SPDX-License-Identifier: Apache-2.0
"""Finds the compiled core, libparallax._native, and gives it the library's functions.

It is built where CMake finds Python's headers, and makes each call of a step cheaper. Without it
everything works by ctypes alone. It lies in the package's folder, or, in a build folder, in
`python` beside the library that is loaded; one that was built for another version, or does not load
in this Python, is left alone.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any, Dict, Optional

from . import _abi
from ._errors import InvalidState
from ._library import LIB, LIBRARY_PATH
from ._variable import Variable
from ._version import __version__

_FILE = "_native.abi3.so"
_PYTHON_MIN = (3, 11)  # whose stable ABI is the first with the buffer protocol
_FUNCTIONS = ("parallax_pull", "parallax_push", "parallax_reduce", "parallax_wait",
              "parallax_stream_wait", "parallax_request_release", "parallax_last_error",
              "parallax_last_error_info")


def _path() -> Optional[str]:
    folders = [os.path.dirname(os.path.abspath(__file__)),
               os.path.join(os.path.dirname(LIBRARY_PATH), "python")]
    for folder in folders:
        path = os.path.join(folder, _FILE)
        if os.path.isabs(folder) and os.path.exists(path):
            return path
    return None


def _load(path: str) -> Any:
    """The module, or None if it does not fit."""
    name = f"{__package__}._native"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        return None
    try:
        module: Any = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        return None
    if (module.VERSION, module.SLICE_BYTES, module.ERROR_BYTES) != (
            __version__, ctypes.sizeof(_abi.SliceStruct), ctypes.sizeof(_abi.ErrorInfoStruct)):
        return None
    addresses: Dict[str, int] = {
        name: ctypes.cast(getattr(LIB, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS}
    module.bind(addresses, Variable, InvalidState)
    return module


CORE_PATH: Optional[str] = None
NATIVE: Any = None
if sys.implementation.name == "cpython" and sys.version_info >= _PYTHON_MIN:
    CORE_PATH = _path()
    if CORE_PATH is not None:
        NATIVE = _load(CORE_PATH)
        if NATIVE is None:
            CORE_PATH = None


def core_path() -> Optional[str]:
    """The path of the compiled core that is in use; None where calls go by ctypes alone."""
    return CORE_PATH
