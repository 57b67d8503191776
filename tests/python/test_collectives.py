# SPDX-License-Identifier: Apache-2.0
"""Collectives on any buffers: shapes, dtypes, numbers and refusals; their arithmetic is tested with
the library."""

import array
import gc
import threading
import unittest
import weakref

import libparallax as px
from libparallax import _tables

from support import TIMEOUT, needs_numpy, numpy as np, run_ranks

KINDS = ("allreduce", "reduce_scatter", "allgather", "allgatherv", "alltoallv", "broadcast",
         "reduce", "gather")


def bits_of(values):
    """bfloat16 as NumPy has it: the upper halves of float32."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def committed(body):
    def run(job):
        job.commit()
        return body(job)
    return run


class Numbers(unittest.TestCase):
    def test_allreduce(self):
        @committed
        def body(job):
            rank = job.rank + 1
            return [job.allreduce(rank).wait(), job.allreduce(rank / 2).wait(),
                    job.allreduce(rank / 2, "mean").wait(), job.allreduce(rank, "min").wait(),
                    job.allreduce(rank, px.Op.MAX).wait(), job.allreduce(rank, "product").wait(),
                    job.allreduce(rank, "or").wait(), job.allreduce(rank, "and").wait(),
                    job.allreduce(rank, "xor").wait(), job.allreduce(rank == 1).wait()]

        for given in run_ranks(2, body):
            self.assertEqual(given, [3, 1.5, 0.75, 1, 2, 2, 3, 0, 3, 1])
            self.assertEqual([type(each) for each in given[:2]], [int, float])

    def test_allgather(self):
        @committed
        def body(job):
            return job.allgather(job.rank + 5).wait(), job.allgather(job.rank / 2).wait()

        self.assertEqual(run_ranks(3, body), [([5, 6, 7], [0.0, 0.5, 1.0])] * 3)

    def test_by_tag_in_any_order(self):
        @committed
        def body(job):
            tags = (7, 8, 9) if job.rank == 0 else (9, 7, 8)
            requests = {tag: job.allreduce(tag, tag=tag) for tag in tags}
            px.wait_all(requests.values())
            return [requests[tag].wait() for tag in (7, 8, 9)]

        self.assertEqual(run_ranks(2, body), [[14, 16, 18]] * 2)

    def test_in_a_part_and_inside_a_step(self):
        @committed
        def body(job):
            with job.split([0, 1] if job.rank < 2 else [2]) as part:
                part.commit()
                with job.step():
                    return part.allreduce(job.rank + 1).wait(), job.allreduce(1).wait()

        self.assertEqual(run_ranks(3, body), [(3, 3), (3, 3), (3, 3)])

    def test_refusals(self):
        with px.open() as job:
            with self.assertRaises(px.InvalidState):
                job.allreduce(1)
            job.commit()
            for call, field in (
                    (lambda: job.allreduce(2 ** 63), "send"),
                    (lambda: job.allreduce("one"), None),
                    (lambda: job.allreduce(None), None),
                    (lambda: job.allreduce(1, "median"), "op"),
                    (lambda: job.allreduce(1, tag=-1), "tag"),
                    (lambda: job.allreduce(1, "mean"), "op"),
                    (lambda: job.allreduce(1.0, "xor"), "op"),
                    (lambda: job.allreduce(1, out=bytearray(8)), "recv"),
                    (lambda: job.allreduce(array.array("h", [1])), "dtype"),
                    (lambda: job.collective("scan", array.array("q", [1])), "kind"),
                    (lambda: job.collective(None, array.array("q", [1])), "kind"),
                    (lambda: job.collective("reduce", array.array("q", [1]), root=1), "root"),
                    (lambda: job.collective("reduce", array.array("q", [1]), root="a"), "root"),
                    (lambda: job.collective("broadcast"), None),
                    (lambda: job.collective("allgatherv", array.array("q", [1])), "recv_counts"),
                    (lambda: job.collective("allgatherv", array.array("q", [1]),
                                            recv_counts=[1, 2]), "recv_counts"),
                    (lambda: job.collective("allgatherv", array.array("q", [1]),
                                            recv_counts=[-1]), "recv_counts"),
                    (lambda: job.collective("allgatherv", array.array("q", [1]),
                                            recv_counts=[2]), "send"),
                    (lambda: job.collective("alltoallv", array.array("q", [1]), send_counts=[2],
                                            recv_counts=[1]), "send"),
                    (lambda: job.collective("allreduce", array.array("q", [1]),
                                            array.array("q", [1, 2])), "recv"),
                    (lambda: job.collective("allreduce", array.array("q", [1]),
                                            memoryview(array.array("q", [1])).toreadonly()),
                     None)):
                with self.subTest(field=field):
                    with self.assertRaises(px.ParallaxError) as refused:
                        call()
                    self.assertIn(refused.exception.status,
                                  (px.Status.INVALID, px.Status.UNSUPPORTED))
                    if field is not None:
                        self.assertEqual(refused.exception.field, field)
            self.assertEqual(job.allreduce(5).wait(), 5)

    def test_calls_that_differ(self):
        @committed
        def body(job):
            with self.assertRaises(px.Mismatch) as differs:
                job.allreduce(1, "sum" if job.rank == 0 else "max").wait()
            self.assertEqual(differs.exception.field, "op")
            with self.assertRaises(px.Mismatch) as differs:
                job.allreduce(1 if job.rank == 0 else 1.0).wait()
            self.assertEqual(differs.exception.field, "dtype")
            return job.allreduce(1).wait()

        self.assertEqual(run_ranks(2, body), [2, 2])


class Borrowed(unittest.TestCase):
    def test_until_the_request_is_complete(self):
        dropped = threading.Event()

        @committed
        def body(job):
            given = array.array("q", [job.rank, 10])
            if job.rank == 0:
                request = job.allreduce(given, out=given)
                with self.assertRaises(BufferError):
                    given.append(1)
                alive = weakref.ref(given)
                del given
                gc.collect()
                self.assertIsNotNone(alive(), "a borrowed buffer was freed")
                dropped.set()
            else:
                self.assertTrue(dropped.wait(TIMEOUT))
                request = job.allreduce(given, out=given)
            return list(request.wait())

        self.assertEqual(run_ranks(2, body), [[1, 20], [1, 20]])

    def test_dropped_while_pending(self):
        dropped = threading.Event()

        @committed
        def body(job):
            if job.rank == 0:
                for _ in range(20):
                    job.allgather(1)  # pending, and dropped at once, with the room for its result
                self.assertEqual(len(job._core.orphans), 20)
                dropped.set()
            else:
                self.assertTrue(dropped.wait(TIMEOUT))
                px.wait_all([job.allgather(1) for _ in range(20)])
            job.barrier().wait()
            job.barrier().wait()
            return len(job._core.orphans)

        self.assertEqual(run_ranks(2, body), [0, 0])


@needs_numpy
class Arrays(unittest.TestCase):
    def test_every_dtype(self):
        for dtype in _tables.DTYPES:
            with self.subTest(dtype=dtype.name):
                @committed
                def body(job, dtype=dtype):
                    values = np.array([[1, 2], [3, 4]], np.float32) * (job.rank + 1)
                    given = bits_of(values) if dtype.kind == "b" else values.astype(dtype.storage)
                    named = "bf16" if dtype.kind == "b" else None
                    total = job.allreduce(given, dtype=named).wait()
                    both = job.allgather(given, dtype=named).wait()
                    expected = values / (job.rank + 1)
                    for got, wanted in ((total, 3 * expected),
                                        (both, np.stack([expected, 2 * expected]))):
                        self.assertEqual(got.dtype, dtype.storage)
                        np.testing.assert_array_equal(
                            got, bits_of(wanted) if dtype.kind == "b" else wanted)
                    return True

                self.assertEqual(run_ranks(2, body), [True, True])

    def test_bytes(self):
        @committed
        def body(job):
            rank, world = job.rank, job.world
            ours = np.arange(6, dtype=np.uint8).reshape(2, 3) + 100 * rank
            everyone = [np.arange(6, dtype=np.uint8).reshape(2, 3) + 100 * other
                        for other in range(world)]
            gathered = job.allgather(ours).wait()
            self.assertEqual(gathered.dtype, np.uint8)
            np.testing.assert_array_equal(gathered, np.stack(everyone))
            room = np.zeros((2, 6), np.uint8)
            self.assertIs(job.allgather(ours, out=room, dtype="bytes").wait(), room)
            np.testing.assert_array_equal(room.ravel(), gathered.ravel())
            root = job.collective("gather", ours, root=1).wait()
            self.assertEqual(root is not None, rank == 1)
            counts = [3, 1]
            pieces = job.collective("allgatherv", ours.ravel()[:counts[rank]],
                                    recv_counts=counts).wait()
            self.assertEqual(pieces.tolist(), [0, 1, 2, 100])
            exchanged = job.collective("alltoallv", ours.ravel()[:4], send_counts=counts,
                                       recv_counts=[counts[rank]] * 2, dtype="uint8").wait()
            self.assertEqual(exchanged.tolist(), [[0, 1, 2, 100, 101, 102], [3, 103]][rank])
            # Whatever has bytes.
            text = bytearray(b"from rank 1" if rank == 1 else 11)
            job.collective("broadcast", recv=text, root=1).wait()
            self.assertEqual(text, b"from rank 1")
            flags = np.array([rank == 0, rank == 1])
            both = job.allgather(flags.view(np.uint8)).wait().view(bool)
            self.assertEqual(both.tolist(), [[True, False], [False, True]])
            with self.assertRaisesRegex(px.InvalidArgument, "array.view.numpy.uint8.") as other:
                job.allgather(flags)
            self.assertEqual(other.exception.field, "dtype")
            if job.rank == 0:  # of the buffers' type alone, as for every dtype
                with self.assertRaisesRegex(px.InvalidArgument, "is int16; it must be uint8"):
                    job.allgather(np.zeros(2, np.int16), dtype="bytes")
            mine = job.empty(5, "uint8")
            mine[:] = rank
            self.assertEqual(job.allgather(mine).wait().tolist(), [[0] * 5, [1] * 5])
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_bytes_are_not_combined(self):
        @committed
        def body(job):
            for kind in ("allreduce", "reduce", "reduce_scatter"):
                for op in ("sum", "max", "or"):
                    with self.assertRaisesRegex(
                            px.InvalidArgument, "which .* cannot combine; .*: uint8 is bytes as "
                                                "they are, so convert") as refused:
                        job.collective(kind, np.zeros(2, np.uint8), op=op)
                    self.assertEqual(refused.exception.field, "dtype")
            with self.assertRaisesRegex(px.InvalidArgument, "register: dtype is 'bytes'"):
                job.register("v", rows=2, dtype="bytes")
            return job.allreduce(1).wait()

        self.assertEqual(run_ranks(2, body), [2, 2])

    def test_in_place_and_into_another(self):
        @committed
        def body(job):
            ours = np.full((2, 3), job.rank + 1.0)
            other = np.zeros(6)
            self.assertIs(job.allreduce(ours, out=other).wait(), other)
            self.assertEqual((ours[0, 0], other.tolist()), (job.rank + 1, [3] * 6))
            self.assertIs(job.allreduce(ours, out=ours).wait(), ours)
            self.assertEqual(ours.tolist(), [[3] * 3] * 2)
            room = np.zeros((2, 3), np.int32)
            room[job.rank] = job.rank + 1
            self.assertIs(job.allgather(room[job.rank], out=room).wait(), room)
            self.assertEqual(room.tolist(), [[1] * 3, [2] * 3])
            with self.assertRaisesRegex(px.InvalidArgument, "overlap"):
                job.allreduce(other[:4], out=other[1:5])
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_sizes(self):
        @committed
        def body(job):
            nothing = job.allreduce(np.zeros((0, 3), np.float32)).wait()
            self.assertEqual(nothing.shape, (0, 3))
            self.assertEqual(job.allreduce(np.array(2.0)).wait().shape, ())
            self.assertEqual(job.allreduce(np.float32(2)).wait(), 4)
            large = job.allreduce(np.ones(100000, np.float32)).wait()
            self.assertTrue((large == 2).all())
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_every_kind(self):
        @committed
        def body(job):
            rank, world = job.rank, job.world
            ours = np.arange(6, dtype=np.int64).reshape(3, 2) + 10 * rank
            everyone = [np.arange(6).reshape(3, 2) + 10 * other for other in range(world)]
            total = sum(everyone)
            got = {kind: job.collective(kind, ours, root=1, tag=5) for kind in (
                "allreduce", "reduce_scatter", "allgather", "reduce", "gather")}
            results = {kind: request.wait() for kind, request in got.items()}
            expected = {"allreduce": total, "reduce_scatter": total[rank:rank + 1],
                        "allgather": np.stack(everyone),
                        "reduce": total if rank == 1 else None,
                        "gather": np.stack(everyone) if rank == 1 else None}
            for kind, wanted in expected.items():
                if wanted is None:
                    self.assertIsNone(results[kind], kind)
                else:
                    np.testing.assert_array_equal(results[kind], wanted, kind)
                    self.assertEqual(results[kind].shape, wanted.shape, kind)
            flat = job.collective("reduce_scatter", np.ones((2, 3), np.float32)).wait()
            self.assertEqual(flat.tolist(), [world] * 2)

            counts = list(range(world))  # rank r gives r numbers
            gathered = job.collective("allgatherv", np.full(rank, rank), recv_counts=counts).wait()
            self.assertEqual(gathered.tolist(), [1, 2, 2])
            exchanged = job.collective("alltoallv", np.full(sum(counts), rank, np.float32),
                                       send_counts=counts, recv_counts=[rank] * world).wait()
            self.assertEqual(exchanged.tolist(), sorted(list(range(world)) * rank))

            with self.assertRaisesRegex(px.InvalidArgument, "cannot share alike"):
                job.collective("reduce_scatter", np.ones(4, np.float32))
            return True

        self.assertEqual(run_ranks(3, body), [True] * 3)

    def test_broadcast(self):
        @committed
        def body(job):
            mine = np.full(4, job.rank, np.float32)
            in_place = job.collective("broadcast", recv=mine, root=1).wait()
            self.assertIs(in_place, mine)
            self.assertEqual(mine.tolist(), [1] * 4)
            room = np.zeros(4, np.float32)
            if job.rank == 0:
                job.collective("broadcast", np.full(4, 7, np.float32), room).wait()
            else:
                job.collective("broadcast", recv=room).wait()
            self.assertEqual(room.tolist(), [7] * 4)
            if job.rank == 0:
                self.assertIs(job.collective("broadcast", room).wait(), room)
                with self.assertRaisesRegex(px.InvalidArgument, "must have 4"):
                    job.collective("broadcast", room, room[:2])
            else:
                job.collective("broadcast", recv=room).wait()
            return True

        self.assertEqual(run_ranks(2, body), [True, True])

    def test_kinds_are_the_headers(self):
        self.assertEqual(sorted(KINDS), sorted(kind.name.lower() for kind in px.Collective))


if __name__ == "__main__":
    unittest.main()
