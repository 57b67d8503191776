# SPDX-License-Identifier: Apache-2.0
"""Steps: pulls, pushes and reduces, and the decision that ends them."""

from __future__ import annotations

import collections.abc
import ctypes
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Type,
                    Union, overload)

from . import _core
from ._abi import ErrorInfoStruct, SliceStruct, StepEndOptions
from ._buffers import Loan, borrow_ids, borrow_values
from ._device import LEGACY, order_of
from ._errors import InvalidArgument, InvalidState, ParallaxError
from ._library import LIB
from ._memory import device_array
from ._numpy import empty
from ._rates import Rates, rates_array
from ._request import Request, Rows, StepInfo, rows_of, step_info_of
from ._slices import (Borrowed, Place, borrow_into, held_as, naming, room, say_place,
                      slice_of)
from ._tables import ID_TYPES, DType, Memory
from ._variable import Variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._job import Job

# A NumPy array, a tensor with __dlpack__ or __cuda_array_interface__, in memory of the CPU or of a
# CUDA device, or any object with a contiguous buffer.
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
             out: Optional[Buffer] = None, dtype: Any = None, stream: Any = None,
             memory: Union[str, Memory, None] = None,
             device: Optional[int] = None) -> Request["NDArray[Any]"]:
        """Asks for values of a managed variable as of the step before this one.

        ids: row ids, int64 or int32, of any shape, each in 0..rows-1, duplicates allowed, at most
            rows_max of them; -1 is padding, whose row is zeros. None asks for all rows of a
            variable without ids.
        out: where the values go, written until the request is complete: writable, contiguous, of
            the dtype. None makes a new array.
        dtype: what the values are converted to, floating for a floating variable, such as "f16";
            None is the variable's.
        stream: of buffers on a CUDA device, the stream that you work on: a framework's, such as
            torch.cuda.current_stream(), or its handle (1: the legacy default stream, 2: the
            per-thread one). What is on it at the call is done before a buffer is read or written.
            None: the legacy default stream, before which every producer of DLPack orders its own
            work. -1: the buffers are ready.
        memory, device: where the new array lies: "host", or "cuda", a DeviceArray on that device.
            None: where the ids lie, or as the variable was registered. Of buffers that tell their
            address alone (`__cuda_array_interface__`), `device` is theirs.

        wait() gives `out`, or an array of shape ids.shape + (row_elements,), or (rows,
        row_elements) for all rows; a memoryview where NumPy is missing. What lies on a device is
        then ready for work on any stream.
        """
        request: Request["NDArray[Any]"] = self._pull(
            [(variable, ids, out)], True, dtype, Place.of("pull", stream, device, memory))
        return request

    def pull_many(self, slices: Sequence[Slice], *, dtype: Any = None, stream: Any = None,
                  memory: Union[str, Memory, None] = None,
                  device: Optional[int] = None) -> Request[List["NDArray[Any]"]]:
        """Pulls several variables in one exchange: variable, (variable, ids) or (variable, ids,
        out) of each, up to 4,096. The rest as in pull, for all. wait() gives a list of
        arrays."""
        full = []
        for entry in slices:
            variable, ids, out = self._split(entry, "pull_many", 3)
            full.append((variable, ids, out))
        request: Request[List["NDArray[Any]"]] = self._pull(
            full, False, dtype, Place.of("pull_many", stream, device, memory))
        return request

    @overload
    def push(self, variable: Variable, gradient: Buffer, /, *, dtype: Any = None,
             more: bool = False, stream: Any = None,
             device: Optional[int] = None) -> Request[None]: ...

    @overload
    def push(self, variable: Variable, ids: Buffer, gradient: Buffer, /, *, dtype: Any = None,
             more: bool = False, stream: Any = None,
             device: Optional[int] = None) -> Request[None]: ...

    def push(self, variable: Variable, *buffers: Buffer, dtype: Any = None, more: bool = False,
             stream: Any = None, device: Optional[int] = None) -> Request[None]:
        """Stages a gradient of a managed variable: push(variable, gradient) for all rows, or
        push(variable, ids, gradient). Applied when every rank has ended the step.

        gradient: (rows, row_elements) or one row per id; only read.
        ids: as in pull; gradients of duplicates are summed, those of padding skipped.
        dtype: what `gradient` holds, as in pull; None is the variable's.
        more: more of this variable follows in this step (micro-batches): it is copied and added to
            this rank's sum, in the order of the calls. Needs accumulate=True at registration.
        stream, device: of a gradient on a CUDA device, as in pull. The ids of a gradient there may
            lie there too, or in host memory.

        At most one push per variable and step but for `more`. The request completes when the
        buffers may be reused; `with job.step()` waits for it.
        """
        return self._push([(variable, *buffers)], dtype, more, Place.of("push", stream, device))

    def push_many(self, slices: Sequence[Slice], *, dtype: Any = None, more: bool = False,
                  stream: Any = None, device: Optional[int] = None) -> Request[None]:
        """Pushes several variables in one call: (variable, gradient) or (variable, ids, gradient)
        of each, up to 4,096. The rest as in push, for all."""
        return self._push(slices, dtype, more, Place.of("push_many", stream, device))

    @overload
    def reduce(self, variable: Variable, gradient: Buffer, /, *, into: Optional[Buffer] = None,
               dtype: Any = None, more: bool = False, stream: Any = None,
               device: Optional[int] = None) -> Request["NDArray[Any]"]: ...

    @overload
    def reduce(self, variable: Variable, ids: Buffer, gradient: Buffer, /, *, dtype: Any = None,
               more: bool = False) -> Request[Rows]: ...

    def reduce(self, variable: Variable, *buffers: Buffer, into: Optional[Buffer] = None,
               dtype: Any = None, more: bool = False, stream: Any = None,
               device: Optional[int] = None) -> Request[Any]:
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
        stream, device: as in push; `into` lies where the gradient does, Rows in host memory.
        """
        return self._reduce([(variable, *buffers)], [into], True, dtype, more,
                            Place.of("reduce", stream, device))

    def reduce_many(self, slices: Sequence[Slice], *,
                    into: Optional[Sequence[Optional[Buffer]]] = None, dtype: Any = None,
                    more: bool = False, stream: Any = None,
                    device: Optional[int] = None) -> Request[List[Any]]:
        """Reduces several variables in one call: (variable, gradient) or (variable, ids, gradient)
        of each, up to 4,096. into: as in reduce, one for each; None among them: in place, or rows.
        The rest as in push, for all. wait() gives a list."""
        given: Any = [None] * len(slices) if into is None else into
        if not isinstance(given, (list, tuple)) or len(given) != len(slices):
            raise InvalidArgument(f"reduce_many: into must be a list with one buffer or None for "
                                  f"each of the {len(slices)} slices", field="into")
        request: Request[List[Any]] = self._reduce(slices, given, False, dtype, more,
                                                  Place.of("reduce_many", stream, device))
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

    def _by_core(self, call: str, entries: List[Any], place: Place,
                 more: bool = False) -> Optional[_core.Handle]:
        """Posts (variable, [ids,] buffer)... by the compiled core: "l", "s" or "r" for pull, push
        and reduce. None where there is none, or where something is unusual or wrong."""
        if _core.NATIVE is None or self._ended or place.device is not None:
            return None
        core = self._job._core
        posted: Any = _core.NATIVE.post(call, core, self.number, entries, more,
                                        LEGACY if place.stream is None else place.stream)
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
        handle = self._job._core.post(Borrowed(keep, array), function, self.number, array,
                                      len(slices))
        return self._request(handle, finish)

    def _pull(self, slices: Sequence[Tuple[Variable, Any, Any]], single: bool,
              dtype: Any, place: Place) -> Request[Any]:
        entries = [(variable, ids, room(variable, ids, place) if out is None else out)
                   for variable, ids, out in slices] if dtype is None else []
        if entries:
            posted = self._by_core("l", entries, place)
            if posted is not None:
                given: Any = entries[0][2] if single else [entry[2] for entry in entries]
                return self._request(posted, lambda _: given)
        structs: List[SliceStruct] = []
        keep: List[Any] = []
        outs: List[Any] = []
        for index, (variable, ids, out) in enumerate(slices):
            with naming(variable, index):
                self._check(variable, "pull")
                stream = order_of([ids, out], place.stream,
                                  f"pull: variable '{variable.name}'")
                ids_loan = self._borrow_ids(variable, ids, "pull", stream)
                rows = variable.rows if ids_loan is None else ids_loan[0].item_count
                element = held_as(variable, dtype)
                if out is None:
                    out = self._new_array(variable, ids_loan, element, place)
                values = borrow_values(out, element, (rows, variable.row_elements),
                                       f"pull: out for variable '{variable.name}'", True, stream)
                structs.append(slice_of(variable, ids_loan, values, dtype))
                say_place(structs[-1], f"pull: variable '{variable.name}'",
                          {"values": values, "ids": ids_loan and ids_loan[0]}, stream,
                          place.device)
            keep += [ids_loan, values]
            outs.append(out)
        result = outs[0] if single else outs
        return self._post(structs, keep, LIB.parallax_pull, lambda _: result)

    def _new_array(self, variable: Variable, ids: Optional[Tuple[Loan, str]], element: DType,
                   place: Place) -> Any:
        """For what a pull gives: where the caller says, else where the ids lie, else as the
        variable was registered."""
        shape = (variable.rows if ids is None else ids[0].shape)
        leading = shape if isinstance(shape, tuple) else (shape,)
        on_device = ids is not None and ids[0].on_device
        memory = place.memory
        if memory is None:
            memory = Memory.CUDA if on_device or place.device is not None else variable.memory
        if memory == Memory.HOST:
            return empty((*leading, variable.row_elements), element)
        number = place.device
        if number is None and ids is not None:
            number = ids[0].device
        return device_array(self._job, (*leading, variable.row_elements), element, number or 0)

    def _push(self, slices: Sequence[Slice], dtype: Any, more: bool,
              place: Place) -> Request[None]:
        entries = [tuple(entry) for entry in slices]
        if dtype is None:
            handle = self._by_core("s", entries, place, more)
            if handle is not None:
                return self._request(handle, _nothing)
        structs, keep = self._gradients(entries, "push", dtype, more, place)
        request: Request[None] = self._post(structs, keep, LIB.parallax_push, _nothing)
        return request

    def _reduce(self, slices: Sequence[Slice], into: Sequence[Any], single: bool, dtype: Any,
                more: bool, place: Place) -> Request[Any]:
        entries = [tuple(entry) for entry in slices]

        def finish(handle: _core.Handle) -> Any:
            results = []
            for index, (entry, aggregate) in enumerate(zip(entries, into)):
                if len(entry) == 3 and entry[1] is not None:
                    aggregate = rows_of(handle, index, entry[0].row_elements,
                                        held_as(entry[0], dtype))
                results.append(entry[-1] if aggregate is None else aggregate)
            return results[0] if single else results

        if dtype is None and max(map(len, entries), default=0) <= 3:
            full = [entry if aggregate is None or len(entry) < 2 else
                    (entry[0], entry[1] if len(entry) == 3 else None, entry[-1], aggregate)
                    for entry, aggregate in zip(entries, into)]
            posted = self._by_core("r", full, place, more)
            if posted is not None:
                return self._request(posted, finish)
        structs, keep = self._gradients(entries, "reduce", dtype, more, place, into)
        return self._post(structs, keep, LIB.parallax_reduce, finish)

    def _gradients(self, slices: List[Tuple[Any, ...]], call: str, dtype: Any, more: bool,
                   place: Place, into: Sequence[Any] = ()) -> Tuple[List[SliceStruct], List[Any]]:
        structs: List[SliceStruct] = []
        keep: List[Any] = []
        for index, parts in enumerate(slices):
            if len(parts) not in (2, 3):
                raise InvalidArgument(f"{call}: give a variable and its gradient, or a variable, "
                                      "its row ids and their gradients", slice=index)
            variable, ids, gradient = parts if len(parts) == 3 else (parts[0], None, parts[1])
            target = into[index] if into else None
            with naming(variable, index):
                self._check(variable, call)
                what = f"{call}: variable '{variable.name}'"
                stream = order_of([ids, gradient, target], place.stream, what)
                loan = self._borrow_ids(variable, ids, call, stream)
                rows = variable.rows if loan is None else loan[0].item_count
                shape = rows, variable.row_elements
                element = held_as(variable, dtype)
                values = borrow_values(gradient, element, shape,
                                       f"{call}: the gradient of variable '{variable.name}'",
                                       call == "reduce" and ids is None and target is None, stream)
                structs.append(slice_of(variable, loan, values, dtype, more))
                keep += [loan, values]
                aggregate = None
                if target is not None:
                    aggregate = borrow_into(variable, ids, target, element, shape, stream)
                    structs[-1].into = aggregate.address
                    keep.append(aggregate)
                say_place(structs[-1], what, {"values": values, "ids": loan and loan[0],
                                              "into": aggregate}, stream, place.device)
        return structs, keep

    def _check(self, variable: Any, call: str) -> None:
        if self._ended:
            raise InvalidState(f"{call}: step {self.number} has ended; begin the next one with "
                               "job.step()")
        if not isinstance(variable, Variable) or variable._core is not self._job._core:
            raise InvalidArgument(f"{call}: {variable!r} is no variable of this job; give what its "
                                  "register() gave")

    def _borrow_ids(self, variable: Variable, ids: Any, call: str,
                    stream: int) -> Optional[Tuple[Loan, str]]:
        if ids is None:
            return None
        return borrow_ids(ids, f"{call}: row ids of variable '{variable.name}'", ID_TYPES, stream)


def _nothing(_: _core.Handle) -> None:
    """What a push gives."""
