# SPDX-License-Identifier: Apache-2.0
"""DLPack, read with ctypes: where the elements of a foreign CPU tensor lie, and of what type.

The capsule is never marked as consumed: it stays the owner, and its destructor calls the producer's
deleter once the caller of borrow() drops it, as DLPack 1.0 says for capsules that nobody consumed.
"""

from __future__ import annotations

import ctypes
from ctypes import (c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p)
from typing import Any, NamedTuple, Tuple

from ._errors import InvalidArgument, Unsupported
from ._tables import DLPACK_DEVICES, DLPACK_KINDS

_CPU = 1
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
    owner: object


def offers(given: Any) -> bool:
    """Whether the object speaks DLPack."""
    return hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__")


def _check_device(given: Any, what: str) -> None:
    device, number = given.__dlpack_device__()
    if int(device) != _CPU:
        name = DLPACK_DEVICES.get(int(device), f"device type {int(device)}")
        raise Unsupported(f"{what} lies on {name}:{number}; only CPU memory is supported: give a "
                          "copy on the CPU, such as tensor.cpu()")


def _capsule(given: Any, what: str) -> Any:
    try:
        try:
            return given.__dlpack__(max_version=(_MAJOR, 0))
        except TypeError:  # a producer older than DLPack 1.0
            return given.__dlpack__()
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


def borrow(given: Any, what: str) -> Borrowed:
    """Reads where the elements lie. Unsupported for memory of other devices, naming the device."""
    _check_device(given, what)
    capsule = _capsule(given, what)
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
                    _contiguous(tensor, shape), read_only, capsule)
