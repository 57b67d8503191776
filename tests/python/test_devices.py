# SPDX-License-Identifier: Apache-2.0
"""Tensors on CUDA devices, over the double of the driver: a training, and the order of streams."""

import ctypes
import gc
import os
import signal
import tempfile
import threading
import time
import unittest

import libparallax as px
from cuda_double import Described, DeviceCase, Driver, Stream, Tensor, bits_of, needs_double
from support import TIMEOUT, needs_numpy, numpy as np, run_ranks, run_script

SHORT = 0.2  # seconds, in which a call that did not wait would be over


class Places:
    """Where a training has its buffers: on a device, or in host memory."""

    def __init__(self, driver, rank):
        self.stream = None if driver is None else Stream(driver, rank)
        self.sources = []  # of copies that may be under way

    def put(self, values, **named):
        """Numbers that work of the stream writes."""
        if self.stream is None:
            return values
        later = Tensor(np.zeros_like(values), self.stream, **named)
        self.sources.append(Tensor(values, self.stream, **named))
        later.write(self.sources[-1])  # not before its stream comes to it
        return later

    def get(self, given):
        return given.host().copy() if isinstance(given, Tensor) else given.copy()

    def close(self):
        if self.stream is not None:
            self.stream.wait()
            self.sources.clear()
            gc.collect()
            self.stream.close()


def train(job, driver, memory="host"):
    """Some steps of a sparse table, of a weight that the caller keeps, and of a bias in bfloat16;
    what each step gave, and the table at the end. Buffers lie on devices of the driver, if any;
    with memory "cuda" devices sum the weight among themselves."""
    table = job.register("table", rows=50, row_elements=4, rows_max=16, rule="adagrad",
                         init=px.Uniform(-1, 1, seed=3), initial_accumulator_value=0.1)
    held = job.register("held", rows=6, row_elements=3, memory=memory)
    bias = job.register("bias", rows=8, dtype="bf16", rule="sgd")
    job.commit()
    random = np.random.default_rng(7 + job.rank)
    places = Places(driver, job.rank)
    told = []
    for number in range(6):
        ids = random.integers(0, 50, 9).astype(np.int64 if number % 2 else np.int32)
        gradient = random.standard_normal((6, 3)).astype(np.float32)
        pushed = bits_of(random.integers(-4, 5, 8))
        stream = (None, places.stream)[number % 2]
        with job.step(learning_rate=0.1) as step:
            # Ids lie on the device in one step, in host memory in the next.
            given = ids if number % 3 == 0 else places.put(ids)
            out = places.put(np.zeros((9, 4), np.float32))
            rows = step.pull(table, given, out=out, stream=stream)
            place = places.put(gradient)
            into = places.put(np.zeros((6, 3), np.float32)) if number % 2 else None
            summed = step.reduce(held, place, into=into, stream=stream)
            step.push(bias, places.put(pushed, bfloat16=driver is not None),
                      stream=stream)
            rows = places.get(rows.wait())
            grown = places.put(rows * np.float32(0.5) + 1)
            step.push(table, given, grown, stream=stream)
            told += [rows, places.get(summed.wait())]
    with job.step() as step:
        told += [step.pull(table, np.arange(16)).wait(), step.pull(bias).wait()]
    del rows, grown, place, into, out, given, summed
    places.close()
    return told


@needs_double
@needs_numpy
class Training(unittest.TestCase):
    def test_has_the_bits_of_one_in_host_memory(self):
        expected = run_ranks(2, lambda job: train(job, None), deterministic=True)
        driver = Driver()
        launched = driver.nccl_launched()
        for seed, memory in ((1, "host"), (2, "host"), (3, "cuda")):
            driver.library.cuda_double_set_delay(ctypes.c_uint64(seed), ctypes.c_uint32(300))
            got = run_ranks(2, lambda job: train(job, driver, memory), deterministic=True)
            if memory == "host":
                self.assertEqual(driver.nccl_launched(), launched)
            for ours, theirs in zip(got, expected):
                self.assertEqual(len(ours), len(theirs))
                for one, other in zip(ours, theirs):
                    self.assertEqual(one.tobytes(), np.asarray(other).tobytes())
        # Seven steps of two ranks, in the last of which none gives it.
        self.assertEqual(driver.nccl_launched() - launched, 14)
        driver.library.cuda_double_set_delay(ctypes.c_uint64(0), ctypes.c_uint32(0))
        driver.close()


