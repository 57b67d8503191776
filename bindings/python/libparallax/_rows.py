# SPDX-License-Identifier: Apache-2.0
"""Rows of managed variables with their optimizer state, read and written between steps."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple

from ._abi import RowsStruct
from ._buffers import borrow_values
from ._errors import InvalidArgument
from ._library import LIB
from ._numpy import empty
from ._request import Request
from ._tables import KEPT_IN, RULES, DType, Rule
from ._variable import Variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._job import Job


class StoredRows(NamedTuple):
    """Consecutive rows as the library keeps them, in the dtype it keeps them in.

    values: shape (n, row_elements).
    state: what the update rule keeps, in the order of parallax.h: (n, row_elements) each, or (n, 1)
        for rowwise_adagrad; empty where it keeps nothing or was not read. None in place of an array
        leaves what is there.
    updates: steps in which any rank pushed a gradient of the variable; one number for all rows.
        None was not read, and leaves what is there.
    """

    values: Optional["NDArray[Any]"]
    state: Tuple[Optional["NDArray[Any]"], ...] = ()
    updates: Optional[int] = None


def _kept_in(variable: Variable) -> DType:
    return KEPT_IN.get(variable.dtype.name, variable.dtype)


def _state_widths(variable: Variable) -> List[int]:
    if variable.rule == Rule.CALLBACK:
        return list(variable.state_elements)
    return [1 if by_row else variable.row_elements
            for by_row in RULES[variable.rule].states]


def _check(job: "Job", variable: Any, call: str) -> None:
    if not isinstance(variable, Variable) or variable._core is not job._core:
        raise InvalidArgument(f"{call}: {variable!r} is no variable of this job; give what its "
                              "register() gave")


def _struct(variable: Variable, first_row: int, row_count: int, parts: List[Any], call: str,
            writable: bool) -> Tuple[RowsStruct, List[Any]]:
    """The struct of a call, and what it borrows; parts: values, then state."""
    struct = RowsStruct(variable=variable.id, first_row=first_row, row_count=row_count)
    widths = [variable.row_elements, *_state_widths(variable)]
    keep: List[Any] = []
    for index, part in enumerate(parts):
        if part is None:
            continue
        what = "values" if index == 0 else f"state[{index - 1}]"
        if index >= len(widths):
            raise InvalidArgument(f"{call}: variable '{variable.name}': {what} is given, but rule "
                                  f"{variable.rule.name.lower()} keeps {len(widths) - 1}")
        loan = borrow_values(part, _kept_in(variable), (row_count, widths[index]),
                             f"{call}: {what} of variable '{variable.name}'", writable=writable)
        keep.append(loan)
        if index == 0:
            struct.values = loan.address
        else:
            struct.state[index - 1] = loan.address
    return struct, keep


def read(job: "Job", variable: Variable, first_row: int, row_count: Optional[int],
         state: bool) -> Request[StoredRows]:
    """See Job.read."""
    _check(job, variable, "read")
    count = variable.rows - first_row if row_count is None else row_count
    if not 0 <= first_row < variable.rows or not 0 < count <= variable.rows - first_row:
        raise InvalidArgument(f"read: rows {first_row}.. +{count} of variable '{variable.name}', "
                              f"which has {variable.rows}; give at least one row, and none beyond "
                              "the last")
    widths = [variable.row_elements, *(_state_widths(variable) if state else [])]
    parts = [empty((count, width), _kept_in(variable)) for width in widths]
    struct, keep = _struct(variable, first_row, count, parts, "read", writable=True)
    updates = ctypes.c_uint64()
    struct.updates = ctypes.pointer(updates)
    handle = job._core.post((keep, struct, updates), LIB.parallax_read, ctypes.byref(struct))
    return Request(job, handle, lambda _: StoredRows(parts[0], tuple(parts[1:]),
                                                     updates.value if state else None))


def write(job: "Job", variable: Variable, rows: StoredRows, first_row: int) -> Request[None]:
    """See Job.write."""
    _check(job, variable, "write")
    parts = [rows.values, *rows.state]
    given = next((part for part in parts if part is not None), None)
    if given is None:
        raise InvalidArgument(f"write: variable '{variable.name}': there are neither values nor "
                              "state; give what read() gave")
    count = len(given)
    if not 0 <= first_row < variable.rows or not 0 < count <= variable.rows - first_row:
        raise InvalidArgument(f"write: rows {first_row}.. +{count} of variable '{variable.name}', "
                              f"which has {variable.rows}; give at least one row, and none beyond "
                              "the last")
    struct, keep = _struct(variable, first_row, count, parts, "write", writable=False)
    updates = ctypes.c_uint64(rows.updates or 0)
    if rows.updates is not None:
        struct.updates = ctypes.pointer(updates)
    handle = job._core.post((keep, struct, updates), LIB.parallax_write, ctypes.byref(struct))
    return Request(job, handle, lambda _: None)
