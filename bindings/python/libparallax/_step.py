# SPDX-License-Identifier: Apache-2.0
"""Steps: pulls, pushes and reduces, and the decision that ends them."""

from __future__ import annotations

import collections.abc
import contextlib
import ctypes
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence,
                    Tuple, Type, overload)

from . import _core
from ._abi import ErrorInfoStruct, SliceStruct, StepEndOptions
from ._buffers import Loan, borrow_ids, borrow_values
from ._errors import InvalidArgument, InvalidState, ParallaxError
from ._library import LIB
from ._numpy import empty
from ._rates import Rates, rates_array
from ._request import Request, Rows, StepInfo, rows_of, step_info_of
from ._tables import ID_TYPES, DType, Form, as_dtype_of, dtype_of
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

    Attributes that may be set before the end: learning_rate, clip_norm, found_inf, absent, rates.
    Threads: any thread may call.
    """

    def __init__(self, job: "Job", number: int, learning_rate: float, clip_norm: float,
                 absent: bool, rates: Sequence[Rates] = ()) -> None:
        self._job = job
        self.number = number
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.found_inf = False
        self.absent = absent
        self.rates = rates
        self.info: Optional[StepInfo] = None
        self._posted: List[Request[Any]] = []
        self._ended = False

    def __repr__(self) -> str:
        return f"<libparallax.Step {self.number}{' (ended)' if self._ended else ''}>"

    def pull(self, variable: Variable, ids: Optional[Buffer] = None, *,
             out: Optional[Buffer] = None, dtype: Any = None) -> Request["NDArray[Any]"]:
        """Asks for values of a managed variable as of the step before this one.

        ids: row ids, int64 or int32, of any shape, each in 0..rows-1, duplicates allowed, at most
            rows_max of them; -1 is padding, whose row is zeros. None asks for all rows of a
            variable without ids.
        out: where the values go, written until the request is complete: writable, contiguous, of
            the dtype. None makes a new array.
        dtype: what the values are converted to, floating for a floating variable, such as "f16";
            None is the variable's.

        wait() gives `out`, or an array of shape ids.shape + (row_elements,), or (rows,
        row_elements) for all rows; a memoryview where NumPy is missing.
        """
        request: Request["NDArray[Any]"] = self._pull([(variable, ids, out)], True, dtype)
        return request

    def pull_many(self, slices: Sequence[Slice], *,
                  dtype: Any = None) -> Request[List["NDArray[Any]"]]:
        """Pulls several variables in one exchange: variable, (variable, ids) or (variable, ids,
        out) of each, up to 4,096. dtype as in pull, for all. wait() gives a list of arrays."""
        full = []
        for entry in slices:
            variable, ids, out = self._split(entry, "pull_many", 3)
            full.append((variable, ids, out))
        request: Request[List["NDArray[Any]"]] = self._pull(full, False, dtype)
        return request

    @overload
    def push(self, variable: Variable, gradient: Buffer, /, *, dtype: Any = None,
             more: bool = False) -> Request[None]: ...

    @overload
    def push(self, variable: Variable, ids: Buffer, gradient: Buffer, /, *, dtype: Any = None,
             more: bool = False) -> Request[None]: ...

    def push(self, variable: Variable, *buffers: Buffer, dtype: Any = None,
             more: bool = False) -> Request[None]:
        """Stages a gradient of a managed variable: push(variable, gradient) for all rows, or
        push(variable, ids, gradient). Applied when every rank has ended the step.

        gradient: (rows, row_elements) or one row per id; only read.
        ids: as in pull; gradients of duplicates are summed, those of padding skipped.
        dtype: what `gradient` holds, as in pull; None is the variable's.
        more: more of this variable follows in this step (micro-batches): it is copied and added to
            this rank's sum, in the order of the calls. Needs accumulate=True at registration.

        At most one push per variable and step but for `more`. The request completes when the
        buffers may be reused; `with job.step()` waits for it.
        """
        return self._push([(variable, *buffers)], dtype, more)

    def push_many(self, slices: Sequence[Slice], *, dtype: Any = None,
                  more: bool = False) -> Request[None]:
        """Pushes several variables in one call: (variable, gradient) or (variable, ids, gradient)
        of each, up to 4,096. dtype and more as in push, for all."""
        return self._push(slices, dtype, more)

    @overload
    def reduce(self, variable: Variable, gradient: Buffer, /, *, into: Optional[Buffer] = None,
               dtype: Any = None, more: bool = False) -> Request["NDArray[Any]"]: ...

    @overload
    def reduce(self, variable: Variable, ids: Buffer, gradient: Buffer, /, *, dtype: Any = None,
               more: bool = False) -> Request[Rows]: ...

    def reduce(self, variable: Variable, *buffers: Buffer, into: Optional[Buffer] = None,
               dtype: Any = None, more: bool = False) -> Request[Any]:
        """Reduces a gradient of a framework-held variable over all ranks.

        reduce(variable, gradient): the aggregate replaces the gradient in place, as it arrives, so
        it must be writable; wait() gives it back.
        reduce(variable, gradient, into=aggregate): the gradient is only read, and stays as it is
        whatever becomes of the request; wait() gives `into`, of the same dtype and size. For
        gradients that are another's too: what autograd hands to a hook it may copy before the
        aggregate has arrived.
        reduce(variable, ids, gradient): both are only read; wait() gives the union of all ranks'
        rows as Rows, of the same dtype.
        dtype, more: as in push; with more there is no aggregate yet: what wait() gives is as it
        was, or no rows.
        """
        return self._reduce([(variable, *buffers)], [into], True, dtype, more)

    def reduce_many(self, slices: Sequence[Slice], *,
                    into: Optional[Sequence[Optional[Buffer]]] = None, dtype: Any = None,
                    more: bool = False) -> Request[List[Any]]:
        """Reduces several variables in one call: (variable, gradient) or (variable, ids, gradient)
        of each, up to 4,096. into: as in reduce, one for each; None among them: in place, or rows.
        dtype and more as in push, for all. wait() gives a list."""
        given: Any = [None] * len(slices) if into is None else into
        if not isinstance(given, (list, tuple)) or len(given) != len(slices):
            raise InvalidArgument(f"reduce_many: into must be a list with one buffer or None for "
                                  f"each of the {len(slices)} slices", field="into")
        request: Request[List[Any]] = self._reduce(slices, given, False, dtype, more)
        return request

    def end(self) -> Request[StepInfo]:
        """Ends the step without waiting, so that what follows overlaps with it; the next step may
        begin at once. wait() gives the StepInfo, when all pulls and pushes are complete too.
        """
        fields: Dict[str, Any] = {
            "learning_rate": self.learning_rate, "clip_norm": self.clip_norm,
            "found_inf": bool(self.found_inf), "absent": bool(self.absent)}
        if self.rates:
            groups = rates_array(self.rates)
            fields.update(rates=groups, rates_count=len(groups))
        options = _core.struct_of("step.end", StepEndOptions, fields)
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
        parts = list(entry) if isinstance(entry, collections.abc.Sequence) else [entry]
        if not parts or len(parts) > most or not isinstance(parts[0], Variable):
            raise InvalidArgument(f"{call}: a slice is a variable of this job and its buffers, up "
                                  f"to {most} in all; this is {entry!r}")
        return parts + [None] * (most - len(parts))

    def _by_core(self, call: str, entries: List[Any],
                 more: bool = False) -> Optional[_core.Handle]:
        """Posts (variable, [ids,] buffer)... by the compiled core: "l", "s" or "r" for pull, push
        and reduce. None where there is none, or where something is unusual or wrong."""
        if _core.NATIVE is None or self._ended:
            return None
        core = self._job._core
        posted: Any = _core.NATIVE.post(call, core, self.number, entries, more)
        if isinstance(posted, tuple):
            status, sentence, info = posted
            _core.check(core.tell(_core.Answer(status, sentence,
                                               ErrorInfoStruct.from_buffer_copy(info))))
        handle: Optional[_core.Handle] = posted
        return handle

    def _request(self, handle: _core.Handle, finish: Callable[[_core.Handle], Any]) -> Request[Any]:
        request: Request[Any] = Request(self._job, handle, finish)
        self._posted.append(request)
        return request

    def _post(self, slices: List[SliceStruct], keep: List[Any], function: Callable[..., int],
              finish: Callable[[_core.Handle], Any]) -> Request[Any]:
        array = (SliceStruct * len(slices))(*slices)
        handle = self._job._core.post((keep, array), function, self.number, array, len(slices))
        return self._request(handle, finish)

    def _pull(self, slices: Sequence[Tuple[Variable, Any, Any]], single: bool,
              dtype: Any) -> Request[Any]:
        entries = [(variable, ids, _room(variable, ids) if out is None else out)
                   for variable, ids, out in slices] if dtype is None else []
        if entries:
            posted = self._by_core("l", entries)
            if posted is not None:
                given: Any = entries[0][2] if single else [entry[2] for entry in entries]
                return self._request(posted, lambda _: given)
        structs: List[SliceStruct] = []
        keep: List[Any] = []
        outs: List[Any] = []
        for index, (variable, ids, out) in enumerate(slices):
            with _naming(variable, index):
                self._check(variable, "pull")
                ids_loan = self._borrow_ids(variable, ids, "pull")
                rows = variable.rows if ids_loan is None else ids_loan[0].item_count
                if out is None:
                    leading = (variable.rows,) if ids_loan is None else ids_loan[0].shape
                    out = empty((*leading, variable.row_elements), _held(variable, dtype))
                values = borrow_values(out, _held(variable, dtype), (rows, variable.row_elements),
                                       f"pull: out for variable '{variable.name}'", writable=True)
                structs.append(_slice(variable, ids_loan, values, dtype))
            keep += [ids_loan, values]
            outs.append(out)
        result = outs[0] if single else outs
        return self._post(structs, keep, LIB.parallax_pull, lambda _: result)

    def _push(self, slices: Sequence[Slice], dtype: Any, more: bool) -> Request[None]:
        entries = [tuple(entry) for entry in slices]
        if dtype is None:
            handle = self._by_core("s", entries, more)
            if handle is not None:
                return self._request(handle, _nothing)
        structs, keep = self._gradients(entries, "push", dtype, more)
        request: Request[None] = self._post(structs, keep, LIB.parallax_push, _nothing)
        return request

    def _reduce(self, slices: Sequence[Slice], into: Sequence[Any], single: bool, dtype: Any,
                more: bool) -> Request[Any]:
        entries = [tuple(entry) for entry in slices]

        def finish(handle: _core.Handle) -> Any:
            results = []
            for index, (entry, aggregate) in enumerate(zip(entries, into)):
                if len(entry) == 3 and entry[1] is not None:
                    aggregate = rows_of(handle, index, entry[0].row_elements,
                                        _held(entry[0], dtype))
                results.append(entry[-1] if aggregate is None else aggregate)
            return results[0] if single else results

        if dtype is None and max(map(len, entries), default=0) <= 3:
            full = [entry if aggregate is None or len(entry) < 2 else
                    (entry[0], entry[1] if len(entry) == 3 else None, entry[-1], aggregate)
                    for entry, aggregate in zip(entries, into)]
            posted = self._by_core("r", full, more)
            if posted is not None:
                return self._request(posted, finish)
        structs, keep = self._gradients(entries, "reduce", dtype, more, into)
        return self._post(structs, keep, LIB.parallax_reduce, finish)

    def _gradients(self, slices: List[Tuple[Any, ...]], call: str, dtype: Any, more: bool,
                   into: Sequence[Any] = ()) -> Tuple[List[SliceStruct], List[Any]]:
        structs: List[SliceStruct] = []
        keep: List[Any] = []
        for index, parts in enumerate(slices):
            if len(parts) not in (2, 3):
                raise InvalidArgument(f"{call}: give a variable and its gradient, or a variable, "
                                      "its row ids and their gradients", slice=index)
            variable, ids, gradient = parts if len(parts) == 3 else (parts[0], None, parts[1])
            place = into[index] if into else None
            with _naming(variable, index):
                self._check(variable, call)
                loan = self._borrow_ids(variable, ids, call)
                rows = variable.rows if loan is None else loan[0].item_count
                shape = rows, variable.row_elements
                values = borrow_values(gradient, _held(variable, dtype), shape,
                                       f"{call}: the gradient of variable '{variable.name}'",
                                       writable=call == "reduce" and ids is None and place is None)
                structs.append(_slice(variable, loan, values, dtype, more))
                keep += [loan, values]
                if place is not None:
                    aggregate = _borrow_into(variable, ids, place, _held(variable, dtype), shape)
                    structs[-1].into = aggregate.address
                    keep.append(aggregate)
        return structs, keep

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


@contextlib.contextmanager
def _naming(variable: Any, index: int) -> Iterator[None]:
    """Names the slice in refusals of this package, as the library does in its own."""
    try:
        yield
    except ParallaxError as refusal:
        refusal.add(variable=getattr(variable, "name", None), slice=index)
        raise


def _nothing(_: _core.Handle) -> None:
    """What a push gives."""


def _room(variable: Any, ids: Any) -> Any:
    """A new array for what a pull gives, where the usual arguments say how large; else None."""
    if not isinstance(variable, Variable):
        return None
    if ids is None:
        return empty(variable.shape, variable.dtype)
    shape = getattr(ids, "shape", None)
    if type(shape) is not tuple:  # that of a tensor is a class of its own
        return None
    return empty((*shape, variable.row_elements), variable.dtype)


def _borrow_into(variable: Variable, ids: Any, place: Any, held: DType,
                 shape: Tuple[int, int]) -> Loan:
    """Borrows where the aggregate of a dense reduce goes."""
    if ids is not None:
        raise InvalidArgument(f"reduce: into is given for row ids of variable '{variable.name}'; "
                              "leave it out: wait() gives the union of rows", field="into")
    return borrow_values(place, held, shape, f"reduce: into for variable '{variable.name}'",
                         writable=True)


def _held(variable: Variable, dtype: Any) -> DType:
    """What the values of a slice are."""
    return variable.dtype if dtype is None else dtype_of(dtype, "step")


def _slice(variable: Variable, ids: Optional[Tuple[Loan, str]], values: Loan,
           dtype: Any, more: bool = False) -> SliceStruct:
    struct = SliceStruct(variable=variable.id, form=Form.DENSE, values=values.address,
                         as_dtype=0 if dtype is None else as_dtype_of(_held(variable, dtype)),
                         more=bool(more))
    if ids is not None:
        loan, field = ids
        struct.form, struct.row_count = Form.ROWS, loan.item_count
        setattr(struct, field, loan.address)
    return struct
