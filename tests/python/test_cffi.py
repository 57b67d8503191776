# SPDX-License-Identifier: Apache-2.0
"""cffi reads parallax.h as the preprocessor leaves it, and calls the library by it."""

import os
import re
import tempfile
import unittest

try:
    import cffi
except ImportError:
    cffi = None

from support import ROOT, compile_c

HEADER = os.path.join(ROOT, "include", "parallax", "parallax.h")
ROWS, COLUMNS = 5, 3


def declarations():
    """What the preprocessor makes of the header, without the system's: cffi has int64_t and the
    like of its own. __attribute__ is no C, and goes. Numbers stay as #define, which cffi knows."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "parallax.i")
        compile_c("-E", "-dD", "-D__attribute__(x)=", HEADER, "-o", path)
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    kept, ours = [], False
    for line in lines:
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = marker[1] == HEADER
        elif ours:
            number = re.match(r"#define (PARALLAX_\w+) +\(?(-?\d+)u?\)?$", line)
            if number:
                kept.append(f"#define {number[1]} {number[2]}")
            elif not line.startswith("#"):
                kept.append(line)
    return "\n".join(kept)


@unittest.skipIf(cffi is None, "needs cffi (python3-cffi)")
class Header(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.declared = declarations()

    def setUp(self):
        self.ffi = cffi.FFI()
        self.ffi.cdef(self.declared)
        # Kept until the end: what an unloaded library held looks like a leak.
        flags = self.ffi.RTLD_NOW | self.ffi.RTLD_NODELETE
        self.library = self.ffi.dlopen(os.environ["PARALLAX_LIBRARY"], flags)

    def struct(self, kind, **fields):
        return self.ffi.new(f"{kind} *", {"size": self.ffi.sizeof(kind), **fields})

    def ok(self, status):
        self.assertEqual(status, self.library.PARALLAX_OK,
                         self.ffi.string(self.library.parallax_last_error()))

    def finish(self, request):
        self.ok(self.library.parallax_wait(request, 1, self.library.PARALLAX_WAIT_DEFAULT))
        self.ok(self.library.parallax_request_release(request[0]))

    def test_all_of_it_is_there(self):
        with open(HEADER, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        functions = re.findall(r"\bPARALLAX_API\s[^;()]*?\b(parallax_\w+)\s*\(", text)
        self.assertGreater(len(functions), 30)
        for name in functions:
            self.assertTrue(callable(getattr(self.library, name)), name)
        for kind in re.findall(r"^\} (\w+);", text, re.M):
            self.assertGreater(self.ffi.sizeof(kind), 0, kind)
        self.assertEqual((self.library.PARALLAX_BYTES, self.library.PARALLAX_WAIT_DEFAULT),
                         (16, -1))

    def test_version(self):
        library = self.library
        parts = [getattr(library, f"PARALLAX_VERSION_{part}")
                 for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(self.ffi.string(library.parallax_version_string()).decode(),
                         ".".join(map(str, parts)))
        self.assertEqual(library.parallax_version(),
                         parts[0] * 10000 + parts[1] * 100 + parts[2])

    def test_reduce(self):
        ffi, library = self.ffi, self.library
        job, request = ffi.new("parallax_job_t **"), ffi.new("parallax_request_t **")
        number, step = ffi.new("uint32_t *"), ffi.new("uint64_t *")
        self.ok(library.parallax_open(self.struct("parallax_options_t", world=1), job))
        name = ffi.new("char[]", b"held")
        self.ok(library.parallax_register(job[0], self.struct(
            "parallax_variable_t", name=name, rows=ROWS, row_elements=COLUMNS,
            reduction=library.PARALLAX_MEAN_WORLD), number))
        self.ok(library.parallax_commit(job[0]))
        gradient = ffi.new("float[]", [i / 2 for i in range(ROWS * COLUMNS)])
        total = ffi.new("float[]", ROWS * COLUMNS)
        slices = self.struct("parallax_slice_t", variable=number[0], values=gradient, into=total)
        self.ok(library.parallax_step_begin(job[0], step))
        self.ok(library.parallax_reduce(job[0], step[0], slices, 1, request))
        self.finish(request)
        self.assertEqual(list(total), list(gradient))
        self.assertEqual(total[3], 1.5)
        self.ok(library.parallax_step_end(job[0], step[0], ffi.NULL, request))
        info = self.struct("parallax_step_info_t")
        self.ok(library.parallax_wait(request, 1, library.PARALLAX_WAIT_DEFAULT))
        self.ok(library.parallax_request_step(request[0], info))
        self.assertEqual((info.step, info.committed, info.contributors), (1, 1, 1))
        self.ok(library.parallax_request_release(request[0]))
        self.ok(library.parallax_close(job[0]))

    def test_a_job_of_one_rank(self):
        ffi, library = self.ffi, self.library
        job, request = ffi.new("parallax_job_t **"), ffi.new("parallax_request_t **")
        number, step = ffi.new("uint32_t *"), ffi.new("uint64_t *")
        self.ok(library.parallax_open(self.struct("parallax_options_t"), job))
        name = ffi.new("char[]", b"table")
        self.ok(library.parallax_register(job[0], self.struct(
            "parallax_variable_t", name=name, rows=ROWS, row_elements=COLUMNS, rows_max=4,
            tag=library.PARALLAX_SPARSE, rule=library.PARALLAX_RULE_SGD), number))
        self.ok(library.parallax_commit(job[0]))
        ids, values = ffi.new("int64_t[]", [3, 1, 3]), ffi.new("float[]", 3 * COLUMNS)
        slices = self.struct("parallax_slice_t", variable=number[0], ids=ids, row_count=3,
                             form=library.PARALLAX_FORM_ROWS, values=values)
        for done in range(3):
            self.ok(library.parallax_step_begin(job[0], step))
            self.ok(library.parallax_pull(job[0], step[0], slices, 1, request))
            self.finish(request)
            self.assertEqual(list(values),
                             [-1.0 * done] * COLUMNS + [-0.5 * done] * COLUMNS
                             + [-1.0 * done] * COLUMNS)
            for i in range(3 * COLUMNS):
                values[i] = 1
            self.ok(library.parallax_push(job[0], step[0], slices, 1, request))
            self.finish(request)
            self.ok(library.parallax_step_end(job[0], step[0], self.struct(
                "parallax_step_end_options_t", learning_rate=0.5), request))
            self.finish(request)
        self.ok(library.parallax_close(job[0]))

    def test_a_refusal_has_its_sentence(self):
        job = self.ffi.new("parallax_job_t **")
        status = self.library.parallax_open(self.struct("parallax_options_t", rank=5, world=2), job)
        self.assertEqual(status, self.library.PARALLAX_INVALID)
        self.assertIn(b"rank is 5", self.ffi.string(self.library.parallax_last_error()))


if __name__ == "__main__":
    unittest.main()
