# SPDX-License-Identifier: Apache-2.0
"""Steps: pulls, pushes and reduces, and the decision that ends them."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple, Type, overload)

from . import _core
from ._abi import SliceStruct, StepEndOptions
from ._buffers import Loan, borrow_ids, borrow_values
from ._errors import InvalidArgument, InvalidState, ParallaxError
from ._library import LIB
from ._numpy import empty
from ._request import Request, Rows, StepInfo, rows_of, step_info_of
from ._tables import ID_TYPES, Form
from ._variable import Variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._job import Job

# A NumPy array, a CPU tensor with __dlpack__, or any object with a contiguous buffer.
Buffer = Any
# What pull_many, push_many and reduce_many take of each variable: what pull, push and reduce take.
Slice = Sequence[Any]


class Step:
    """One step of a job; made by Job.step(). Every rank goes through the same steps.

    As a context manager it ends the step when the block ends, and waits until the step is committed
    or discarded on this rank; `info` then tells which. A block left by an exception discards the
    step on every rank, as found_inf does, and the exception goes on.

    Attributes that may be set before the end: learning_rate, clip_norm, found_inf, absent.
    Threads: any thread may call.
    """

    def __init__(self, job: "Job", number: int, learning_rate: float, clip_norm: float,
                 absent: bool) -> None:
        self._job = job
        self.number = number
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.found_inf = False
        self.absent = absent
        self.info: Optional[StepInfo] = None
        self._posted: List[Request[Any]] = []
        self._ended = False

    def __repr__(self) -> str:
        return f"<parallax.Step {self.number}{' (ended)' if self._ended else ''}>"

    def pull(self, variable: Variable, ids: Optional[Buffer] = None, *,
             out: Optional[Buffer] = None) -> Request["NDArray[Any]"]:
        """Asks for values of a managed variable as of the step before this one.

        ids: row ids, int64, of any shape, each in 0..rows-1, duplicates allowed, at most rows_max
            of them. None asks for all rows of a variable without ids.
        out: where the values go, written until the request is complete: writable, contiguous, of
            the variable's dtype. None makes a new array.

        wait() gives `out`, or an array of shape ids.shape + (row_elements,), or (rows,
        row_elements) for all rows; a memoryview where NumPy is missing.
        """
        request: Request["NDArray[Any]"] = self._pull([(variable, ids, out)], single=True)
        return request

    def pull_many(self, slices: Sequence[Slice]) -> Request[List["NDArray[Any]"]]:
        """Pulls several variables in one exchange: (variable,), (variable, ids) or (variable, ids,
        out) of each, up to 256. wait() gives a list of arrays."""
        full = []
        for entry in slices:
            variable, ids, out = self._split(entry, "pull_many", 3)
            full.append((variable, ids, out))
        request: Request[List["NDArray[Any]"]] = self._pull(full, single=False)
        return request

    @overload
    def push(self, variable: Variable, gradient: Buffer, /) -> Request[None]: ...

    @overload
    def push(self, variable: Variable, ids: Buffer, gradient: Buffer, /) -> Request[None]: ...

    def push(self, variable: Variable, *buffers: Buffer) -> Request[None]:
        """Stages a gradient of a managed variable: push(variable, gradient) for all rows, or
        push(variable, ids, gradient). Applied when every rank has ended the step.

        gradient: of the variable's dtype, (rows, row_elements) or one row per id; only read.
        ids: as in pull; gradients of duplicates are summed.

        At most one push per variable and step. The request completes when the buffers may be
        reused; `with job.step()` waits for it.
        """
        return self._push([(variable, *buffers)])

    def push_many(self, slices: Sequence[Slice]) -> Request[None]:
        """Pushes several variables in one call: (variable, gradient) or (variable, ids, gradient)
        of each, up to 256."""
        return self._push(slices)

    @overload
    def reduce(self, variable: Variable, gradient: Buffer, /) -> Request["NDArray[Any]"]: ...

    @overload
    def reduce(self, variable: Variable, ids: Buffer, gradient: Buffer, /) -> Request[Rows]: ...

    def reduce(self, variable: Variable, *buffers: Buffer) -> Request[Any]:
        """Reduces a gradient of a framework-held variable over all ranks.

        reduce(variable, gradient): the aggregate replaces the gradient in place, so it must be
        writable; wait() gives it back.
        reduce(variable, ids, gradient): both are only read; wait() gives the union of all ranks'
        rows as Rows.
        """
        return self._reduce([(variable, *buffers)], single=True)

    def reduce_many(self, slices: Sequence[Slice]) -> Request[List[Any]]:
        """Reduces several variables in one call: (variable, gradient) or (variable, ids, gradient)
        of each, up to 256. wait() gives a list."""
        request: Request[List[Any]] = self._reduce(slices, single=False)
        return request

    def end(self) -> Request[StepInfo]:
        """Ends the step without waiting, so that what follows overlaps with it; the next step may
        begin at once. wait() gives the StepInfo, when all pulls and pushes are complete too.
        """
        options = _core.struct_of("step.end", StepEndOptions, {
            "learning_rate": self.learning_rate, "clip_norm": self.clip_norm,
            "found_inf": bool(self.found_inf), "absent": bool(self.absent)})
        handle = self._job._core.post(None, LIB.parallax_step_end, self.number,
                                      ctypes.byref(options))
        self._ended = True
        posted, self._posted = self._posted, []

        def finish(completed: _core.Handle) -> StepInfo:
            self.info = step_info_of(completed)
            return self.info

        return Request(self._job, handle, finish, [r for r in posted if not r._over()])

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is None:
            if not self._ended:
                self.end().wait()
        elif not self._ended and not self._job.closed:
            self.found_inf = True
            try:
                self.end()
            except ParallaxError:  # the job has failed: the first exception says it
                pass

    def _split(self, entry: Slice, call: str, most: int) -> List[Any]:
        parts = list(entry)
        if not parts or len(parts) > most or not isinstance(parts[0], Variable):
            raise InvalidArgument(f"{call}: a slice is a variable of this job and its buffers, up "
                                  f"to {most} in all; this is {entry!r}")
        return parts + [None] * (most - len(parts))

    def _post(self, slices: List[SliceStruct], keep: List[Any], function: Callable[..., int],
              finish: Callable[[_core.Handle], Any]) -> Request[Any]:
        array = (SliceStruct * len(slices))(*slices)
        handle = self._job._core.post((keep, array), function, self.number, array, len(slices))
        request: Request[Any] = Request(self._job, handle, finish)
        self._posted.append(request)
        return request

    def _pull(self, slices: Sequence[Tuple[Variable, Any, Any]], single: bool) -> Request[Any]:
        structs: List[SliceStruct] = []
        keep: List[Any] = []
        outs: List[Any] = []
        for variable, ids, out in slices:
            self._check(variable, "pull")
            ids_loan = self._borrow_ids(variable, ids, "pull")
            rows = variable.rows if ids_loan is None else ids_loan[0].item_count
            if out is None:
                leading = (variable.rows,) if ids_loan is None else ids_loan[0].shape
                out = empty((*leading, variable.row_elements), variable.dtype)
            values = borrow_values(out, variable.dtype, (rows, variable.row_elements),
                                   f"pull: out for variable '{variable.name}'", writable=True)
            structs.append(_slice(variable, ids_loan, values))
            keep += [ids_loan, values]
            outs.append(out)
        result = outs[0] if single else outs
        return self._post(structs, keep, LIB.parallax_pull, lambda _: result)

    def _push(self, slices: Sequence[Slice]) -> Request[None]:
        structs, keep, _ = self._gradients(slices, "push")
        request: Request[None] = self._post(structs, keep, LIB.parallax_push, lambda _: None)
        return request

    def _reduce(self, slices: Sequence[Slice], single: bool) -> Request[Any]:
        structs, keep, given = self._gradients(slices, "reduce")

        def finish(handle: _core.Handle) -> Any:
            results = [
                gradient if ids is None else
                rows_of(handle, index, variable.row_elements, variable.dtype)
                for index, (variable, ids, gradient) in enumerate(given)]
            return results[0] if single else results

        return self._post(structs, keep, LIB.parallax_reduce, finish)

    def _gradients(self, slices: Sequence[Slice], call: str
                   ) -> Tuple[List[SliceStruct], List[Any], List[Tuple[Variable, Any, Any]]]:
        structs: List[SliceStruct] = []
        keep: List[Any] = []
        given: List[Tuple[Variable, Any, Any]] = []
        for entry in slices:
            parts = list(entry)
            if len(parts) not in (2, 3):
                raise InvalidArgument(f"{call}: give a variable and its gradient, or a variable, "
                                      "its row ids and their gradients")
            variable, ids, gradient = parts if len(parts) == 3 else (parts[0], None, parts[1])
            self._check(variable, call)
            loan = self._borrow_ids(variable, ids, call)
            rows = variable.rows if loan is None else loan[0].item_count
            values = borrow_values(gradient, variable.dtype, (rows, variable.row_elements),
                                   f"{call}: the gradient of variable '{variable.name}'",
                                   writable=call == "reduce" and loan is None)
            structs.append(_slice(variable, loan, values))
            keep += [loan, values]
            given.append((variable, ids, gradient))
        return structs, keep, given

    def _check(self, variable: Any, call: str) -> None:
        if self._ended:
            raise InvalidState(f"{call}: step {self.number} has ended; begin the next one with "
                               "job.step()")
        if not isinstance(variable, Variable) or variable._core is not self._job._core:
            raise InvalidArgument(f"{call}: {variable!r} is no variable of this job; give what its "
                                  "register() gave")

    def _borrow_ids(self, variable: Variable, ids: Any, call: str) -> Optional[Tuple[Loan, str]]:
        if ids is None:
            return None
        return borrow_ids(ids, f"{call}: row ids of variable '{variable.name}'", ID_TYPES)


def _slice(variable: Variable, ids: Optional[Tuple[Loan, str]], values: Loan) -> SliceStruct:
    if ids is None:
        return SliceStruct(variable=variable.id, form=Form.DENSE, values=values.address)
    loan, field = ids
    return SliceStruct(variable=variable.id, form=Form.ROWS, row_count=loan.item_count,
                       values=values.address, **{field: loan.address})
