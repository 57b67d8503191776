#!/usr/bin/python3
"""Draws the pictures of docs/: each NAME.txt here becomes NAME.svg beside it.

  docs/pictures/draw.py    draws all of them anew; tests/tidy checks that none is out of date

A source is lines of `word: what`; # opens a comment. Of any picture:

  title: TEXT
  key LOOK: TEXT            what a look means; the looks are those of LOOKS

A chart: who does what, from top to bottom.

  group NAME: COLUMN, COLUMN     columns in a frame; one column is a line from top to bottom
  part: TEXT                     a heading across all columns
  LOOK A > B, C > D: TEXT        arrows between columns, with a text on each; / breaks a line
  at A, B: TEXT                  a box on these columns
  all: TEXT                      a box across all columns
  + ...                          an arrow or a box in the row of the one before

A stack: layers, the highest first.

  layer LOOK NAME: TEXT     a row, or with "+ layer" another box in the row of the one before
  beside: A > B             a layer that includes its neighbour
  foot: TEXT                a line below

Where a text does not fit its place, drawing fails: texts never overlap. Widths are those of DejaVu
Sans, wider than what most browsers take. Python's own library suffices; nothing is random.
"""

import glob
import os
import re
import sys

WIDTH, MARGIN = 860, 24
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
# Colours on a light ground that is part of the picture, so that a dark page changes nothing.
GROUND, EDGE, INK, PALE = "#ffffff", "#d0d7de", "#1f2328", "#59636e"
FRAME, BOX = "#f3f5f8", "#ffffff"
# By name: (line, fill). `wire` crosses hosts, `host` stays inside one; `io` and `pure` are layers.
LOOKS = {
    "wire": ("#bc4c00", "#fff1e5"),
    "host": ("#0969da", "#ddf4ff"),
    "io": ("#bc4c00", "#fff1e5"),
    "pure": ("#0969da", "#ddf4ff"),
}


class Wrong(Exception):
    """A source that cannot be drawn, and why."""


def width_of(text, size, bold=False):
    """At least the width of the text, in pixels."""
    def em(letter):
        if letter in "ijl.,:;'|! ":
            return 0.33
        if letter in "frtI()[]/-":
            return 0.42
        if letter in "mwMW@%":
            return 0.98
        return 0.75 if letter.isupper() else 0.63
    return sum(map(em, text)) * size * (1.1 if bold else 1.0)


class Canvas:
    """SVG elements, in the order in which they are drawn."""

    def __init__(self):
        self._elements = []

    def add(self, name, text=None, **attributes):
        words = "".join(f' {key.replace("_", "-")}="{self._number(value)}"'
                        for key, value in attributes.items())
        self._elements.append(f"<{name}{words}/>" if text is None
                              else f"<{name}{words}>{self._escaped(text)}</{name}>")

    def include(self, other):
        self._elements += other._elements  # pylint: disable=protected-access

    @staticmethod
    def _number(value):
        return f"{value:.1f}".replace(".0", "") if isinstance(value, float) else value

    @staticmethod
    def _escaped(text):
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    def rect(self, x, y, width, height, fill, stroke="none", radius=6):
        self.add("rect", x=x, y=y, width=width, height=height, rx=radius, fill=fill, stroke=stroke)

    def line(self, x1, y1, x2, y2, stroke, **more):
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **more)

    def text(self, x, y, text, size=12, fill=INK, anchor="middle", bold=False):
        weight = {"font_weight": "bold"} if bold else {}
        self.add("text", text, x=x, y=y, font_size=size, fill=fill, text_anchor=anchor, **weight)

    def arrow(self, x1, x2, y, look):
        colour, back = LOOKS[look][0], 9 if x2 > x1 else -9
        self.line(x1, y, x2 - back / 1.5, y, colour, stroke_width=2)
        self.add("path", d=f"M{x2:.0f} {y:.0f}l{-back} -5v10z", fill=colour)

    def svg(self, title, height):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
                f'width="{WIDTH}" height="{height:.0f}" font-family="{FONT}" role="img">\n'
                f"<title>{self._escaped(title)}</title>\n")
        ground = (f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8" '
                  f'fill="{GROUND}" stroke="{EDGE}"/>\n')
        return head + ground + "\n".join(self._elements) + "\n</svg>\n"


def fit(lines, room, size, bold=False):
    for line in lines:
        if width_of(line, size, bold) > room:
            raise Wrong(f"{line!r} takes {width_of(line, size, bold):.0f} of {room:.0f} pixels")


def lines_of(text):
    return [line.strip() for line in text.split(" / ")]


