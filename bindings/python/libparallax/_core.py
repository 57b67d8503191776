# SPDX-License-Identifier: Apache-2.0
"""Calls of the library: what they answer, how a job is closed, how requests are waited for.

A Core is the handle of an open job. Gate and Handle, which it stands on, are the compiled core's
where that fits (_compiled.py), else those of _handle.py, with the design notes of both.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import json
import math
import operator
import os
import threading
import time
import weakref
from typing import (TYPE_CHECKING, Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence,
                    Set, Tuple, TypeVar)

from . import _abi
from ._compiled import NATIVE
from ._errors import ForkedJob, InvalidArgument, InvalidState, error_of
from ._library import LIB, last_error
from ._status import Status
from ._tables import Report

if TYPE_CHECKING or NATIVE is None:
    from ._handle import Gate, Handle
else:
    Gate, Handle = NATIVE.Gate, NATIVE.Handle

_SHORT_WAIT_MS = 200  # the main thread waits this long on its own before it asks for help
_STREAM_WAIT_MS = 50  # and on a stream's behalf, before it looks for Ctrl-C and waits again

# Those that end a job. A mismatch of a step's end does not, but then close answers with none.
_JOB_FAILURES = (Status.PEER_LOST, Status.ABORTED, Status.CANCELED, Status.INTERNAL,
                 Status.MISMATCH)


class Answer(NamedTuple):
    """The status of a C call; of a failure the sentence, and what that names."""

    status: int
    message: str
    info: Optional[_abi.ErrorInfoStruct] = None
    variables: Optional[Dict[int, str]] = None  # the job's, by number
    cause: Optional[BaseException] = None  # what the caller's own rule raised


def ask(function: Callable[..., int], *arguments: Any) -> Answer:
    """Calls the library. The sentence is the calling thread's, so it is fetched at once."""
    status = function(*arguments)
    if status >= 0:
        return Answer(status, "")
    info = _abi.ErrorInfoStruct()
    LIB.parallax_last_error_info(info)
    return Answer(status, last_error(), info)


def check(answer: Answer) -> None:
    """Raises the exception of a failed call."""
    if answer.status < 0:
        error = error_of(*answer[:4])
        if answer.cause is not None:
            raise error from answer.cause
        raise error


_Result = TypeVar("_Result")


