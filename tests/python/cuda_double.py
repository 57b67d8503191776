# SPDX-License-Identifier: Apache-2.0
"""Tensors on devices of the double of the CUDA driver (tests/cuda/double), as a framework has them:
work of their own stream writes them, and they are handed over by DLPack or by
`__cuda_array_interface__`. Memory of a device can be touched by its alias alone."""

import contextlib
import ctypes
import gc
import os
import unittest
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p

import libparallax as px
from libparallax import _device, _tables
from support import TIMEOUT, needs_numpy, numpy as np

FOLDER = os.environ.get("PARALLAX_TEST_CUDA_DOUBLE", "")
NON_BLOCKING = 1

needs_double = unittest.skipIf(
    not FOLDER, "there is no double of the CUDA driver (cuda.h and nccl.h, docs/gpu.md)")


def bits_of(values):
    """bfloat16 of float32, as its bits; of numbers that it holds."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Driver:
    """The functions of libcuda.so.1 that are used here; each raises where it fails."""

    def __init__(self):
        self.library = ctypes.CDLL(os.path.join(FOLDER, "libcuda.so.1"))
        self.library.cuda_double_alias.restype = c_void_p
        self.library.cuda_double_calls.restype = c_uint64
        self.contexts = {}
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: CUDA error {result}")

    @contextlib.contextmanager
    def on(self, device):
        """Makes the primary context of a device current; it is kept until close()."""
        if device not in self.contexts:
            self.contexts[device] = c_void_p()
            self.call("cuDevicePrimaryCtxRetain", byref(self.contexts[device]), c_int(device))
        self.call("cuCtxPushCurrent_v2", self.contexts[device])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def close(self):
        self.library.cuda_double_hold_all(0)
        for device in self.contexts:
            self.call("cuDevicePrimaryCtxRelease_v2", c_int(device))
        self.contexts = {}

    def nccl_launched(self):
        """Collectives of this process, by the double of NCCL."""
        library = ctypes.CDLL(os.path.join(FOLDER, "libnccl.so.2"))
        library.nccl_double_launched.restype = c_uint64
        return library.nccl_double_launched()

    def calls(self, name):
        return self.library.cuda_double_calls(c_char_p(name.encode()))

    def alias(self, address, size):
        """Where the host sees memory of a device."""
        found = self.library.cuda_double_alias(c_void_p(address), c_size_t(size), c_int(-1))
        assert found, hex(address)
        return found


class Stream:
    """As torch.cuda.Stream: its handle is cuda_stream."""

    def __init__(self, driver, device=0, flags=NON_BLOCKING):
        self.driver = driver
        self.device = device
        handle = c_void_p()
        with driver.on(device):
            driver.call("cuStreamCreateWithPriority", byref(handle), flags, 0)
        self.cuda_stream = handle.value

    def hold(self, held=1):
        self.driver.library.cuda_double_hold(c_void_p(self.cuda_stream), c_int(held))

    def go(self):
        self.hold(0)

    def wait(self):
        with self.driver.on(self.device):
            self.driver.call("cuStreamSynchronize", c_void_p(self.cuda_stream))

    def close(self):
        self.go()
        self.wait()
        with self.driver.on(self.device):
            self.driver.call("cuStreamDestroy_v2", c_void_p(self.cuda_stream))


class Memory:
    """A block of a device, given back when it is dropped."""

    def __init__(self, driver, size, device):
        self.driver, self.size, self.device = driver, size, device
        address = c_void_p()
        with driver.on(device):
            driver.call("cuMemAlloc_v2", byref(address), c_size_t(max(size, 1)))
        self.address = address.value

    def __del__(self):
        with self.driver.on(self.device):
            self.driver.call("cuMemFree_v2", c_void_p(self.address))


class Tensor:
    """Numbers on a device, which work on `stream` writes. `bfloat16`: the array has its bits."""

    def __init__(self, values, stream, bfloat16=False, old=False, strides=None):
        self.driver, self.device, self.stream = stream.driver, stream.device, stream
        self.array_dtype, self.shape = values.dtype, values.shape
        self.old = old  # older than DLPack 1.0
        self.asked = []  # the streams that consumers named
        self.memory = Memory(self.driver, values.nbytes, self.device)
        name = "bf16" if bfloat16 else values.dtype.name
        self.array = _device.DeviceArray(self.memory.address, values.shape,
                                         _tables.dtype_of(name), self.device, self.memory)
        self.strides = strides
        if values.size:
            self.host()[...] = values

    def host(self):
        """What lies there; for when nothing is under way."""
        size = self.memory.size
        if size == 0:
            return np.empty(self.shape, self.array_dtype)
        there = (ctypes.c_char * size).from_address(
            self.driver.alias(self.memory.address, size))
        return np.frombuffer(there, self.array_dtype).reshape(self.shape)

    def write(self, other):
        """Work on the stream: copies another tensor of the device."""
        with self.driver.on(self.device):
            self.driver.call("cuMemcpyDtoDAsync_v2", c_void_p(self.memory.address),
                             c_void_p(other.memory.address), c_size_t(self.memory.size),
                             c_void_p(self.stream.cuda_stream))

    def order_before(self, stream):
        """Makes a stream, by DLPack's number, wait for what is on this tensor's."""
        if stream == self.stream.cuda_stream:
            return
        event = c_void_p()
        with self.driver.on(self.device):
            self.driver.call("cuEventCreate", byref(event), 2)
            self.driver.call("cuEventRecord", event, c_void_p(self.stream.cuda_stream))
            self.driver.call("cuStreamWaitEvent", c_void_p(stream), event, 0)
            self.driver.call("cuEventDestroy_v2", event)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None, **named):
        if self.old and named:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.asked.append(stream)
        if stream != -1:
            self.order_before(1 if stream is None else stream)
        return self.array.__dlpack__(**named)


class Described:
    """A tensor that tells itself by __cuda_array_interface__ alone, as Numba's."""

    def __init__(self, tensor, stream=None, **other):
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            **tensor.array.__cuda_array_interface__, "stream": stream, **other}


@needs_double
@needs_numpy
class DeviceCase(unittest.TestCase):
    """A job of one rank, and a stream of device 0."""

    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()

    @classmethod
    def tearDownClass(cls):
        gc.collect()
        cls.driver.close()

    def setUp(self):
        self.job = px.open(timeout=TIMEOUT)
        self.table = self.job.register("table", rows=10, row_elements=2, rows_max=4, rule="sgd",
                                       init=3.0)
        self.held = self.job.register("held", rows=2, row_elements=2)
        self.half = self.job.register("half", rows=4, dtype="bf16", rule="sgd")
        self.job.commit()
        self.stream = Stream(self.driver)
        self.addCleanup(self.end)

    def end(self):
        self.job.close()
        gc.collect()
        self.stream.close()

    def tensor(self, values, dtype="float32", **named):
        return Tensor(np.asarray(values, dtype), self.stream, **named)

    def reduced(self, given, **named):
        """A reduce of one rank into another buffer: what was read of `given`."""
        with self.job.step() as step:
            into = self.tensor(np.zeros((2, 2)))
            step.reduce(self.held, given, into=into, **named).wait()
        return into.host().tolist()

    def late(self):
        """Numbers that a copy on the held stream will write."""
        source = self.tensor([[1, 2], [3, 4]])
        late = self.tensor([[9, 9], [9, 9]])
        self.stream.hold()
        late.write(source)
        self.kept = source
        return late
