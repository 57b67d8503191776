#!/usr/bin/python3
"""Writes the manual's section 3 from include/parallax/parallax.h: docs/man/*.3.

  docs/man/pages.py           writes every page
  docs/man/pages.py --check   says what would change; tests/tidy does so too

The header is the text: a page takes from it prototypes, structs, enumerators and what their
comments say. PAGES says what stands on which page; whatever the header declares stands on exactly
one. Links from the other names of a page (`man 3 parallax_push`) are made when it is installed.
"""

import collections
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(os.path.dirname(os.path.dirname(HERE)), "include/parallax/parallax.h")

# name of the page: (what it is about, what stands on it). A group of macros goes by its first; text
# that opens a section of the header, and belongs to no declaration, by the section's title.
PAGES = {
    "libparallax": (
        "exact, planned communication of dense and sparse gradients",
        ["parallax_job_t", "parallax_request_t", "PARALLAX_WORLD_MAX"]),
    "parallax_open": (
        "begin and end a job",
        ["parallax_open", "parallax_close", "parallax_abort", "parallax_unique_id",
         "parallax_options_t", "PARALLAX_STALENESS_MAX", "parallax_plan_mode_t",
         "parallax_allgather_fn", "PARALLAX_UNIQUE_ID_BYTES", "parallax_unique_id_t"]),
    "parallax_split": ("a part of a job, for some of its ranks", ["parallax_split"]),
    "parallax_register": (
        "the variables of a job",
        ["parallax_register", "parallax_commit", "parallax_variable_t", "PARALLAX_ZERO",
         "parallax_dtype_t", "parallax_tag_t", "parallax_reduction_t", "parallax_rule_t",
         "parallax_rule_fn", "parallax_rule_block_t", "parallax_init_t", "parallax_placement_t",
         "parallax_method_t", "parallax_rounding_t"]),
    "parallax_step_begin": (
        "begin and end a step",
        ["parallax_step_begin", "parallax_step_end", "parallax_request_step",
         "parallax_step_end_options_t", "parallax_rates_t", "parallax_step_info_t"]),
    "parallax_pull": (
        "values and gradients of a step",
        ["parallax_pull", "parallax_push", "parallax_reduce", "parallax_request_rows",
         "parallax_slice_t", "PARALLAX_AS", "parallax_form_t", "parallax_memory_t"]),
    "parallax_read": (
        "rows with their optimizer state",
        ["parallax_read", "parallax_write", "parallax_rows_t"]),
    "parallax_collective": (
        "collectives beside the steps",
        ["parallax_collective", "parallax_barrier", "parallax_broadcast", "parallax_collective_t",
         "parallax_collective_kind_t", "parallax_op_t", "PARALLAX_BYTES"]),
    "parallax_wait": (
        "wait for requests",
        ["parallax_wait", "parallax_stream_wait", "parallax_request_test",
         "parallax_request_cancel",
         "parallax_request_release", "parallax_progress", "PARALLAX_WAIT_DEFAULT"]),
    "parallax_last_error": (
        "what failed",
        ["parallax_last_error", "parallax_last_error_info", "parallax_request_error",
         "parallax_request_error_info", "parallax_status_string", "parallax_status_t",
         "PARALLAX_NO_RANK", "parallax_error_info_t"]),
    "parallax_query": (
        "what a job is and did",
        ["parallax_query", "parallax_set", "parallax_report", "parallax_job_info_t",
         "parallax_phase_t", "parallax_report_t"]),
    "parallax_buffer_alloc": (
        "memory of a job",
        ["Memory", "parallax_buffer_alloc", "parallax_buffer_free", "parallax_buffer_register",
         "parallax_buffer_unregister", "parallax_buffer_options_t", "PARALLAX_NUMA_NODE"]),
    "parallax_set_log_callback": (
        "lines of the log",
        ["parallax_set_log_callback", "parallax_log_fn", "parallax_log_level_t"]),
    "parallax_version": (
        "the version of the library loaded",
        ["parallax_version", "parallax_version_string", "PARALLAX_VERSION_MAJOR"]),
}
NOT_SHOWN = {"PARALLAX_PARALLAX_H_", "PARALLAX_API"}

