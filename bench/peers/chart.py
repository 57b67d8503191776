# SPDX-License-Identifier: Apache-2.0
"""The chart of bench/peers: ratios by step."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lm"))
# pylint: disable=wrong-import-position
from charts import Chart  # noqa: E402
from figures import ranks_words  # noqa: E402

COLORS = {"alloc": "#1a73e8", "private": "#188038"}


def write_ratios(path, rows, options, what):
    """Best peer's time over ours by step, with bounds; above 1 ours is faster."""
    drawn = [row for row in rows if row["best_peer"]]
    if not drawn:
        return False
    highest = max(row["ours"][variant]["step_ratio"][2] for row in drawn for variant in COLORS)
    where = "one host" if options.hosts == 1 else f"{options.hosts} hosts"
    chart = Chart(f"{what} on {where}, beside the best peer of each step",
                  f"{ranks_words(options.ranks)} ranks a host; whole step, median and 95% bounds; "
                  "above 1 ours takes less time",
                  (-0.5, len(drawn) - 0.5), (0, max(1.5, highest * 1.05)),
                  "best peer's time / ours", "step")
    bottom = chart.y(chart.y0)
    for at, row in enumerate(drawn):
        chart.text(chart.x(at), bottom + 20, row["step"], size=11, anchor="middle")
    chart.path([(chart.x0, 1), (chart.x1, 1)], "#3c4043", 1.4, "2 4")
    for variant, color in COLORS.items():
        points = []
        for at, row in enumerate(drawn):
            value, low, high = row["ours"][variant]["step_ratio"]
            chart.path([(at, low), (at, high)], color, 3)
            chart.dot(at, value, color)
            points.append((at, value))
        chart.path(points, color)
    chart.legend([(f"{variant} buffers", color, "line", "") for variant, color in COLORS.items()],
                 chart.x(chart.x0) + 24, 96)
    chart.write(path)
    return True
