# SPDX-License-Identifier: Apache-2.0
"""The compiled core itself: what goes through it, what it leaves to ctypes, and calls of it that
the package would never make. What the calls do is tested by all the other files, over both."""

import gc
import sys
import unittest
import weakref

import libparallax as px
from libparallax import _core, _step
from support import needs_numpy, numpy, run_ranks

try:
    import torch
except ImportError:
    torch = None

NATIVE = _core.NATIVE
ROWS, ELEMENTS = 4, 2


@unittest.skipIf(NATIVE is None, "no compiled core (python3-dev >= 3.11), or not used here")
@needs_numpy
class Native(unittest.TestCase):
    def setUp(self):
        self.job = px.open()
        self.addCleanup(self.job.close)
        self.held = self.job.register("held", rows=ROWS, row_elements=ELEMENTS)
        self.rows = self.job.register("rows", rows=ROWS, row_elements=ELEMENTS, rows_max=ROWS)
        self.table = self.job.register("table", rows=ROWS, row_elements=ELEMENTS, rows_max=ROWS,
                                       rule="sgd")
        self.half = self.job.register("half", rows=ROWS, row_elements=ELEMENTS, dtype="bf16")
        self.job.commit()
        self.ones = numpy.ones((ROWS, ELEMENTS), numpy.float32)
        self.ids = numpy.arange(ROWS)

    def without_ctypes(self):
        """From here on posting by ctypes fails the test."""
        def refuse(*_):
            raise AssertionError("this went by ctypes")
        self.addCleanup(setattr, _step.Step, "_post", _step.Step._post)
        _step.Step._post = refuse

    def test_usual_calls_go_through_it(self):
        self.without_ctypes()
        with self.job.step(learning_rate=1.0) as step:
            pulled = step.pull(self.table, self.ids).wait()
            self.assertEqual(pulled.shape, (ROWS, ELEMENTS))
            step.pull(self.table, self.ids.astype(numpy.int32), out=pulled).wait()
            step.push(self.table, self.ids, self.ones)
            aggregate = step.reduce(self.held, self.ones).wait()
            self.assertIs(aggregate, self.ones)
            bits = numpy.zeros((ROWS, ELEMENTS), numpy.uint16)
            many = step.reduce_many([(self.rows, self.ids, self.ones), (self.half, bits)]).wait()
            self.assertEqual(many[0].ids.tolist(), [0, 1, 2, 3])
            self.assertIs(many[1], bits)
        self.assertEqual(self.job.pull(self.table, self.ids).wait().tolist(), [[-1, -1]] * ROWS)

    @unittest.skipIf(torch is None, "PyTorch is missing (python3-torch)")
    def test_tensors_go_through_it(self):
        self.without_ctypes()
        tensor, half = torch.ones(ROWS, ELEMENTS), torch.ones(ROWS, ELEMENTS, dtype=torch.bfloat16)
        with self.job.step() as step:
            self.assertIs(step.reduce(self.held, tensor).wait(), tensor)
            self.assertIs(step.reduce(self.half, half).wait(), half)
            out = torch.empty(ROWS, ELEMENTS)
            step.pull(self.table, torch.arange(ROWS), out=out).wait()

    def test_the_rest_is_left_to_ctypes(self):
        with self.job.step() as step:
            self.assertEqual(step.pull(self.table, [0, 1]).wait().shape, (2, ELEMENTS))
            step.push(self.table, self.ids, self.ones.astype(numpy.float16), dtype="f16")
            for refused, sentence in ((self.ones.T, "not contiguous"), (self.ones[:1], "shape"),
                                      (numpy.ones(ROWS * ELEMENTS + 1, "f4"), "9 elements"),
                                      (self.ones.astype(">f4"), "big-endian"),
                                      (self.ones.astype(int), "int64"), (None, "None")):
                with self.subTest(sentence=sentence):
                    with self.assertRaises(px.InvalidArgument) as caught:
                        step.reduce(self.held, refused)
                    self.assertIn(sentence, str(caught.exception))

    def test_failures_of_the_library_are_told(self):
        with self.job.step() as step:
            with self.assertRaises(px.InvalidArgument) as caught:
                step.push(self.table, numpy.array([0, 1, 2, 9]), self.ones)
            self.assertIn("variable 'table'", str(caught.exception))
            with self.assertRaises(px.InvalidArgument):
                step.push(self.held, self.ones)

    def test_nothing_is_kept(self):
        def count():
            gc.collect()
            return [sys.getrefcount(thing) for thing in
                    (self.ones, self.ids, self.job._core, self.held, None, px.Request)]

        def steps(number):
            for _ in range(number):
                with self.job.step() as step:
                    step.reduce(self.held, self.ones).wait()
                    step.push(self.table, self.ids, self.ones)
                    with self.assertRaises(px.InvalidArgument):
                        step.push(self.table, self.ids, self.ones)

        steps(2)
        before = count()
        steps(50)
        after = count()
        self.assertLess(max(map(abs, (b - a for a, b in zip(before, after)))), 25)
        resized = bytearray(4 * ROWS * ELEMENTS)
        step = self.job.step()
        view = memoryview(resized).cast("f")
        request = step.reduce(self.held, view)
        request.wait()
        step.end().wait()
        del request, step, view
        gc.collect()
        resized.append(0)  # BufferError if a loan were left

    def test_cycles_are_collected(self):
        class Array(numpy.ndarray):
            pass

        array = self.ones.view(Array)
        gone = weakref.ref(array)
        step = self.job.step()
        array.request = step.reduce(self.held, array)
        array.request.wait()
        step.end().wait()
        del array, step
        gc.collect()
        self.assertIsNone(gone())

    def test_cycles_of_pending_requests_are_kept(self):
        def body(job):
            held = job.register("held", rows=ROWS, row_elements=ELEMENTS)
            job.commit()
            step = job.step()
            if job.rank == 1:
                job.barrier().wait()
                gc.collect()
                step.reduce(held, numpy.ones((ROWS, ELEMENTS), numpy.float32)).wait()
            else:
                class Array(numpy.ndarray):
                    pass
                array = numpy.ones((ROWS, ELEMENTS), numpy.float32).view(Array)
                request = step.reduce(held, array)
                array.cycle = request
                step._posted.clear()
                del array, request
                gc.collect()
                (_, loans, _), = job._core.orphans
                kept = gc.get_referents(loans)  # for the library writes it still
                self.assertTrue([each for each in kept if isinstance(each, Array)], kept)
                job.barrier().wait()
            step.end().wait()
            job.barrier().wait()  # sweeps
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_bad_calls(self):
        core = self.job._core
        step = self.job.step()
        entry = (self.held, self.ones)
        for arguments in ((), ("r",), ("rr", core, 1, [entry], False, 1),
                          ("r", 1, 1, [entry], False, 1), ("r", core, "1", [entry], False, 1),
                          ("r", core, 1, (entry,), False, 1), ("r", core, 1, [entry], False, "1"),
                          ("r", core, 1, [entry], False)):
            with self.subTest(post=arguments):
                self.assertRaises(TypeError, NATIVE.post, *arguments)
        for entries in ([], [entry] * 4097, [()], [(self.held,)], [None], [entry * 2], [(1, 2)],
                        [(self.held, None)], [(self.held, 7)], [(self.rows, "ids", self.ones)]):
            with self.subTest(entries=entries[:1]):
                self.assertIsNone(NATIVE.post("r", core, step.number, entries, False, 1))
        for stream in (0, -2):
            self.assertIsNone(NATIVE.post("r", core, step.number, [entry], False, stream))
        for arguments in ((), ([], 0), ((), "0"), (1, 0)):
            with self.subTest(wait=arguments):
                self.assertRaises(TypeError, NATIVE.wait, *arguments)
        self.assertFalse(NATIVE.wait((1,), 0))
        request = step.reduce(self.held, self.ones)
        self.assertFalse(NATIVE.wait((request._handle, object()), 0))
        self.assertFalse(request._handle.used)
        for made in (NATIVE.Gate, NATIVE.Handle, NATIVE.Loans, NATIVE.bind, NATIVE.traits):
            with self.subTest(made=made):
                self.assertRaises(TypeError, made)
                self.assertRaises(TypeError, made, 1, 2)
        self.assertRaises(TypeError, NATIVE.Handle, object(), 0, None)
        self.assertRaises(ValueError, NATIVE.traits, 0, 1, 0, "f", 4)
        self.assertRaises(ValueError, NATIVE.bind, {}, px.Variable, px.InvalidState)
        self.assertRaises(TypeError, core.__init__, 0, print, [])
        request.wait()  # with what was bound before
        step.end().wait()

    def test_a_closed_job(self):
        step = self.job.step()
        request = step.reduce(self.held, self.ones)
        request.wait()
        step.end().wait()
        core = self.job._core
        self.job.close()
        self.assertIsNone(NATIVE.post("r", core, 1, [(self.held, self.ones)], False, 1))
        self.assertFalse(NATIVE.wait((request._handle,), 0))
        self.assertFalse(core.shut())
        self.assertFalse(core.enter())
        self.assertIsNone(core.pointer)


if __name__ == "__main__":
    unittest.main()
