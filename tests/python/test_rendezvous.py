# SPDX-License-Identifier: Apache-2.0
"""Rendezvous from Python: an address, a unique id, a launcher's environment; what is refused."""

import os
import tempfile
import unittest

import libparallax as px

from support import finish, free_port, start

RANK = """
import sys
import libparallax as px

arguments = dict(pair.split("=", 1) for pair in sys.argv[1:])
for name in ("rank", "world"):
    if name in arguments:
        arguments[name] = int(arguments[name])
if "unique_id" in arguments:
    arguments["unique_id"] = bytes.fromhex(arguments["unique_id"])
with px.open(timeout=60, **arguments) as job:
    total = bytearray(8)
    job.commit()
    job.broadcast(total, root=0).wait()
    print("rank", job.rank, "of", job.world)
"""


ALONE = """
import sys
import libparallax as px

try:
    px.open(rank=int(sys.argv[1]), world=3, rendezvous=sys.argv[2], timeout=11)
except px.ParallaxError as failure:
    print(failure.status.name)
"""


# As a notebook runs cells: by exec, in a process whose __main__ has no file, one after another
# within a loop of asyncio that goes on.
NOTEBOOK = """
import array, asyncio, sys

CELLS = [
    "import libparallax as px; job = px.open(rendezvous=sys.argv[1] or None)",
    "table = job.register('table', rows=4, row_elements=2, rows_max=4, rule='sgd', init=1.0)",
    "held = job.register('held', rows=2); job.commit()",
    '''
with job.step(learning_rate=0.5) as step:
    step.push(table, [1], array.array("f", [2, 4]))
    total = step.reduce(held, array.array("f", [3, 5])).wait()
''',
    "print(job.rank, job.world, list(total))",
    "job.barrier().wait(300)",
    "print(memoryview(job.pull(table, [0, 1]).wait()).tolist()); job.close()",
]

async def beside():
    while True:
        ticks.append(1)
        await asyncio.sleep(0)

async def notebook():
    other = asyncio.create_task(beside())
    names = {"__name__": "__main__", "sys": sys, "array": array}
    for number, cell in enumerate(CELLS):
        exec(compile(cell, f"<cell {number}>", "exec"), names)
        ticked = len(ticks)
        while len(ticks) == ticked:
            await asyncio.sleep(0)
    other.cancel()

ticks = []
assert not hasattr(sys.modules["__main__"], "__file__")
asyncio.run(notebook())
"""


class Rendezvous(unittest.TestCase):
    def test_a_notebook_is_a_world_of_one(self):
        for rendezvous in ("", "env"):
            with self.subTest(rendezvous=rendezvous):
                code, out, error = finish(start(NOTEBOOK, rendezvous))
                self.assertEqual((code, out, error),
                                 (0, "0 1 [3.0, 5.0]\n[[1.0, 1.0], [0.0, -1.0]]\n", ""))

    def test_who_waits_for_long_says_for_whom(self):
        with tempfile.TemporaryDirectory() as folder:
            gone = f"tcp:127.0.0.1:{free_port()}"
            waiting = [(start(ALONE, rank, where), missing) for rank, where, missing in (
                ("0", f"file:{folder}/meet", "ranks 1 and 2 never came"),
                ("0", f"tcp:127.0.0.1:{free_port()}", "ranks 1 and 2 never came"),
                ("1", gone, "rank 0 never came"))]
            for process, missing in waiting:
                with self.subTest(missing=missing):
                    _, out, error = finish(process)
                    self.assertEqual(out, "TIMEOUT\n", error)
                    self.assertRegex(error, "still waiting in the rendezvous .*, for [01] s more: "
                                     + missing)

    def meet(self, arguments_of, environment_of=lambda rank: {}, world=3):
        processes = [start(RANK, *(f"{name}={value}" for name, value in arguments_of(rank).items()),
                           **environment_of(rank)) for rank in range(world)]
        for rank, process in enumerate(processes):
            code, out, error = finish(process)
            self.assertEqual((code, out), (0, f"rank {rank} of {world}\n"), error)

    def test_tcp(self):
        where = f"tcp:127.0.0.1:{free_port()}"
        self.meet(lambda rank: {"rank": rank, "world": 3, "rendezvous": where})

    def test_tcp_with_a_secret(self):
        where = f"tcp:127.0.0.1:{free_port()}"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "secret")
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w",
                      encoding="ascii") as file:
                file.write("0123456789abcdef")
            self.meet(lambda rank: {"rank": rank, "world": 3, "rendezvous": where,
                                    "secret_file": path})

    def test_environment(self):
        where = f"tcp:127.0.0.1:{free_port()}"
        self.meet(lambda rank: {"rendezvous": "env"},
                  lambda rank: {"PARALLAX_RANK": str(rank), "PARALLAX_WORLD": "3",
                                "PARALLAX_RENDEZVOUS": where})

    def test_environment_without_a_launcher(self):
        process = start("import os, libparallax\nos.environ.clear()\n" + RANK, "rendezvous=env")
        code, out, error = finish(process)
        self.assertEqual((code, out), (0, "rank 0 of 1\n"), error)

    def test_unique_id(self):
        """Rank 0 is who made it: this process."""
        os.environ["PARALLAX_NET_DEVICE"] = "lo"
        self.addCleanup(os.environ.pop, "PARALLAX_NET_DEVICE")
        made = px.unique_id()
        self.assertEqual(len(made), 128)
        self.assertNotEqual(made, px.unique_id())
        other = start(RANK, "rank=1", "world=2", "unique_id=" + made.hex())
        with px.open(rank=0, world=2, unique_id=made, timeout=60) as job:
            job.commit()
            job.broadcast(bytearray(8), root=0).wait()
            self.assertEqual((job.rank, job.world), (0, 2))
        code, out, error = finish(other)
        self.assertEqual((code, out), (0, "rank 1 of 2\n"), error)

    def test_refusals(self):
        for arguments, sentence in (
                (dict(unique_id=b"short"), "all 128 of them"),
                (dict(unique_id="text"), "libparallax.unique_id()"),
                (dict(unique_id=bytes(128)), "was not made by parallax_unique_id"),
                (dict(rendezvous="tcp:0.0.0.0:29500"), "there is no secret"),
                (dict(rendezvous="tcp:127.0.0.1"), "give tcp:HOST:PORT"),
                (dict(rendezvous="tcp:127.0.0.1:29500", secret_file=""),
                 "options.secret_file is empty"),
                (dict(rendezvous="tcp:127.0.0.1:29500", unique_id=bytes(128)),
                 "more than one is set")):
            with self.subTest(sentence=sentence):
                with self.assertRaises(px.InvalidArgument) as refused:
                    px.open(rank=1, world=2, timeout=5, **arguments)
                self.assertIn(sentence, str(refused.exception))


if __name__ == "__main__":
    unittest.main()
