# SPDX-License-Identifier: Apache-2.0
"""The charts of bench/cluster: time against bytes in each cell, and loss against time."""
from charts import Chart

OURS, PEERS = "#1a73e8", "#d93025"
LABEL_WIDTH, LABEL_HEIGHT = 110, 12
MODES = {"hybrid": "#1a73e8", "ps": "#188038", "naive-ps": "#f9ab00", "ar": "#d93025",
         "tensorflow": "#9aa0a6"}


def label(chart, names):
    """Beside dots, (x, y, name) in pixels, each a little lower where it would lie on another."""
    placed = []
    for x, y, name in sorted(names, key=lambda each: each[1]):
        while any(abs(x - other) < LABEL_WIDTH and abs(y - at) < LABEL_HEIGHT
                  for other, at in placed):
            y += 1
        placed.append((x, y))
        chart.text(x + 8, y + 4, name, size=11)


def write_cell(path, cell):
    """A dot for each way: what its busiest link carries, and how long a step takes. The line is
    what the link needs for those bytes; a small dot is the step without what ranks compute."""
    ways = cell["ways"]
    right = max(way["busiest_bytes"] for way in ways.values()) / 1e6
    top = max(way["high_ms"] for way in ways.values())
    link = f"links of {cell['mbit']:g} Mbit/s" if cell["mbit"] else "links without a limit"
    chart = Chart(f"{cell['step']} on {cell['hosts']} hosts of {cell['ranks']} ranks",
                  f"{link}; medians of {cell['rounds']} rounds, bars: least and greatest",
                  (0, right * 1.25), (0, top * 1.1), "ms a step",
                  "MB a step, in the busier direction of the busiest link")
    chart.x_axis(whole=False)
    if cell["mbit"]:
        end = min(right * 1.25, top * 1.1 * cell["mbit"] / 8000)
        chart.path([(0, 0), (end, end * 8000 / cell["mbit"])], "#3c4043", 1.4, "2 4")
    for name, way in ways.items():
        at, color = way["busiest_bytes"] / 1e6, OURS if way["is_ours"] else PEERS
        chart.path([(at, way["low_ms"]), (at, way["high_ms"])], color)
        chart.dot(at, way["ms"], color)
        if cell["compute_ms"]:
            chart.dot(at, way["exposed_ms"], color, 2)
    label(chart, [(chart.x(way["busiest_bytes"] / 1e6), chart.y(way["ms"]), name)
                  for name, way in ways.items()])
    entries = [("libparallax", OURS, "dot", ""), ("peers", PEERS, "dot", "")]
    if cell["mbit"]:
        entries.append(("bytes / rate of the link", "#3c4043", "line", "2 4"))
    chart.legend(entries, chart.x(chart.x0) + 24, 92)
    chart.write(path)


def write_losses(path, losses):
    """`losses`: see loss.py."""
    runs = losses["runs"]
    seconds = max(run["seconds"][-1] for run in runs.values())
    values = [loss for run in runs.values() for loss in run["losses"]]
    chart = Chart("Loss against time",
                  f"language model on {losses['hosts']} hosts of {losses['ranks']} ranks, links of "
                  f"{losses['mbit']:g} Mbit/s; dots: the loss {losses['quality']:.2f} is reached",
                  (0, seconds), (min(values) * 0.95, max(values) * 1.02),
                  "nats a word, in training", "seconds")
    chart.x_axis()
    for mode, run in runs.items():
        chart.path(list(zip(run["seconds"], run["losses"])), MODES[mode])
        if run["to_quality_s"] is not None:
            chart.dot(run["to_quality_s"], losses["quality"], MODES[mode])
    chart.legend([(run["title"], MODES[mode], "line", "") for mode, run in runs.items()],
                 chart.x(chart.x1) - 330, 92)
    chart.write(path)
