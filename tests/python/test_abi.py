# SPDX-License-Identifier: Apache-2.0
"""libparallax._abi and libparallax._tables against parallax.h, to the last field.

The names come out of the header's text, sizes, offsets, types and values out of the compiler: a C
program prints them. Whatever stands on one side only is named.
"""

import ctypes
import inspect
import os
import re
import subprocess
import tempfile
import unittest

import libparallax as px
from libparallax import _abi, _tables
from libparallax._version import __version__

from support import ROOT, compile_c

HEADER = os.path.join(ROOT, "include", "parallax", "parallax.h")

# Macros of the header that Python has no use for.
MACROS_LEFT_OUT = {"PARALLAX_PARALLAX_H_", "PARALLAX_API"}
MACROS_OF_VERSION = {"PARALLAX_VERSION_MAJOR", "PARALLAX_VERSION_MINOR", "PARALLAX_VERSION_PATCH"}

# Fields that are no parameter of the same name: their parameter, or None with the reason.
OPEN_PARAMETERS = {"lease_ms": "lease", "timeout_ms": "timeout"}
REGISTER_PARAMETERS = {"init_low": "init", "init_high": "init", "init_seed": "init",
                       "init_mean": "init", "init_std": "init", "initial": "init",
                       "rule_fn": "rule", "rule_context": "rule"}
NO_PARAMETER = {
    "size": "set by Sized",
    "reserved": "always 0",
    "count": "how many numbers the buffers have",
    "memory": "of collectives the host's; buffers that lie elsewhere are refused",
    "allgather_context": "a Python function has a context of its own",
}

KINDS = """
#define KIND(x) _Generic((x), int32_t: "i4", uint32_t: "u4", int64_t: "i8", uint64_t: "u8", \\
    float: "f4", double: "f8", default: "p8")
"""
KIND_OF_CTYPE = {
    ctypes.c_int32: "i4", ctypes.c_uint32: "u4", ctypes.c_int64: "i8", ctypes.c_uint64: "u8",
    ctypes.c_float: "f4", ctypes.c_double: "f8",
}


def commented_text():
    with open(HEADER, encoding="utf-8") as file:
        return file.read()


def header_text():
    return re.sub(r"/\*.*?\*/", " ", commented_text(), flags=re.S)


def structs_of(text):
    """{typedef: [field, ...]} of every struct of the header that has a body."""
    found = {}
    for name, body in re.findall(r"typedef struct (?:\w+) \{(.*?)\} (\w+);", text, re.S):
        name, body = body, name
        fields = []
        for declaration in filter(str.strip, body.split(";")):
            for declarator in declaration.split(","):
                fields.append(re.findall(r"\w+", re.sub(r"\[.*?\]", "", declarator))[-1])
        found[name] = fields
    return found


