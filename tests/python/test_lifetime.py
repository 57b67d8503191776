# SPDX-License-Identifier: Apache-2.0
"""Objects are dropped in any order, at any time, in any process: nothing crashes, nothing that the
library still uses is freed, and what is done is given back."""

import array
import gc
import os
import tempfile
import threading
import unittest
import warnings
import weakref

import libparallax as px
from libparallax import _abi, _core, _request, _tables

from support import TIMEOUT, finish, needs_numpy, numpy as np, run_ranks, run_script, start


def floats(*values):
    return array.array("f", values)


class Buffers(unittest.TestCase):
    def test_kept_while_the_request_is_pending(self):
        # Rank 1 pushes only after rank 0 has dropped its references; both gradients must arrive.
        dropped = threading.Event()

        def body(job):
            held = job.register("held", rows=1, row_elements=1, tag="sparse", rows_max=2)
            job.commit()
            with job.step() as step:
                if job.rank == 0:
                    ids, gradient = array.array("q", [0]), floats(5)
                    request = step.reduce(held, ids, gradient)
                    alive = [weakref.ref(ids), weakref.ref(gradient)]
                    del ids, gradient
                    gc.collect()
                    self.assertTrue(all(alive), "a borrowed buffer was freed")
                    dropped.set()
                    rows = request.wait()
                    del request
                else:
                    self.assertTrue(dropped.wait(TIMEOUT))
                    rows = step.reduce(held, [0], floats(6)).wait()
            return rows.values[0, 0] if np is None else float(rows.values[0][0])

        self.assertEqual(run_ranks(2, body), [11.0, 11.0])

    def test_cannot_be_resized_while_borrowed(self):
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd")
            job.commit()
            gradient = floats(1, 1)
            with job.step() as step:
                request = step.push(weight, gradient)
                with self.assertRaises(BufferError):
                    gradient.append(1)
                request.wait()
                request.release()
                gradient.append(1)

    def test_freed_after_the_step(self):
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd")
            job.commit()
            gradient = floats(1, 1)
            alive = weakref.ref(gradient)
            with job.step() as step:
                step.push(weight, gradient)
            del gradient, step
            gc.collect()
            self.assertIsNone(alive())


class Requests(unittest.TestCase):
    def test_more_than_the_library_holds(self):
        # Every request must be given back, or the job runs out of them.
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd")
            job.commit()
            for _ in range(_abi.REQUESTS_MAX // 2 + 10):
                with job.step() as step:
                    step.pull(weight)
                    step.push(weight, floats(1, 1))

    def test_dropped_while_pending(self):
        dropped = threading.Event()

        def body(job):
            job.commit()
            if job.rank == 0:
                for _ in range(20):
                    job.barrier()  # pending, and dropped at once
                self.assertEqual(len(job._core.orphans), 20)
                dropped.set()
            else:
                self.assertTrue(dropped.wait(TIMEOUT))
                px.wait_all([job.barrier() for _ in range(20)])
            job.barrier().wait()
            job.barrier().wait()  # sweeps before it is posted
            return len(job._core.orphans)

        self.assertEqual(run_ranks(2, body), [0, 0])

    def test_released_while_pending(self):
        def body(job):
            job.commit()
            request = job.barrier()
            request.release()
            with self.assertRaisesRegex(px.InvalidState, "the request is released"):
                request.wait()
            job.barrier().wait()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_timeout_leaves_it_pending(self):
        def body(job):
            job.commit()
            if job.rank == 0:
                request = job.barrier()
                with self.assertRaises(px.Timeout):
                    request.wait(0.01)
                self.assertFalse(request.done())
                job.broadcast(bytearray(1), root=0)
            else:
                job.broadcast(bytearray(1), root=0).wait()
                request = job.barrier()
            request.wait()
            self.assertTrue(request.done())
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_results_are_there_after_the_step(self):
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd", init=3.0)
            dense = job.register("dense", rows=2)
            table = job.register("table", rows=9, tag="sparse", rows_max=4)
            job.commit()
            with job.step() as step:
                requests = [step.pull(weight), step.reduce(dense, floats(1, 2)),
                            step.reduce(table, [3, 5], floats(7, 8)),
                            step.push(weight, floats(1, 1))]
                released = step.reduce_many([])
                released.release()
            self.assertEqual([request.done() for request in requests], [True] * 4)
            px.wait_all(requests)
            pulled, reduced, rows, pushed = [request.wait() for request in requests]
            self.assertEqual(memoryview(pulled).tolist(), [[3.0], [3.0]])
            self.assertEqual((list(reduced), pushed), ([1, 2], None))
            self.assertEqual(memoryview(rows.values).tolist(), [[7], [8]])
            self.assertTrue(all(request._handle.pointer is None
                                for request in requests if request is not requests[2]))
            with self.assertRaisesRegex(px.InvalidState, "by release.. or at the end of its"):
                released.wait()

    def test_released_between_the_end_of_a_step_and_its_wait(self):
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd", init=3.0)
            job.commit()
            step = job.step()
            pulled, pushed = step.pull(weight), step.push(weight, floats(1, 1))
            end, next_step = step.end(), job.step()
            pulled.release()
            self.assertTrue(end.wait().committed)
            self.assertIsNone(pushed.wait())
            pulled, end = next_step.pull(weight), next_step.end()
            pulled.release()
            px.wait_all([end])
            self.assertTrue(end.wait().committed)

    def test_settled_and_released_by_another_thread(self):
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd", init=3.0)
            job.commit()
            with job.step() as step:
                request = step.pull(weight)

                def wait(handles, timeout):  # it was about to
                    setattr(_core, "wait", real)
                    with request:
                        pass
                    real(handles, timeout)

                real, _core.wait = _core.wait, wait
                self.addCleanup(setattr, _core, "wait", real)
                self.assertEqual(memoryview(request.wait()).tolist(), [[3.0], [3.0]])

    def test_context_manager_waits_and_releases(self):
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd", init=3.0)
            job.commit()
            out = floats(0, 0)
            with job.step() as step:
                with step.pull(weight, out=out) as request:
                    pass
                self.assertEqual(list(out), [3, 3])
                self.assertIsNone(request._handle.pointer)
                self.assertIs(request.wait(), out)

    def test_cancel_ends_the_job(self):
        def body(job):
            job.commit()
            if job.rank == 0:
                request = job.barrier()
                request.cancel()
                with self.assertRaises((px.Canceled, px.Aborted)):
                    request.wait()
                job.close()  # does not say so again
            else:
                with self.assertRaises((px.Canceled, px.Aborted)):
                    job.close()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])


