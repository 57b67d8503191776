"""The self-test of tests/tidy: scratch trees that break one rule each, and what must be found."""

import os
import tempfile

from pages import HEADER, write_pages
from tidy_docs import MANUAL
from tidy_pictures import draw

CLEAN = {
    "src/base/a.h": "// SPDX-License-Identifier: Apache-2.0\n"
                    "// A: a thing that is here to be clean.\n"
                    "#ifndef PARALLAX_BASE_A_H_\n#define PARALLAX_BASE_A_H_\n\nint a();\n\n"
                    "#endif  // PARALLAX_BASE_A_H_\n",
    ".clang-format": "BasedOnStyle: Google\nColumnLimit: 100\n",
}
OPENING = "// SPDX-License-Identifier: Apache-2.0\n// A file that is here to break a rule.\n"


def guarded(name, code):
    """A header's text; `name` is its path in capitals."""
    guard = f"PARALLAX_{name}_H_"
    return OPENING + f"#ifndef {guard}\n#define {guard}\n\n{code}\n#endif  // {guard}\n"


def drawn(name, text):
    """A picture and its text."""
    return {f"docs/pictures/{name}.txt": text, f"docs/pictures/{name}.svg": draw(text)}


def manual(change=lambda header: header):
    """The tree's own header, changed, and the pages that it gave before."""
    with open(HEADER, encoding="utf-8") as file:
        header = file.read()
    pages = {MANUAL + name: text for name, text in write_pages(header).items()}
    return {"include/parallax/parallax.h": change(header), **pages}


TROUBLE = "`N` is a number.\n\n## At work\n\n> rank N is lost in the wild: say what\n> it did\n"

