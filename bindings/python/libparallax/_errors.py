# SPDX-License-Identifier: Apache-2.0
"""Failures as exceptions: one class per status, all of them ParallaxError."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Tuple, Type

from ._status import Status

# The words of the library's sentences: "rank 3 (host b)", "variable 'embedding'", "step 42".
_RANK = re.compile(r"\brank (\d+)(?: \(host ([^)]*)\))?")
_VARIABLE = re.compile(r"\bvariable '((?:[^']|'(?=\w))*)'")
_STEP = re.compile(r"\bstep (\d+)")


class ParallaxError(Exception):
    """A failure of the library, or of a call of this package.

    status: what the C call answered, a Status.
    message: the library's sentence, which names the thing and the remedy.
    rank, host: the first rank that the sentence names, and its host; None where it names none.
    variable, step: those that the sentence names, or None.
    """

    status: Status = Status.INTERNAL
    message: str
    rank: Optional[int]
    host: Optional[str]
    variable: Optional[str]
    step: Optional[int]

    def __init__(self, message: str, status: Optional[int] = None) -> None:
        super().__init__(message)
        self.message = message
        if status is not None:
            try:
                self.status = Status(status)
            except ValueError:  # of a library newer than this package
                self.status = Status.INTERNAL
        rank = _RANK.search(message)
        variable = _VARIABLE.search(message)
        step = _STEP.search(message)
        self.rank = int(rank[1]) if rank else None
        self.host = rank[2] if rank else None
        self.variable = variable[1] if variable else None
        self.step = int(step[1]) if step else None

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.message, int(self.status))


class InvalidArgument(ParallaxError, ValueError):
    """An argument is wrong; nothing was done."""

    status = Status.INVALID


class Unsupported(ParallaxError, NotImplementedError):
    """Legal, but this build or version of the library cannot do it; nothing was done."""

    status = Status.UNSUPPORTED


class InvalidState(ParallaxError):
    """Legal, but not now: register after commit, push after the step's end, a closed job."""

    status = Status.STATE


class ForkedJob(InvalidState):
    """The job was opened by the parent of this process, and only the parent may use it."""


class Timeout(ParallaxError, TimeoutError):
    """The deadline passed; the sentence says who or what is missing. A request stays pending."""

    status = Status.TIMEOUT


class PeerLost(ParallaxError, ConnectionError):
    """A rank died, went silent or left; the job can only be closed."""

    status = Status.PEER_LOST


class Canceled(ParallaxError):
    """The request was cancelled, which ended the job."""

    status = Status.CANCELED


class Aborted(ParallaxError):
    """Job.abort was called here or on another rank, or the job was closed meanwhile."""

    status = Status.ABORTED


class Mismatch(ParallaxError):
    """Ranks disagree; the sentence names variable, field and ranks."""

    status = Status.MISMATCH


class LimitExceeded(ParallaxError):
    """Memory, descriptors or a bound given at registration are exceeded."""

    status = Status.LIMIT


class IOFailure(ParallaxError, OSError):
    """A file or a socket failed."""

    status = Status.IO


class InternalError(ParallaxError):
    """A bug of the library: please report it with the sentence."""

    status = Status.INTERNAL


CLASS_OF_STATUS: Dict[int, Type[ParallaxError]] = {
    int(failure.status): failure
    for failure in (InvalidArgument, Unsupported, InvalidState, Timeout, PeerLost, Canceled,
                    Aborted, Mismatch, LimitExceeded, IOFailure, InternalError)
}


def error_of(status: int, message: str) -> ParallaxError:
    """The exception for what a C call answered, and its sentence."""
    return CLASS_OF_STATUS.get(status, ParallaxError)(message, status)
