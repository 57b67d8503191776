# SPDX-License-Identifier: Apache-2.0
"""What bench/peers makes of the times that it has taken: rows of figures, and their tables."""
import statistics

from figures import ratio, time_words

# Of a turn: medians, and 99th percentiles, in us. Then the mean of the rank whose mean is the
# largest; bytes that a host received in a step, the mean over hosts; and what the busiest link
# carried in one direction; and headers of packets: what queues sent over what interfaces did.
RESULT, RESULT_P99, STEP, STEP_P99, MEAN, RECEIVED, BUSIEST, HEADERS = range(8)


def middle(times, what):
    return statistics.median(each[what] for each in times)


def column(times, what):
    return [each[what] for each in times]


def best_of(times, step, names):
    """(the quickest of these contenders and variants, {name: median of its quickest variant})"""
    medians = {}
    for (of, name, variant), each in times.items():
        if of == step and name in names:
            medians[name, variant] = middle(each, STEP)
    if not medians:
        return None, {}
    quickest = {}
    for (name, _), took in medians.items():
        quickest[name] = min(took, quickest.get(name, took))
    return min(medians, key=medians.get), quickest


def row_of(step, times, kinds):
    """The figures of one step; `kinds`: names of contenders by kind."""
    best, peers = best_of(times, step, kinds.get("peer", ()))
    others = {"": best, "servers_": best_of(times, step, kinds.get("way", ()))[0],
              "limit_": best_of(times, step, kinds.get("limit", ()))[0]}
    row = {"step": step.name, "bytes": step.bytes, "peers_us": peers,
           "best_peer": best and " ".join(best), "ours": {}, "limit_us": {}}
    for (of, name, variant), each in times.items():
        if of != step:
            continue
        if name in kinds.get("limit", ()):
            row["limit_us"][variant if name == "limit" else name] = middle(each, STEP)
        elif name in kinds["ours"]:
            figures = {"step_us": middle(each, STEP), "result_us": middle(each, RESULT),
                       "step_p99_us": middle(each, STEP_P99)}
            for what, other in others.items():
                if other is not None:
                    theirs = column(times[step, *other], STEP)
                    figures[what + "step_ratio"] = ratio(theirs, column(each, STEP))
                    figures[what + "result_ratio"] = ratio(theirs, column(each, RESULT))
            row["ours"][variant] = figures
            figures["step_tail"] = figures["step_p99_us"] / figures["step_us"]
    if best is not None:
        row["best_p99_us"] = middle(times[step, *best], STEP_P99)
        row["best_tail"] = row["best_p99_us"] / middle(times[step, *best], STEP)
    return row


def add_methods(row, step, times, kinds):
    """To a row of row ids: each method of the peers at its best setting, beside ours."""
    row["methods"] = {}
    peers = {key: each for key, each in times.items()
             if key[0] == step and key[1] in kinds.get("peer", ())}
    for method in dict.fromkeys(variant for _, _, variant in peers):
        best = min((key for key in peers if key[2] == method),
                   key=lambda key: middle(peers[key], STEP))
        theirs = column(peers[best], STEP)
        row["methods"][method] = {"by": best[1], "us": statistics.median(theirs), "ratio": {
            variant: ratio(theirs, column(each, STEP))
            for (of, name, variant), each in times.items() if of == step and name in kinds["ours"]}}


def add_parts(row, step, times, kinds):
    """To a row: ours with a setting, beside ours without it."""
    (ours,) = kinds["ours"]
    row["parts"] = {}
    for (of, name, variant), each in times.items():
        if of == step and name in kinds.get("part", ()):
            row["parts"].setdefault(name, {})[variant] = {
                "step_us": middle(each, STEP),
                "ratio": ratio(column(each, STEP), column(times[step, ours, variant], STEP))}


