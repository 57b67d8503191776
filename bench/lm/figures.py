# SPDX-License-Identifier: Apache-2.0
"""Figures of a run, from what its ranks wrote. METRICS.md states each formula."""

import math

BATCH = 128  # positions per rank and step: the trainer's default
# Ethernet 14 + IPv4 20 + TCP 32 with timestamps: what a packet carries besides the payload.
PACKET_HEADER_BYTES = 66


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers) if numbers else 0.0


def step_losses(per_rank):
    """Mean over the ranks, in their order, step by step. `per_rank`: rank -> losses."""
    return [mean(losses) for losses in zip(*per_rank)]


def join_evaluations(parts):
    """Mean loss and its standard error."""
    count = sum(part["positions"] for part in parts)
    if count == 0 or any(part["loss_sum"] is None for part in parts):
        return None
    loss = sum(part["loss_sum"] for part in parts) / count
    square = sum(part["loss_square_sum"] for part in parts) / count
    return {"positions": count, "loss": loss,
            "standard_error": math.sqrt(max(square - loss * loss, 0.0) / count)}


def counter_change(outcome, *path):
    """The change of one counter between the two marks of a rank."""
    def read(mark):
        value = mark["stats"]
        for key in path:
            value = value[key]
        return value
    marks = outcome["marks"]
    return read(marks[-1]) - read(marks[0])


def variable_change(outcome, name, key):
    def read(mark):
        return sum(v[key] for v in mark["stats"]["variables"] if v["name"] == name)
    return read(outcome["marks"][-1]) - read(outcome["marks"][0])


def by_host(outcomes, change):
    """host -> the sum of change(outcome) over its ranks."""
    totals = {}
    for outcome in outcomes:
        totals[outcome["host"]] = totals.get(outcome["host"], 0) + change(outcome)
    return totals


def traffic(outcomes, sparse_names):
    """Per step and host between the marks; None where the counters were read once only."""
    marks = outcomes[0]["marks"]
    if len(marks) < 2:
        return None
    steps = marks[-1]["step"] - marks[0]["step"]
    names = [variable["name"] for variable in marks[0]["stats"]["variables"]]

    def per_host(change):
        return mean(by_host(outcomes, change).values()) / steps

    variables = {name: per_host(lambda o, n=name: variable_change(o, n, "wire_sent_bytes"))
                 for name in names}
    # What coding left out of these. It is each rank's own choice, by measured times.
    spared = {name: per_host(lambda o, n=name: variable_change(o, n, "wire_spared_bytes"))
              for name in names}
    sent = by_host(outcomes, lambda o: counter_change(o, "wire", "sent_bytes"))
    return {
        "steps": steps,
        "sent_bytes": mean(sent.values()) / steps,
        "sent_bytes_max": max(sent.values()) / steps,
        "received_bytes": per_host(lambda o: counter_change(o, "wire", "received_bytes")),
        "sent_messages": per_host(lambda o: counter_change(o, "wire", "sent_messages")),
        "local_bytes": per_host(lambda o: counter_change(o, "local", "sent_bytes")),
        "spared_bytes": sum(spared.values()),
        "variables": variables,
        "sparse_bytes": sum(b for n, b in variables.items() if n in sparse_names),
        "dense_bytes": sum(b for n, b in variables.items() if n not in sparse_names),
    }


def timing(outcomes, mark_step):
    """After mark_step, so without the steps in which the plan settles."""
    def tail(outcome, key):
        return outcome[key][mark_step:]
    steps = list(zip(*(tail(o, "step_seconds") for o in outcomes)))
    waits = list(zip(*(tail(o, "wait_seconds") for o in outcomes)))
    total = sum(max(step) for step in steps)
    return {
        "steps_per_second": len(steps) / total if total else 0.0,
        "words_per_second": len(steps) * len(outcomes) * BATCH / total if total else 0.0,
        "step_seconds_median": sorted(max(s) for s in steps)[len(steps) // 2] if steps else 0.0,
        "exposed_seconds": mean(min(wait) for wait in waits),
        "wait_seconds": mean(mean(wait) for wait in waits),
        "compute_seconds": mean(mean(tail(o, "compute_seconds")) for o in outcomes),
    }


def kernel_agreement(outcomes):
    """Per host: the kernel's bytes without packet headers, over the library's; two directions."""
    firsts = {}
    for outcome in outcomes:
        if outcome["local_rank"] == 0:
            firsts[outcome["host"]] = [mark["kernel"] for mark in outcome["marks"]]
    rows = []
    for direction in ("sent", "received"):
        library = by_host(outcomes, lambda o, d=direction: counter_change(o, "wire", d + "_bytes"))
        for host, (first, *_, last) in sorted(firsts.items()):
            wire = last[direction + "_bytes"] - first[direction + "_bytes"]
            packets = last[direction + "_packets"] - first[direction + "_packets"]
            payload = wire - PACKET_HEADER_BYTES * packets
            rows.append({"host": host, "direction": direction, "kernel_bytes": wire,
                         "packets": packets, "payload_bytes": payload,
                         "library_bytes": library[host],
                         "ratio": payload / library[host] if library[host] else 0.0})
    return rows


def plan_rows(outcome):
    """name -> (placement, method)."""
    return {v["name"]: (v["placement"], v["method"]) for v in outcome["plan"]["variables"]}


def summarize(outcomes, mark_step, sparse_names):
    parts = [outcome["evaluation"] for outcome in outcomes]
    return {
        "losses": step_losses([outcome["losses"] for outcome in outcomes]),
        "held_out": join_evaluations([part["held_out"] for part in parts if part]),
        "training": join_evaluations([part["training"] for part in parts if part]),
        "timing": timing(outcomes, mark_step),
        "traffic": traffic(outcomes, sparse_names),
        "checksums": [outcome["checksums"] for outcome in outcomes],
        "plan_changes": outcomes[0]["plan_changes"],
        "plan": outcomes[0]["plan"],
        "memory_peak_mib": max(outcome["memory_peak_kib"] for outcome in outcomes) / 1024,
    }
