# SPDX-License-Identifier: Apache-2.0
"""Failures as exceptions: one class per status, all of them ParallaxError."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple, Type

from ._abi import NO_RANK, NO_ROW, NO_SLICE, NO_STEP, NO_VARIABLE, ErrorInfoStruct
from ._status import Status

_FACTS = ("rank", "peer", "host", "variable", "slice", "row", "field", "step", "step_committed")


class ParallaxError(Exception):
    """A failure of the library, or of a call of this package.

    status: what the C call answered, a Status.
    message: the library's sentence, which names the thing and the remedy.

    What the sentence names, as parallax_error_info_t has it; None where it names none:

    rank: where the failure was found; None: on this one, or it is not known.
    peer, host: whom it names: the rank that is lost, left, is late or differs, of several the
        first; and its host.
    variable: its name. slice: index in a call of several. row: row id.
    field: the field, argument, option or setting that is wrong or differs, such as "rows_max".
    step: 0 is an evaluation. step_committed: of a job that failed, the last step committed here.
    """

    status: Status = Status.INTERNAL
    message: str
    rank: Optional[int] = None
    peer: Optional[int] = None
    host: Optional[str] = None
    variable: Optional[str] = None
    slice: Optional[int] = None
    row: Optional[int] = None
    field: Optional[str] = None
    step: Optional[int] = None
    step_committed: Optional[int] = None

    def __init__(self, message: str, status: Optional[int] = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        if status is not None:
            try:
                self.status = Status(status)
            except ValueError:  # of a library newer than this package
                self.status = Status.INTERNAL
        self.add(**facts)

    def add(self, **facts: Any) -> None:
        """Names what is not named yet."""
        for name, value in facts.items():
            if name not in _FACTS:
                raise TypeError(f"a failure has no {name}")
            if getattr(self, name) is None:
                setattr(self, name, value)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Tuple[Any, ...]:
        facts = {name: getattr(self, name) for name in _FACTS}
        return _again, (type(self), self.message, int(self.status), facts)


def _again(kind: Type[ParallaxError], message: str, status: int,
           facts: Dict[str, Any]) -> ParallaxError:
    return kind(message, status, **facts)


class InvalidArgument(ParallaxError, ValueError):
    """An argument is wrong; nothing was done."""

    status = Status.INVALID


class Unsupported(ParallaxError, NotImplementedError):
    """Legal, but this build or version of the library cannot do it; nothing was done."""

    status = Status.UNSUPPORTED


class InvalidState(ParallaxError):
    """Legal, but not now: register within a step, push after the step's end, a closed job."""

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


def _facts(info: ErrorInfoStruct, variables: Mapping[int, str]) -> Dict[str, Any]:
    """The facts of parallax_error_info_t; `variables` are the names by number."""
    def known(value: int, none: int) -> Optional[int]:
        return None if value == none else value

    return {
        "rank": known(info.rank, NO_RANK), "peer": known(info.peer, NO_RANK),
        "host": info.host.decode("utf-8", "replace") or None,
        "variable": None if info.variable == NO_VARIABLE else variables.get(info.variable),
        "slice": known(info.slice, NO_SLICE), "row": known(info.row, NO_ROW),
        "field": info.field.decode("utf-8", "replace") or None,
        "step": known(info.step, NO_STEP), "step_committed": known(info.step_committed, NO_STEP),
    }


def error_of(status: int, message: str, info: Optional[ErrorInfoStruct] = None,
             variables: Optional[Mapping[int, str]] = None) -> ParallaxError:
    """The exception for what a C call answered: its sentence, and what that names."""
    facts = {} if info is None else _facts(info, variables or {})
    return CLASS_OF_STATUS.get(status, ParallaxError)(message, status, **facts)
