# SPDX-License-Identifier: Apache-2.0
"""Threads and signals: the GIL is released while waiting, and Ctrl-C is heard."""

import signal
import subprocess
import threading
import unittest

import libparallax as px

from support import TIMEOUT, finish, run_ranks, start


class Threads(unittest.TestCase):
    def test_others_run_during_a_wait(self):
        # The main thread counts while rank 0 waits for rank 1, which comes only when the count is
        # done. Were the GIL held, the count would stand still until the wait timed out.
        waiting, counted = threading.Event(), threading.Event()
        done_before = []

        def body(job):
            job.commit()
            if job.rank == 0:
                request = job.barrier()
                waiting.set()
                request.wait()
                done_before.append(counted.is_set())
            else:
                self.assertTrue(counted.wait(2 * TIMEOUT))
                job.barrier().wait()
            return True

        ranks = threading.Thread(target=lambda: results.extend(run_ranks(2, body)))
        results, count = [], 0
        ranks.start()
        self.assertTrue(waiting.wait(TIMEOUT))
        while count < 200000:
            count += 1
        counted.set()
        ranks.join()
        self.assertEqual((results, done_before), ([True, True], [True]))

    def test_one_waiter(self):
        def body(job):
            job.commit()
            if job.rank == 0:
                request, answers = job.barrier(), []

                def wait():
                    try:
                        request.wait(TIMEOUT)
                        answers.append("done")
                    except px.InvalidState as refusal:
                        answers.append(refusal.message)
                        turn.set()

                turn = threading.Event()
                threads = [threading.Thread(target=wait) for _ in range(2)]
                for thread in threads:
                    thread.start()
                self.assertTrue(turn.wait(TIMEOUT))
                job.broadcast(bytearray(1)).wait()
                for thread in threads:
                    thread.join()
                return sorted(answers)
            job.broadcast(bytearray(1)).wait()
            job.barrier().wait()
            return None

        answers = run_ranks(2, body)[0]
        self.assertIn("done", answers)
        self.assertRegex(" ".join(answers), "another thread waits for this request")

    def test_a_timeout_says_what_was_given(self):
        # Longer than a wait's first part, which the main thread and the compiled core have.
        rendezvous = "inproc:given-timeout"
        over = threading.Event()

        def other():
            with px.open(rank=1, world=2, rendezvous=rendezvous, timeout=TIMEOUT) as job:
                job.commit()
                over.wait(TIMEOUT)
                job.barrier().wait()

        rank = threading.Thread(target=other)
        rank.start()
        with px.open(rank=0, world=2, rendezvous=rendezvous, timeout=TIMEOUT) as job:
            job.commit()
            barrier = job.barrier()

            def said(timeout):
                with self.assertRaisesRegex(px.Timeout, "waits for rank 1") as late:
                    barrier.wait(timeout)
                return late.exception.message.partition(" ms")[0]

            def wait_elsewhere(timeout):
                sentences = []
                waiter = threading.Thread(target=lambda: sentences.append(said(timeout)))
                waiter.start()
                waiter.join()
                return sentences[0]

            for wait in (said, wait_elsewhere):
                for timeout, given in ((0, 0), (0.01, 10), (0.2501, 251), (0.4, 400)):
                    with self.subTest(wait=wait.__name__, timeout=timeout):
                        said_first = "within" if given > 200 else "wait: after"
                        self.assertEqual(wait(timeout), f"{said_first} {given}")
            over.set()
            barrier.wait()
        rank.join()

    def test_steps_of_many_threads(self):
        # Pulls from several threads at once, each of its own variable.
        with px.open() as job:
            tables = [job.register(f"table{i}", rows=4, rule="sgd", init=float(i))
                      for i in range(8)]
            job.commit()
            results = [None] * len(tables)
            with job.step() as step:
                def pull(index):
                    values = memoryview(step.pull(tables[index]).wait()).tolist()
                    results[index] = values[0][0]

                threads = [threading.Thread(target=pull, args=(i,)) for i in range(len(tables))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            self.assertEqual(results, [float(i) for i in range(8)])

    def test_requests_of_two_jobs(self):
        with px.open() as one, px.open() as other:
            one.commit()
            other.commit()
            requests = [one.barrier(), other.barrier()]
            with self.assertRaisesRegex(px.InvalidArgument, "of different jobs"):
                px.wait_all(requests)
            for request in requests:
                request.wait()

    def test_bad_timeouts(self):
        with px.open() as job:
            job.commit()
            for given in (-1, "soon", float("nan"), True):
                with self.assertRaisesRegex(px.InvalidArgument, "timeout is"):
                    job.barrier().wait(given)
            job.barrier().wait(float("inf"))


class Interrupts(unittest.TestCase):
    """SIGINT in the main thread; the timeouts in the scripts are far longer than the test's."""

    OPENING = """
import signal, sys
import libparallax as px
signal.signal(signal.SIGINT, signal.default_int_handler)
def ready():
    print("ready", flush=True)
def rank(number, **options):
    return px.open(rank=number, world=2, rendezvous="inproc:interrupt", timeout=3600,
                         **options)
"""

    def interrupted(self, script):
        process = start(self.OPENING + script)
        self.assertEqual(process.stdout.readline(), "ready\n")
        # Once would be enough, but for a signal that comes before the script waits.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                self.tries += 1
                if self.tries > TIMEOUT:
                    process.kill()
        return finish(process)

    def setUp(self):
        self.tries = 0

    def test_open(self):
        status, out, error = self.interrupted("""
try:
    ready()
    rank(0)
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted")
""")
        self.assertEqual((status, out), (0, "interrupted\n"), error)

    def test_wait(self):
        status, out, error = self.interrupted("""
import threading
def other():
    job = rank(1)
    job.commit()
    try:
        job.barrier().wait()
        job.barrier().wait()
        job.broadcast(bytearray(1), root=0).wait()
    except px.Aborted as aborted:
        print(aborted.message.partition(";")[0])
        try:
            job.close()
        except px.Aborted:
            pass
thread = threading.Thread(target=other)
thread.start()
try:
    with rank(0) as job:
        job.commit()
        job.barrier().wait()
        pull = job.broadcast(bytearray(1), root=1)
        ready()
        pull.wait()
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    thread.join()
    print("interrupted")
""")
        self.assertEqual(status, 0, error)
        self.assertIn("rank 0 left by KeyboardInterrupt", out)
        self.assertTrue(out.endswith("interrupted\n"), out)


if __name__ == "__main__":
    unittest.main()
