# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG, written by hand: no package is needed to draw or to see them."""

import math
from html import escape

WIDTH, HEIGHT = 960, 540
LEFT, RIGHT, TOP, BOTTOM = 84, 28, 72, 64
COLORS = {"oracle": "#9aa0a6", "hybrid": "#1a73e8", "ar": "#d93025", "ps": "#188038",
          "auto": "#8430ce"}
PARTS = (("sparse_bytes", "sparse variables", "#1a73e8"),
         ("dense_bytes", "dense variables", "#f9ab00"),
         ("rest", "the rest: votes, headers", "#9aa0a6"))
FONT = "font-family='Helvetica, Arial, sans-serif'"


def nice_step(span, ticks):
    """A step of 1, 2 or 5 times a power of ten that cuts `span` into about `ticks`."""
    raw = max(span, 1e-12) / ticks
    power = 10 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)


class Chart:
    """Axes in data coordinates over a white page."""

    def __init__(self, title, subtitle, x_range, y_range, y_title, x_title=""):
        self.x0, self.x1 = x_range
        self.y0, self.y1 = y_range
        self.parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
            f"width='{WIDTH}' height='{HEIGHT}' {FONT}>",
            f"<title>{escape(title)}</title>",
            f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>"]
        self.text(LEFT, 28, title, size=19, weight="bold")
        self.text(LEFT, 48, subtitle, size=13, color="#5f6368")
        self.text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 16, x_title, anchor="middle")
        middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
        self.parts.append(f"<text transform='translate(22 {middle:.0f}) rotate(-90)' "
                          f"text-anchor='middle' font-size='13' fill='#3c4043'>"
                          f"{escape(y_title)}</text>")
        self._y_axis()

    def x(self, value):
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, words, size=13, color="#3c4043", anchor="start", weight="normal"):
        self.parts.append(f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{color}' "
                          f"text-anchor='{anchor}' font-weight='{weight}'>{escape(words)}</text>")

    def line(self, x1, y1, x2, y2, color="#dadce0", width=1.0, dash=""):
        self.parts.append(f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' "
                          f"stroke='{color}' stroke-width='{width}' stroke-dasharray='{dash}'/>")

    def box(self, x, y, width, height, color, note=""):
        self.parts.append(f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' "
                          f"height='{height:.1f}' fill='{color}'><title>{escape(note)}</title>"
                          "</rect>")

    def path(self, points, color, width=1.6, dash=""):
        data = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f"<polyline points='{data}' fill='none' stroke='{color}' "
                          f"stroke-width='{width}' stroke-dasharray='{dash}' "
                          "stroke-linejoin='round'/>")

    def dot(self, x, y, color, radius=4.0):
        self.parts.append(f"<circle cx='{self.x(x):.1f}' cy='{self.y(y):.1f}' r='{radius}' "
                          f"fill='white' stroke='{color}' stroke-width='2'/>")

    def _y_axis(self):
        step = nice_step(self.y1 - self.y0, 6)
        value = math.ceil(self.y0 / step - 1e-9) * step
        while value <= self.y1 + step * 1e-6:
            y = self.y(value)
            self.line(LEFT, y, WIDTH - RIGHT, y)
            self.text(LEFT - 8, y + 4, f"{value:g}", anchor="end")
            value += step

    def x_axis(self, whole=True):
        bottom = HEIGHT - BOTTOM
        self.line(LEFT, bottom, WIDTH - RIGHT, bottom, "#80868b")
        step = max(int(whole), nice_step(self.x1 - self.x0, 8))
        value = math.ceil(self.x0 / step) * step
        while value <= self.x1 + step * 1e-6:
            self.line(self.x(value), bottom, self.x(value), bottom + 5, "#80868b")
            self.text(self.x(value), bottom + 20, f"{value:g}", anchor="middle")
            value += step

    def legend(self, entries, x, y, spacing=20):
        """entries: (label, color, kind, dash); kind is line, dot or box."""
        height = spacing * len(entries) + 10
        width = 44 + 7.1 * max(len(entry[0]) for entry in entries)
        self.parts.append(f"<rect x='{x - 10:.0f}' y='{y - 18:.0f}' width='{width:.0f}' "
                          f"height='{height}' fill='white' fill-opacity='0.85'/>")
        for i, (label, color, kind, dash) in enumerate(entries):
            at = y + i * spacing - 4
            if kind == "line":
                self.line(x, at, x + 22, at, color, 2.4, dash)
            elif kind == "dot":
                self.parts.append(f"<circle cx='{x + 11}' cy='{at}' r='4' fill='white' "
                                  f"stroke='{color}' stroke-width='2'/>")
            else:
                self.box(x + 4, at - 6, 14, 12, color)
            self.text(x + 30, at + 4, label)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([*self.parts, "</svg>"]) + "\n")


