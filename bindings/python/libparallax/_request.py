# SPDX-License-Identifier: Apache-2.0
"""Requests: calls that complete later, and their results."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, Generic, Iterable, List, NamedTuple, Optional,
                    Type, TypeVar)

from . import _core
from ._abi import StepInfoStruct
from ._device import READY, device_of, stream_field, stream_of
from ._errors import InvalidArgument, InvalidState
from ._library import LIB
from ._numpy import view
from ._status import Status
from ._tables import INT64, DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._job import Job

T_co = TypeVar("T_co", covariant=True)


class Rows(NamedTuple):
    """The union of rows of a reduce. Read-only views of the request's memory, without a copy; they
    keep it, so that they stay valid when the request is dropped and the job is closed.

    ids: int64, shape (n,), ascending, each once.
    values: shape (n, row_elements), the sum or mean of all ranks' rows with that id.
    """

    ids: "NDArray[Any]"
    values: "NDArray[Any]"


class StepInfo(NamedTuple):
    """The outcome of a step, the same on every rank."""

    step: int
    committed: bool  # False: discarded everywhere (found_inf on some rank)
    contributors: int  # ranks that were not absent
    gradient_norm: float  # 0 unless clip_norm was given
    clip_scale: float  # 1 if nothing was clipped
    plan_changed: bool  # a new plan holds from step + 1 on


class Request(Generic[T_co]):
    """A call that completes later, exactly once. Made by Step and Job, never by users.

    Ownership: the buffers handed in are borrowed, and kept alive, until the request is complete and
    released. A request is released when `with` is left, by release(), when the end of its step has
    been waited for, or when it is dropped; if it is still pending then, that happens by itself once
    it completes. Its result stays: wait() gives it after the step too, but not after release().

    Threads: any thread may use it, but one waits at a time: a second one gets InvalidState.

    As a context manager it waits when the block ends without an exception::

        with step.pull(embedding, ids, out=rows):
            prepare_something_else()
        use(rows)
    """

    def __init__(self, job: "Job", handle: _core.Handle, finish: Callable[[_core.Handle], Any],
                 also: Iterable["Request[Any]"] = ()) -> None:
        self._job = job  # a job is not dropped while one of its requests is at hand
        self._handle = handle
        self._finish: Optional[Callable[[_core.Handle], Any]] = finish
        self._also = tuple(also)
        self._result: Any = None
        self._finished = False

    def wait(self, timeout: Optional[float] = None) -> T_co:
        """Waits and gives the result: the array of a pull, the aggregate of a reduce, the StepInfo
        of a step's end, the buffer of a broadcast, else None.

        timeout: seconds; None is the job's timeout. The GIL is released while waiting, and Ctrl-C
        interrupts it. Timeout leaves the request pending and names what is missing; any other
        ParallaxError is the request's failure, and is raised by each wait. May be called again.
        """
        if not self._finished:
            try:
                _core.wait(self._handles(), timeout)
                self._settle()
            except InvalidState:  # also where another thread took the result and released it
                if not self._finished:
                    raise
        result: T_co = self._result
        return result

    def on_stream(self, stream: Any, timeout: Optional[float] = None, *,
                  device: Optional[int] = None) -> None:
        """Makes a stream of a CUDA device wait for the result in the place of this thread: work
        that is put on it from here on sees the result where it goes (`out`, `into`, a gradient in
        place), and may write to the buffers. The request stays pending, and is waited for as ever,
        by the end of its step at the latest: what became of it is told there.

        It blocks until a stream can wait for the result: of a sum that devices make among
        themselves (NCCL) until that is launched; of what comes by host memory until it is there,
        and its copy to the device has begun; of all else until the request is complete.

        stream: as in Step.pull, but not -1; device: its device. None: as a stream of PyTorch or
        CuPy tells, else that of the request's buffers. timeout: as in wait(); Timeout names what is
        missing. Ctrl-C interrupts it; nothing is put on the stream behind that. Unsupported: the
        stream is being captured into a graph, or is not the device's.
        """
        number = stream_of(stream, "on_stream")
        if number is None or number == READY:
            raise InvalidArgument(f"on_stream: stream is {stream!r}; give the stream that is to "
                                  "wait", field="stream")
        if not self._finished:
            told = device_of(stream, device)
            _core.stream_wait(self._handle, self._device() if told is None else told,
                              stream_field(number), timeout)

    def done(self) -> bool:
        """Whether it is complete. Never blocks; raises its failure if it failed."""
        if self._finished:
            return True
        answer = _core.ask_request(self._handle, LIB.parallax_request_test)
        _core.check(answer)
        return answer.status == Status.OK

    def cancel(self) -> None:
        """Asks to cancel, which aborts the step and the job on every rank, since others wait for
        it. A complete request is left alone. Wait for it as usual."""
        if self._handle.core.closed:
            return
        _core.check(_core.ask_request(self._handle, LIB.parallax_request_cancel))

    def release(self) -> None:
        """Gives the request back: at once if it is complete, else as soon as it is. Results stay
        valid: Rows keep the request's memory."""
        self._handle.release()

    def _handles(self) -> List[_core.Handle]:
        """What a wait is for. Of requests that come with it those not released by hand."""
        return [*(other._handle for other in self._also if not other._over()), self._handle]

    def _device(self) -> int:
        """The device of what it borrows; 0 where that is none's."""
        return getattr(self._handle.keep, "device", None) or 0

    def _over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self._finished or self._handle.pointer is None

    def _settle(self) -> None:
        """Takes the result of a request that completed OK, once."""
        finish = self._finish
        if finish is not None:
            self._result = finish(self._handle)
            self._finished, self._finish = True, None  # it may hold buffers of the caller
            for request in self._also:
                if not request._over():  # the caller may ask for its result yet
                    request._settle()
                request.release()
            self._also = ()

    def __enter__(self) -> "Request[T_co]":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.release()


def wait_all(requests: Iterable[Request[Any]], timeout: Optional[float] = None) -> None:
    """Waits until all requests, which are of one job and its parts, are complete.

    timeout: seconds for all together; None is the job's timeout. Raises the first failure, or
    Timeout, which leaves the pending ones pending. Their results are then at hand by wait().
    """
    pending = [request for request in requests if not request._finished]
    if len({id(request._handle.core.whole) for request in pending}) > 1:
        raise InvalidArgument("wait_all: the requests are of different jobs; wait for each job's, "
                              "with those of its parts, by itself")
    _core.wait([handle for request in pending
                for handle in request._handles()],
               timeout)
    for request in pending:
        request._settle()


def rows_of(handle: _core.Handle, index: int, row_elements: int, dtype: DType) -> Rows:
    """The union of rows of slice `index` of a completed reduce."""
    handle.shared = True
    ids, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    _core.check(_core.ask_request(handle, LIB.parallax_request_rows, index, ctypes.byref(ids),
                                  ctypes.byref(values), ctypes.byref(count)))
    return Rows(view(ids.value or 0, (count.value,), INT64, handle),
                view(values.value or 0, (count.value, row_elements), dtype, handle))


def step_info_of(handle: _core.Handle) -> StepInfo:
    """The outcome of a completed step_end."""
    info = StepInfoStruct()
    _core.check(_core.ask_request(handle, LIB.parallax_request_step, ctypes.byref(info)))
    return StepInfo(info.step, bool(info.committed), info.contributors, info.gradient_norm,
                    info.clip_scale, bool(info.plan_changed))
