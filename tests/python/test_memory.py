# SPDX-License-Identifier: Apache-2.0
"""Memory of a job as arrays, which may outlive it; settings that change while it is open; and what
a query tells of both."""

import gc
import threading
import unittest

import libparallax as px
from support import needs_numpy, numpy as np, run_ranks

try:
    import torch
except ImportError:
    torch = None


def touch_memory():
    """Takes what was given back, so that an array over it would show."""
    return [bytearray(b"\xff" * 100000) for _ in range(50)]


class Memory(unittest.TestCase):
    def setUp(self):
        self.job = px.open()
        self.addCleanup(self.job.close)

    @needs_numpy
    def test_in_every_call(self):
        def body(job):
            table = job.register("table", rows=500, row_elements=4, rows_max=300, rule="sgd")
            held = job.register("held", rows=300, row_elements=4)
            job.commit()
            ids, rows, gradient, aggregate = (
                job.empty(300, "i64"), job.empty((300, 4)), job.empty((300, 4)),
                job.empty((300, 4)))
            self.assertFalse(rows.any() or ids.any())
            ids[:] = np.arange(300)
            gradient[:] = job.rank + 1
            with job.step(learning_rate=1) as step:
                step.push(table, ids, gradient)
                step.reduce(held, gradient, into=aggregate).wait()
            job.pull(table, ids, out=rows).wait()
            np.testing.assert_array_equal(rows, np.full((300, 4), -3))
            np.testing.assert_array_equal(aggregate, np.full((300, 4), 3))
            total = job.allreduce(gradient, out=gradient).wait()
            np.testing.assert_array_equal(total, aggregate)
            with job.split([0, 1]) as part:
                part.commit()
                of_part = part.empty(3, "f64")
                of_part[:] = 1
                self.assertEqual(part.allreduce(of_part).wait().tolist(), [2, 2, 2])
            del part
            gc.collect()
            self.assertEqual(of_part.tolist(), [1, 1, 1])
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    @needs_numpy
    def test_an_array_outlives_its_job(self):
        kept = []
        for way in ("close", "drop", "abort"):
            job = px.open()
            array = job.empty((1000, 3), "f64")
            array[:] = 7
            kept.append(array[1:, 1])
            del array
            if way == "close":
                job.close()
            elif way == "abort":
                job.abort("on purpose")
                job.close()
            else:
                with self.assertWarns(ResourceWarning):
                    del job
                    gc.collect()
            if way != "drop":
                del job
            gc.collect()
            taken = touch_memory()
            self.assertEqual(kept[-1].sum(), 7 * 999)
            kept[-1][:] = 8
            del taken
        self.assertEqual([each.sum() for each in kept], [8 * 999] * 3)

    @needs_numpy
    def test_dropped_ones_are_freed(self):
        def reserved():
            return self.job.report("stats")["buffers"]["allocated_bytes"]

        before = reserved()
        for _ in range(20):
            self.job.empty(1 << 20, "f64")[0] = 1
        kept = self.job.empty(100)
        self.assertLess(reserved() - before, 1 << 20)
        self.assertGreaterEqual(reserved() - before, kept.nbytes)

    @needs_numpy
    def test_borrowed_ones_are_not(self):
        def body(job):
            job.commit()
            if job.rank == 1:
                job.barrier().wait()
                return job.allreduce(np.full(1 << 16, 2.0), "sum").wait().sum()
            request = job.allreduce(job.empty(1 << 16, "f64"), "sum")
            for _ in range(3):
                job.empty(1 << 16, "f64")[:] = 9
            job.barrier().wait()
            return request.wait().sum()

        self.assertEqual(run_ranks(2, body), [2 << 16] * 2)

    @needs_numpy
    @unittest.skipIf(torch is None, "PyTorch is missing (python3-torch)")
    def test_tensors(self):
        tensor = torch.from_numpy(self.job.empty((2, 3)))
        held = self.job.register("held", rows=2, row_elements=3)
        self.job.commit()
        with self.job.step() as step:
            step.reduce(held, torch.ones(2, 3), into=tensor).wait()
        self.job.close()
        gc.collect()
        self.assertEqual(tensor.tolist(), [[1] * 3] * 2)

    def test_shapes(self):
        for shape, dtype, size in ((0, "f32", 0), ((3, 0), "i64", 0), ((), "f64", 8),
                                   (5, "bf16", 10), ((2, 3), "i32", 24), (7, "uint8", 7)):
            with self.subTest(shape=shape):
                array = memoryview(self.job.empty(shape, dtype, huge_pages=True, numa_node=0))
                self.assertEqual(array.nbytes, size)
                self.assertFalse(array.readonly)
        for shape, dtype, field in (((-1,), "f32", "shape"), ("3", "f32", "shape"),
                                    (3.5, "f32", "shape"), (3, "f8", "dtype"),
                                    ((1 << 40, 1 << 40), "f32", "shape")):
            with self.subTest(shape=shape):
                with self.assertRaises(px.InvalidArgument) as refused:
                    self.job.empty(shape, dtype)
                self.assertEqual(refused.exception.field, field)
        for numa_node in (-1, "0", 2 ** 32):
            with self.assertRaises(px.InvalidArgument) as refused:
                self.job.empty(3, numa_node=numa_node)
            self.assertEqual(refused.exception.field, "numa_node")
        with self.assertRaises(px.LimitExceeded):
            self.job.empty(1 << 58)
        self.job.close()
        with self.assertRaisesRegex(px.InvalidState, "the job is closed"):
            self.job.empty(3)

    def test_of_a_job_that_failed(self):
        for before in (True, False):
            with self.subTest(before=before):
                job = px.open()
                first = job.empty(3) if before else None
                job.abort("on purpose")
                if before:
                    array = job.empty(4)
                    memoryview(array)[3] = 5.0
                else:
                    with self.assertRaisesRegex(px.Aborted, "on purpose"):
                        job.empty(4)
                job.close()
                if before:
                    self.assertEqual(memoryview(array).tolist() + memoryview(first).tolist(),
                                     [0, 0, 0, 5, 0, 0, 0])

    def test_threads(self):
        def work():
            for number in range(50):
                array = self.job.empty(number + 1, "i64")
                memoryview(array)[number] = number

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_register_buffer(self):
        buffer = bytearray(10000)
        self.job.register_buffer(buffer)
        with self.assertRaises(px.InvalidArgument):
            self.job.register_buffer(buffer)
        with self.assertRaises(BufferError):  # it is borrowed
            buffer.append(1)
        self.job.unregister_buffer(buffer)
        buffer.append(1)
        with self.assertRaises(px.InvalidArgument):
            self.job.unregister_buffer(buffer)
        with self.assertRaisesRegex(px.InvalidArgument, "register_buffer: buffer is read-only"):
            self.job.register_buffer(bytes(3))