def interruptible(call: Callable[[], _Result], given_up: Callable[[_Result], None]) -> _Result:
    """Runs a long call so that Ctrl-C ends the main thread's wait for it.

    Signals reach Python code of the main thread only, and not while that is in the library. So it
    is a helper thread that calls. If the wait is interrupted the call goes on, and `given_up` gets
    its result.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: List[_Result] = []
    failures: List[BaseException] = []
    gone = [False]
    lock = threading.Lock()
    done = threading.Event()

    def run() -> None:
        try:
            result = call()
        except BaseException as failure:  # handed to the thread that waits
            failures.append(failure)
        else:
            with lock:
                results.append(result)
                left = gone[0]
            if left:
                given_up(result)
        done.set()

    try:
        threading.Thread(target=run, name="libparallax-call", daemon=True).start()
    except RuntimeError:  # no thread can start: at interpreter exit
        return call()
    try:
        done.wait()
    except BaseException:
        with lock:
            gone[0] = True
            finished = list(results)
        if finished:
            given_up(finished[0])
        raise
    if failures:
        raise failures[0]
    return results[0]


def milliseconds(seconds: Optional[float], what: str, default: int) -> int:
    """A duration of the caller for the library, rounded up; None is the default."""
    if seconds is None:
        return default
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise InvalidArgument(f"{what} is {seconds!r}; it must be a number of seconds, 0 or more",
                              field=what.rpartition(" ")[2])
    return math.ceil(min(seconds * 1000, 2.0 ** 62))


def struct_of(call: str, kind: Any, fields: Dict[str, Any]) -> Any:
    """A struct of the header from Python values; InvalidArgument names the field that does not
    hold its value."""
    struct = kind()
    types = dict(kind._fields_)
    for name, value in fields.items():
        wanted = types[name]
        given: Any = os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value
        if wanted is ctypes.c_char_p and not isinstance(given, (bytes, type(None))):
            # ctypes would take a number for an address.
            raise InvalidArgument(f"{call}: {name} is {value!r}; it must be a string", field=name)
        if isinstance(given, bytes) and b"\0" in given:
            raise InvalidArgument(f"{call}: {name} is {value!r}, which holds a NUL", field=name)
        try:
            if issubclass(wanted, (ctypes.c_uint32, ctypes.c_uint64)):
                given = operator.index(value)
                bits = 8 * ctypes.sizeof(wanted)
                if not 0 <= given < 2 ** bits:
                    raise InvalidArgument(f"{call}: {name} is {value!r}; it must be from 0 to "
                                          f"2^{bits} - 1", field=name)
            setattr(struct, name, given)
        except TypeError as refusal:
            raise InvalidArgument(f"{call}: {name} is {value!r}: {refusal}", field=name) from None
    return struct


class Core(Gate):
    """The handle of an open job, or of a part of one: `parent` is what that was split from.

    A part is closed before its parent, and an abort of either ends both. So a parent that is closed
    with an abort closes its open parts first; without one it refuses while there are any.
    """

    def __init__(self, pointer: int, rank: int, parent: Optional["Core"] = None) -> None:
        self._idle = threading.Event()
        self._gone = threading.Event()  # close() is over
        super().__init__(pointer, self._idle.set, collections.deque())
        self.rank = rank
        self.job_rank: int = rank if parent is None else parent.job_rank
        self._parent = parent
        self._parts: Set[Core] = set()  # that are open
        self._told: Set[int] = set() if parent is None else parent._told  # they fail as one
        self.variables: Dict[int, str] = {}
        self.kept: List[object] = []  # what the library uses until the job is closed
        # Memory of the job, see _memory.py; of the whole job, as all below.
        self.anchor: Optional[Handle] = None
        self.anchoring = threading.Lock()
        self.dropped: Deque[int] = collections.deque()
        self.registered: Dict[int, object] = {}
        self.lent: List[object] = []  # until commit is over
        self.commit_limit = False  # a commit answered LIMIT, which ends the job
        self.rule_failure: Optional[Tuple[str, BaseException]] = None  # of the whole job
        _open_cores.add(self)

    def tell(self, answer: Answer) -> Answer:
        """Remembers the kind of a failure that the caller is about to hear; names variables."""
        if answer.status >= 0:
            return answer
        self._told.add(answer.status)
        failure = self.whole.rule_failure
        if failure is None or answer.status != Status.ABORTED:
            return answer._replace(variables=self.variables)
        name, cause = failure
        return answer._replace(
            message=f"the rule of variable '{name}' raised {type(cause).__name__}: {cause}; "
                    f"{answer.message}", variables=self.variables, cause=cause)

    def abort(self, reason: str) -> Answer:
        """Aborts the job, after which its abort is no news, whichever rank was first."""
        self._told.add(Status.ABORTED)
        return self.call(LIB.parallax_abort, reason.encode())

    def _was_told(self, answer: Answer) -> bool:
        """Whether close() has nothing to add. A job fails once: if an answer of that kind was heard
        before, it was this one, whatever its sentence."""
        if answer.status == Status.LIMIT:  # of another call it is no failure of the job
            return self.whole.commit_limit
        return answer.status in _JOB_FAILURES and answer.status in self._told

    @property
    def whole(self) -> "Core":
        """The job that this is a part of, through all parts between; else itself."""
        return self if self._parent is None else self._parent.whole

    @property
    def foreign(self) -> bool:
        """Whether this is the copy in a forked child."""
        return os.getpid() != self.pid

    def check_process(self) -> None:
        if self.foreign:
            raise ForkedJob(
                f"the job of rank {self.job_rank} was opened by process {self.pid}; this is "
                f"process {os.getpid()}, forked from it, and must leave the job alone: use it in "
                "the parent only, or open a job of its own here")

    def call(self, function: Callable[..., int], *arguments: Any) -> Answer:
        """One call on the job, which close() waits for."""
        self.check_process()
        if not self.enter():
            raise InvalidState("the job is closed; open a new one")
        try:
            return self.tell(ask(function, self.pointer, *arguments))
        finally:
            self.leave()

    def commit(self) -> Answer:
        """Commits; what initial values were borrowed from is free then. A commit that is refused
        at once leaves it borrowed, and one that fails ends the job, which keeps it."""
        count = len(self.lent)
        answer = self.call(LIB.parallax_commit)
        if answer.status == Status.OK:
            del self.lent[:count]
        elif answer.status == Status.LIMIT:
            self.whole.commit_limit = True
        return answer

    def report(self, which: int) -> Dict[str, Any]:
        """A report, by its number."""
        room = ctypes.c_size_t(0)
        answer = self.call(LIB.parallax_report, which, None, ctypes.byref(room))
        while answer.status == Status.LIMIT:  # it may grow between two calls
            buffer = ctypes.create_string_buffer(room.value)
            answer = self.call(LIB.parallax_report, which, buffer, ctypes.byref(room))
        check(answer)
        report: Dict[str, Any] = json.loads(buffer.value)
        return report

    def timeout_ms(self) -> int:
        """How long a wait lasts that gives no time."""
        settings = self.report(Report.SETTINGS)["settings"]
        return next(int(each["value"]) for each in settings if each["name"] == "timeout_ms")

    def split(self, ranks: List[int]) -> "Core":
        """A part of the job."""
        self.check_process()
        if not self.enter():  # until the part is noted, for close()
            raise InvalidState("the job is closed; open a new one")
        try:
            part = ctypes.c_void_p()
            numbers = (ctypes.c_uint32 * len(ranks))(*ranks)
            check(self.call(LIB.parallax_split, numbers, len(ranks), ctypes.byref(part)))
            core = Core(part.value or 0, ranks.index(self.rank), self)
            self._parts.add(core)
            return core
        finally:
            self.leave()

    def post(self, keep: object, function: Callable[..., int], *arguments: Any) -> "Handle":
        """A call that gives a request; `keep` lives until that is released."""
        self.sweep()
        request = ctypes.c_void_p()
        check(self.call(function, *arguments, ctypes.byref(request)))
        assert request.value is not None
        return Handle(self, request.value, keep)

    def sweep(self) -> None:
        """Releases requests that were dropped while pending and are complete by now."""
        for _ in range(len(self.orphans)):
            try:
                orphan = self.orphans.popleft()
            except IndexError:  # another thread was quicker
                return
            pointer, _, handle = orphan
            used = handle is not None and handle.used
            if used or LIB.parallax_request_release(pointer) != Status.OK:
                self.orphans.append(orphan)

    def close(self, abort_reason: Optional[str] = None) -> Answer:
        """Closes once: waits for the calls that run, then for the other ranks. Frees everything.
        OK where the job's failure was raised before; STATE, and nothing is done, while parts are
        open and nothing is to be aborted."""
        if self.foreign:
            return Answer(Status.OK, "")
        if self._parts and abort_reason is None:
            return Answer(Status.STATE, f"close: {len(self._parts)} parts that split() made are "
                          "open; close them first")
        if not self.shut():
            return Answer(Status.OK, "")
        if abort_reason is not None:
            self._told.add(Status.ABORTED)
            LIB.parallax_abort(self.pointer, abort_reason.encode())
        try:
            if self.calls:
                self._idle.wait()
            for part in list(self._parts):  # without an abort: split while this was being closed
                part.close(abort_reason or f"rank {self.job_rank} closed a job it was splitting")
                part._gone.wait()  # another thread may have been quicker
            _open_cores.discard(self)
            self.anchor = None  # what keeps it from here on are the arrays
            answer = ask(LIB.parallax_close, self.take())
            if self._parent is not None:
                self._parent._parts.discard(self)
                if answer.status == Status.TIMEOUT:  # it goes on, and what it borrows is in use
                    self.whole.kept.append(self)
        finally:  # an interrupted close is over too
            self._gone.set()
        self.sweep()
        for kept in self.kept:
            if isinstance(kept, Core):  # a part whose close timed out: its requests end with this
                kept.sweep()
        return Answer(Status.OK, "") if self._was_told(answer) else answer


_open_cores: "weakref.WeakSet[Core]" = weakref.WeakSet()


def _end_all() -> None:
    """At interpreter exit: no job may run on while Python's memory goes away."""
    for core in list(_open_cores):
        core.close(f"the process of rank {core.job_rank} ended without closing the job")