def enums_of(text):
    """{enum: [enumerator, ...]}"""
    return {name: re.findall(r"\b(PARALLAX_\w+)\b", body)
            for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", text, re.S)}


def compiled(lines):
    """What a C program of these printf lines prints, as {first word: the others}."""
    program = (f'#include "{HEADER}"\n#include <stdio.h>\n{KINDS}int main(void) {{\n'
               + "\n".join(lines) + "\nreturn 0;\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        compile_c("-std=c11", "-I", os.path.join(ROOT, "include"), source, "-o", binary)
        printed = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return {line.split()[0]: line.split()[1:] for line in printed.splitlines()}


class Header(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = header_text()
        cls.structs = structs_of(cls.text)
        cls.enums = enums_of(cls.text)

    def assert_same(self, ours, theirs, what):
        missing, extra = sorted(set(theirs) - set(ours)), sorted(set(ours) - set(theirs))
        self.assertFalse(missing, f"{what} of parallax.h that the Python package lacks: {missing}")
        self.assertFalse(extra, f"{what} of the Python package that parallax.h lacks: {extra}")

    def test_parser_sees_the_header(self):
        # A parser that finds nothing would pass every other test.
        self.assertEqual(len(re.findall(r"typedef struct \w+ \{", self.text)), len(self.structs))
        self.assertEqual(len(re.findall(r"typedef enum", self.text)), len(self.enums))
        self.assertIn("world", self.structs["parallax_options_t"])
        self.assertIn("hosts", self.structs["parallax_job_info_t"])
        self.assertGreaterEqual(len(self.structs), 6)

    def test_structs(self):
        self.assert_same(_abi.STRUCTS, self.structs, "structs")
        for name, fields in self.structs.items():
            ours = [field[0] for field in _abi.STRUCTS[name]._fields_]
            with self.subTest(struct=name):
                self.assert_same(ours, fields, f"fields of {name}")
                self.assertEqual(ours, fields, "the order of fields")

    def test_layout(self):
        lines = []
        for name, fields in self.structs.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [f'printf("{name}.{field} %zu %zu %s\\n", offsetof({name}, {field}), '
                      f'sizeof((({name}*)0)->{field}), KIND((({name}*)0)->{field}));'
                      for field in fields]
        layout = compiled(lines)
        for name in self.structs:
            struct = _abi.STRUCTS[name]
            with self.subTest(struct=name):
                self.assertEqual(ctypes.sizeof(struct), int(layout[name][0]), f"size of {name}")
            for field, kind in struct._fields_:
                if f"{name}.{field}" not in layout:
                    continue  # test_structs names it
                offset, size, c_kind = layout[f"{name}.{field}"]
                with self.subTest(field=f"{name}.{field}"):
                    ours = getattr(struct, field)
                    self.assertEqual((ours.offset, ours.size), (int(offset), int(size)))
                    self.assertEqual(KIND_OF_CTYPE.get(kind, "p8"), c_kind, "its type")

    def test_enums(self):
        expected = {enum: {prefix + member.name: int(member) for member in members}
                    for members, enum, prefix in _tables.C_ENUMS}
        expected["parallax_dtype"] = {"PARALLAX_" + dtype.name.upper(): dtype.value
                                      for dtype in _tables.DTYPES}
        self.assert_same(expected, self.enums, "enums")
        names = [name for enumerators in self.enums.values() for name in enumerators]
        values = compiled([f'printf("{name} %d\\n", (int){name});' for name in names])
        for enum, enumerators in self.enums.items():
            with self.subTest(enum=enum):
                self.assert_same(expected[enum], enumerators, f"enumerators of {enum}")
                self.assertEqual(expected[enum], {n: int(values[n][0]) for n in enumerators})

    def test_constants(self):
        macros = set(re.findall(r"^#define (PARALLAX_\w+)(?!\w|\()", self.text, re.M))
        macros -= MACROS_LEFT_OUT | MACROS_OF_VERSION
        self.assert_same(_abi.CONSTANTS, macros, "macros")
        values = compiled([f'printf("{name} %llu\\n", (unsigned long long)(long long){name});'
                           for name in macros])
        self.assertEqual({name: value % 2**64 for name, value in _abi.CONSTANTS.items()},
                         {name: int(values[name][0]) for name in macros})

    def test_macro_functions(self):
        self.assertEqual(re.findall(r"^#define (PARALLAX_\w+)\(", self.text, re.M),
                         ["PARALLAX_NUMA_NODE", "PARALLAX_AS"])
        printed = compiled([f'printf("{dtype.name} %d\\n", (int)PARALLAX_AS({dtype.value}));'
                            for dtype in _tables.DTYPES])
        self.assertEqual({dtype.name: _tables.as_dtype_of(dtype) for dtype in _tables.DTYPES},
                         {name: int(value) for name, (value,) in printed.items()})

    def test_functions(self):
        declared = dict(re.findall(r"\bPARALLAX_API\s[^;()]*?\b(parallax_\w+)\s*\(([^;]*)\);",
                                   self.text))
        self.assert_same(_abi.FUNCTIONS, declared, "functions")
        for name, arguments in declared.items():
            count = 0 if arguments.strip() == "void" else arguments.count(",") + 1
            with self.subTest(function=name):
                self.assertEqual(len(_abi.FUNCTIONS[name][1]), count, "the number of arguments")

    def test_version(self):
        printed = compiled([f'printf("{name} %d\\n", {name});' for name in MACROS_OF_VERSION])
        header = ".".join(printed[f"PARALLAX_VERSION_{part}"][0]
                          for part in ("MAJOR", "MINOR", "PATCH"))
        self.assertEqual(__version__, header, "parallax/_version.py against parallax.h")
        self.assertEqual(px.library_version(), header)

    def not_yet(self, struct):
        """The fields that the header gives a place and refuses: their comment says "not yet"."""
        body = re.search(r"typedef struct \w+ \{(.*?)\} " + struct + ";", commented_text(), re.S)[1]
        return set(re.findall(r"(\w+)(?:\[\w+\])?;\s*/\* not yet\b", body))

    def test_every_field_can_be_given(self):
        for struct, function, names in (
                ("parallax_options_t", px.open, OPEN_PARAMETERS),
                ("parallax_variable_t", px.Job.register, REGISTER_PARAMETERS),
                ("parallax_collective_t", px.Job.collective, {}),
                ("parallax_rates_t", px.Rates, {})):
            parameters = inspect.signature(function).parameters
            not_yet = self.not_yet(struct)
            for field in self.structs[struct]:
                with self.subTest(field=f"{struct}.{field}"):
                    if field not in NO_PARAMETER and field not in not_yet:
                        self.assertIn(names.get(field, field), parameters)
        self.assert_same(
            {"size", *inspect.signature(px.Job.step).parameters} - {"self"} | {"found_inf"},
            [field for field in self.structs["parallax_step_end_options_t"]
             if field not in self.not_yet("parallax_step_end_options_t")
             and field not in {"reserved", "rates_count"}],
            "fields of parallax_step_end_options_t")

    def test_every_outcome_can_be_read(self):
        for struct, fields in (("parallax_rows_t", (*px.StoredRows._fields, "variable",
                                                    "first_row", "row_count")),
                               ("parallax_job_info_t", px.JobInfo._fields),
                               ("parallax_step_info_t", px.StepInfo._fields)):
            self.assert_same({"size", *fields},
                             set(self.structs[struct]) - {"reserved", "reserved_2"}
                             - self.not_yet(struct),
                             f"fields of {struct}")


if __name__ == "__main__":
    unittest.main()
