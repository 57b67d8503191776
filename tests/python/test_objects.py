# SPDX-License-Identifier: Apache-2.0
"""Objects of Python carried from one rank to all."""

import unittest

import libparallax as px
from support import run_ranks


class Plain:
    def __init__(self, number):
        self.number = number


class Objects(unittest.TestCase):
    def test_every_rank_gets_the_roots(self):
        given = {"epochs": 3, "names": ["a", "\u00e4"], "none": None, "blob": bytes(100000)}

        def body(job):
            job.commit()
            mine = given if job.rank == 2 else "ignored"
            got = job.broadcast_object(mine, root=2)
            again = job.broadcast_object(Plain(job.rank))
            return got, again.number, job.broadcast_object(root=1)

        self.assertEqual(run_ranks(3, body), [(given, 0, None)] * 3)

    def test_one_rank(self):
        with px.open() as job:
            job.commit()
            value = [1]
            self.assertIs(job.broadcast_object(value), value)

    def test_what_cannot_be_pickled_fails_everywhere_and_the_job_goes_on(self):
        def body(job):
            job.commit()
            try:
                job.broadcast_object(lambda: 0, root=1)
            except px.InvalidArgument as refused:
                failure = refused.peer
            except Exception as own:
                failure = "lambda" in str(own)
            return failure, job.broadcast_object(job.rank)

        self.assertEqual(run_ranks(2, body), [(1, 0), (True, 0)])

    def test_bad_roots(self):
        with px.open() as job:
            with self.assertRaises(px.InvalidState):  # before commit
                job.broadcast_object(1)
            job.commit()
            with self.assertRaises(px.InvalidArgument):
                job.broadcast_object(1, root=1)
            with self.assertRaises(px.InvalidArgument):
                job.broadcast_object(1, root=-1)


if __name__ == "__main__":
    unittest.main()
