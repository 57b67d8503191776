# SPDX-License-Identifier: Apache-2.0
"""Buffers: what is borrowed without a copy, and what is refused with which words."""

import array
import collections
import ctypes
import types
import unittest

import libparallax as px
from libparallax import _buffers, _dlpack, _memory, _tables

from support import needs_numpy, numpy

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

BF16 = _tables.dtype_of("bf16")
F32 = _tables.dtype_of("f32")


class Tensor:
    """A tensor with DLPack and no buffer protocol, over an array.array."""

    def __init__(self, values, code=2, bits=32, shape=None, strides=None, device=(1, 0),
                 versioned=False, major=1, flags=0):
        self.values, self.device, self.versioned = values, device, versioned
        shape = (len(values),) if shape is None else shape
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = _dlpack.DLTensor(
            data=values.buffer_info()[0], device_type=device[0], device_id=device[1],
            ndim=len(shape), code=code, bits=bits, lanes=1, shape=self.shape,
            strides=self.strides, byte_offset=0)
        if versioned:
            self.managed = _dlpack.DLManagedTensorVersioned(major=major, minor=0, flags=flags,
                                                            tensor=tensor)
        else:
            self.managed = _dlpack.DLManagedTensor(tensor=tensor)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **asked):
        if asked and not self.versioned:
            raise TypeError("max_version: this producer is older")
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return _new_capsule(ctypes.addressof(self.managed), name, None)


def floats(*values):
    return array.array("f", values)


class Borrowing(unittest.TestCase):
    def refused(self, kind, words, given, *arguments, **named):
        with self.assertRaisesRegex(kind, words):
            _buffers.borrow_values(given, F32, (2, 2), "x", *arguments, **named)

    def test_no_copies(self):
        source = floats(1, 2, 3, 4)
        address = source.buffer_info()[0]
        for given in (source, memoryview(source), memoryview(source).cast("B").cast("f", (2, 2)),
                      Tensor(source), Tensor(source, versioned=True),
                      Tensor(source, shape=(2, 2), strides=(2, 1))):
            loan = _buffers.borrow_values(given, F32, (2, 2), "x", writable=True)
            self.assertEqual(loan.address, address)

    @needs_numpy
    def test_numpy_is_not_copied(self):
        rows = numpy.ones((2, 2), numpy.float32)
        self.assertEqual(_buffers.borrow_values(rows, F32, (2, 2), "x").address, rows.ctypes.data)
        tail = numpy.ones((4, 2), numpy.float32)[2:]
        self.assertEqual(_buffers.borrow_values(tail, F32, (2, 2), "x").address, tail.ctypes.data)

    def test_borrowed_until_the_loan_is_dropped(self):
        source = floats(1, 2, 3, 4)
        loan = _buffers.borrow(source, "x")
        with self.assertRaises(BufferError):
            source.append(5)
        del loan
        source.append(5)

    def test_capsule_is_kept(self):
        tensor = Tensor(floats(1, 2, 3, 4))
        loan = _buffers.borrow_values(tensor, F32, (2, 2), "x")
        self.assertEqual(type(loan.owner).__name__, "PyCapsule")

    def test_wrong_types(self):
        self.refused(px.InvalidArgument, "x is float64; it must be float32",
                     array.array("d", [1] * 4))
        self.refused(px.InvalidArgument, "x is int32; it must be float32",
                     array.array("i", [1] * 4))
        self.refused(px.InvalidArgument, "x is uint8; it must be float32", bytes(16))
        self.refused(px.InvalidArgument, "x is int32; it must be float32",
                     Tensor(array.array("i", [1] * 4), code=0))
        self.refused(px.InvalidArgument, "x is of another type",
                     Tensor(floats(1, 2, 3, 4), code=9))

    def test_wrong_shapes(self):
        self.refused(px.InvalidArgument,
                     r"x has shape \(3,\), which is 3 elements; it must have 2 rows of 2",
                     floats(1, 2, 3))
        self.refused(px.InvalidArgument, "not contiguous",
                     memoryview(floats(1, 2, 3, 4, 5, 6, 7, 8))[::2])
        self.refused(px.InvalidArgument, "not contiguous",
                     Tensor(floats(1, 2, 3, 4), shape=(2, 2), strides=(1, 2)))

    @needs_numpy
    def test_numpy_layouts(self):
        self.refused(px.InvalidArgument, "not contiguous .* numpy.ascontiguousarray",
                     numpy.ones((2, 2), numpy.float32).T[:, ::-1])
        self.refused(px.InvalidArgument, "big-endian", numpy.ones((2, 2), ">f4"))
        self.refused(px.InvalidArgument, "x is complex|of another type",
                     numpy.ones((2, 2), numpy.complex64))
        frozen = numpy.ones((2, 2), numpy.float32)
        frozen.flags.writeable = False
        _buffers.borrow_values(frozen, F32, (2, 2), "x")  # to be read
        self.refused(px.InvalidArgument, "x is read-only", frozen, writable=True)

    def test_read_only(self):
        source = floats(1, 2, 3, 4)
        self.refused(px.InvalidArgument, "x is read-only", memoryview(source).toreadonly(),
                     writable=True)
        self.refused(px.InvalidArgument, "x is read-only",
                     Tensor(source, versioned=True, flags=1), writable=True)

    def test_no_buffer(self):
        for given, described in (([1.0, 2.0], "of type list"), (None, "None"), (3, "of type int")):
            self.refused(px.InvalidArgument, f"x is {described}, whose memory", given)

    def test_other_devices(self):
        self.refused(px.Unsupported, "x lies on CUDA:1; only CPU memory",
                     Tensor(floats(1, 2, 3, 4), device=(2, 1)))
        self.refused(px.Unsupported, "x lies on device type 99:0",
                     Tensor(floats(1, 2, 3, 4), device=(99, 0)))

    def test_other_dlpack(self):
        self.refused(px.Unsupported, "speaks version 7",
                     Tensor(floats(1, 2, 3, 4), versioned=True, major=7))

        class Refusing(Tensor):
            def __dlpack__(self, **asked):
                raise BufferError("it requires grad")

        class Lying(Tensor):
            def __dlpack__(self, **asked):
                return "a tensor"

        self.refused(px.InvalidArgument, "its __dlpack__ refused: it requires grad",
                     Refusing(floats(1, 2, 3, 4)))
        self.refused(px.InvalidArgument, "no capsule named dltensor",
                     Lying(floats(1, 2, 3, 4)))

    def test_bfloat16(self):
        bits = array.array("H", [0x3f80] * 4)
        for given in (bits, Tensor(bits, code=4, bits=16), Tensor(bits, code=1, bits=16)):
            loan = _buffers.borrow_values(given, BF16, (2, 2), "x")
            self.assertEqual(loan.address, bits.buffer_info()[0])
        with self.assertRaisesRegex(px.InvalidArgument,
                                    "x is int16; it must be bfloat16, or its bits as uint16"):
            _buffers.borrow_values(array.array("h", [1] * 4), BF16, (2, 2), "x")

    def test_ids(self):
        for given in ([1, 2], (1, 2), range(1, 3), array.array("q", [1, 2])):
            loan, field = _buffers.borrow_ids(given, "ids", _tables.ID_TYPES)
            self.assertEqual((loan.item_count, field), (2, "ids"))
            self.assertEqual(list((ctypes.c_int64 * 2).from_address(loan.address)), [1, 2])
        loan, field = _buffers.borrow_ids(array.array("i", [1, 2]), "ids", _tables.ID_TYPES)
        self.assertEqual((loan.item_count, loan.item_bytes, field), (2, 4, "ids_i32"))
        for given, words in (([1.5], "row ids are integers"), (["a"], "row ids are integers"),
                             ([2 ** 63], "row ids are integers"),
                             (floats(1, 2), "ids are float32; they must be int64 or int32"),
                             ({1, 2}, "ids is of type set")):
            with self.assertRaisesRegex(px.InvalidArgument, words):
                _buffers.borrow_ids(given, "ids", _tables.ID_TYPES)


