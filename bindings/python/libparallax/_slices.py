# SPDX-License-Identifier: Apache-2.0
"""Slices of a step's calls: from what the caller gives to parallax_slice_t."""

from __future__ import annotations

import contextlib
import operator
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._abi import SliceStruct
from ._buffers import Loan, borrow_values
from ._device import stream_field, stream_of
from ._errors import InvalidArgument, ParallaxError
from ._numpy import empty
from ._tables import DType, Form, Memory, as_dtype_of, dtype_of, member_of
from ._variable import Variable


class Place(NamedTuple):
    """What the caller says of where buffers lie, and when they are ready; None: nothing."""

    stream: Optional[int] = None  # by DLPack's number
    device: Optional[int] = None
    memory: Optional[Memory] = None  # of what a pull makes

    @staticmethod
    def of(call: str, stream: Any, device: Any, memory: Any = None) -> "Place":
        if stream is None and device is None and memory is None:
            return _ANY
        return Place(stream_of(stream, call), device_number(call, device),
                     None if memory is None else member_of(Memory, memory, f"{call}: memory"))


_ANY = Place()


class Borrowed(NamedTuple):
    """What a call with slices keeps until it is complete: their buffers, and their structs."""

    loans: List[Any]
    slices: Any

    @property
    def device(self) -> Optional[int]:
        """That of the first slice on one; None: all are in host memory."""
        return next((each.device for each in self.slices if each.memory == Memory.CUDA), None)


def device_number(call: str, given: Any) -> Optional[int]:
    """The number of a device, or None."""
    if given is None:
        return None
    try:
        number = operator.index(given)
    except TypeError:
        number = -1
    if not 0 <= number < 2 ** 32:
        raise InvalidArgument(f"{call}: device is {given!r}; it must be its number, 0 or more, as "
                              "the CUDA driver counts", field="device")
    return number


@contextlib.contextmanager
def naming(variable: Any, index: int) -> Iterator[None]:
    """Names the slice in refusals of this package, as the library does in its own."""
    try:
        yield
    except ParallaxError as refusal:
        refusal.add(variable=getattr(variable, "name", None), slice=index)
        raise


def room(variable: Any, ids: Any, place: Place) -> Any:
    """A new array for what a pull gives, where the usual arguments say how large; else None."""
    if not isinstance(variable, Variable) or variable.memory != Memory.HOST:
        return None
    if place.memory == Memory.CUDA or place.device is not None:
        return None
    if ids is None:
        return empty(variable.shape, variable.dtype)
    shape = getattr(ids, "shape", None)
    if type(shape) is not tuple:  # that of a tensor is a class of its own
        return None
    return empty((*shape, variable.row_elements), variable.dtype)


def borrow_into(variable: Variable, ids: Any, target: Any, element: DType,
                shape: Tuple[int, int], stream: int) -> Loan:
    """Borrows where the aggregate of a dense reduce goes."""
    if ids is not None:
        raise InvalidArgument(f"reduce: into is given for row ids of variable '{variable.name}'; "
                              "leave it out: wait() gives the union of rows", field="into")
    return borrow_values(target, element, shape, f"reduce: into for variable '{variable.name}'",
                         True, stream)


def held_as(variable: Variable, dtype: Any) -> DType:
    """What the values of a slice are."""
    return variable.dtype if dtype is None else dtype_of(dtype, "step")


def slice_of(variable: Variable, ids: Optional[Tuple[Loan, str]], values: Loan,
             dtype: Any, more: bool = False) -> SliceStruct:
    struct = SliceStruct(variable=variable.id, form=Form.DENSE, values=values.address,
                         as_dtype=0 if dtype is None else as_dtype_of(held_as(variable, dtype)),
                         more=bool(more))
    if ids is not None:
        loan, field = ids
        struct.form, struct.row_count = Form.ROWS, loan.item_count
        setattr(struct, field, loan.address)
    return struct


def say_place(struct: SliceStruct, what: str, loans: Dict[str, Optional[Loan]], stream: int,
              device: Optional[int]) -> None:
    """Says where the buffers of a slice lie: where its values do. The library asks the driver where
    each of them is; but not if it knows of no device, so what a host cannot read is found here."""
    values = loans["values"]
    assert values is not None
    struct.device = device or 0
    if values.on_device:
        told = (loan.device for loan in (values, *loans.values()) if loan is not None)
        number = next((number for number in told if number is not None), 0)
        struct.memory = Memory.CUDA
        struct.device = number if device is None else device
        struct.stream = stream_field(stream) or None
        return
    for field, loan in loans.items():
        if loan is not None and loan.on_device:
            raise InvalidArgument(f"{what}: {field} is on a CUDA device, and values in host "
                                  "memory; give both on one device, or both in host memory",
                                  field=field)