class Streams(DeviceCase):
    def held_up(self, given, **named):
        """A reduce of `given`, whose stream is held: it waits until the stream goes on."""
        other = Stream(self.driver)  # or `into` would order the default stream behind the held one
        self.addCleanup(other.close)
        into = Tensor(np.zeros((2, 2), np.float32), other)
        with self.job.step() as step:
            request = step.reduce(self.held, given, into=into, **named)
            try:
                with self.assertRaises(px.Timeout):
                    request.wait(SHORT)
            finally:
                self.stream.go()
            self.assertIs(request.wait(), into)
        self.assertEqual(into.host().tolist(), [[1, 2], [3, 4]])

    def test_producers_order_their_work_before_the_default_stream(self):
        self.held_up(self.late())

    def test_the_caller_s_stream(self):
        self.held_up(self.late(), stream=self.stream)

    def test_the_per_thread_stream(self):
        self.held_up(self.late(), stream=2)

    def test_the_stream_of_the_interface(self):
        self.held_up(Described(self.late(), self.stream.cuda_stream))

    def test_what_is_ready_is_not_waited_for(self):
        ready = self.tensor([[1, 2], [3, 4]])
        blocking = Stream(self.driver, flags=0)  # the legacy default stream waits for it
        self.addCleanup(blocking.close)
        late = Tensor(np.zeros((2, 2), np.float32), blocking)
        into = Tensor(np.zeros((2, 2), np.float32), blocking)
        blocking.hold()
        late.write(ready)
        try:
            for given in (ready, Described(ready)):
                with self.job.step() as step:
                    step.reduce(self.held, given, into=into, stream=-1).wait(TIMEOUT)
                self.assertEqual(into.host().tolist(), [[1, 2], [3, 4]])
        finally:
            blocking.go()
        blocking.wait()
        self.assertEqual(ready.asked, [-1])

    def test_which_stream_producers_are_told(self):
        handle = self.stream.cuda_stream

        class Handle:
            value = handle

        class Numba:
            handle = Handle()

        class Protocol:
            def __cuda_stream__(self):
                return 0, handle

        class Null:
            cuda_stream = 0

        for given, told in ((None, 1), (1, 1), (2, 2), (-1, -1), (handle, handle),
                            (np.int64(handle), handle), (self.stream, handle), (Numba(), handle),
                            (Protocol(), handle), (Null(), 1)):
            for old in (False, True):
                with self.subTest(stream=given, old=old):
                    tensor = self.tensor([[1, 2], [3, 4]], old=old)
                    self.assertEqual(self.reduced(tensor, stream=given), [[1, 2], [3, 4]])
                    self.assertEqual(set(tensor.asked), {told})

    def test_streams_that_are_none(self):
        tensor = self.tensor(np.ones((2, 2)))
        with self.job.step() as step:
            for given, sentence in ((0, "stream is 0, which may be either"), (-2, "stream is -2"),
                                    (2 ** 63, "give a handle"), ("0", "give a stream"),
                                    (1.5, "give a stream")):
                for call in (lambda **named: step.reduce(self.held, tensor, **named),
                             lambda **named: step.push(self.table, [1, 2], tensor, **named),
                             lambda **named: step.pull(self.table, [1, 2], **named),
                             lambda **named: step.pull_many([(self.table, [1, 2])], **named)):
                    with self.subTest(stream=given):
                        with self.assertRaisesRegex(px.InvalidArgument, sentence) as caught:
                            call(stream=given)
                        self.assertEqual(caught.exception.field, "stream")
        with self.job.step() as step:
            foreign = Stream(self.driver, 1)
            with self.assertRaisesRegex(px.ParallaxError, "primary context of device 0") as caught:
                step.reduce(self.held, self.tensor(np.ones((2, 2)), old=True), stream=foreign)
            self.assertEqual(caught.exception.field, "stream")
            foreign.close()

    def test_a_stream_waits_in_the_place_of_the_thread(self):
        """Copies to the device stand still: the call returns, and what is behind it on the stream
        reads the result."""
        reader = Stream(self.driver)
        self.addCleanup(reader.close)
        hold = self.driver.library.cuda_double_hold_operation
        self.addCleanup(hold, None)
        given = self.tensor([[1, 2], [3, 4]])
        into = self.tensor(np.zeros((2, 2)))
        seen = Tensor(np.zeros((2, 2), np.float32), reader)
        with self.job.step() as step:
            hold(ctypes.c_char_p(b"cuMemcpyHtoDAsync"))
            request = step.reduce(self.held, given, into=into, stream=self.stream)
            request.on_stream(reader)
            self.assertFalse(request.done())
            seen.write(into)
            time.sleep(SHORT)
            self.assertEqual(seen.host().tolist(), [[0, 0], [0, 0]])
            hold(None)
            reader.wait()
            self.assertEqual(seen.host().tolist(), [[1, 2], [3, 4]])
        self.assertIs(request.wait(), into)
        request.on_stream(reader)  # there is nothing to wait for

    def test_what_no_stream_can_wait_for_yet(self):
        late = self.late()
        reader = Stream(self.driver)
        self.addCleanup(reader.close)
        other = Stream(self.driver)  # or `into` would order the default stream behind the held one
        self.addCleanup(other.close)
        into = Tensor(np.zeros((2, 2), np.float32), other)
        with self.job.step() as step:
            request = step.reduce(self.held, late, into=into, stream=self.stream)
            try:
                for stream in (reader, 2):
                    with self.assertRaisesRegex(px.Timeout, "stream_wait: after .* its stream"):
                        request.on_stream(stream, SHORT)
                with self.assertRaisesRegex(px.Unsupported, "device is 9"):
                    request.on_stream(reader, SHORT, device=9)
                for given in (None, -1):
                    with self.assertRaisesRegex(px.InvalidArgument, "that is to wait") as caught:
                        request.on_stream(given)
                    self.assertEqual(caught.exception.field, "stream")
            finally:
                self.stream.go()
            request.on_stream(reader)
            request.wait()
        self.assertEqual(into.host().tolist(), [[1, 2], [3, 4]])

    def test_the_device_of_a_stream_that_does_not_tell(self):
        """Is that of the request's buffers, whichever way they were posted."""
        second = Stream(self.driver, 1)
        self.addCleanup(second.close)
        hold = self.driver.library.cuda_double_hold_operation
        self.addCleanup(hold, None)
        for named in ({}, {"device": 1}):
            given = Tensor(np.ones((2, 2), np.float32), second)
            hold(ctypes.c_char_p(b"cuMemcpyHtoDAsync"))  # so that it is not complete
            with self.job.step() as step:
                request = step.reduce(self.held, given, stream=second, **named)
                for stream in (second, second.cuda_stream, 1, 2):
                    request.on_stream(stream)
                with self.assertRaisesRegex(px.Unsupported, "primary context of device 0"):
                    request.on_stream(second, device=0)
                hold(None)
            # Memory goes once the device is idle: in the midst of the next turn it would not.
            del request, given

    def test_a_wait_that_is_interrupted_leaves_nothing_behind(self):
        """The stream is gone by the time at which the result comes, and nothing touches it."""
        late = self.late()
        reader = Stream(self.driver)
        other = Stream(self.driver)  # or `into` would order the default stream behind the held one
        self.addCleanup(other.close)
        into = Tensor(np.zeros((2, 2), np.float32), other)
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, handler)
        with self.job.step() as step:
            request = step.reduce(self.held, late, into=into, stream=self.stream)
            try:
                timer = threading.Timer(2 * SHORT, os.kill, [os.getpid(), signal.SIGINT])
                with self.assertRaises(KeyboardInterrupt):
                    timer.start()
                    request.on_stream(reader, TIMEOUT)
                timer.join()
                self.assertNotIn("libparallax-call", [each.name for each in threading.enumerate()])
            finally:
                reader.close()
                self.stream.go()
            request.wait()
        self.assertEqual(into.host().tolist(), [[1, 2], [3, 4]])

    def test_how_long_a_stream_s_wait_lasts(self):
        """Of the thread that looks for Ctrl-C meanwhile, and of one that does not."""
        late = self.late()
        other = Stream(self.driver)
        self.addCleanup(other.close)
        into = Tensor(np.zeros((2, 2), np.float32), other)
        self.job.set("timeout_ms", 300)
        with self.job.step() as step:
            request = step.reduce(self.held, late, into=into, stream=self.stream)

            def lasts(seconds):
                started = time.monotonic()
                with self.assertRaisesRegex(px.Timeout, "stream_wait: after .* its stream") as told:
                    request.on_stream(other, seconds)
                self.assertGreaterEqual(time.monotonic() - started,
                                        0.3 if seconds is None else seconds)
                return str(told.exception)

            try:
                for seconds, text in ((None, "within 300 ms"), (SHORT, "within 200 ms"),
                                      (0.02, "after 20 ms"), (0, "after 0 ms")):
                    self.assertIn(text, lasts(seconds))
                said = []
                thread = threading.Thread(target=lambda: said.append(lasts(SHORT)))
                thread.start()
                thread.join()
                self.assertIn("after 200 ms", said[0])
            finally:
                self.stream.go()
                self.job.set("timeout_ms", 1000 * TIMEOUT)

    def test_a_capture_is_refused_and_goes_on(self):
        """Of the caller's stream, and of the default one while another captures."""
        capture = self.driver.library.cuda_double_set_capture
        given = self.tensor([[1, 2], [3, 4]], old=True)
        into = self.tensor(np.zeros((2, 2)))
        blocking = Stream(self.driver, flags=0)
        self.addCleanup(blocking.close)
        plain = Described(given), Described(into)
        with self.job.step() as step:
            for captured, stream in ((self.stream, self.stream), (blocking, None)):
                capture(ctypes.c_void_p(captured.cuda_stream), 1)
                try:
                    with self.assertRaisesRegex(px.Unsupported, "being captured") as caught:
                        step.reduce(self.held, plain[0], into=plain[1], stream=stream)
                    self.assertEqual(caught.exception.field, "stream")
                finally:
                    capture(ctypes.c_void_p(captured.cuda_stream), 0)
            step.reduce(self.held, *plain[:1], into=plain[1]).wait()
        self.assertEqual(into.host().tolist(), [[1, 2], [3, 4]])

    def test_different_streams_in_one_slice(self):
        other = Stream(self.driver)
        self.addCleanup(other.close)
        given = Described(self.tensor(np.ones((2, 2))), self.stream.cuda_stream)
        ids = Described(self.tensor([1, 2], "int64"), other.cuda_stream)
        with self.job.step() as step:
            with self.assertRaisesRegex(px.InvalidArgument, "order of different streams") as caught:
                step.push(self.table, ids, given)
            self.assertEqual((caught.exception.field, caught.exception.variable),
                             ("stream", "table"))
            step.push(self.table, ids, given, stream=self.stream).wait()