# kind: function, struct, enum, macros, type or text. `declaration` is without comments; `parts` are
# fields, enumerators or macros with their comments, and comments between them with an empty text.
Item = collections.namedtuple("Item", "kind name declaration comment parts")
Part = collections.namedtuple("Part", "text comment")


class Wrong(Exception):
    """The header has something that no page shows, or the other way round."""


def words_of(comment):
    """A comment's lines without its marks, and without the indentation that all of them have."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in comment.strip()[2:-2].split("\n")]
    lines = [lines[0].strip(), *(line.rstrip() for line in lines[1:])]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def bare(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def parts_of(body, end):
    """The declarations of a body, which end in `end`, each with the comment behind it."""
    parts, behind = [], False
    for token in re.findall(rf"/\*.*?\*/|\n|[^\s/{end}][^/{end}]*{end}?", body, re.S):
        if token == "\n":
            behind = False
        elif not token.startswith("/*"):
            parts.append(Part(" ".join(token.split()), []))
            behind = True
        elif behind:
            parts[-1] = Part(parts[-1].text, words_of(token))
        else:
            parts.append(Part("", words_of(token)))
    return parts


def macros_of(text):
    parts = []
    for line in text.split("\n"):
        if match := re.match(r"#define (\S.*?)\s*(/\*.*\*/)?$", line):
            parts.append(Part(match[1], words_of(match[2]) if match[2] else []))
    return parts


def item_of(text, comment):
    """The declaration that `text` is."""
    if text.startswith("#define"):
        parts = macros_of(text)
        return Item("macros", re.match(r"\w+", parts[0].text)[0], "", comment, parts)
    plain = " ".join(bare(text).split())
    if match := re.match(r"typedef (struct|enum) \w+ \{(.*)\} (\w+);", text, re.S):
        parts = parts_of(match[2], "," if match[1] == "enum" else ";")
        return Item(match[1], match[3], plain, comment, parts)
    if match := re.match(r"PARALLAX_API (.*?\b(parallax_\w+)\(.*\);)", plain):
        return Item("function", match[2], match[1], comment, [])
    if match := re.match(r"typedef .*?\(\*(\w+)\)\(.*\);|typedef struct \w+ (\w+);", plain):
        return Item("type", match[1] or match[2], plain, comment, [])
    raise Wrong(f"parallax.h: what is this? {plain[:70]}")


def read_header(text):
    """(the opening comment's lines, {name: Item}) of the header."""
    opening = re.match(r"/\*.*?\*/", text, re.S)[0]
    pattern = (r"(?P<comment>/\*(?!\*).*?\*/)|(?P<macros>(?:#define \w[^\n]*\n)+)"
               r"|(?P<skip>^#[^\n]*|^extern \"C\"[^\n]*|^\}$)|(?P<gap>\n[ \t]*\n)"
               r"|(?P<item>typedef (?:struct|enum) \w+ \{.*?\n\} \w+;|(?:PARALLAX_API|typedef)"
               r"[^;]*;)")
    items, comment, last, section = {}, None, None, None
    for match in re.finditer(pattern, text[len(opening):], re.S | re.M):
        kind, said = match.lastgroup, match[0]
        if kind == "gap" and comment and last:
            # It stands alone behind a declaration: the rest of what there is to say of that.
            items[last] = items[last]._replace(comment=items[last].comment + ["", *comment])
            comment = None
        elif kind == "gap" and comment and section:
            items[section], comment = Item("text", section, "", comment, []), None
        elif kind == "comment" and (title := re.match(r"/\* -{3,} (.*?) -{3,}", said)):
            section, last, comment = title[1], None, None
        elif kind == "comment" and not re.match(r"/\* (Laid|clang)", said):
            comment = words_of(said)
        elif kind in ("item", "macros"):
            item = item_of(said.rstrip(), comment or [])
            items[item.name], last, comment = item, item.name, None
    return words_of(opening), {n: i for n, i in items.items() if n not in NOT_SHOWN}


def escape(text, code=False):
    """Text for roff. In code every minus is one; in a sentence only that before a number."""
    text = text.replace("\\", "\\e").replace("'", "\\(aq").replace("^", "\\(ha")
    text = text.replace("~", "\\(ti")
    if code:
        text = text.replace("-", "\\-")
    else:
        text = re.sub(r"(?<![\w-])-(?=\d|\s)", r"\\-", text)
        text = re.sub(r"`([^`]*)`", r"\\fI\1\\fP", text)
        text = re.sub(r"\b(parallax_\w+)\b(?!\.h)", r"\\fB\1\\fP", text)
    return "\\&" + text if text.startswith((".", "'")) else text


def paragraphs(lines):
    """Comment lines as roff: sentences are filled, what is indented stays as it is."""
    out, sentences = [], []

    def flush():
        if sentences:
            out.extend(escape(line) for line in
                       textwrap.wrap(" ".join(sentences), 90, break_long_words=False,
                                     break_on_hyphens=False))
            sentences.clear()

    block = False
    for line in [*lines, ""]:
        indented = line.startswith("  ") and line.strip()
        if block and not indented:
            out += [".fi", ".PP"]
            block = False
        if indented:
            flush()
            if not block:
                out += [".PP", ".nf"]
                block = True
            out.append(escape(line[2:], code=True))
        elif line.strip():
            sentences.append(line.strip())
        else:
            flush()
            out.append(".PP")
    return out


def prototype(declaration):
    """A function's declaration, broken behind commas where it is long."""
    if len(declaration) <= 72:
        return [declaration]
    indent = declaration.index("(", declaration.startswith("typedef") * declaration.index(")")) + 1
    lines = [""]
    for argument in re.split(r"(?<=,) ", declaration):
        if lines[-1] and len(lines[-1]) + len(argument) >= 72:
            lines.append(" " * (indent if indent < 40 else 4))
        lines[-1] += (" " if lines[-1].strip() else "") + argument
    return lines


def tagged(item):
    """Fields, enumerators or macros with what is said of them."""
    out = []
    for part in item.parts:
        if not part.text:
            out += [".PP", *paragraphs([" ".join(line.strip() for line in part.comment)])]
            continue
        out += [".TP", f"\\fB{escape(part.text.rstrip(','), code=True)}\\fP"]
        said = " ".join(line.strip() for line in part.comment)
        out += paragraphs([said]) if said else ["\\&"]
    return out


def description(item):
    """What a page says of an item that is no function, or of one that is."""
    if item.kind == "text":
        return [".PP", *paragraphs(item.comment)]
    if item.kind == "macros":
        return [".SS Macros", *paragraphs(item.comment), *tagged(item)]
    if not item.comment and not item.parts:
        return []
    out = [f".SS {item.name}{'()' if item.kind == 'function' else ''}", *paragraphs(item.comment)]
    if item.kind in ("struct", "enum"):
        out += tagged(item)
    return out


def write_page(name, about, items, opening, version):
    """The page's text."""
    names = [i.name for i in items if i.kind not in ("macros", "text")]
    listed = [name, *(n for n in names if n != name)]
    out = ['.\\" SPDX-License-Identifier: Apache-2.0',
           '.\\" Written by docs/man/pages.py from parallax.h: change that.',
           f'.TH {name.upper()} 3 "" "libparallax {version}" "Library Functions"',
           ".nh", ".ad l", ".SH NAME",
           f"{', '.join(listed)} \\- {about}", ".SH SYNOPSIS", ".nf",
           ".B #include <parallax/parallax.h>"]
    for item in items:
        if item.kind in ("function", "type"):
            lines = prototype(item.declaration)
            out += [".PP", *(f"\\fB{escape(line, code=True)}\\fP" for line in lines)]
    flags = escape("pkg-config --cflags --libs parallax", code=True)
    out += [".fi", ".PP", f"Link with \\fB\\-lparallax\\fP (\\fB{flags}\\fP).",
            ".SH DESCRIPTION", *opening]
    for item in items:
        out += description(item)
    if any(i.declaration.startswith("parallax_status_t ") for i in items if i.kind == "function"):
        out += [".SH RETURN VALUE", "A status: \\fBPARALLAX_OK\\fP, which is 0, or one below 0, of "
                "which", ".BR parallax_last_error (3)", "has the sentence, and the data, for the "
                "calling thread.", "Statuses that any call may answer stand in",
                ".BR libparallax (3)."]
    others = [n for n in PAGES if n != name]
    out += [".SH SEE ALSO", *(f".BR {n} (3)," for n in others), ".BR parallax (1)"]
    return "\n".join(tidied(out)) + "\n"


def tidied(lines):
    """Without paragraphs that have no text."""
    kept = [a for a, b in zip(lines, [*lines[1:], ""])
            if a != ".PP" or not b.startswith((".PP", ".TP", ".SS", ".SH"))]
    return [a for a, b in zip(kept, ["", *kept]) if a != ".PP" or not b.startswith((".SS", ".SH"))]


def overview(opening):
    """The header's opening comment, whose paragraphs each begin with their subject."""
    start = next(at for at, line in enumerate(opening) if line.startswith("libparallax: "))
    text = paragraphs(opening[start + 1:])
    text = [re.sub(r"^([A-Z][a-z]+)\. ", r"\\fB\1.\\fP ", line) for line in text]
    text += [".SS Pages"]
    for name, (about, names) in PAGES.items():
        calls = [n for n in names if n.startswith("parallax_") and not re.search("_(t|fn)$", n)]
        if calls:
            text += [".TP", f".BR {name} (3)", f"{about}: \\fB{', '.join(calls)}\\fP"]
    return text


def write_pages(text):
    """{file name: text} of every page, from the header's text."""
    opening, items = read_header(text)
    version = ".".join(re.search(rf"VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR"))
    shown = [name for _, names in PAGES.values() for name in names]
    for name in sorted(set(items) - set(shown)):
        raise Wrong(f"{name} is on no page: give it its place in PAGES of docs/man/pages.py")
    for name in sorted(set(shown) - set(items)):
        raise Wrong(f"parallax.h does not declare {name}, which docs/man/pages.py shows")
    if twice := {name for name in shown if shown.count(name) > 1}:
        raise Wrong(f"on two pages: {', '.join(sorted(twice))}")
    pages = {}
    for name, (about, names) in PAGES.items():
        first = overview(opening) if name == "libparallax" else []
        pages[name + ".3"] = write_page(name, about, [items[n] for n in names], first, version)
    return pages


def main():
    with open(HEADER, encoding="utf-8") as file:
        try:
            pages = write_pages(file.read())
        except Wrong as wrong:
            sys.exit(f"pages.py: {wrong}")
    stale = {n for n in os.listdir(HERE) if n.endswith(".3")} - set(pages)
    changed = []
    for name, text in pages.items():
        path = os.path.join(HERE, name)
        there = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                there = file.read()
        if there != text:
            changed.append(name)
    for name in sorted(stale) + changed:
        print(f"docs/man/{name}: {'is no page any more' if name in stale else 'changed'}")
    if "--check" in sys.argv[1:]:
        return 1 if stale or changed else 0
    for name in changed:
        with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
            file.write(pages[name])
    for name in stale:
        os.remove(os.path.join(HERE, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
