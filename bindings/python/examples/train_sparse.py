#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
r"""Trains a sparse model from NumPy with 4 ranks, real processes, and checks it against one.

    PYTHONPATH=bindings/python PARALLAX_LIBRARY=build/release/lib/libparallax.so \
        python3 bindings/python/examples/train_sparse.py

The model says which of 8 topics a bag of words is about: mean of the words' embeddings, then a
linear layer and softmax. The embedding is sparse, and its rows are sharded over the ranks: each
pulls the rows its batch needs and pushes their gradients. The linear layer is dense, so a copy is
on every rank. Adagrad updates both, inside the library. Each rank takes its part of every batch.

Then the same training runs once more in plain NumPy, in one process with whole batches; the losses
must agree to float rounding, and must fall. Exit status 0: they do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import libparallax as px

WORDS, WIDTH, TOPICS = 5000, 16, 8
BATCH, BAG = 64, 12  # bags in a batch of all ranks together, words in a bag
LEARNING_RATE, ACCUMULATOR, EPSILON = 0.2, 1e-4, 1e-10
EMBEDDING_INIT = px.Uniform(-0.1, 0.1, seed=1)
LINEAR_INIT = px.Uniform(-0.1, 0.1, seed=2)
LOSS_TOLERANCE = 1e-4  # relative; sums are taken in another order


def batch_of(step):
    """Word ids (BATCH, BAG) and topics (BATCH,) of a step. Half of a bag's words, Zipf-distributed
    like those of a language, are its topic's own."""
    random = np.random.default_rng(step)
    topics = random.integers(TOPICS, size=BATCH)
    words = random.zipf(1.3, size=(BATCH, BAG)) % (WORDS // TOPICS)
    own = random.random((BATCH, BAG)) < 0.5
    topic_of_word = np.where(own, topics[:, None], random.integers(TOPICS, size=(BATCH, BAG)))
    return (words * TOPICS + topic_of_word).astype(np.int64), topics


def loss_and_gradients(rows, linear, topics):
    """The loss of some bags, each weighing 1 / BATCH, and its gradients.

    rows: (bags, BAG, WIDTH), linear: (TOPICS, WIDTH), topics: (bags,). All float32.
    """
    hidden = rows.mean(axis=1)
    logits = hidden @ linear.T
    logits -= logits.max(axis=1, keepdims=True)
    probability = np.exp(logits)
    probability /= probability.sum(axis=1, keepdims=True)
    bags = np.arange(len(topics))
    loss = -np.log(probability[bags, topics]).sum() / BATCH
    probability[bags, topics] -= 1
    probability /= BATCH
    hidden_gradient = probability @ linear / BAG
    rows_gradient = np.repeat(hidden_gradient[:, None, :], BAG, axis=1)
    return np.float32(loss), rows_gradient, probability.T @ hidden


def train(job, steps):
    """One rank's training. Gives the losses of the whole batches, the same on every rank."""
    share = BATCH // job.world
    mine = slice(job.rank * share, (job.rank + 1) * share)
    adagrad = dict(rule="adagrad", initial_accumulator_value=ACCUMULATOR, epsilon=EPSILON)
    embedding = job.register("embedding", rows=WORDS, row_elements=WIDTH, tag="sparse",
                             rows_max=share * BAG, init=EMBEDDING_INIT, **adagrad)
    linear = job.register("linear", rows=TOPICS, row_elements=WIDTH, tag="dense",
                          init=LINEAR_INIT, **adagrad)
    loss_sum = job.register("loss", rows=1, tag="dense")  # no rule: reduced, and returned
    job.commit()

    losses = []
    for number in range(1, steps + 1):
        ids, topics = batch_of(number)
        with job.step(learning_rate=LEARNING_RATE) as step:
            rows, matrix = step.pull_many([(embedding, ids[mine]), (linear,)]).wait()
            loss, rows_gradient, matrix_gradient = loss_and_gradients(rows, matrix, topics[mine])
            step.push_many([(embedding, ids[mine], rows_gradient), (linear, matrix_gradient)])
            total = step.reduce(loss_sum, np.array([loss])).wait()
        losses.append(float(total[0]))
        if job.rank == 0 and (number == 1 or number % 10 == 0):
            print(f"step {number:4d}  loss {losses[-1]:.6f}", flush=True)
    return losses


def initial(shape, init):
    """px.Uniform in NumPy: the formula of parallax.h."""
    def mix(z):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return z ^ (z >> np.uint64(31))

    row = np.arange(1, shape[0] + 1, dtype=np.uint64)[:, None]
    column = np.arange(shape[1], dtype=np.uint64)[None, :]
    with np.errstate(over="ignore"):
        bits = mix(mix(np.uint64(init.seed) + np.uint64(0x9e3779b97f4a7c15) * row) + column)
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -24)
    low, high = np.float32(init.low), np.float32(init.high)
    return low + (high - low) * unit


