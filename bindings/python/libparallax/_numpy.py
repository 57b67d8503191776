# SPDX-License-Identifier: Apache-2.0
"""NumPy, where it is installed. Everything works without it; then memoryviews stand for arrays."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence, Tuple

from ._tables import DType

numpy: Any
try:
    import numpy as _numpy
except ImportError:
    numpy = None
else:
    numpy = _numpy


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def empty(shape: Tuple[int, ...], dtype: DType) -> Any:
    """A new writable array, or memoryview, of this shape."""
    if numpy is not None:
        return numpy.empty(shape, dtype=dtype.storage)
    item_count = _count(shape)
    if item_count == 0:  # memoryview knows no shape with a zero in it
        return memoryview(bytearray()).cast(dtype.char)
    return memoryview(bytearray(item_count * dtype.item_bytes)).cast(dtype.char, shape)


class _Memory:
    """Memory of the library as NumPy sees it; `owner` keeps it valid."""

    def __init__(self, address: int, shape: Tuple[int, ...], storage: str, owner: object,
                 read_only: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "shape": shape, "typestr": numpy.dtype(storage).str,
            "data": (address, read_only),
        }


def view(address: int, shape: Tuple[int, ...], dtype: DType, owner: object,
         writable: bool = False) -> Any:
    """A view of memory of the library, which keeps `owner` alive as long as it lives."""
    item_count = _count(shape)
    if item_count == 0:
        return empty(shape, dtype)
    if numpy is not None:
        return numpy.asarray(_Memory(address, shape, dtype.storage, owner, not writable))
    array = (ctypes.c_char * (item_count * dtype.item_bytes)).from_address(address)
    array._owner = owner  # type: ignore[attr-defined]
    plain = memoryview(array).cast("B")
    return (plain if writable else plain.toreadonly()).cast(dtype.char, shape)