class Rows(unittest.TestCase):
    def reduced(self):
        job = px.open()
        held = job.register("held", rows=9, row_elements=2, tag="sparse", rows_max=4)
        job.commit()
        step = job.step()
        request = step.reduce(held, [3, 5], floats(1, 2, 3, 4))
        rows = request.wait()
        return job, step, request, rows

    def values(self, rows):
        return memoryview(rows.values).tolist(), memoryview(rows.ids).tolist()

    def test_outlive_everything(self):
        job, step, request, rows = self.reduced()
        step.end().wait()
        request.release()
        job.close()
        del job, step, request
        gc.collect()
        self.assertEqual(self.values(rows), ([[1, 2], [3, 4]], [3, 5]))

    def test_outlive_in_every_order(self):
        for order in ("job step request", "request step job", "step request job"):
            job, step, request, rows = self.reduced()
            step.end().wait()
            held = {"job": job, "step": step, "request": request}
            handle = weakref.ref(request._handle)
            del job, step, request
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                for name in order.split():
                    del held[name]
                    gc.collect()
            self.assertEqual(self.values(rows), ([[1, 2], [3, 4]], [3, 5]))
            self.assertIsNotNone(handle())
            del rows
            gc.collect()
            self.assertIsNone(handle(), "the request was not given back")

    @needs_numpy
    def test_are_not_copied(self):
        job, step, request, rows = self.reduced()
        with job:
            again = _request.rows_of(request._handle, 0, 2, _tables.dtype_of("f32"))
            self.assertEqual(again.values.ctypes.data, rows.values.ctypes.data)
            step.end().wait()
            with self.assertRaises(ValueError):
                rows.values[0, 0] = 1


class Jobs(unittest.TestCase):
    def test_closed(self):
        job = px.open()
        weight = job.register("weight", rows=2, rule="sgd")
        job.commit()
        step = job.step()
        job.close()
        job.close()
        self.assertTrue(job.closed)
        for call in (job.info, job.commit, job.barrier, job.step, job.report, step.end,
                     lambda: step.pull(weight)):
            with self.assertRaisesRegex(px.InvalidState, "the job is closed"):
                call()

    def test_requests_of_a_closed_job(self):
        job = px.open()
        job.commit()
        done = job.barrier()
        job.close()
        done.wait()
        done.cancel()
        self.assertTrue(done.done())

    def test_close_ends_a_wait_of_another_thread(self):
        def body(job):
            job.commit()
            if job.rank == 1:
                job.barrier().wait()  # both are there; then rank 0's second is waited for alone
                return None
            job.barrier().wait()
            pending, answers = job.barrier(), []

            def wait():
                try:
                    pending.wait()
                except px.ParallaxError as failure:
                    answers.append(failure)

            waiter = threading.Thread(target=wait)
            waiter.start()
            while not pending._handle.used:
                pass
            try:
                job.close()
            except px.ParallaxError:
                pass
            waiter.join(TIMEOUT)
            return [type(answer) for answer in answers]

        answers = run_ranks(2, body)[0]
        self.assertEqual(len(answers), 1)
        self.assertTrue(issubclass(answers[0], px.ParallaxError))

    def test_dropped_without_close(self):
        job = px.open()
        core = weakref.ref(job._core)
        with self.assertWarnsRegex(ResourceWarning, "dropped without close"):
            del job
            gc.collect()
        self.assertIsNone(core())

    def test_many(self):
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            with px.open() as job:
                job.commit()
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)


