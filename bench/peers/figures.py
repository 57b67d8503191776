# SPDX-License-Identifier: Apache-2.0
"""Ratios of interleaved repeats, with bounds that assume nothing of how times are spread."""
import math
import statistics


def quantile(ordered, share):
    return ordered[round((len(ordered) - 1) * share)]


def median_bounds(values, confidence=0.95):
    """(low, high): between these order statistics the median lies with that confidence; the
    smallest and the largest where there are too few values for it."""
    ordered = sorted(values)
    count = len(ordered)
    tail = (1 - confidence) / 2
    below, reach = 0.0, 0
    for k in range(count // 2):
        below += math.comb(count, k) / 2 ** count
        if below > tail:
            break
        reach = k + 1
    first = max(reach - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def ratio(theirs, ours):
    """Of repeats that were run beside each other: (median, low, high) of theirs over ours."""
    each = [their / our for their, our in zip(theirs, ours)]
    return (statistics.median(each), *median_bounds(each))


def size_words(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_words(us):
    return f"{us:.1f}" if us < 100 else f"{us:,.0f}"


def ranks_words(ranks):
    """Of each host, or of all alike."""
    return ", ".join(map(str, ranks if len(set(ranks)) > 1 else ranks[:1]))
