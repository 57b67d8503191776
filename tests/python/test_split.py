# SPDX-License-Identifier: Apache-2.0
"""Parts of a job: they train beside it, and end in any order, at any time, in any process."""

import array
import gc
import os
import threading
import unittest
import warnings
import weakref

import libparallax as px

from support import TIMEOUT, run_ranks, run_script


def floats(*values):
    return array.array("f", values)


def sum_in_a_step(job):
    """Every rank gives its number in this job plus one; the sum of all."""
    held = job.register("held", rows=2)
    job.commit()
    with job.step() as step:
        total = step.reduce(held, floats(job.rank + 1, 0)).wait()
    return total[0]


class Parts(unittest.TestCase):
    def test_train_beside_the_job(self):
        def body(job):
            sums = []
            with job.split([2, 0]) if job.rank != 1 else job.split([1]) as part:
                info = part.info()
                self.assertEqual((info.rank, info.world, info.job_rank),
                                 (part.rank, part.world, job.rank))
                with part.split([part.rank]) as inner:
                    self.assertEqual((inner.rank, inner.world), (0, 1))
                    self.assertEqual(inner.info().job_rank, job.rank)
                    sums.append(sum_in_a_step(inner))
                sums.append(sum_in_a_step(part))
                sums.append(sum_in_a_step(job))
                rank = part.rank
            self.assertTrue(part.closed)
            self.assertEqual(job.info().job_rank, job.rank)
            return rank, sums

        self.assertEqual(run_ranks(3, body), [(1, [1, 3, 6]), (0, [1, 1, 6]), (0, [1, 3, 6])])

    def test_variables_are_the_parts_own(self):
        with px.open() as job, job.split([0]) as part:
            weight = job.register("weight", rows=2, rule="sgd", init=3.0)
            ours = part.register("ours", rows=2, rule="sgd", init=5.0)
            job.commit()
            part.commit()
            with part.step() as step:
                with self.assertRaisesRegex(px.InvalidArgument, "no variable of this job"):
                    step.push(weight, floats(1, 1))
                self.assertEqual(memoryview(step.pull(ours).wait()).tolist(), [[5.0], [5.0]])
            self.assertEqual(memoryview(job.pull(weight).wait()).tolist(), [[3.0], [3.0]])
            with px.open() as other:
                other.commit()
                with self.assertRaisesRegex(px.InvalidArgument, "are of different jobs"):
                    px.wait_all([job.barrier(), other.barrier()])

    def test_wait_for_a_job_and_its_parts(self):
        def body(job):
            job.commit()
            with job.split([1, 0]) as part, part.split([part.rank]) as inner:
                part.commit()
                inner.commit()
                requests = [job.allreduce(1), part.allreduce(part.rank), inner.allreduce(7)]
                px.wait_all(requests)
                self.assertEqual([request.wait() for request in requests], [2, 1, 7])
                px.wait_all(reversed(requests))
                late = [inner.barrier(), part.barrier(), job.barrier()]
                inner.close()  # its own are complete then
                px.wait_all(late)
                if job.rank == 0:  # the part's never comes
                    alone = [job.allreduce(2, tag=5), part.barrier()]
                    with self.assertRaises(px.Timeout):
                        px.wait_all(alone, timeout=0.3)
                    self.assertEqual(alone[0].wait(), 4)
                    job.barrier().wait()
                    alone[1].wait()
                else:
                    job.allreduce(2, tag=5).wait()
                    job.barrier().wait()
                    part.barrier().wait()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_a_failure_among_those_of_a_job_and_its_parts(self):
        def body(job):
            job.commit()
            part = job.split([0, 1])
            part.commit()
            requests = []
            if job.rank == 0:  # the other never calls the part's
                requests = [part.barrier(), job.barrier()]
            else:
                job.barrier().wait()
                part.abort("on purpose")
            if requests:
                with self.assertRaisesRegex(px.Aborted, "on purpose"):
                    px.wait_all(requests)
            part.close()
            if requests:
                with self.assertRaises(px.Aborted):
                    px.wait_all(requests)
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_what_is_wrong_is_named(self):
        with px.open() as job:
            for ranks in ([], [1], [0, 0], [-1], ["0"], 0, None):
                with self.subTest(ranks=ranks):
                    with self.assertRaises(px.InvalidArgument) as refused:
                        job.split(ranks)
                    self.assertIn(refused.exception.field, ("ranks", "count"))
        with self.assertRaisesRegex(px.InvalidState, "the job is closed"):
            job.split([0])

    def test_who_does_not_call_is_named(self):
        over = threading.Event()

        def body(job):
            if job.rank == 0:
                with self.assertRaisesRegex(px.Timeout, "rank 1"):
                    job.split([0, 1])
                over.set()
            return over.wait(TIMEOUT)

        self.assertEqual(run_ranks(2, body, timeout=3), [True, True])