def heading(canvas, words):
    """The title, and the key below it. Returns where the rest begins."""
    canvas.text(MARGIN, 36, words["title"], 17, anchor="start", bold=True)
    fit([words["title"]], WIDTH - 2 * MARGIN, 17, True)
    x, chart = MARGIN, words["form"] == "chart"
    for look, text in words["keys"]:
        if chart:
            canvas.arrow(x, x + 28, 58, look)
        else:
            canvas.rect(x, 51, 28, 14, LOOKS[look][1], LOOKS[look][0], 3)
        canvas.text(x + 36, 62, text, 12, PALE, "start")
        x += 36 + width_of(text, 12) + 24
    if x - 24 > WIDTH - MARGIN:
        raise Wrong("the key is too long")
    return 80


# ---- charts

class Chart:
    """Columns, and rows of arrows and boxes between them."""

    ROW, LINE, PAD = 14, 16, 7  # between rows; of text; inside boxes

    def __init__(self, words):
        self._words = words
        self._places = {}
        self._rows = Canvas()
        groups = words["groups"]
        count = sum(len(columns) for _, columns in groups)
        self._step = (WIDTH - 2 * MARGIN - 12 * (len(groups) - 1)) / count
        self._frames, x = [], MARGIN
        for name, columns in groups:
            self._frames.append((name, x, self._step * len(columns)))
            for column in columns:
                self._places[column] = x + self._step / 2
                x += self._step
            x += 12

    def draw(self):
        canvas = Canvas()
        top = heading(canvas, self._words)
        y = top + 70
        for row in self._words["rows"]:
            self._check_apart(row)
            y += max(self._height(*entry) for entry in row) + self.ROW
            for entry in row:
                self._draw(y - self.ROW, *entry)
        canvas.rect(MARGIN, top, WIDTH - 2 * MARGIN, y - top, FRAME, radius=8)
        for name, x, width in self._frames:
            canvas.rect(x, top, width, y - top, "none", EDGE, 8)
            canvas.text(x + width / 2, top + 20, name, 13, PALE, bold=True)
            fit([name], width - 10, 13, True)
        for name, x in self._places.items():
            canvas.line(x, top + 58, x, y - 8, "#afb8c1", stroke_dasharray="3 4")
            wide = max(70, width_of(name, 13, True) + 20)
            fit([name], self._step - 26, 13, True)
            canvas.rect(x - wide / 2, top + 31, wide, 27, BOX, "#8c959f")
            canvas.text(x, top + 49, name, 13, bold=True)
        canvas.include(self._rows)
        return canvas.svg(self._words["title"], y + MARGIN)

    def _height(self, kind, _, text):
        lines = len(lines_of(text))
        if kind == "part":
            return 30
        return lines * self.LINE + (2 * self.PAD if kind in ("at", "all") else 10)

    def _place(self, column):
        if column not in self._places:
            raise Wrong(f"there is no column {column!r}")
        return self._places[column]

    def _extents(self, kind, where, _):
        """From where to where across the picture each arrow or box of the entry reaches."""
        if kind in ("part", "all"):
            return [(0, WIDTH)]
        if kind == "at":
            half = self._step / 2 - 7
            return [(self._place(each) - half, self._place(each) + half)
                    for each in where.split(", ")]
        return [tuple(sorted(self._place(column) for column in pair.split(" > ")))
                for pair in where.split(", ")]

    def _check_apart(self, row):
        extents = sorted(extent for entry in row for extent in self._extents(*entry))
        for (_, end), (start, _) in zip(extents, extents[1:]):
            if start < end:
                raise Wrong(f"one row, one place: {row}")

    def _draw(self, bottom, kind, where, text):
        lines = lines_of(text)
        if kind == "part":
            fit([text], WIDTH - 2 * MARGIN - 20, 13, True)
            self._rows.rect(MARGIN, bottom - 24, WIDTH - 2 * MARGIN, 24, "#e6eaef", radius=4)
            self._rows.text(MARGIN + 10, bottom - 7, text, 13, anchor="start", bold=True)
        elif kind == "all":
            self._box(WIDTH / 2, WIDTH - 2 * MARGIN - 24, bottom, lines)
        elif kind == "at":
            for column in where.split(", "):
                self._box(self._place(column), self._step - 14, bottom, lines)
        else:
            for pair in where.split(", "):
                start, end = (self._place(column) for column in pair.split(" > "))
                self._arrow(start, end, bottom - 4, kind, lines)

    def _box(self, x, wide, bottom, lines):
        fit(lines, wide - 10, 12)
        tall = len(lines) * self.LINE + 2 * self.PAD
        self._rows.rect(x - wide / 2, bottom - tall, wide, tall, BOX, "#8c959f")
        for index, line in enumerate(lines):
            self._rows.text(x, bottom - tall + self.PAD + 12 + index * self.LINE, line)

    def _arrow(self, start, end, y, look, lines):
        gap = 6 if end > start else -6
        fit(lines, abs(end - start) - 16, 12)
        for index, line in enumerate(lines):
            wide = width_of(line, 12)
            base = y - 7 - (len(lines) - 1 - index) * self.LINE
            self._rows.rect((start + end - wide) / 2, base - 11, wide, 14, FRAME, radius=0)
            self._rows.text((start + end) / 2, base, line, 12, LOOKS[look][0])
        self._rows.arrow(start + gap, end - gap, y, look)


