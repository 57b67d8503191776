# SPDX-License-Identifier: Apache-2.0
"""The chart of bench/peers: ratios by size."""
import math
import os
import sys

from figures import size_words

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lm"))
# pylint: disable=wrong-import-position
from charts import Chart  # noqa: E402

COLORS = {"alloc": "#1a73e8", "private": "#188038"}


def write_ratios(path, rows, ranks):
    """Best peer's time over ours by size, with bounds; above 1 ours is faster."""
    drawn = [row for row in rows if row["best_peer"]]
    if not drawn:
        return False
    highest = max(figures["step_ratio"][2] for row in drawn for figures in row["ours"].values())
    sizes = [math.log2(row["bytes"]) for row in drawn]
    chart = Chart("AllReduce on one host, beside the best peer of each size",
                  f"{ranks} ranks; whole step, median and 95% bounds; above 1 ours takes less time",
                  (min(sizes) - 0.5, max(sizes) + 0.5), (0, max(1.5, highest * 1.05)),
                  "best peer's time / ours", "bytes")
    bottom = chart.y(chart.y0)
    for row, at in zip(drawn, sizes):
        chart.text(chart.x(at), bottom + 20, size_words(row["bytes"]), size=11, anchor="middle")
    chart.path([(chart.x0, 1), (chart.x1, 1)], "#3c4043", 1.4, "2 4")
    for variant, color in COLORS.items():
        points = []
        for row, at in zip(drawn, sizes):
            value, low, high = row["ours"][variant]["step_ratio"]
            chart.path([(at, low), (at, high)], color, 3)
            chart.dot(at, value, color)
            points.append((at, value))
        chart.path(points, color)
    chart.legend([(f"{variant} buffers", color, "line", "") for variant, color in COLORS.items()],
                 chart.x(chart.x0) + 24, 96)
    chart.write(path)
    return True