class Sweep(unittest.TestCase):
    """What was dropped is freed by a later call, which is not to wait for each of many."""

    def sweep(self, *statuses):
        """With buffers 0, 1, ... that are answered so: those asked for, and those left."""
        asked = []

        def call(_, address):
            asked.append(address)
            return types.SimpleNamespace(status=statuses[address])

        whole = types.SimpleNamespace(dropped=collections.deque(range(len(statuses))), call=call)
        _memory.sweep(types.SimpleNamespace(whole=whole))
        return asked, list(whole.dropped)

    def test_what_stays_is_tried_again(self):
        self.assertEqual(self.sweep(px.Status.STATE, px.Status.OK, px.Status.IO),
                         ([0, 1, 2], [0, 2]))

    def test_one_timeout_is_enough(self):
        self.assertEqual(self.sweep(px.Status.OK, px.Status.TIMEOUT, px.Status.OK),
                         ([0, 1], [2, 1]))


class DTypes(unittest.TestCase):
    def test_names(self):
        for dtype in _tables.DTYPES:
            for given in (dtype.name, dtype.long_name, dtype, f"torch.{dtype.long_name}"):
                self.assertEqual(_tables.dtype_of(given), dtype)

    @needs_numpy
    def test_of_numpy(self):
        for dtype in _tables.DTYPES:
            self.assertEqual(numpy.dtype(dtype.storage).itemsize, dtype.item_bytes)
            self.assertEqual(dtype.storage == dtype.long_name, dtype.kind != "b")
            if dtype.storage == dtype.long_name:
                for given in (numpy.dtype(dtype.storage), numpy.dtype(dtype.storage).type):
                    self.assertEqual(_tables.dtype_of(given), dtype)

    def test_memoryviews(self):
        for dtype in _tables.DTYPES:
            self.assertEqual(memoryview(bytes(8)).cast(dtype.char).itemsize, dtype.item_bytes)


if __name__ == "__main__":
    unittest.main()