class InterpreterExit(unittest.TestCase):
    """Scripts that end in the middle of something: exit status 0, nothing on stderr."""

    OPENING = """
import array, atexit, sys, threading
import libparallax as px
job = px.open()
held = job.register("held", rows=9, row_elements=2, tag="sparse", rows_max=4)
weight = job.register("weight", rows=2, rule="sgd")
job.commit()
step = job.step()
"""

    def check(self, script):
        status, out, error = run_script(self.OPENING + script + "\nprint('end')\n")
        self.assertEqual((status, out, error), (0, "end\n", ""))

    def test_open_job(self):
        self.check("")

    def test_pending_requests(self):
        self.check("""
pull = step.pull(weight)
push = step.push(weight, array.array("f", [1, 2]))
end = step.end()
""")

    def test_rows_and_cycles(self):
        self.check("""
rows = step.reduce(held, [3], array.array("f", [1, 2])).wait()
cycle = [rows, job, step]
cycle.append(cycle)
sys.cycle = cycle
del rows, job, step, cycle
""")

    def test_wait_in_a_daemon_thread(self):
        # The other rank never comes to the barrier that the thread waits in.
        script = """
import threading
import libparallax as px
jobs, met = {}, threading.Barrier(3)
def run(rank):
    jobs[rank] = px.open(rank=rank, world=2, rendezvous="inproc:exit")
    jobs[rank].commit()
    met.wait()
    if rank == 0:
        try:
            jobs[0].barrier().wait()
        except px.ParallaxError:
            pass
for rank in range(2):
    threading.Thread(target=run, args=(rank,), daemon=True).start()
met.wait()
print("end")
"""
        status, out, error = run_script(script, ASAN_OPTIONS="detect_leaks=0")  # it stays
        self.assertEqual((status, out), (0, "end\n"), error)

    def test_other_ranks_learn_why(self):
        script = """
import sys
import libparallax as px
job = px.open(rank=int(sys.argv[1]), world=2, rendezvous="file:" + sys.argv[2], timeout=60)
try:
    job.commit()
    if job.rank == 0:
        job.barrier().wait()
except px.Aborted as aborted:
    print(aborted)
"""
        with tempfile.TemporaryDirectory() as folder:
            ranks = [start(script, str(rank), folder + "/meet") for rank in range(2)]
            (status, out, error), other = [finish(rank) for rank in ranks]
        self.assertEqual((status, other[0]), (0, 0), error + other[2])
        self.assertIn("the process of rank 1 ended without closing the job", out)


class Fork(unittest.TestCase):
    """A forked child, as PyTorch's DataLoader makes them, must leave the job alone."""

    def test_child_is_refused_and_parent_goes_on(self):
        with px.open() as job:
            weight = job.register("weight", rows=2, rule="sgd", init=3.0)
            held = job.register("held", rows=9, row_elements=2, tag="sparse", rows_max=4)
            job.commit()
            step = job.step()
            rows = step.reduce(held, [3], floats(1, 2)).wait()
            pull = step.pull(weight)
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                self.child(writer, job, step, weight, pull, rows)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                said = pipe.read()
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(said, "refused 6, read [[1.0, 2.0]]")
            self.assertEqual(memoryview(pull.wait()).tolist(), [[3.0], [3.0]])
            self.assertTrue(step.end().wait().committed)
            self.assertEqual(memoryview(rows.values).tolist(), [[1.0, 2.0]])

    def child(self, writer, job, step, weight, pull, rows):
        status = 1
        try:
            refused = 0
            words = f"opened by process {os.getppid()}; this is process {os.getpid()}"
            for call in (job.info, job.step, job.barrier, pull.wait, pull.done,
                         lambda: step.pull(weight)):
                try:
                    call()
                except px.ForkedJob as failure:
                    refused += words in failure.message
            job.close()  # does nothing here
            text = f"refused {refused}, read {memoryview(rows.values).tolist()}"
            del job, step, pull, rows
            gc.collect()
            os.write(writer, text.encode())
            status = 0
        finally:
            os._exit(status)

    def test_child_leaves_by_sys_exit(self):
        status, out, error = run_script("""
import os, sys
import libparallax as px
job = px.open()
job.commit()
request = job.barrier()
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
request.wait()
job.close()
print("end")
""", ASAN_OPTIONS="detect_leaks=0")  # the child leaves its parent's job where it lies
        self.assertEqual((status, out), (0, "end\n"), error)

    @unittest.skipIf("libtsan" in os.environ.get("LD_PRELOAD", ""),
                     "ThreadSanitizer allows a forked child no thread")
    def test_child_may_open_a_job_of_its_own(self):
        status, out, error = run_script("""
import os
import libparallax as px
job = px.open()
child = os.fork()
if child == 0:
    with px.open() as own:
        own.commit()
        own.barrier().wait()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
job.close()
print("end")
""")
        self.assertEqual((status, out), (0, "end\n"), error)


if __name__ == "__main__":
    unittest.main()
