"""Checks the docs for tests/tidy: pages of the manual, quoted sentences, names and links."""

import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../docs/man"))

from pages import Wrong, write_pages  # pylint: disable=wrong-import-position

HEADER, MANUAL = "include/parallax/parallax.h", "docs/man/"
TROUBLES = "docs/troubles.md"
# Where the sentences that docs/troubles.md quotes are written.
SPEAKERS = ("src/", "bindings/python/libparallax/")
PIECE_MIN = 12  # characters, of a sentence's longest piece


def wrong_pages(tree):
    """(path, message) of each page of section 3 that is not what the header gives."""
    there = {path for path in tree.paths if path.startswith(MANUAL) and path.endswith(".3")}
    if HEADER not in tree.paths or not there:
        return
    try:
        pages = {MANUAL + name: text for name, text in write_pages(tree.text(HEADER)).items()}
    except Wrong as wrong:
        yield HEADER, str(wrong)
        return
    for path in sorted(there | set(pages)):
        if path not in pages or path not in there or tree.text(path) != pages[path]:
            yield path, f"it is not what {HEADER} gives: run {MANUAL}pages.py"


def spoken(tree):
    """Every text that a program of the tree may say, one a line; {} stands for what differs."""
    said = []
    for path in tree.paths:
        if path.startswith(SPEAKERS) and path.endswith((".cc", ".h", ".py")):
            text = re.sub(r"^\s*(//|#(?! *\")).*$", "", tree.text(path), flags=re.M)
            text = re.sub(r"(?<!\\)\"\s*\n\s*f?\"", "", text)
            said += re.findall(r"\"((?:[^\"\\\n]|\\.)*)\"", text)
    return "\n".join(re.sub(r"\\(.)", r"\1", re.sub(r"\{[^{}]*\}", "{}", each)) for each in said)


def quotes(text):
    """(line, sentence) of each block that opens with `> `."""
    number, lines = 0, []
    for at, line in enumerate([*text.split("\n"), ""], 1):
        if line.startswith("> "):
            number = number if lines else at
            lines.append(line[2:].strip())
        elif lines:
            yield number, " ".join(lines)
            lines = []


def pieces(sentence, words):
    """What of a sentence is the same each time; `words` stand for what differs."""
    parts = re.split(rf"\b(?:{'|'.join(words)})\b|\.\.\.", sentence)
    return [part.strip(" ") for part in parts if re.search(r"\w\w", part)]


def wrong_quotes(tree):
    """(line, message) of each sentence of the troubles that the source does not say any more."""
    if TROUBLES not in tree.paths:
        return
    text = tree.text(TROUBLES)
    words = re.findall(r"`([A-Z]+)`", text.split("\n## ")[0])
    said = spoken(tree)
    for line, sentence in quotes(text):
        parts = pieces(sentence, words)
        if max(map(len, parts), default=0) < PIECE_MIN:
            yield line, f"too little of it is fixed to be looked for: {sentence}"
        for part in parts:
            if part not in said:
                yield line, f"nothing says '{part}'"


NAME = re.compile(r"\b(?:parallax_|PARALLAX_)\w*\w")


def wrong_names(tree):
    """(path, line, message) of each name of ours in the docs that nothing else in the tree has."""
    docs = [p for p in tree.paths if p.endswith(".md") and p != "CHANGELOG.md"
            and not p.startswith("docs/adr/")]
    said = {(path, number, name) for path in docs
            for number, line in enumerate(tree.lines(path), 1) for name in NAME.findall(line)}
    known = set()
    for path in tree.paths:
        if said and not path.endswith((".md", ".svg")):
            known.update(NAME.findall(tree.text(path)))
    for path, number, name in sorted(said):
        if name not in known and not (name.endswith("_")  # as in PARALLAX_REPORT_*
                                      and any(each.startswith(name) for each in known)):
            yield path, number, f"nothing is called {name}"


def anchors_of(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-")
            for title in titles}


def wrong_links(tree):
    """(path, line, message) of each link between files of the tree that leads nowhere."""
    for path in [p for p in tree.paths if p.endswith(".md")]:
        for number, line in enumerate(tree.lines(path), 1):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                name, _, anchor = target.partition("#")
                if re.match(r"\w+:", target):
                    continue
                there = os.path.normpath(os.path.join(os.path.dirname(path), name)) \
                    if name else path
                if there not in tree.paths:
                    if not any(p.startswith(there + "/") for p in tree.paths):
                        yield path, number, f"there is no {there}"
                elif anchor and there.endswith(".md") \
                        and anchor not in anchors_of(tree.text(there)):
                    yield path, number, f"{there} has no heading #{anchor}"