def add_cliffs(rows):
    """To ours of each single tensor but the smallest: its time per byte over that of the size
    before it."""
    singles = sorted((row for row in rows if row.get("tensors") == 1), key=lambda row: row["bytes"])
    for before, row in zip(singles, singles[1:]):
        for variant, figures in row["ours"].items():
            own = figures["step_us"] / row["bytes"]
            figures["cliff"] = own / (before["ours"][variant]["step_us"] / before["bytes"])


def beside_one(row, step, one, times, kinds):
    """To a list's row: the same bytes as one tensor, ours and the best peer's, over our list."""
    best, _ = best_of(times, one, kinds.get("peer", ()))
    (name,) = kinds["ours"]
    for variant, figures in row["ours"].items():
        ours = column(times[step, name, variant], STEP)
        figures["own_one_ratio"] = ratio(column(times[one, name, variant], STEP), ours)
        if best is not None:
            figures["peer_one_ratio"] = ratio(column(times[one, *best], STEP), ours)


def ratio_words(figures, what):
    if what not in figures:
        return "-"
    value, low, high = figures[what]
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def table(lines):
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        print("  ".join(word.rjust(width) for word, width in zip(line, widths)).rstrip())


def print_rows(rows):
    peers = list(dict.fromkeys(name for row in rows for name in row["peers_us"]))
    variants = list(dict.fromkeys(variant for row in rows for variant in row["ours"]))
    lines = [["step", *(word for each in variants for word in (each, "ratio", "limit / it")),
              "best peer", "limit", *peers]]
    for row in rows:
        line = [row["step"]]
        for each in variants:
            figures = row["ours"][each]
            line += [time_words(figures["step_us"]), ratio_words(figures, "step_ratio"),
                     ratio_words(figures, "limit_step_ratio")]
        limit = min(row["limit_us"].values(), default=None)
        lines.append([*line, row["best_peer"] or "-", "-" if limit is None else time_words(limit),
                      *(time_words(row["peers_us"][name]) if name in row["peers_us"] else "-"
                        for name in peers)])
    table(lines)
    print("p99 over median of the step; time per byte over that of the size before")
    lines = [["step", *(f"{each} p99" for each in variants), "best peer p99",
              *(f"{each} cliff" for each in variants)]]
    for row in rows:
        ours = [row["ours"][each] for each in variants]
        lines.append([row["step"], *(f"{each['step_tail']:.2f}" for each in ours),
                      f"{row['best_tail']:.2f}" if "best_tail" in row else "-",
                      *(f"{each['cliff']:.2f}" if "cliff" in each else "-" for each in ours)])
    table(lines)


def print_lists(rows):
    lists = [row for row in rows if "own_one_ratio" in row["ours"]["alloc"]]
    if lists:
        print("lists: time over that of our one call")
        table([["step", "buffers", "ours as one", "best peer as one", "servers"]] + [
            [row["step"], variant, ratio_words(figures, "own_one_ratio"),
             ratio_words(figures, "peer_one_ratio"), ratio_words(figures, "servers_step_ratio")]
            for row in lists for variant, figures in row["ours"].items()])


def print_methods(rows):
    lines = [["step", "method", "at its best by", "us",
              *(f"/ {each}" for each in (rows[0]["ours"] if rows else ()))]]
    for row in rows:
        for method, figures in row.get("methods", {}).items():
            lines.append([row["step"], method, figures["by"], time_words(figures["us"]),
                          *(ratio_words(figures["ratio"], each) for each in row["ours"])])
    if len(lines) > 1:
        print("methods of the peers, and their time over ours")
        table(lines)


def print_parts(rows):
    lines = [["step", "buffers", "ours with", "us", "/ without"]]
    for row in rows:
        for name, variants in row["parts"].items():
            for variant, figures in variants.items():
                lines.append([row["step"], variant, name, time_words(figures["step_us"]),
                              ratio_words(figures, "ratio")])
    if len(lines) > 1:
        print("ours with a setting, and its time over ours without it")
        table(lines)
