# SPDX-License-Identifier: Apache-2.0
"""Failures: one class per status, what their sentences name, and that real ones arrive."""

import pickle
import tempfile
import threading
import unittest

import libparallax as px
from libparallax import _abi, _errors, _tables
from libparallax._library import LIB

from support import TIMEOUT, finish, run_ranks, start


class Classes(unittest.TestCase):
    def test_every_failure_has_a_class(self):
        failures = {int(status) for status in _tables.Status if status < 0}
        self.assertEqual(set(_errors.CLASS_OF_STATUS), failures)
        for status, kind in _errors.CLASS_OF_STATUS.items():
            self.assertIs(type(_errors.error_of(status, "x")), kind)
            self.assertEqual(_errors.error_of(status, "x").status, status)
            self.assertTrue(issubclass(kind, px.ParallaxError))

    def test_names_are_those_of_the_library(self):
        for status in _tables.Status:
            self.assertEqual(LIB.parallax_status_string(status).decode(), status.name)

    def test_python_classes(self):
        for kind, usual in ((px.InvalidArgument, ValueError),
                            (px.Timeout, TimeoutError),
                            (px.PeerLost, ConnectionError), (px.IOFailure, OSError),
                            (px.Unsupported, NotImplementedError)):
            self.assertTrue(issubclass(kind, usual))
            self.assertEqual(str(kind("a sentence")), "a sentence")

    def test_facts(self):
        info = _abi.ErrorInfoStruct(
            rank=2, peer=3, variable=1, slice=7, step=42, step_committed=41, row=-5, host=b"b",
            field=b"rows_max")
        error = _errors.error_of(-9, "rank 8 of variable 'other'", info, {1: "embedding"})
        self.assertEqual(
            (error.rank, error.peer, error.host, error.variable, error.slice, error.row,
             error.field, error.step, error.step_committed),
            (2, 3, "b", "embedding", 7, -5, "rows_max", 42, 41))
        nothing = _abi.ErrorInfoStruct(
            rank=_abi.NO_RANK, peer=_abi.NO_RANK, variable=_abi.NO_VARIABLE, slice=_abi.NO_SLICE,
            step=_abi.NO_STEP, step_committed=_abi.NO_STEP, row=_abi.NO_ROW)
        for error in (_errors.error_of(-2, "rank 1 of variable 'x'", nothing, {}),
                      px.Timeout("rank 1 (host a) of step 5")):
            self.assertEqual({getattr(error, name) for name in _errors._FACTS}, {None})
        self.assertRaises(TypeError, px.Timeout, "x", colour="red")

    def test_status_of_a_newer_library(self):
        error = _errors.error_of(-99, "news")
        self.assertEqual((type(error), error.message), (px.ParallaxError, "news"))

    def test_pickle(self):
        for kind in _errors.CLASS_OF_STATUS.values():
            error = pickle.loads(pickle.dumps(kind("it is lost", peer=3, variable="v")))
            self.assertEqual((type(error), error.peer, error.variable, error.rank, str(error)),
                             (kind, 3, "v", None, "it is lost"))
            self.assertEqual(error.status, kind.status)


