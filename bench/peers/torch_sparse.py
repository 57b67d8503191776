# SPDX-License-Identifier: Apache-2.0
"""Steps of row ids by torch.distributed: every rank has all tables, gradients of its rows are a
sparse tensor, and Gloo's all_reduce sums those of all ranks. Ids, gradients and rules are those of
sparse.h; ids come from the program parallax_cluster_rows."""
import os
import subprocess
import time

import torch
import torch.distributed as dist

from serving import serve_steps

LEARNING_RATE, EPSILON = 0.5, 1.0
TOLERANCE = {"sgd": 0, "adagrad": 1e-5}


def ids_of(words, rank):
    """Of all batches, each of all tables."""
    done = subprocess.run([os.environ["PEERS_ROWS"], words, "ids", str(rank)], capture_output=True,
                          check=True)
    return torch.frombuffer(bytearray(done.stdout), dtype=torch.int64)


def shape_of(table):
    """(rows, width, ids); rows may be written by classes."""
    rows, width, ids = table.split("x")
    return sum(map(int, rows.split(":"))), int(width), int(ids)


def gradient_of(rank, first, count, width):
    at = torch.arange(first, first + count).unsqueeze(1)
    return (1 + (at * 7 + torch.arange(width) * 3 + rank * 5) % 7).to(torch.float32)


def update(rule, rows, states, gradients):
    """What rows and states become."""
    if rule == "sgd":
        return rows - LEARNING_RATE * gradients, states
    states = states + gradients * gradients
    return rows - LEARNING_RATE * gradients / (states.sqrt() + EPSILON), states


class Table:
    """On this rank: all of it, and the rows that a serial program has for its ids of batch 0."""

    def __init__(self, shape, first, rule, rank):
        self.rows, self.width, self.ids = shape
        self.first, self.rule = first, rule
        self.values = torch.zeros(self.rows, self.width)
        self.states = torch.zeros(self.rows, self.width) if rule == "adagrad" else None
        self.given = gradient_of(rank, first, self.ids, self.width)
        self.looked_up = self.expected = self.sums = self.expected_states = None

    def of(self, ids):
        return ids[self.first:self.first + self.ids]

    def expect(self, all_ids):
        """`all_ids`: of batch 0, of each rank."""
        sums = torch.zeros(self.rows, self.width)
        for rank, ids in enumerate(all_ids):
            sums.index_add_(0, self.of(ids), gradient_of(rank, self.first, self.ids, self.width))
        self.sums = sums
        self.expected = torch.zeros(self.ids, self.width)
        self.expected_states = torch.zeros(self.ids, self.width)

    def apply_expected(self, ids):
        self.expected, self.expected_states = update(
            self.rule, self.expected, self.expected_states, self.sums[self.of(ids)])

    def count_wrong(self):
        off = (self.looked_up - self.expected).abs()
        return int((~(off <= TOLERANCE[self.rule] * self.expected.abs())).sum())

    def look_up(self, ids):
        self.looked_up = self.values[self.of(ids)]

    def train(self, ids):
        gradient = torch.sparse_coo_tensor(self.of(ids).unsqueeze(0), self.given,
                                           (self.rows, self.width))
        dist.all_reduce(gradient)
        gradient = gradient.coalesce()
        at = gradient.indices()[0]
        states = None if self.states is None else self.states[at]
        values, states = update(self.rule, self.values[at], states, gradient.values())
        self.values[at] = values
        if states is not None:
            self.states[at] = states


class Steps:
    """Of one kind, on this rank."""

    def __init__(self, words, rank, world):
        rule, _, _, compute_us, tables = words.split("/")
        self._compute_s = int(compute_us) / 1e6
        shapes = [shape_of(each) for each in tables.split(",")]
        count = sum(ids for _, _, ids in shapes)
        self._batches = ids_of(words, rank).split(count)
        all_ids = [ids_of(words, other)[:count] for other in range(world)]
        self._tables, first = [], 0
        for shape in shapes:
            self._tables.append(Table(shape, first, rule, rank))
            self._tables[-1].expect(all_ids)
            first += shape[2]
        self._given = [table.given.clone() for table in self._tables]
        self._at = 0

    def run(self, ids):
        for table in self._tables:
            table.look_up(ids)
        time.sleep(self._compute_s)
        for table in self._tables:
            table.train(ids)

    def check(self):
        ids = self._batches[0]
        for table, given in zip(self._tables, self._given):
            table.given.copy_(given)
        wrong = 0
        for again in range(2):
            self.run(ids)
            wrong += sum(table.count_wrong() for table in self._tables)
            if again == 0:
                for table in self._tables:
                    table.apply_expected(ids)
                self.refill()
        return wrong

    def refill(self):
        for table in self._tables:
            table.given.zero_()

    def next(self):
        self._at = (self._at + 1) % len(self._batches)
        self.run(self._batches[self._at])


def main():
    rank, world = int(os.environ["PEERS_RANK"]), int(os.environ["PEERS_WORLD"])
    folder = os.environ["PEERS_FOLDER"]
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                            world_size=world)
    known = {}

    def prepare(_, words):
        if words not in known:
            known.clear()
            known[words] = Steps(words, rank, world)
        steps = known[words]
        return steps.check(), steps.next, steps.refill

    serve_steps(prepare, dist.barrier, rank, folder)


if __name__ == "__main__":
    main()
