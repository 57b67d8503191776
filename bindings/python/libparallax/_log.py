# SPDX-License-Identifier: Apache-2.0
"""The library's log, handed to Python."""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any, Callable, Optional, Union

from . import _core
from ._abi import LogFunction
from ._library import LIB
from ._tables import LogLevel, member_of

LogCallback = Callable[[LogLevel, str, str], None]

_held: Any = None  # the C function that the library calls; it must outlive its last call
_process = 0  # the one that set it


def set_log_callback(callback: Optional[LogCallback],
                     level: Union[str, LogLevel, None] = None) -> None:
    """Hands the process's log lines to callback(level, subsystem, message), not to standard error
    or a file; None undoes that.

    level: the most detailed one wanted, "warn", "info", "debug" or "trace". None: as
        PARALLAX_DEBUG says.

    Called by a thread of the library's own, one line after the other. What the callback raises is
    printed and passed over. When this returns, the previous callback will not be called again.
    InvalidState from within a callback.
    """
    global _held, _process
    function = LogFunction(0)  # NULL
    if callback is not None:
        wanted: LogCallback = callback

        def line(_: Any, number: int, subsystem: bytes, message: bytes) -> None:
            wanted(LogLevel(number), subsystem.decode(), message.decode("utf-8", "replace"))

        function = LogFunction(line)
    number = member_of(LogLevel, level, "set_log_callback: level")
    _core.check(_core.ask(LIB.parallax_set_log_callback, function, None, number))
    _held = function if callback is not None else None
    _process = os.getpid()


@atexit.register
def _give_back() -> None:
    # The library's thread must not call into an interpreter that ends.
    if _held is not None and _process == os.getpid():
        set_log_callback(None)