class Calls(unittest.TestCase):
    def test_open(self):
        with self.assertRaisesRegex(px.InvalidArgument, "rank"):
            px.open(rank=5, world=4, rendezvous="inproc:errors")
        with self.assertRaisesRegex(px.InvalidArgument, "host is 7; it must be a string"):
            px.open(host=7)
        with self.assertRaisesRegex(px.InvalidArgument, "lease is -1"):
            px.open(lease=-1)
        with self.assertRaisesRegex(px.InvalidArgument, r"open: rank is -1; .*0 to 2\^32"):
            px.open(rank=-1)
        with self.assertRaisesRegex(px.InvalidArgument,
                                    "plan_mode is 'best'; .*'auto', 'hybrid', 'ps', 'ar'"):
            px.open(plan_mode="best")
        with self.assertRaises(px.Timeout) as caught:
            px.open(rank=0, world=2, rendezvous="inproc:errors-alone", timeout=0.05)
        self.assertIn("rank 1", caught.exception.message)

    def test_register(self):
        with px.open() as job:
            job.register("a", rows=3)
            with self.assertRaisesRegex(px.InvalidArgument, "'a'"):
                job.register("a", rows=3)
            with self.assertRaisesRegex(px.InvalidArgument, "rule is 'adamw'; .*'adagrad'"):
                job.register("b", rows=3, rule="adamw")
            with self.assertRaisesRegex(px.InvalidArgument, "dtype is 'complex64'; .*'f32'"):
                job.register("b", rows=3, dtype="complex64")
            for rows, words in (("ten", "rows is 'ten': "), (2.5, "rows is 2.5: "),
                                (-1, "rows is -1; it must be from 0 to"), (2 ** 64, "from 0 to")):
                with self.assertRaisesRegex(px.InvalidArgument, words):
                    job.register("b", rows=rows)
            with self.assertRaisesRegex(px.InvalidArgument, "epsilon is 'small'"):
                job.register("b", rows=3, epsilon="small")
            with self.assertRaisesRegex(px.InvalidArgument, "beta1 is -1; it must not"):
                job.register("b", rows=3, rule="adam", beta1=-1)
            job.register("plain", rows=3, rule="sgd", epsilon=0.0, beta1=0)
            with self.assertRaisesRegex(px.InvalidArgument, "rule SGD has none"):
                job.register("b", rows=3, rule="sgd", beta2=0.5)
            with self.assertRaisesRegex(px.InvalidArgument, "name is 5; it must be a string"):
                job.register(5, rows=3)
            with self.assertRaisesRegex(px.InvalidArgument, "init is 'zeros'"):
                job.register("b", rows=3, init="zeros")
            with self.assertRaisesRegex(px.InvalidArgument, "holds a NUL"):
                job.register("b\0c", rows=3)
            job.commit()
            with job.step(), self.assertRaises(px.InvalidState):
                job.register("b", rows=3)

    def test_refusals_name_the_same_here_and_in_the_library(self):
        with px.open() as job:
            table = job.register("table", rows=3, rows_max=2, rule="sgd")
            held = job.register("held", rows=3)
            with self.assertRaises(px.InvalidArgument) as caught:
                job.register("x", rows=3, rule="best")
            self.assertEqual(caught.exception.field, "rule")
            with self.assertRaises(px.InvalidArgument) as caught:
                job.register("x", rows=0)
            self.assertEqual(caught.exception.field, "rows")
            job.commit()
            with job.step() as step:
                zeros = bytes(12)
                for call, kind, expected in (
                        (lambda: step.pull_many([(table, [0]), (table, [0, 1, 2])]),
                         px.LimitExceeded, ("table", 1)),
                        (lambda: step.push(table, [0, 1, 2], memoryview(zeros).cast("f")),
                         px.LimitExceeded, ("table", 0)),
                        (lambda: step.pull(table, [5]), px.InvalidArgument, ("table", 0)),
                        (lambda: step.reduce_many([(held, 5)]), px.InvalidArgument,
                         ("held", 0))):
                    with self.subTest(expected=expected), self.assertRaises(kind) as caught:
                        call()
                    error = caught.exception
                    self.assertEqual((error.variable, error.slice), expected, str(error))
            with self.assertRaises(px.InvalidArgument) as caught:
                job.pull(table, [7])
            self.assertEqual(caught.exception.row, 7)

    def test_a_step_that_cannot_be_is_not_begun(self):
        with px.open() as job:
            dense = job.register("dense", rows=2, rule="sgd")
            job.commit()
            for given in ({"learning_rate": "fast"}, {"clip_norm": None}):
                with self.assertRaisesRegex(px.InvalidArgument, f"step: {next(iter(given))}"):
                    job.step(**given)
            with job.step() as step:
                self.assertEqual(step.number, 1)
                values, = step.pull_many([dense]).wait()
                self.assertEqual(values.shape, (2, 1))
                with self.assertRaisesRegex(px.InvalidArgument, "pull_many: a slice is"):
                    step.pull_many([5])

    def test_mismatch_names_the_variable_on_every_rank(self):
        def body(job):
            job.register("table", rows=5 + job.rank)
            with self.assertRaises(px.Mismatch) as caught:
                job.commit()
            self.assertEqual(caught.exception.variable, "table")
            self.assertEqual(caught.exception.field, "rows")
            job.close()  # what commit raised is not raised again
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_lost_peer_is_named(self):
        script = """
import sys, os
import libparallax as px
job = px.open(rank=int(sys.argv[1]), world=2, rendezvous="file:" + sys.argv[2],
                    host="here", timeout=float(sys.argv[3]))
job.commit()
job.barrier().wait()
if job.rank == 1:
    os._exit(0)
try:
    job.barrier().wait()
except px.PeerLost as lost:
    print(lost.peer, lost.host, lost.status.name)
    job.close()  # what the barrier raised is not raised again
    print("closed")
"""
        with tempfile.TemporaryDirectory() as folder:
            ranks = [start(script, str(rank), folder + "/meet", str(TIMEOUT)) for rank in range(2)]
            status, out, error = finish(ranks[0])
            self.assertEqual(finish(ranks[1])[0], 0)
        self.assertEqual((status, out.split("\n")[:2]), (0, ["1 here PEER_LOST", "closed"]), error)

    def test_abort_reaches_others_with_the_reason(self):
        def body(job):
            job.commit()
            if job.rank == 0:
                job.abort("no more data")
            with self.assertRaisesRegex(px.Aborted, "no more data"):
                job.barrier().wait()
            job.close()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_close_raises_what_nobody_was_told(self):
        gate = threading.Barrier(2)

        def body(job):
            job.commit()
            if job.rank == 0:
                job.abort("no more data")
                gate.wait(TIMEOUT)
                job.close()  # its own abort is no news
                return True
            gate.wait(TIMEOUT)
            with self.assertRaisesRegex(px.Aborted, "rank 0 .* no more data"):
                job.close()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_a_failure_that_was_caught_in_a_block_is_not_raised_at_its_end(self):
        def body(job):
            with job:
                job.commit()
                if job.rank == 0:
                    job.abort("no more data")
                try:
                    job.barrier().wait()
                except px.Aborted:
                    pass
            return job.closed

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_a_commit_that_is_too_large_is_raised_once(self):
        # And not by close(), but on a rank that was told of no such commit.
        for where in ("job", "part"):
            with self.subTest(where=where), px.open(memory_max_bytes=1 << 20) as job:
                job.commit()
                group = job if where == "job" else job.split([0])
                group.register("large", rows=1 << 20, rule="sgd")
                with self.assertRaisesRegex(px.LimitExceeded, "memory_max_bytes"):
                    group.commit()
                with self.assertRaisesRegex(px.LimitExceeded, "memory_max_bytes"):
                    job.barrier()
                if where == "part":
                    group.close()

        told = threading.Event()

        def body(job):
            job.commit()
            if job.rank == 1:
                with self.assertRaises(px.LimitExceeded):  # which is no failure of the job
                    job.empty(1 << 58)
            job.barrier().wait()
            if job.rank == 0:
                job.register("large", rows=1 << 20, rule="sgd")
                job.set("memory_max_bytes", 1 << 20)
                with self.assertRaises(px.LimitExceeded):
                    job.commit()
                told.set()
                job.close()
                return None
            self.assertTrue(told.wait(TIMEOUT))
            with self.assertRaises(px.LimitExceeded) as raised:
                job.close()
            return raised.exception.message

        self.assertRegex(run_ranks(2, body)[1], "memory_max_bytes")

    def test_both_catch_a_failure_and_abort(self):
        # The second abort changes nothing, and what the first one said is no news to who aborts.
        gate = threading.Barrier(2)

        def body(job):
            with job:
                job.register("table", rows=4, rule="sgd")
                job.commit()
                try:
                    with job.step(learning_rate=job.rank):
                        pass
                except px.Mismatch:
                    gate.wait(TIMEOUT)
                    job.abort("the rates differ")
            return job.closed

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_a_loss_that_was_caught_is_raised_once(self):
        script = """
import sys, os
import libparallax as px
try:
    with px.open(rank=int(sys.argv[1]), world=2, rendezvous="file:" + sys.argv[2], host="here",
                 timeout=float(sys.argv[3])) as job:
        job.commit()
        job.barrier().wait()
        if job.rank == 1:
            os._exit(0)
        try:
            job.barrier().wait()
        except px.PeerLost:
            if sys.argv[4] == "abort":
                job.abort("rank 0 gives up")
            if sys.argv[4] == "raise":
                raise KeyError("batch")
    print("left")
except KeyError as error:
    print(error, error.__context__.__class__.__name__)
"""
        for what, end in (("nothing", "left"), ("abort", "left"), ("raise", "'batch' PeerLost")):
            with self.subTest(then=what), tempfile.TemporaryDirectory() as folder:
                ranks = [start(script, str(rank), folder + "/meet", str(TIMEOUT), what)
                         for rank in range(2)]
                status, out, error = finish(ranks[0])
                self.assertEqual(finish(ranks[1])[0], 0)
                self.assertEqual((status, out.strip()), (0, end), error)

    def test_exception_in_a_job_reaches_others(self):
        def body(job):
            job.commit()
            if job.rank == 0:
                raise KeyError("rows")
            with self.assertRaisesRegex(px.Aborted, "rank 0 left by KeyError: 'rows'"):
                job.barrier().wait()
            raise KeyError("seen")

        with self.assertRaises(KeyError):
            run_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