atexit.register(_end_all)


def ask_request(handle: Handle, function: Callable[..., int], *arguments: Any) -> Answer:
    """One call on a request, which is not released meanwhile."""
    pointer = handle.enter()
    try:
        return handle.core.tell(ask(function, pointer, *arguments))
    finally:
        handle.leave()


def wait(handles: Sequence[Handle], timeout: Optional[float]) -> None:
    """Waits until all, of one job and its parts, are complete; raises the first failure, or
    Timeout. The GIL is released."""
    if not handles:
        return
    given_ms = timeout_ms = milliseconds(timeout, "timeout", _abi.WAIT_DEFAULT)
    short_ms = _SHORT_WAIT_MS
    if NATIVE is not None and not 0 <= timeout_ms <= short_ms:
        started = time.monotonic()
        if NATIVE.wait(tuple(handles), short_ms):
            return
        short_ms = max(0, short_ms - _milliseconds_since(started))
        if timeout_ms > 0:
            timeout_ms = max(0, timeout_ms - _milliseconds_since(started))
    entered: List[Handle] = []

    def leave(_: object = None) -> None:
        for handle in entered:
            handle.leave()

    try:
        pointers = (ctypes.c_void_p * len(handles))()
        for index, handle in enumerate(handles):
            pointers[index] = handle.enter()
            entered.append(handle)
    except BaseException:
        leave()
        raise
    told = handles[0].core.whole
    # What is of a closed job or part may only be tested.
    gone = [(handle, pointer) for handle, pointer in zip(handles, pointers) if handle.core.closed]
    rest = [pointer for handle, pointer in zip(handles, pointers) if not handle.core.closed]
    try:
        answers = [_outcome_of_closed(handle.core, pointer) for handle, pointer in gone]
    except BaseException:
        leave()
        raise
    if not rest or any(answer.status < 0 for answer in answers):
        leave()
    else:
        pointers = (ctypes.c_void_p * len(rest))(*rest)
        count = len(rest)
        answer = _wait_entered(lambda ms: ask(LIB.parallax_wait, pointers, count, ms), timeout_ms,
                               short_ms, leave)
        if answer.status == Status.TIMEOUT and given_ms > _SHORT_WAIT_MS:
            # The library's sentence may be of the last part alone, and tell of less.
            answer = answer._replace(message=f"within {given_ms} ms: {answer.message}")
        answers.append(answer)
    for answer in answers:
        check(told.tell(answer))