# ---- stacks

def draw_stack(words):
    """Rows of boxes from the highest layer to the lowest."""
    canvas, gap = Canvas(), 12
    y, left = heading(canvas, words) + 4, MARGIN + 40
    first, places = y, {}
    for row in words["rows"]:
        wide = (WIDTH - MARGIN - left - gap * (len(row) - 1)) / len(row)
        tall = 34 + 14 * max(len(lines_of(text)) for _, _, text in row)
        for index, (look, name, text) in enumerate(row):
            x = left + index * (wide + gap)
            places[name] = (x, wide, y + tall / 2)
            colour, fill = LOOKS[look]
            canvas.rect(x, y, wide, tall, fill, colour)
            lines = lines_of(text)
            fit([name], wide - 12, 13, True)
            fit(lines, wide - 12, 11)
            top = y + tall / 2 - 7 * len(lines) + 4
            canvas.text(x + wide / 2, top, name, 13, bold=True)
            for number, line in enumerate(lines):
                canvas.text(x + wide / 2, top + 16 + number * 14, line, 11, PALE)
        y += tall + gap
    middle, x = (first + y - gap) / 2, MARGIN + 20
    canvas.line(x, first, x, y - gap - 6, PALE, stroke_width=2)
    canvas.add("path", d=f"M{x} {y - gap:.0f}l-5 -9h10z", fill=PALE)
    canvas.add("text", "includes point down", font_size=12, fill=PALE, text_anchor="middle",
               transform=f"translate({x - 8} {middle:.0f}) rotate(-90)")
    for pair in words["beside"]:
        start, end = (name if name in places else "" for name in pair)
        if not start or not end:
            raise Wrong(f"there is no layer of {pair}")
        (a, wide, row), (b, _, other) = places[start], places[end]
        if row != other or abs(a - b) > wide + gap + 1:
            raise Wrong(f"{start} is not beside {end}")
        x1, x2 = (a, b + wide) if a > b else (a + wide, b)
        canvas.line(x1, row, x2, row, PALE, stroke_width=2)
        canvas.add("path", d=f"M{x2:.0f} {row:.0f}l{7 if x2 < x1 else -7} -5v10z", fill=PALE)
    for text in words["feet"]:
        fit([text], WIDTH - MARGIN - left, 12)
        canvas.text(left, y + 10, text, 12, PALE, "start")
        y += 19
    return canvas.svg(words["title"], y + 10)


# ---- sources

# What stands between the word and the colon.
PAIRS = re.compile(r"[^>,]+ > [^>,]+(, [^>,]+ > [^>,]+)*")
LAYER = re.compile(rf"({'|'.join(LOOKS)}) \w+")
NAMES = re.compile(r"[^>]+")
NONE = re.compile("")


def check_entry(word, where):
    """An arrow, a box or a layer says where it stands."""
    wanted = {"part": NONE, "all": NONE, "at": NAMES, "layer": LAYER}.get(word, PAIRS)
    if not wanted.fullmatch(where or ""):
        raise Wrong(f"`{word}` stands at {where!r}")


def parse(text):
    """The words of a source."""
    words = {"title": "", "keys": [], "groups": [], "rows": [], "beside": [], "feet": []}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\+ )?(\w+)(?: ([^:]+))?: (.+)", line)
        if not match:
            raise Wrong(f"line {number}: {line!r} is not `word: what`")
        beside, word, where, what = match.groups()
        if word == "title":
            words["title"] = what
        elif word == "key" and where in LOOKS:
            words["keys"].append((where, what))
        elif word == "group":
            words["groups"].append((where, what.split(", ")))
        elif word == "beside":
            check_entry(word, what)
            words["beside"].append(what.split(" > "))
        elif word == "foot":
            words["feet"].append(what)
        elif word in ("part", "at", "all", "layer") or word in LOOKS:
            check_entry(word, where)
            entry = (*where.split(" "), what) if word == "layer" else (word, where, what)
            if not beside:
                words["rows"].append([])
            elif not words["rows"]:
                raise Wrong(f"line {number}: there is no row before it")
            words["rows"][-1].append(entry)
        else:
            raise Wrong(f"line {number}: {line!r} says nothing")
    words["form"] = "chart" if words["groups"] else "stack"
    return words


def draw(text):
    """The SVG of a source. Wrong: it cannot be drawn."""
    words = parse(text)
    return Chart(words).draw() if words["groups"] else draw_stack(words)


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(os.path.join(folder, "*.txt"))):
        with open(path, encoding="utf-8") as source:
            try:
                drawn = draw(source.read())
            except Wrong as wrong:
                sys.exit(f"{path}: {wrong}")
        with open(path[:-4] + ".svg", "w", encoding="utf-8") as picture:
            picture.write(drawn)


if __name__ == "__main__":
    main()
