# SPDX-License-Identifier: Apache-2.0
"""What a run prints at its end, in COLUMNS_MAX columns."""

import textwrap

import figures
from jobs import TITLES

COLUMNS_MAX = 100


def wrapped(text, indent="", hanging="    "):
    """Lines of `text`; those after the first are indented by `hanging` more."""
    return textwrap.fill(text, COLUMNS_MAX, initial_indent=indent,
                         subsequent_indent=indent + hanging, break_on_hyphens=False)


def table(head, rows, left=1):
    """Aligned columns; the first `left` ones to the left."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row):
        return "  " + "  ".join(cell.ljust(w) if i < left else cell.rjust(w)
                                for i, (cell, w) in enumerate(zip(row, widths))).rstrip()
    return "\n".join([line(head), "  " + "  ".join("-" * w for w in widths), *map(line, rows)])


def kib(count):
    return f"{count / 1024:.1f}"


def loss_text(evaluation):
    return f"{evaluation['loss']:.4f}" if evaluation else "not finite"


def traffic_cells(traffic):
    if not traffic:
        return ["-"] * 6
    overhead = traffic["sent_bytes"] - traffic["sparse_bytes"] - traffic["dense_bytes"]
    return [kib(traffic["sent_bytes"]), kib(traffic["sparse_bytes"]), kib(traffic["dense_bytes"]),
            kib(overhead), f"{traffic['sent_messages']:.1f}", kib(traffic["local_bytes"])]


def runs(results):
    times, wire = [], []
    groups = [("", results["runs"]), (" deterministic", results["deterministic"])]
    for suffix, group in groups:
        for mode, run in group.items():
            time, name = run["timing"], TITLES[mode] + suffix
            times.append([name, f"{time['steps_per_second']:.1f}",
                          f"{time['words_per_second']:.0f}",
                          loss_text(run["held_out"]) if run["held_out"] else "-",
                          f"{time['exposed_seconds'] * 1e3:.2f}",
                          f"{time['wait_seconds'] * 1e3:.1f}"])
            wire.append([name, *traffic_cells(run["traffic"])])
    times.append(["oracle (1 process)", "-", "-", loss_text(results["oracle"]["held_out"]), "-",
                  "-"])
    return ("Speed and loss; times per step (METRICS.md)\n"
            + table(["run", "steps/s", "words/s", "loss held out", "exposed ms", "wait ms"], times)
            + "\n\nTraffic per host and step, sent on the wire between hosts; local: within them\n"
            + table(["run", "KiB sent", "sparse", "dense", "rest", "messages", "KiB local"], wire))


def shape(variable):
    return f"{variable['rows']} x {variable['row_elements']}"


def chosen(variable):
    return next((a for a in variable["alternatives"] if a["chosen"]), {})


def predicted(alternative):
    cost = alternative.get("predicted_bytes_per_host")
    return "-" if cost is None else kib(cost)


def measured(traffic, variable):
    return kib(traffic["variables"][variable["name"]]) if traffic else "-"


def plan(title, run):
    """One plan in full: what was chosen, what else there was, and why."""
    rows, whys = [], []
    for variable in run["plan"]["variables"]:
        others = ", ".join(f"{a['method']} {predicted(a)}" for a in variable["alternatives"]
                           if not a["chosen"])
        rows.append([variable["name"], shape(variable), variable["tag"], variable["placement"],
                     variable["method"], predicted(chosen(variable)),
                     measured(run["traffic"], variable)])
        others = f"; instead of {others} predicted" if others else ""
        whys.append(wrapped(f"{variable['name']}: {variable['why']}{others}", "    "))
    head = ["variable", "shape", "tag", "placement", "method", "predicted", "measured"]
    text = table(head, rows, left=5)
    return f"Plan of {title}; KiB per host and step\n{text}\n  Why:\n" + "\n".join(whys)


def plans(runs_by_mode):
    """The plans of several modes, variable by variable."""
    modes = list(runs_by_mode)
    columns = {mode: {v["name"]: v for v in run["plan"]["variables"]}
               for mode, run in runs_by_mode.items()}
    rows = []
    for name, variable in columns[modes[0]].items():
        for mode in modes:
            own = columns[mode][name]
            rows.append([name, shape(variable), TITLES[mode], own["method"],
                         predicted(chosen(own)), measured(runs_by_mode[mode]["traffic"], own)])
    return ("Plans of the modes; KiB per host and step (all alternatives: results.json)\n"
            + table(["variable", "shape", "run", "method", "predicted", "measured"], rows, left=4))


def gradient(results):
    rows = []
    for mode, run in results["gradient"].items():
        for name, row in run["agreement"].items():
            rows.append([TITLES[mode], name, f"{row['elements']:,}", f"{row['exact']:,}",
                         row["violations"], f"{row['worst_ratio']:.3f}"])
    return ("Gradients of one state against the exact sum\n"
            + table(["run", "variable", "elements", "equal", "beyond bound", "worst / bound"],
                    rows, left=2))


def kernel(results):
    rows = []
    for mode, run in results["runs"].items():
        for row in run["kernel"] or []:
            rows.append([TITLES[mode], f"h{row['host']}", row["direction"],
                         f"{row['kernel_bytes']:,}", f"{row['packets']:,}",
                         f"{row['payload_bytes']:,}", f"{row['library_bytes']:,}",
                         f"{row['ratio']:.4f}"])
    head = ["run", "host", "way", "kernel bytes", "packets", "less headers", "library", "ratio"]
    return (f"The kernel's counters of each host's interface; {figures.PACKET_HEADER_BYTES} B of "
            "headers a packet\n" + table(head, rows, left=3))


def checks(found):
    return "\n".join(["Checks", *(wrapped(f"{row['verdict']}  {row['name']}: {row['figure']}", "  ",
                                          "      ") for row in found.rows)])