def write_losses(path, results, corpus, titles):
    """Training losses of all modes, held-out losses of the oracle and, at the end, of each mode."""
    entropy = corpus["unigram_entropy_nats"]
    oracle = results["oracle"]
    held_out = [(point["step"], point["held_out"]["loss"]) for point in oracle["evaluations"]
                if point["held_out"]]
    series = {"oracle": oracle["losses"],
              **{mode: run["losses"] for mode, run in results["runs"].items()}}
    values = [v for losses in series.values() for v in losses if v == v]
    values += [loss for _, loss in held_out] + [entropy]
    steps = len(oracle["losses"])
    chart = Chart("Loss of the language model",
                  "the same steps in every mode; sampled softmax in training, full one held out",
                  (0, max(steps, 1)), (math.floor(min(values) / 2) * 2, math.ceil(max(values))),
                  "nats a word", "step")
    chart.x_axis()
    chart.path([(0, entropy), (steps, entropy)], "#3c4043", 1.4, "2 4")
    chart.text(WIDTH - RIGHT - 4, chart.y(entropy) - 6,
               f"unigram entropy of the corpus {entropy:.2f}", anchor="end")
    # The curves lie on one another: wide below, narrow and dashed above, so that all are seen.
    widths = {"oracle": 7.0, "hybrid": 3.4, "ar": 1.8, "ps": 1.8, "auto": 1.8}
    dashes = {"ar": "9 7", "ps": "2 6"}
    entries = []
    for mode, losses in series.items():
        points = [(i + 1, loss) for i, loss in enumerate(losses) if loss == loss]
        chart.path(points, COLORS[mode], widths[mode], dashes.get(mode, ""))
        entries.append((("oracle" if mode == "oracle" else titles[mode]) + ", training",
                        COLORS[mode], "line", dashes.get(mode, "")))
    chart.path(held_out, "#3c4043", 1.2, "4 3")
    for step, loss in held_out:
        chart.dot(step, loss, "#3c4043")
    entries.append(("oracle, held out", "#3c4043", "dot", ""))
    for mode, run in results["runs"].items():
        if run["held_out"]:
            chart.dot(steps, run["held_out"]["loss"], COLORS[mode], 2.5)
    chart.legend(entries, WIDTH - RIGHT - 210, TOP + 30)
    chart.write(path)


def write_bytes(path, results, titles, hosts):
    """Stacked bars: what a host sends in a step, by mode."""
    bars = []
    for suffix, group in (("", results["runs"]), (", deterministic", results["deterministic"])):
        for mode, run in group.items():
            if run["traffic"]:
                traffic = dict(run["traffic"])
                traffic["rest"] = max(0.0, traffic["sent_bytes"] - traffic["sparse_bytes"]
                                      - traffic["dense_bytes"])
                bars.append((titles[mode] + suffix, traffic))
    top = max([bar[1]["sent_bytes"] for bar in bars] + [1024.0]) / 1024 * 1.12
    step = nice_step(top, 6)
    chart = Chart("Bytes on the wire", f"sent by a host in a step, mean of {hosts} hosts",
                  (0, max(len(bars), 1)), (0, math.ceil(top / step) * step), "KiB a step and host")
    for i, (label, traffic) in enumerate(bars):
        base = 0.0
        left, right = chart.x(i + 0.2), chart.x(i + 0.8)
        for key, name, color in PARTS:
            size = traffic[key] / 1024
            upper = chart.y(base + size)
            chart.box(left, upper, right - left, chart.y(base) - upper, color,
                      f"{label}, {name}: {size:.1f} KiB")
            base += size
        middle = (left + right) / 2
        chart.text(middle, chart.y(base) - 7, f"{base:.0f}", anchor="middle", weight="bold")
        mode, _, rest = label.partition(", ")
        chart.text(middle, HEIGHT - BOTTOM + 20, mode, anchor="middle")
        chart.text(middle, HEIGHT - BOTTOM + 36, rest, size=11, anchor="middle", color="#5f6368")
    chart.line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#80868b")
    chart.legend([(name, color, "box", "") for _, name, color in PARTS], WIDTH - RIGHT - 190, 22,
                 spacing=17)
    chart.write(path)
