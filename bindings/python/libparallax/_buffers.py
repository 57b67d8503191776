# SPDX-License-Identifier: Apache-2.0
"""Borrows memory of any Python object, without copies: the buffer protocol, then DLPack, then, of
CUDA devices, `__cuda_array_interface__`.

A Loan holds the object's buffer until it is dropped: meanwhile a bytearray cannot be resized and an
array cannot be freed, so the library may read and write behind it.
"""

from __future__ import annotations

import array
import ctypes
from ctypes import c_char_p, c_int, c_ssize_t, c_void_p
from typing import Any, Callable, Optional, Tuple

from . import _dlpack
from ._device import described, describes
from ._errors import InvalidArgument, Unsupported
from ._tables import DType

_RECORDS_RO = 0x10 | 0x08 | 0x04  # PyBUF_STRIDES, PyBUF_ND, PyBUF_FORMAT
_KIND_OF_FORMAT = {
    **dict.fromkeys("efdg", "f"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQN", "u"),
}
_WORDS = {"f": "float", "i": "int", "u": "uint", "b": "bfloat", "c": "complex"}


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython's stable ABI."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", ctypes.POINTER(c_ssize_t)),
        ("strides", ctypes.POINTER(c_ssize_t)),
        ("suboffsets", ctypes.POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype = c_int
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype = None
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_is_contiguous = ctypes.pythonapi.PyBuffer_IsContiguous
_is_contiguous.restype = c_int
_is_contiguous.argtypes = [ctypes.POINTER(_PyBuffer), ctypes.c_char]


class _Export:
    """One export of an object's buffer, given back when this is dropped."""

    def __init__(self, given: Any) -> None:
        self.buffer = _PyBuffer()
        self.exported = False
        _get_buffer(given, self.buffer, _RECORDS_RO)  # raises what the object raises
        self.exported = True

    def __del__(self, release: Callable[[_PyBuffer], None] = _release_buffer) -> None:
        if self.exported:
            self.exported = False
            release(self.buffer)


class Loan:
    """Borrowed memory: where it is, what it holds, and what keeps it valid."""

    __slots__ = ("address", "kind", "item_bytes", "shape", "read_only", "owner", "on_device",
                 "device")

    def __init__(self, address: int, kind: str, item_bytes: int, shape: Tuple[int, ...],
                 read_only: bool, owner: object, on_device: bool = False,
                 device: Optional[int] = None) -> None:
        self.address = 0 if 0 in shape else address  # that of nothing may be any, even unaligned
        self.kind = kind
        self.item_bytes = item_bytes
        self.shape = shape
        self.read_only = read_only
        self.owner = owner
        self.on_device = on_device
        self.device = device  # its number; None: it does not tell

    @property
    def item_count(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def type_name(self) -> str:
        word = _WORDS.get(self.kind)
        return f"{word}{self.item_bytes * 8}" if word else "of another type"


def _kind_of(text: Optional[bytes], what: str) -> str:
    spelled = (text or b"B").decode("ascii", "replace")
    if spelled[:1] in (">", "!"):
        raise InvalidArgument(f"{what} is big-endian ({spelled!r}); give native byte order, such "
                              "as array.astype(array.dtype.newbyteorder('='))")
    return _KIND_OF_FORMAT.get(spelled.lstrip("@=<"), "?")


def _not_contiguous(what: str) -> InvalidArgument:
    return InvalidArgument(f"{what} is not contiguous in C order; give a contiguous copy, such as "
                           "numpy.ascontiguousarray(x) or tensor.contiguous()")


def _exported(given: Any, what: str) -> Loan:
    export = _Export(given)
    buffer = export.buffer
    if not _is_contiguous(buffer, b"C"):
        raise _not_contiguous(what)
    shape = tuple(buffer.shape[axis] for axis in range(buffer.ndim))
    return Loan(buffer.buf or 0, _kind_of(buffer.format, what), buffer.itemsize, shape,
                bool(buffer.readonly), export)


def _from_dlpack(given: Any, what: str, stream: Optional[int]) -> Loan:
    tensor = _dlpack.borrow(given, what, stream)
    if not tensor.contiguous:
        raise _not_contiguous(what)
    return Loan(tensor.address, tensor.kind, tensor.item_bytes, tensor.shape, tensor.read_only,
                tensor.owner, tensor.device is not None, tensor.device)


def _from_interface(given: Any, what: str, stream: Optional[int]) -> Loan:
    tensor = described(given, what)
    if stream is None:
        raise Unsupported(f"{what} lies on a CUDA device; only CPU memory is supported: give a "
                          "copy on the CPU")
    if not tensor.contiguous:
        raise _not_contiguous(what)
    return Loan(tensor.address, tensor.kind, tensor.item_bytes, tensor.shape, tensor.read_only,
                given, True)


def _describe(given: Any) -> str:
    return "None" if given is None else f"of type {type(given).__name__}"


def borrow(given: Any, what: str, writable: bool = False, stream: Optional[int] = None) -> Loan:
    """Borrows the memory of a NumPy array, a tensor, or another object with memory to borrow.

    stream: DLPack's number of the stream in whose order memory of a CUDA device is to be ready;
    None: there may be none of it. InvalidArgument when it is no such object, not contiguous, or
    read-only but to be written; Unsupported when it lies on another device.
    """
    try:
        loan = _exported(given, what)
    except (TypeError, BufferError, ValueError) as refusal:
        if isinstance(refusal, InvalidArgument):
            raise
        if _dlpack.offers(given):
            loan = _from_dlpack(given, what, stream)
        elif describes(given):
            loan = _from_interface(given, what, stream)
        else:
            raise InvalidArgument(
                f"{what} is {_describe(given)}, whose memory cannot be borrowed ({refusal}); give "
                "a NumPy array, a tensor with __dlpack__, or another buffer") from None
    if writable and loan.read_only:
        raise InvalidArgument(f"{what} is read-only, and results are written to it; give a "
                              "writable array")
    return loan


def _fits(loan: Loan, dtype: DType) -> bool:
    if loan.item_bytes != dtype.item_bytes:
        return False
    # bfloat16 has no format of its own in NumPy and memoryview: its bits come as uint16.
    return loan.kind == dtype.kind or (dtype.kind == "b" and loan.kind == "u")


def borrow_values(given: Any, dtype: DType, shape: Tuple[int, int], what: str,
                  writable: bool = False, stream: Optional[int] = None) -> Loan:
    """Borrows rows of `dtype`; any shape will do that has as many elements as `shape`."""
    loan = borrow(given, what, writable, stream)
    if not _fits(loan, dtype):
        wanted = "bfloat16, or its bits as uint16" if dtype.kind == "b" else dtype.long_name
        raise InvalidArgument(f"{what} is {loan.type_name}; it must be {wanted}, the dtype that "
                              "was registered, or name what it is: dtype=")
    if loan.item_count != shape[0] * shape[1]:
        raise InvalidArgument(f"{what} has shape {loan.shape}, which is {loan.item_count} "
                              f"elements; it must have {shape[0]} rows of {shape[1]}, shape "
                              f"{shape}")
    return loan


def borrow_ids(given: Any, what: str, types: Tuple[Tuple[str, int, str], ...],
               stream: Optional[int] = None) -> Tuple[Loan, str]:
    """Borrows row ids of any shape; a list, tuple or range of ints is copied.

    Gives the field of parallax_slice_t that takes them too.
    """
    if isinstance(given, (list, tuple, range)):
        try:
            given = array.array("q", given)
        except (TypeError, OverflowError) as refusal:
            raise InvalidArgument(f"{what}: {refusal}; row ids are integers") from None
    loan = borrow(given, what, stream=stream)
    for kind, item_bytes, field in types:
        if (loan.kind, loan.item_bytes) == (kind, item_bytes):
            return loan, field
    wanted = " or ".join(f"{_WORDS[kind]}{size * 8}" for kind, size, _ in types)
    raise InvalidArgument(f"{what} are {loan.type_name}; they must be {wanted}, such as "
                          "ids.astype(numpy.int64)")
