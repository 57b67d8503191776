# SPDX-License-Identifier: Apache-2.0
"""Buffers on CUDA devices, over the double of the driver: what is taken, memory of a job there, and
what is refused."""

import ctypes
import gc
import threading
import unittest
import weakref

import libparallax as px
from libparallax import _device, _step
from cuda_double import Described, DeviceCase, Stream, Tensor, bits_of
from support import numpy as np


class Bad:
    def __init__(self, told):
        self.__cuda_array_interface__ = told


class NeedsGrad:
    """What PyTorch says of a parameter."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        raise RuntimeError("Can't export tensors that require gradient, use tensor.detach(): it "
                           "requires grad")


class Elsewhere(NeedsGrad):
    def __dlpack_device__(self):
        return 10, 3


class Managed(Tensor):
    def __dlpack_device__(self):
        return 13, self.device


class Pinned:
    """As PyTorch tells of pin_memory()."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 3, 0

    def __dlpack__(self):
        return self.array.__dlpack__()


class Buffers(DeviceCase):
    @unittest.skipIf(px.core_path() is None, "without the compiled core all go by ctypes")
    def test_the_compiled_core_takes_tensors_of_devices(self):
        ids, rows = self.tensor([1, 2], "int32"), self.tensor(np.ones((2, 2)))
        saved = _step.Step._post
        self.addCleanup(setattr, _step.Step, "_post", saved)
        _step.Step._post = None
        with self.job.step(learning_rate=1) as step:
            out = step.pull(self.table, ids, out=rows, stream=self.stream).wait()
            self.assertEqual(out.host().tolist(), [[3, 3], [3, 3]])
            step.push(self.table, ids, rows)
            step.reduce(self.held, rows, into=self.tensor(np.ones((2, 2)))).wait()
        _step.Step._post = saved
        with self.job.step() as step:
            self.assertEqual(step.pull(self.table, [0, 1]).wait().tolist(), [[3, 3], [0, 0]])

    def test_interface(self):
        """An array that has no DLPack: ids, values and out."""
        ids = Described(self.tensor([1, 2], "int64"))
        out = self.tensor(np.zeros((2, 2)))
        with self.job.step(learning_rate=1) as step:
            step.pull(self.table, ids, out=Described(out)).wait()
            step.push(self.table, ids, Described(self.tensor([[1, 2], [3, 4]])))
        self.assertEqual(out.host().tolist(), [[3, 3], [3, 3]])
        with self.job.step() as step:
            step.pull(self.table, ids, out=out).wait()
        self.assertEqual(out.host().tolist(), [[2, 1], [0, -1]])

    def test_numbers_of_the_device_where_the_interface_has_none(self):
        second = Stream(self.driver, 1)
        self.addCleanup(second.close)
        there = Tensor(np.ones((2, 2), np.float32), second)
        given = Described(there)
        with self.job.step() as step:
            with self.assertRaisesRegex(px.InvalidArgument, "is memory of device 1, and device is "
                                                            "0") as caught:
                step.reduce(self.held, given)
            self.assertEqual((caught.exception.field, caught.exception.variable),
                             ("device", "held"))
            step.reduce(self.held, given, device=1).wait()
        del given, there

    def test_bfloat16_and_as_dtype(self):
        bits = bits_of([1, 2, -3, 0.5])
        with self.job.step(learning_rate=1) as step:
            step.push(self.half, Tensor(bits, self.stream, bfloat16=True), stream=self.stream)
        with self.job.step(learning_rate=1) as step:  # of another dtype than the variable's
            step.push(self.half, self.tensor([1, 1, 1, 1]), dtype="f32")
        out, wide = Tensor(bits, self.stream, bfloat16=True), self.tensor(np.zeros(4))
        with self.job.step() as step:
            step.pull(self.half, out=out).wait()
            step.pull(self.half, out=wide, dtype="f32").wait()
        self.assertEqual(out.host().tolist(), bits_of([-2, -3, 2, -1.5]).tolist())
        self.assertEqual(wide.host().tolist(), [-2, -3, 2, -1.5])
        with self.job.step() as step:
            with self.assertRaisesRegex(px.InvalidArgument, "is float32; it must be bfloat16"):
                step.push(self.half, wide)

    def test_rows_are_in_host_memory(self):
        rows = self.job.register("rows", rows=10, row_elements=2, rows_max=4)
        self.job.commit()
        with self.job.step() as step:
            union = step.reduce(rows, self.tensor([7, 3, 7], "int64"),
                                self.tensor([[1, 1], [2, 2], [3, 3]])).wait()
        self.assertEqual(union.ids.tolist(), [3, 7])
        self.assertEqual(union.values.tolist(), [[2, 2], [4, 4]])

    def test_a_tensor_is_kept_until_its_request_is_over(self):
        late = self.late()
        gone = weakref.ref(late)
        with self.job.step() as step:
            request = step.reduce(self.held, late, into=self.tensor(np.ones((2, 2))),
                                  stream=self.stream)
            del late
            gc.collect()
            self.assertIsNotNone(gone())
            self.stream.go()
            request.wait()
        del request, step
        gc.collect()
        self.assertIsNone(gone())

    # ---- memory of the job's own

    def test_pulls_make_arrays_where_the_ids_lie(self):
        with self.job.step() as step:
            here = step.pull(self.table, [1, 2]).wait()
            self.assertIsInstance(here, np.ndarray)
            for given in ({"ids": self.tensor([1, 2], "int64")},
                          {"ids": np.array([1, 2]), "memory": "cuda"},
                          {"ids": [1, 2], "device": 0}):
                there = step.pull(self.table, **given).wait()
                self.assertIsInstance(there, px.DeviceArray)
                self.assertEqual((there.shape, there.device), ((2, 2), 0))
                self.assertEqual(self.text_of(there), [[3, 3], [3, 3]])
            second = step.pull_many([(self.table, [1])], memory=px.Memory.CUDA, device=1).wait()
            self.assertEqual(second[0].device, 1)
            step.push(self.table, [1, 2], there)  # and it is a buffer of any call
        there = self.job.pull(self.half, memory="cuda", stream=self.stream).wait()
        self.assertEqual((str(there.dtype), there.nbytes), ("bfloat16", 8))

    def text_of(self, array):
        """What lies in a DeviceArray, by its own interface."""
        told = array.__cuda_array_interface__
        alias = self.driver.alias(told["data"][0], array.nbytes)
        there = (ctypes.c_char * array.nbytes).from_address(alias)
        return np.frombuffer(there, told["typestr"]).reshape(told["shape"]).tolist()

    def test_empty(self):
        array = self.job.empty((2, 3), "f16", memory="cuda", device=1)
        self.assertEqual(repr(array), "<libparallax.DeviceArray (2, 3) float16 on CUDA:1>")
        self.assertEqual(self.text_of(array), [[0, 0, 0], [0, 0, 0]])
        told = array.__cuda_array_interface__
        self.assertEqual((told["version"], told["shape"], told["typestr"], told["strides"],
                          told["stream"]), (3, (2, 3), "<f2", None, None))
        self.assertEqual(array.__dlpack_device__(), (2, 1))
        nothing = self.job.empty(0, memory="cuda")
        self.assertEqual((nothing.nbytes, nothing.__cuda_array_interface__["data"][0]), (0, 0))
        for given, kind, sentence in (
                ({"shape": 2, "device": 2}, px.Unsupported, "device is 2, and the CUDA driver"),
                ({"shape": 2, "numa_node": 0}, px.InvalidArgument, "numa_node"),
                ({"shape": 2, "device": -1}, px.InvalidArgument, "device is -1"),
                ({"shape": 2, "memory": "gpu"}, px.InvalidArgument, "'host', 'cuda'"),
                ({"shape": 2, "memory": "host", "device": 1}, px.InvalidArgument, "device")):
            with self.subTest(**given), self.assertRaisesRegex(kind, sentence):
                self.job.empty(**{"memory": "cuda", **given})

    def test_tensors_over_an_array(self):
        """DLPack, before and since 1.0: the struct is there until its deleter was called, and the
        memory until the last of them is gone."""
        array = self.job.empty(4, memory="cuda")
        address = array.__cuda_array_interface__["data"][0]
        before = len(_device._exports)
        capsules = [array.__dlpack__(stream=1), array.__dlpack__(max_version=(1, 0))]
        for capsule, kind in zip(capsules, ("dltensor", "dltensor_versioned")):
            self.assertIn(f'"{kind}"', repr(capsule))
        self.assertEqual(len(_device._exports), before + 2)
        consumed = capsules.pop()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        managed = _device.DLManagedTensorVersioned.from_address(
            pointer(consumed, b"dltensor_versioned"))
        self.assertEqual((managed.tensor.data, managed.tensor.device_type, managed.tensor.bits,
                          managed.tensor.shape[0]), (address, 2, 32, 4))
        used = b"used_dltensor_versioned"
        rename(consumed, used)
        capsules.clear()
        del consumed, array  # what was consumed is the consumer's to delete
        gc.collect()
        self.assertEqual(len(_device._exports), before + 1)
        self.job.empty(1)  # sweeps
        self.assertTrue(self.driver.alias(address, 16))
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)
        thread = threading.Thread(target=deleter, args=(ctypes.addressof(managed),))
        thread.start()
        thread.join()
        self.assertEqual(len(_device._exports), before)
        freed = self.driver.calls("cuMemFree_v2")
        self.job.empty(1)
        self.assertEqual(self.driver.calls("cuMemFree_v2"), freed + 1)
        with self.assertRaisesRegex(BufferError, "not copied"):
            self.job.empty(4, memory="cuda").__dlpack__(copy=True)
        with self.assertRaisesRegex(BufferError, "lies where it is"):
            self.job.empty(4, memory="cuda").__dlpack__(dl_device=(1, 0))

    def test_variables_with_a_place(self):
        """The array that every reduce is given, and where the aggregate goes."""
        values, into = (self.job.empty((2, 2), memory="cuda", symmetric=True) for _ in range(2))
        host = (ctypes.c_float * 4).from_address(
            self.driver.alias(values.__cuda_array_interface__["data"][0], values.nbytes))
        other = self.tensor(np.ones((2, 2)))
        # In the order of their names: the first two have windows, each of one rank.
        placed = [self.job.register("a", rows=2, row_elements=2, memory="cuda",
                                    place_values=values),
                  self.job.register("b", rows=2, row_elements=2, memory="cuda",
                                    place_values=self.job.empty(4, memory="cuda", symmetric=True),
                                    place_into=into)]
        for given, kind, sentence in (
                ({"place_values": other}, px.InvalidArgument, "not all lie in one buffer"),
                ({"place_values": np.ones((2, 2), np.float32)}, px.InvalidArgument,
                 "not all lie in one buffer"),
                ({"place_values": self.job.empty(3, memory="cuda")}, px.InvalidArgument,
                 "place_values of variable 'c' has shape"),
                ({"place_into": into}, px.InvalidArgument, "place_values is NULL"),
                ({"place_values": values, "rule": "sgd"}, px.Unsupported, "update rule"),
                ({"place_values": "here"}, px.InvalidArgument, "place_values")):
            with self.subTest(**given), self.assertRaisesRegex(kind, sentence) as caught:
                self.job.register("c", rows=2, row_elements=2, memory="cuda", **given)
            self.assertIn(caught.exception.field, ("place_values", "place_into"))
        with self.assertRaisesRegex(px.InvalidArgument, "symmetric"):
            self.job.empty(4, symmetric=True)
        self.job.commit()
        self.assertIn("in windows of symmetric memory", str(self.job.report()))
        host[:] = [1, 2, 3, 4]
        with self.job.step() as step:
            with self.assertRaisesRegex(px.InvalidArgument, "registered with place_values"):
                step.reduce(placed[0], other)
            with self.assertRaisesRegex(px.InvalidArgument, "into"):
                step.reduce(placed[0], values, into=into)
            step.reduce(placed[0], values)
        self.assertEqual(self.text_of(values), [[1, 2], [3, 4]])
        del values, into
        gc.collect()
        self.job.empty(1)  # sweeps; what is kept stays
        self.assertEqual(list(host), [1, 2, 3, 4])

    def test_variables_whose_slices_lie_on_devices(self):
        there = self.job.register("there", rows=2, row_elements=2, rule="sgd", memory="cuda")
        self.job.commit()
        self.assertEqual(there.memory, px.Memory.CUDA)
        with self.job.step(learning_rate=1) as step:
            self.assertIsInstance(step.pull(there).wait(), px.DeviceArray)
            with self.assertRaisesRegex(px.InvalidArgument, "all its slices lie on devices"):
                step.push(there, np.ones((2, 2), np.float32))
            step.push(there, self.tensor([[1, 2], [3, 4]]))
        self.assertEqual(self.text_of(self.job.pull(there).wait()), [[-1, -2], [-3, -4]])
        with self.assertRaisesRegex(px.InvalidArgument, "register: memory is 'gpu'"):
            self.job.register("bad", rows=1, memory="gpu")

    # ---- what is refused

    def refused(self, kind, sentence, call, **facts):
        with self.assertRaisesRegex(kind, sentence) as caught:
            call()
        for name, value in facts.items():
            self.assertEqual(getattr(caught.exception, name), value, name)

    def test_refusals(self):
        here, there = np.ones((2, 2), np.float32), self.tensor(np.ones((2, 2)))
        ids = self.tensor([1, 2], "int64")
        second = Stream(self.driver, 1)
        self.addCleanup(second.close)
        other = Tensor(here, second)
        frozen = Described(there, data=(there.memory.address, True))
        apart = Described(there, strides=(16, 4))
        with self.job.step() as step:
            for kind, sentence, call, facts in (
                    (px.InvalidArgument, "ids is on a CUDA device, and values in host memory",
                     lambda: step.push(self.table, ids, here), {"field": "ids",
                                                                "variable": "table", "slice": 0}),
                    (px.InvalidArgument, "into is on a CUDA device, and values in host memory",
                     lambda: step.reduce(self.held, here, into=there), {"field": "into"}),
                    (px.InvalidArgument, "into is in host memory, and memory is",
                     lambda: step.reduce(self.held, there, into=here), {"field": "into"}),
                    (px.InvalidArgument, "into is memory of device 1, and device is 0",
                     lambda: step.reduce(self.held, there, into=other), {"field": "device"}),
                    (px.InvalidArgument, "values is memory of device 0, and device is 1",
                     lambda: step.reduce(self.held, there, device=1), {"field": "device"}),
                    (px.Unsupported, "device is 7, and the CUDA driver shows 2",
                     lambda: step.reduce(self.held, there, device=7), {"field": "device"}),
                    (px.InvalidArgument, "device is 'x'; it must be its number",
                     lambda: step.reduce(self.held, there, device="x"), {"field": "device"}),
                    (px.InvalidArgument, "device is -1; it must be its number",
                     lambda: step.push(self.table, [1, 2], there, device=-1), {}),
                    (px.InvalidArgument, "is float64; it must be float32",
                     lambda: step.reduce(self.held, self.tensor(np.ones((2, 2)), "float64")), {}),
                    (px.InvalidArgument, "of variable 'held' is not contiguous",
                     lambda: step.reduce(self.held, apart), {}),
                    (px.InvalidArgument, "is read-only, and results are written to it",
                     lambda: step.reduce(self.held, frozen), {}),
                    (px.InvalidArgument, "its __cuda_array_interface__ cannot be read: KeyError",
                     lambda: step.reduce(self.held, Bad({})), {}),
                    (px.InvalidArgument, "has a mask",
                     lambda: step.reduce(self.held, Described(there, mask=1)), {}),
                    (px.InvalidArgument, "is big-endian",
                     lambda: step.reduce(self.held, Described(there, typestr=">f4")), {}),
                    (px.InvalidArgument, "is 0, which may be either",
                     lambda: step.reduce(self.held, Described(there, 0)), {"field": "stream"}),
                    (px.InvalidArgument, "its __dlpack__ refused: .*requires grad",
                     lambda: step.reduce(self.held, NeedsGrad()), {"variable": "held"}),
                    (px.Unsupported, "lies on ROCm:3; only memory of the CPU and of CUDA",
                     lambda: step.reduce(self.held, Elsewhere()), {"variable": "held"}),
                    (px.Unsupported, "lies on CUDA:0; only CPU memory is supported",
                     lambda: self.job.allreduce(there), {}),
                    (px.Unsupported, "lies on a CUDA device; only CPU memory is supported",
                     lambda: self.job.broadcast(Described(there)), {}),
                    (px.Unsupported, "lies on CUDA:0; only CPU memory is supported",
                     lambda: self.job.register_buffer(there), {})):
                with self.subTest(sentence=sentence):
                    self.refused(kind, sentence, call, **facts)
            frozen_push = step.push(self.table, ids, frozen)  # only read
            frozen_push.wait()
        self.refused(px.Unsupported, "lies on CUDA:0; only CPU",
                     lambda: self.job.register("x", rows=2, row_elements=2, rule="sgd",
                                               init=there))

    def test_managed_memory_and_what_is_pinned(self):
        """Managed memory is a device's; what CUDA has pinned of the host's is the host's."""
        with self.job.step() as step:
            managed = self.tensor([[1, 2], [3, 4]])
            managed.__class__ = Managed
            into = self.tensor(np.zeros((2, 2)))
            step.reduce(self.held, managed, into=into).wait()
            self.assertEqual(into.host().tolist(), [[1, 2], [3, 4]])
        with self.job.step(learning_rate=1) as step:
            step.push(self.table, [1, 2], Pinned(np.ones((2, 2), np.float32)))
        self.assertEqual(self.job.pull(self.table, [1]).wait().tolist(), [[2, 2]])


if __name__ == "__main__":
    unittest.main()