class Settings(unittest.TestCase):
    def test_set(self):
        def body(job):
            job.commit()
            if job.rank == 0:
                job.set("timeout_ms", 50)
                barrier = job.barrier()
                with self.assertRaisesRegex(px.Timeout, " 50 ms"):
                    barrier.wait()
                job.set("timeout_ms", "60000")
                job.allreduce(0).wait()
                barrier.wait()
                return [each["value"] for each in job.report("settings")["settings"]
                        if each["name"] == "timeout_ms"]
            job.allreduce(0).wait()
            job.barrier().wait()
            return None

        changed, _ = run_ranks(2, body)
        self.assertEqual(changed, ["60000"])

    def test_refusals(self):
        with px.open() as job:
            with self.assertRaisesRegex(px.Unsupported, "lease"):
                job.set("lease_ms", 1)
            for name, value in (("timeout", 1), ("timeout_ms", "soon"), ("a\0b", 1)):
                with self.subTest(name=name):
                    self.assertRaises(px.InvalidArgument, job.set, name, value)

    def test_query(self):
        with px.open() as job:
            job.register("table", rows=100000, row_elements=8, rule="adagrad")
            job.commit()
            info = job.info()
            self.assertGreaterEqual(info.bytes_reserved, 100000 * 8 * 4)
            self.assertEqual((info.bytes_touched, info.view), (0, 0))
            touched = job.info(count_touched=True).bytes_touched
            self.assertTrue(0 < touched <= info.bytes_reserved, touched)
            with job.split([0]) as part:
                self.assertNotEqual(part.info().epoch, info.epoch)


if __name__ == "__main__":
    unittest.main()
