# SPDX-License-Identifier: Apache-2.0
"""Memory of CUDA devices: streams as the caller names them, tensors that are told by
`__cuda_array_interface__` alone, and arrays over memory of a job on a device.

Design notes. Nothing here calls CUDA. A stream goes by the number that DLPack gives it (1: the
legacy default stream, 2: the per-thread one, else its handle), and who is asked for a tensor is
told it: the producer makes that stream wait for its own work, and the library begins behind it.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ._dlpack import CUDA, DLManagedTensor, DLManagedTensorVersioned, offers
from ._errors import InvalidArgument
from ._tables import DLPACK_KINDS, DType

LEGACY = 1  # DLPack's numbers of the default streams
PER_THREAD = 2
READY = -1  # no order is needed

# How the frameworks call a stream's handle: PyTorch, CuPy, Numba.
_HANDLES = ("cuda_stream", "ptr", "handle")
_KIND_OF_TYPE = {"f": "f", "i": "i", "u": "u", "c": "c"}


def _handle_of(given: Any) -> Any:
    protocol = getattr(given, "__cuda_stream__", None)
    if callable(protocol):
        return protocol()[1]
    for name in _HANDLES:
        handle = getattr(given, name, None)
        if handle is not None:
            return getattr(handle, "value", handle) or 0
    return None


def stream_of(given: Any, call: str) -> Optional[int]:
    """DLPack's number of a stream: a number, or a framework's stream; None where None is given."""
    if given is None:
        return None
    try:
        number = operator.index(given)
    except TypeError:
        handle = _handle_of(given)
        if handle is None:
            raise InvalidArgument(
                f"{call}: stream is {given!r}; give a stream of a framework, such as "
                "torch.cuda.current_stream(), or its handle as a number", field="stream") from None
        return operator.index(handle) or LEGACY  # a framework's null stream is the legacy default
    if number == 0:
        raise InvalidArgument(f"{call}: stream is 0, which may be either default stream; give 1 "
                              "for the legacy one, 2 for the per-thread one", field="stream")
    if not READY <= number < 2 ** 63:
        raise InvalidArgument(f"{call}: stream is {number}; give a handle, 1 or 2 for a default "
                              "stream, or -1 where the buffers are ready", field="stream")
    return number


def stream_field(number: int) -> int:
    """What stands in parallax_slice_t."""
    if number == LEGACY:
        return 0
    # What is ready needs no order, and nothing of others is on the stream of this thread.
    return PER_THREAD if number == READY else number


def device_of(stream: Any, given: Optional[int]) -> Optional[int]:
    """The device of a stream: as the caller says, else as PyTorch's and CuPy's streams tell; None
    where neither does."""
    if given is not None:
        return operator.index(given)
    for name in ("device_index", "device_id"):
        told = getattr(stream, name, None)
        if isinstance(told, int) and told >= 0:
            return told
    return None


class Described(NamedTuple):
    """A tensor as its `__cuda_array_interface__` has it."""

    address: int
    kind: str
    item_bytes: int
    shape: Tuple[int, ...]
    contiguous: bool
    read_only: bool
    stream: Optional[int]


def _is_contiguous(shape: Tuple[int, ...], strides: Any, item_bytes: int) -> bool:
    if strides is None or 0 in shape:
        return True
    expected = item_bytes
    for extent, stride in reversed(list(zip(shape, strides))):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def describes(given: Any) -> bool:
    """Whether `__cuda_array_interface__` is the way to a tensor: one that has no DLPack."""
    try:
        return not offers(given) and hasattr(given, "__cuda_array_interface__")
    except Exception:  # whatever a property raises: described() says it
        return True


def described(given: Any, what: str) -> Described:
    """Reads the interface, version 2 or 3."""
    try:
        told: Dict[str, Any] = given.__cuda_array_interface__
        address, read_only = told["data"]
        shape = tuple(operator.index(extent) for extent in told["shape"])
        code = told["typestr"]
        order, kind, item_bytes = code[0], code[1], int(code[2:])
    except Exception as error:  # whatever a producer raises
        raise InvalidArgument(f"{what}: its __cuda_array_interface__ cannot be read: "
                              f"{type(error).__name__}: {error}") from error
    if order == ">" and item_bytes > 1:
        raise InvalidArgument(f"{what} is big-endian ({code!r}); give native byte order")
    if told.get("mask") is not None:
        raise InvalidArgument(f"{what} has a mask; give plain numbers")
    return Described(address or 0, _KIND_OF_TYPE.get(kind, "?"), item_bytes, shape,
                     _is_contiguous(shape, told.get("strides"), item_bytes), bool(read_only),
                     stream_of(told.get("stream"), what))


def order_of(buffers: List[Any], given: Optional[int], what: str) -> int:
    """The stream of a slice: the caller's; else what its buffers name; else the legacy default
    stream, which every producer of DLPack can be told to order its work before."""
    if given is not None:
        return given
    named: List[int] = []
    for buffer in buffers:
        if describes(buffer):
            stream = described(buffer, what).stream
            if stream is not None and stream not in named:
                named.append(stream)
    if len(named) > 1:
        raise InvalidArgument(
            f"{what}: its buffers are ready in the order of different streams ({named[0]:#x}, "
            f"{named[1]:#x}); make one wait for the other, and give that as stream=",
            field="stream")
    return named[0] if named else LEGACY


# ---- arrays of a job's own, for others to read

_CODES = {kind: code for code, kind in DLPACK_KINDS.items()}
_exports: Dict[int, Any] = {}  # what a consumer holds, by the address of its struct
_MAJOR = 1

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

# By addresses: the capsule that is being destroyed must not be counted up again.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", ctypes.pythonapi))
_NAMES = (b"dltensor", b"dltensor_versioned")  # a capsule keeps their addresses


def _end_export(address: Optional[int]) -> None:
    _exports.pop(address or 0, None)


def _end_capsule(capsule: Optional[int]) -> None:
    for name in _NAMES:  # one that was consumed has another
        if _is_valid(capsule, name):
            _end_export(_get_pointer(capsule, name))


_deleter = _Deleter(_end_export)
_destructor = _Destructor(_end_capsule)
for _callback in (_deleter, _destructor):  # consumers may call them until the process ends
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


class DeviceArray:
    """Zeros at first, over memory of the job's own on a CUDA device; made by Job.empty and by
    pulls. Frameworks read and write it without a copy, by DLPack (torch.from_dlpack(array),
    cupy.from_dlpack) or `__cuda_array_interface__` (numba.cuda.as_cuda_array). It has no arithmetic
    of its own, and the host cannot touch it.

    The memory goes when the job is closed and the last array or tensor over it is dropped; while
    the job is open, soon after the latter.
    """

    def __init__(self, address: int, shape: Tuple[int, ...], dtype: DType, device: int,
                 owner: object) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device  # its number, as the CUDA driver counts
        self._address = address
        self._owner = owner

    def __repr__(self) -> str:
        return f"<libparallax.DeviceArray {self.shape} {self.dtype} on CUDA:{self.device}>"

    @property
    def nbytes(self) -> int:
        count = self.dtype.item_bytes
        for extent in self.shape:
            count *= extent
        return count

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        kind = "u" if self.dtype.kind == "b" else self.dtype.kind  # bfloat16: its bits
        return {"version": 3, "shape": self.shape, "typestr": f"<{kind}{self.dtype.item_bytes}",
                "data": (self._address, False), "strides": None, "stream": None}

    def __dlpack_device__(self) -> Tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        """stream is not needed: what the library writes is there before wait() returns, and no
        work of its own is under way in between."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a DeviceArray lies where it is, and is not copied; ask for it "
                              "there, with copy=None")
        versioned = max_version is not None and max_version[0] >= _MAJOR
        managed: Any = DLManagedTensorVersioned() if versioned else DLManagedTensor()
        if versioned:
            managed.major = _MAJOR
        shape = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
        tensor = managed.tensor
        tensor.data, tensor.device_type, tensor.device_id = self._address, CUDA, self.device
        tensor.ndim, tensor.shape = len(self.shape), shape
        tensor.code, tensor.bits, tensor.lanes = (
            _CODES[self.dtype.kind], 8 * self.dtype.item_bytes, 1)
        address = ctypes.addressof(managed)
        _exports[address] = managed, shape, self._owner
        return _new_capsule(address, _NAMES[versioned], _destructor)


__all__ = ["LEGACY", "DeviceArray", "Described", "described", "describes", "device_of",
           "order_of", "stream_field", "stream_of"]