# (what it shows, rule, {path: text})
BROKEN = [
    ("base includes engine", "layers", {"src/base/b.cc": OPENING + '#include "engine/x.h"\n'}),
    ("engine includes job", "layers", {"src/engine/b.cc": OPENING + '#include "job/x.h"\n'}),
    ("planner includes transport", "layers",
     {"src/planner/b.cc": OPENING + '#include "transport/transport.h"\n'}),
    ("transport includes variable", "layers",
     {"src/transport/b.cc": OPENING + '#include "variable/x.h"\n'}),
    ("two layers include each other", "layers",
     {"src/server/b.cc": OPENING + '#include "aggregate/x.h"\n',
      "src/aggregate/c.cc": OPENING + '#include "server/x.h"\n'}),
    ("job includes the UCX module", "layers",
     {"src/job/b.cc": OPENING + '#include "transport/ucx/x.h"\n'}),
    ("transport includes UCX", "layers",
     {"src/transport/b.cc": OPENING + "#include <ucp/api/ucp.h>\n"}),
    ("planner reads the clock", "layers", {"src/planner/b.cc": OPENING + "#include <chrono>\n"}),
    ("server opens sockets", "layers", {"src/server/b.cc": OPENING + "#include <sys/socket.h>\n"}),
    ("an include beside the file", "layers", {"src/base/b.cc": OPENING + '#include "a.h"\n'}),
    ("an unknown layer", "layers", {"src/util/b.cc": OPENING}),
    ("a long file", "size", {"src/base/b.cc": OPENING + "int a;\n" * 500}),
    ("a long line", "columns", {"src/base/b.cc": OPENING + "// " + "x" * 98 + "\n"}),
    ("a blank at the end", "columns", {"tests/b.py": "a = 1 \n"}),
    ("a long function", "function",
     {"src/base/b.cc": OPENING + "int f(int x) {\n" + "  x++;\n" * 59 + "  return x;\n}\n"}),
    ("a long method", "function",
     {"src/base/b.cc": OPENING + "namespace n {\nclass A {\n  void f() const {\n"
      + "    g();\n" * 60 + "  }\n};\n}  // namespace n\n"}),
    ("a long constructor", "function",
     {"src/base/b.cc": OPENING + "A::A(int b) : b_{b}, c_{b} {\n" + "  g();\n" * 60 + "}\n"}),
    ("a workplace path", "banned", {"docs/b.md": "see /wo" + "rk/main\n"}),
    ("a steering path", "banned", {"docs/b.md": "see ../sha" + "red/DESIGN.md\n"}),
    ("unfinished work", "banned", {"src/base/b.cc": OPENING + "// TO" + "DO: more\n"}),
    ("a stub", "banned", {"src/base/b.cc": OPENING + "// not imple" + "mented\n"}),
    ("a disabled test", "banned", {"tests/b.cc": OPENING + "TEST(A, DISAB" + "LED_b) {}\n"}),
    ("a friend", "banned", {"src/base/b.cc": OPENING + "class A {\n  friend class B;\n};\n"}),
    ("a singleton", "banned",
     {"src/base/b.cc": OPENING + "class A {\n  static A& instance();\n};\n"}),
    ("a thread's destructor", "banned",
     {"src/base/b.cc": OPENING + "std::string& f() {\n  thread_local std::string s;\n}\n"}),
    ("a macro of no one", "banned", {"src/base/b.cc": OPENING + "#define MAX 3\n"}),
    ("a variable read", "environment",
     {"src/base/b.cc": OPENING + 'const char* a = std::getenv("A");\n'}),
    ("a lock that says nothing", "locks", {"src/base/b.cc": OPENING + "std::mutex a;\n"}),
    ("a lock that says nothing held", "locks",
     {"src/base/b.cc": OPENING + "void f() { const std::lock_guard lock(a); }\n"}),
    ("a test that is not there", "evidence",
     {"docs/security.md": "safe: `Suite.case`, `Other.test_case`\n",
      "tests/b.py": "class Suite:\n    def case(self):\n        pass\n"}),
    ("a recipe's file that is not there", "evidence",
     {"docs/CONTRIBUTING.md": "a row in `src/base/b.cc`, a class in `src/base/NAME.cc`\n"}),
    ("a picture that is not its text", "pictures",
     {**drawn("a", "title: A\nlayer pure base: b\n"), "docs/pictures/a.svg": "<svg/>\n"}),
    ("a text that nobody drew", "pictures",
     {"docs/pictures/a.txt": "title: A\nlayer pure base: b\n"}),
    ("a picture without a text", "pictures", {"docs/pictures/a.svg": "<svg/>\n"}),
    ("a text that does not fit", "pictures",
     {"docs/pictures/a.txt": "title: A\nlayer pure base: " + "long " * 60 + "\n"}),
    ("two things in one place", "pictures",
     {"docs/pictures/a.txt": "title: A\ngroup g: a, b\nhost a > b: c\n+ at b: d\n"}),
    ("a layer that the picture lacks", "pictures",
     drawn("layers", "title: A\nlayer pure base: b\n")),
    ("no license", "opening",
     {"src/base/b.cc": "// A file that is here to break a rule.\nint a;\n"}),
    ("no first paragraph", "opening",
     {"src/base/b.cc": "// SPDX-License-Identifier: Apache-2.0\n#include <vector>\n"}),
    ("a wrong guard", "guard",
     {"src/base/b.h": OPENING + "#ifndef PARALLAX_B_H_\n#define PARALLAX_B_H_\n#endif\n"}),
    ("no guard", "guard", {"src/base/b.h": OPENING + "#pragma once\n"}),
    ("a test of nothing", "mirror", {"tests/unit/base/b_test.cc": OPENING}),
    ("a test of no layer", "mirror", {"tests/unit/b_test.cc": OPENING}),
    ("a file without a test", "mirror", {"src/server/b.cc": OPENING + "int b() { return 1; }\n"}),
    ("a header with code and without a test", "mirror",
     {"src/server/b.h": guarded("SERVER_B", "inline int b() { return 1; }\n")}),
    ("a test of another that begins alike", "mirror",
     {"src/server/b.h": guarded("SERVER_B", "inline int b() { return 1; }\n"),
      "src/server/b_c.h": guarded("SERVER_B_C", "inline int c() { return 1; }\n"),
      "tests/unit/server/b_c_test.cc": OPENING}),
    ("a call of the C ABI that no test makes", "mirror",
     {"src/capi/b.cc": OPENING + "int parallax_b(int a) { return a; }\n"}),
    ("a class of many members", "class",
     {"src/base/b.cc": OPENING + "class B {\n  int a = 0, b = 0;\n" + "  int c;\n" * 24 + "};\n"}),
    ("a nested struct of many members", "class",
     {"src/base/b.cc": OPENING + "class B {\n  struct C {\n" + "    std::map<int, int> d{};\n" * 26
      + "  };\n};\n"}),
    ("an annotated class of many members", "class",
     {"src/base/b.cc": OPENING + "class PARALLAX_SCOPED B {\n"
      + "  int a PARALLAX_GUARDED_BY(b) = 0;\n" * 26 + "};\n"}),
    ("a class of many methods", "class",
     {"src/base/b.cc": OPENING + "struct B : A<int> {\n" + "  int a() const { return 1; }\n" * 41
      + "};\n"}),
    ("a page of an older header", "manual",
     manual(lambda header: header.replace("Never blocks on a peer", "Never blocks"))),
    ("a function without a page", "manual",
     manual(lambda header: header.replace("#ifdef __cplusplus\n}",
                                          "PARALLAX_API int parallax_new(void);\n\n"
                                          "#ifdef __cplusplus\n}"))),
    ("a page of no header", "manual", {**manual(), MANUAL + "parallax_old.3": ".TH OLD 3\n"}),
    ("a sentence that nobody says", "quotes",
     {"docs/troubles.md": TROUBLE, "src/base/b.cc": OPENING + 'A a("rank is lost");\n'}),
    ("a link to nowhere", "links", {"docs/b.md": "see [a](a.md)\n"}),
    ("a link to no heading", "links", {"docs/b.md": "# What\n\nsee [a](#where)\n"}),
    ("a name of nothing", "names", {"docs/b.md": "call `parallax_gone`\n"}),
    ("an unformatted file", "format", {"src/base/b.cc": OPENING + "int  b( ) ;\n"}),
    ("an unformatted kernel", "format", {"src/cuda/b.cu": OPENING + "int  b( ) ;\n"}),
]


