# SPDX-License-Identifier: Apache-2.0
"""cffi reads parallax.h as it is, but for the preprocessor's lines, and calls the library by it."""

import os
import re
import unittest

try:
    import cffi
except ImportError:
    cffi = None

HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "include",
                      "parallax", "parallax.h")
ROWS, COLUMNS = 5, 3


def declarations():
    """The header without comments and without what is for C and C++ compilers alone. Numbers stay
    as #define, which cffi knows."""
    with open(HEADER, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.S)
    numbers = re.findall(r"^#define (\w+) +\(?(-?\d+)\)? *$", text, re.M)
    text = re.sub(r"^#.*$", "", text, flags=re.M).replace("PARALLAX_API ", "")
    text = re.sub(r"\bPARALLAX_UNIQUE_ID_BYTES\b", dict(numbers)["PARALLAX_UNIQUE_ID_BYTES"], text)
    return text + "".join(f"#define {name} {number}\n" for name, number in numbers)


@unittest.skipIf(cffi is None, "needs cffi (python3-cffi)")
class Header(unittest.TestCase):
    def setUp(self):
        self.ffi = cffi.FFI()
        self.ffi.cdef(declarations())
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
