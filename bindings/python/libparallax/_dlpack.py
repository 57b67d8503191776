# SPDX-License-Identifier: Apache-2.0
"""DLPack, read with ctypes: where the elements of a foreign tensor lie, and of what type.

The capsule is never marked as consumed: it stays the owner, and its destructor calls the producer's
deleter once the caller of borrow() drops it, as DLPack 1.0 says for capsules that nobody consumed.
"""

from __future__ import annotations

import ctypes
from ctypes import (c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p)
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._errors import InvalidArgument, Unsupported
from ._tables import DLPACK_DEVICES, DLPACK_KINDS

CUDA = 2  # of DLDeviceType
_HOST = (1, 3)  # CPU, and what CUDA has pinned of the host's
_CUDA = (CUDA, 13)  # a device's, and managed memory
_READ_ONLY = 1  # bit of DLManagedTensorVersioned.flags
_MAJOR = 1  # the versioned struct that is read here


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("manager", c_void_p), ("deleter", c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    ]


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = c_int
_is_valid.argtypes = [ctypes.py_object, c_char_p]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = c_void_p
_get_pointer.argtypes = [ctypes.py_object, c_char_p]


class Borrowed(NamedTuple):
    """A foreign tensor. `owner` must live as long as the memory is used."""

    address: int
    kind: str
    item_bytes: int
    shape: Tuple[int, ...]
    contiguous: bool  # C order, without gaps
    read_only: bool
    device: Optional[int]  # number of a CUDA device; None: in host memory
    owner: object


def offers(given: Any) -> bool:
    """Whether the object speaks DLPack."""
    return hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__")


def _device_of(given: Any, what: str, stream: Optional[int]) -> Optional[int]:
    """The number of the CUDA device; None of host memory. Unsupported of others, and of all devices
    where no stream is named."""
    device, number = given.__dlpack_device__()
    if int(device) in _HOST:
        return None
    if int(device) in _CUDA and stream is not None:
        return int(number)
    name = DLPACK_DEVICES.get(int(device), f"device type {int(device)}")
    taken = "CPU memory" if stream is None else "memory of the CPU and of CUDA devices"
    raise Unsupported(f"{what} lies on {name}:{number}; only {taken} is supported: give a copy on "
                      "the CPU, such as tensor.cpu()")


def _capsule(given: Any, what: str, named: Dict[str, Any]) -> Any:
    try:
        try:
            return given.__dlpack__(max_version=(_MAJOR, 0), **named)
        except TypeError:  # a producer older than DLPack 1.0
            return given.__dlpack__(**named)
    except Exception as error:  # whatever a producer raises, such as torch for requires_grad
        raise InvalidArgument(f"{what}: its __dlpack__ refused: {error}") from error


def _contiguous(tensor: DLTensor, shape: Tuple[int, ...]) -> bool:
    if not tensor.strides or 0 in shape:
        return True
    expected = 1
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] != 1 and tensor.strides[axis] != expected:
            return False
        expected *= shape[axis]
    return True


def borrow(given: Any, what: str, stream: Optional[int] = None) -> Borrowed:
    """Reads where the elements lie. Unsupported for memory of other devices, naming the device.

    stream: what DLPack calls the stream that the producer is to order its work before, if the
    tensor lies on a CUDA device; None: it may not.
    """
    device = _device_of(given, what, stream)
    capsule = _capsule(given, what, {} if device is None else {"stream": stream})
    read_only = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = DLManagedTensorVersioned.from_address(
            _get_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != _MAJOR:
            raise Unsupported(f"{what}: its __dlpack__ speaks version {versioned.major}; only "
                              f"{_MAJOR} is supported")
        read_only = bool(versioned.flags & _READ_ONLY)
        tensor = versioned.tensor
    elif _is_valid(capsule, b"dltensor"):
        tensor = DLManagedTensor.from_address(_get_pointer(capsule, b"dltensor")).tensor
    else:
        raise InvalidArgument(f"{what}: its __dlpack__ gave no capsule named dltensor")
    shape = tuple(int(tensor.shape[axis]) for axis in range(tensor.ndim))
    kind = DLPACK_KINDS.get(tensor.code, "?") if tensor.lanes == 1 else "?"
    return Borrowed((tensor.data or 0) + tensor.byte_offset, kind, (tensor.bits + 7) // 8, shape,
                    _contiguous(tensor, shape), read_only, device, capsule)