# Trees without a finding of the rule.
CLASS_AT_ITS_BOUND = (
    "class B : public A<int, int> {\n public:\n  B();\n  explicit B(int a) : a_{a}, b_(a) {}\n"
    "  ~B();\n  B(const B&) = delete;\n  B& operator=(const B&) = default;\n"
    "  static constexpr int kMost = 3;\n  using C = int;\n  enum class D : int { kE, kF };\n"
    "  struct G {\n    int h = 0;\n    int i() const { return h; }\n  };\n  struct J;\n"
    "  bool operator==(const B&) const = default;\n"
    + "  std::function<void(int a, int b)> get(int a = 1, std::vector<int> b = {}) const;\n" * 40
    + "  int a_{0}, b_ = 0;\n  int (*c_)(int, int) = nullptr;\n"
    + "  std::map<int, std::vector<int>> d_ PARALLAX_GUARDED_BY(mutex_) = {{1, {2, 3}}, {4, {}}};\n"
      * 22 + "};\n")
ALLOWED = [
    ("the pages of the header", "manual", manual()),
    ("a sentence that is said", "quotes",
     {"docs/troubles.md": TROUBLE,
      "src/base/b.cc": OPENING + 'A a("rank " + b + " is lost in the "\n'
                                 '    "wild: say what it did");\n'}),
    ("a link to a heading", "links", {"docs/b.md": "# What it is\n\nsee [a](#what-it-is)\n"}),
    ("a picture and its text", "pictures", drawn("a", "title: A\nlayer pure base: b\n")),
    ("two short functions", "function",
     {"src/base/b.cc": OPENING + ("int f(int x) {\n" + "  x++;\n" * 50 + "  return x;\n}\n") * 2}),
    ("a class at its bound", "class", {"src/base/b.cc": OPENING + CLASS_AT_ITS_BOUND}),
    ("a file, its part and its test", "mirror",
     {"src/server/b.h": guarded("SERVER_B", "int b();\n"), "src/server/b_c.cc": OPENING,
      "src/server/d.h": guarded("SERVER_D", "struct D {\n  int e = 0;\n};\n"),
      "src/server/b.cc": OPENING, "tests/unit/server/b_e_test.cc": OPENING}),
    ("a call of the C ABI and its test", "mirror",
     {"src/capi/b.cc": OPENING + "int parallax_b(int a) { return a; }\n",
      "tests/abi/b.c": OPENING + "int c(void) { return parallax_b(1); }\n"}),
]


def in_scratch(files, findings, exceptions=()):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return findings(root, exceptions)


def self_test(findings):
    """`findings(root, exceptions)` are those of the tree at root."""
    failures = []
    if found := in_scratch(CLEAN, findings):
        failures.append(f"a clean tree is not clean: {found}")
    for what, rule, files in BROKEN:
        found = {finding.rule for finding in in_scratch({**CLEAN, **files}, findings)}
        if rule not in found:
            failures.append(f"{what}: expected a finding of [{rule}], got {sorted(found)}")
    for what, rule, files in ALLOWED:
        found = [f for f in in_scratch({**CLEAN, **files}, findings) if f.rule == rule]
        if found:
            failures.append(f"{what}: expected no finding of [{rule}], got {found}")
    many = {"src/base/b.cc": OPENING + "struct B {\n" + "  int a;\n" * 26 + "};\n"}
    for exception, expected in (("src/base/b.cc:B", set()),
                                ("src/base/b.cc:C", {"class", "exception"}),
                                ("src/base/b.cc", {"class", "exception"})):
        found = in_scratch({**CLEAN, **many}, findings, {("class", exception): ""})
        if {f.rule for f in found} - {"format"} != expected:
            failures.append(f"with an exception for {exception}: {found}")
    stale = in_scratch(CLEAN, findings, {("size", "src/base/a.h"): ""})
    if not any(finding.rule == "exception" for finding in stale):
        failures.append("a stale exception is not found")
    for failure in failures:
        print(f"tidy: self-test: {failure}")
    print(f"tidy: self-test: {len(BROKEN) + len(ALLOWED) + 5} trees, {len(failures)} failures")
    return 1 if failures else 0