WITHOUT = """
import libparallax as px
from libparallax import _device, _tables
array = _device.DeviceArray(4096, (2,), _tables.dtype_of("f32"), 0, None)
with px.open() as job:
    held = job.register("held", rows=2)
    job.commit()
    for call in (lambda: job.empty(2, memory="cuda"),
                 lambda: job.register("there", rows=2, memory="cuda")):
        try:
            call()
        except px.Unsupported as refusal:
            print(refusal.field, refusal.message)
    with job.step() as step:
        try:
            step.reduce(held, array)
        except px.Unsupported as refusal:
            print(refusal.variable, refusal.slice, refusal.field, refusal.message)
"""


class WithoutDevices(unittest.TestCase):
    """Needs no double: there is no driver, or no module."""

    @needs_double
    def test_a_driver_that_cannot_be_used(self):
        """cuInit is called once in a process."""
        status, out, error = run_script(WITHOUT, CUDA_DOUBLE_FAIL="cuInit:1:999")
        self.assertEqual((status, error), (0, ""))
        said = out.splitlines()
        self.assertEqual(len(said), 3, out)
        for line in said:
            self.assertRegex(line, "driver of CUDA .* cannot be used: cuInit: CUDA_ERROR_UNKNOWN")

    @needs_double  # the module was built
    def test_the_module_says_that_there_is_no_driver(self):
        if run_script("import ctypes; ctypes.CDLL('libcuda.so.1')", LD_LIBRARY_PATH="")[0] == 0:
            self.skipTest("this machine has a CUDA driver")
        status, out, error = run_script(WITHOUT, LD_LIBRARY_PATH="")
        self.assertEqual((status, error), (0, ""))
        said = out.splitlines()
        self.assertEqual(len(said), 3, out)
        for line in said:
            self.assertIn("no CUDA driver is installed on this machine: libcuda.so.1", line)
            self.assertRegex(line, r"/libparallax_cuda\.so: ")

    def test_the_library_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            status, out, error = run_script(WITHOUT, PARALLAX_MODULE_DIR=folder)
        self.assertEqual((status, error), (0, ""))
        said = out.splitlines()
        self.assertEqual(len(said), 3, out)
        for line, opening in zip(said, ("memory buffer_alloc: ", "memory variable 'there': ",
                                        "None None memory reduce: ")):
            self.assertTrue(line.startswith(opening), line)
            self.assertIn("libparallax_cuda.so", line)


if __name__ == "__main__":
    unittest.main()