class Ends(unittest.TestCase):
    def test_a_part_is_closed_before_its_job(self):
        job = px.open()
        part = job.split([0])
        inner = part.split([0])
        for early in (job, part):
            with self.assertRaisesRegex(px.InvalidState, "parts that split.. made are open"):
                early.close()
            self.assertFalse(early.closed)
        for last in (inner, part, job):
            last.close()
            last.close()
        with self.assertRaisesRegex(px.InvalidState, "the job is closed"):
            part.info()

    def test_requests_outlive_a_part(self):
        with px.open() as job:
            part = job.split([0])
            held = part.register("held", rows=9, row_elements=2, tag="sparse", rows_max=4)
            part.commit()
            step = part.step()
            rows = step.reduce(held, [3], floats(1, 2)).wait()
            step.end().wait()
            done = part.barrier()
            part.close()
            done.wait()
            done.release()
            del part, step, done
            gc.collect()
        del job
        gc.collect()
        self.assertEqual(memoryview(rows.values).tolist(), [[1, 2]])

    def test_pending_requests_of_a_closed_part_are_aborted(self):
        # The other rank's barrier is never called, and its close comes.
        def body(job):
            part = job.split([0, 1])
            part.commit()
            request = part.barrier() if part.rank == 0 else None
            try:
                part.close()
            except px.ParallaxError:
                pass
            if request is not None:
                with self.assertRaises(px.ParallaxError):
                    request.wait()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_a_part_whose_close_times_out_keeps_what_it_borrows(self):
        # Its request stays pending, and may write until the job ends.
        late, over = threading.Event(), threading.Event()
        kept = []

        def body(job):
            part = job.split([0, 1])
            part.commit()
            if job.rank == 1:
                self.assertTrue(late.wait(TIMEOUT))
                try:
                    part.close()
                except px.ParallaxError:  # what the other's close ended as
                    pass
                over.set()
                return True
            given = floats(1, 2)
            kept.extend((weakref.ref(part._core), weakref.ref(given)))
            request = part.broadcast(given, root=1)
            job.set("timeout_ms", 20)
            with self.assertRaisesRegex(px.Timeout, "rank 1"):
                part.close()
            job.set("timeout_ms", 1000 * TIMEOUT)
            with self.assertRaisesRegex(px.InvalidState, "while the request was pending, and its "
                                                         "close timed out"):
                request.wait()
            del part, given, request
            gc.collect()
            self.assertNotIn(None, [each() for each in kept])
            late.set()
            self.assertTrue(over.wait(TIMEOUT))
            return True

        self.assertEqual(run_ranks(2, body), [True, True])
        gc.collect()
        self.assertEqual([each() for each in kept], [None, None])

    def test_a_block_left_by_an_exception_ends_the_whole_job(self):
        def body(job):
            job.commit()
            try:
                with job.split([1, 0]) as part:  # the whole job's rank is what all read
                    part.commit()
                    if job.rank == 1:
                        raise ValueError("no more data")
                    part.barrier().wait()
            except ValueError:
                with self.assertRaises(px.Aborted):
                    job.barrier().wait()
                return "left"
            except px.Aborted as aborted:
                return "rank 1 left by ValueError: no more data" in aborted.message
            return None

        self.assertEqual(run_ranks(2, body), [True, "left"])  # and their close() is silent

    def test_an_exception_that_leaves_the_job_closes_its_parts(self):
        with self.assertRaisesRegex(ValueError, "no more data"):
            with px.open() as job:
                part = job.split([0])
                inner = part.split([0])
                raise ValueError("no more data")
        self.assertTrue(job.closed and part.closed and inner.closed)

    def test_dropped_without_close(self):
        for order in ("job part", "part job"):
            with self.subTest(order=order):
                job = px.open()
                held = {"job": job, "part": job.split([0])}
                cores = [weakref.ref(each._core) for each in held.values()]
                del job
                said = []
                with warnings.catch_warnings():
                    warnings.simplefilter("always", ResourceWarning)
                    # A list of what is recorded would keep the jobs alive.
                    warnings.showwarning = lambda message, *_, said=said: said.append(str(message))
                    for name in order.split():
                        del held[name]
                        gc.collect()
                self.assertEqual(["was dropped without close()" in each for each in said],
                                 [True, True])
                self.assertEqual([core() for core in cores], [None, None])

    def test_dropped_in_a_cycle(self):
        job = px.open()
        part = job.split([0])
        cores = [weakref.ref(job._core), weakref.ref(part._core)]
        cycle = [job, part]
        cycle.append(cycle)
        del job, part, cycle
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        self.assertEqual([core() for core in cores], [None, None])

    def test_many(self):
        with px.open() as job:
            for _ in range(50):
                with job.split([0]) as part:
                    part.commit()
                    part.barrier().wait()
            self.assertEqual(len(job._core._parts), 0)

    def test_close_while_another_thread_splits(self):
        # Rank 1 never comes; the thread's split ends with what ends the job first: the abort, or
        # that rank 1 closes although the split waits for it.
        def body(job):
            if job.rank == 1:
                return []
            answers = []

            def split():
                try:
                    job.split([0, 1])
                except px.ParallaxError as failure:
                    answers.append(failure)

            thread = threading.Thread(target=split)
            thread.start()
            while thread.is_alive() and not job._core.calls:
                pass
            job.abort("enough")
            job.close()
            thread.join(TIMEOUT)
            return answers

        try:
            answers = run_ranks(2, body)[0]
        except (px.Aborted, px.PeerLost):
            return
        self.assertEqual(len(answers), 1)

    def test_interpreter_exit(self):
        status, out, error = run_script("""
import libparallax as px
job = px.open()
part = job.split([0])
inner = part.split([0])
inner.commit()
request = inner.barrier()
print("end")
""")
        self.assertEqual((status, out, error), (0, "end\n", ""))

    @unittest.skipIf("libtsan" in os.environ.get("LD_PRELOAD", ""),
                     "ThreadSanitizer allows a forked child no thread")
    def test_a_forked_child_is_refused(self):
        with px.open() as job, job.split([0]) as part:
            part.commit()
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                self.child(writer, job, part)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                said = pipe.read()
            self.assertEqual((os.waitpid(child, 0)[1], said), (0, "refused 3"))
            part.barrier().wait()

    def child(self, writer, job, part):
        status = 1
        try:
            refused = 0
            for call in (part.barrier, part.info, lambda: job.split([0])):
                try:
                    call()
                except px.ForkedJob:
                    refused += 1
            job.close()  # these do nothing here
            part.close()
            del job, part
            gc.collect()
            os.write(writer, f"refused {refused}".encode())
            status = 0
        finally:
            os._exit(status)


if __name__ == "__main__":
    unittest.main()