def reference(steps):
    """The same training by one process that sums every gradient once; no libparallax in it."""
    embedding, linear = initial((WORDS, WIDTH), EMBEDDING_INIT), initial((TOPICS, WIDTH),
                                                                          LINEAR_INIT)
    accumulators = [np.full_like(embedding, ACCUMULATOR), np.full_like(linear, ACCUMULATOR)]
    losses = []
    for number in range(1, steps + 1):
        ids, topics = batch_of(number)
        loss, rows_gradient, linear_gradient = loss_and_gradients(embedding[ids], linear, topics)
        embedding_gradient = np.zeros_like(embedding)
        np.add.at(embedding_gradient, ids, rows_gradient)
        for value, gradient, accumulator in zip((embedding, linear),
                                                (embedding_gradient, linear_gradient),
                                                accumulators):
            accumulator += gradient * gradient
            value -= np.float32(LEARNING_RATE) * gradient / (
                np.sqrt(accumulator) + np.float32(EPSILON))
        losses.append(float(loss))
    return losses


def run_rank(arguments):
    host = f"host{arguments.rank * arguments.hosts // arguments.ranks}"
    with px.open(rank=arguments.rank, world=arguments.ranks, timeout=arguments.timeout,
                       rendezvous="file:" + arguments.meet, host=host, plan_mode="hybrid") as job:
        losses = train(job, arguments.steps)
        if job.rank == 0:
            for variable in job.report("plan")["variables"]:
                print(f"{variable['name']:10s} {variable['placement']}, {variable['method']}")
            with open(os.path.join(arguments.out, "losses.json"), "w", encoding="utf-8") as file:
                json.dump(losses, file)


def launch(arguments):
    """Starts the ranks, waits for them and gives their losses."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:],
                   "--meet", os.path.join(folder, "meet"), "--out", folder, "--rank"]
        ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(arguments.ranks)]
        failed = [rank for rank, process in enumerate(ranks) if process.wait() != 0]
        if failed:
            sys.exit(f"train_sparse: ranks {failed} failed")
        with open(os.path.join(folder, "losses.json"), encoding="utf-8") as file:
            return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=1, help="emulated hosts, joined over tcp")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--timeout", type=float, default=60, help="seconds")
    for name in ("--rank", "--meet", "--out"):  # of the processes started here
        parser.add_argument(name, type=int if name == "--rank" else str, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ranks < 1 or BATCH % arguments.ranks or arguments.steps < 1:
        parser.error(f"--ranks must divide {BATCH}, and --steps be 1 or more")
    if arguments.rank is not None:
        run_rank(arguments)
        return
    losses, expected = launch(arguments), reference(arguments.steps)
    error = max(abs(a - b) / b for a, b in zip(losses, expected))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; one process: {expected[0]:.4f} -> "
          f"{expected[-1]:.4f}; largest relative difference {error:.1e}")
    if len(losses) != arguments.steps or not error <= LOSS_TOLERANCE:
        sys.exit("train_sparse: the losses are not those of one process")
    if not losses[-1] < losses[0]:
        sys.exit("train_sparse: the loss did not fall")


if __name__ == "__main__":
    main()