def _outcome_of_closed(core: Core, pointer: int) -> Answer:
    """Of a request whose job or part is closed, or is being closed by another thread."""
    answer = ask(LIB.parallax_request_test, pointer)
    if answer.status == Status.PENDING:
        core._gone.wait()
        answer = ask(LIB.parallax_request_test, pointer)
    if answer.status != Status.PENDING:
        return answer
    return Answer(Status.STATE, "wait: the part was closed while the request was pending, and its "
                  "close timed out; it ends with the job")


def _milliseconds_since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)


def stream_wait(handle: Handle, device: int, stream: int, timeout: Optional[float]) -> None:
    """Makes a stream of a device wait for the request; raises its failure, or Timeout. The GIL is
    released.

    The calling thread calls, and where Ctrl-C may come, briefly and again: a helper's call would go
    on behind it, and could come to a stream that its owner has destroyed by then.
    """
    given_ms = milliseconds(timeout, "timeout", _abi.WAIT_DEFAULT)
    if NATIVE is not None and NATIVE.stream_wait((handle,), device, stream, 0):
        return

    def wait_ms(limit_ms: int) -> Answer:
        pointer = handle.enter()
        try:
            if handle.core.closed:
                return _outcome_of_closed(handle.core, pointer)
            requests = (ctypes.c_void_p * 1)(pointer)
            return ask(LIB.parallax_stream_wait, requests, 1, device, stream, limit_ms)
        finally:
            handle.leave()

    started = time.monotonic()
    briefly = threading.current_thread() is threading.main_thread()
    short = briefly and not 0 <= given_ms <= _STREAM_WAIT_MS
    answer = wait_ms(_STREAM_WAIT_MS if short else given_ms)
    if short and answer.status == Status.TIMEOUT:
        most_ms = given_ms if given_ms >= 0 else handle.core.timeout_ms()
        while answer.status == Status.TIMEOUT:
            left_ms = most_ms - _milliseconds_since(started)
            if left_ms <= 0:
                answer = answer._replace(message=f"within {most_ms} ms: {answer.message}")
                break
            answer = wait_ms(min(left_ms, _STREAM_WAIT_MS))
    check(handle.core.whole.tell(answer))


def _wait_entered(wait_ms: Callable[[int], Answer], timeout_ms: int, short_ms: int,
                  leave: Callable[[object], None]) -> Answer:
    """Waits, first briefly here, then by a helper, so that Ctrl-C works; `leave` is called when it
    is over."""
    main = threading.current_thread() is threading.main_thread()
    long = timeout_ms < 0 or timeout_ms > short_ms
    helped = False
    try:
        started = time.monotonic()
        first_ms = short_ms if main and long else timeout_ms
        answer = wait_ms(first_ms)
        if not (main and long) or answer.status != Status.TIMEOUT:
            return answer
        rest_ms = timeout_ms
        if timeout_ms > 0:
            rest_ms = max(0, timeout_ms - _milliseconds_since(started))
        helped = True

        def rest() -> Answer:
            try:
                return wait_ms(rest_ms)
            finally:
                leave(None)

        return interruptible(rest, lambda _: None)
    finally:
        if not helped:
            leave(None)


__all__ = ["NATIVE", "Answer", "Core", "Handle", "ask", "ask_request", "check", "interruptible",
           "milliseconds", "stream_wait", "struct_of", "wait"]
