# SPDX-License-Identifier: Apache-2.0
"""What the trainings of this folder learn: the mean of a few words' embeddings goes through a
hidden layer of tanh to one number, which is to be that of the words. No libparallax in it. The same
in C: docs/examples/model.h.

`python3 model.py` trains it by one process, which is what all the trainings are compared with.
"""

import numpy as np

WORDS, WIDTH, HIDDEN = 64, 8, 16
BAG = 4  # words of a sample
BATCH = 16  # samples of a step, of all ranks together
STEPS = 40
RATE = 0.5
INITIAL = 0.5  # initial values lie from -INITIAL to INITIAL

# name, rows, row_elements, rows that a batch touches at most (0: all)
VARIABLES = (("embedding", WORDS, WIDTH, WORDS), ("weights", WIDTH, HIDDEN, 0),
             ("bias", 1, HIDDEN, 0), ("output", HIDDEN, 1, 0))


def part_of(rank, world):
    """The first sample of a batch that is this rank's, and how many are."""
    return rank * (BATCH // world), BATCH // world


def batch(step, first, samples):
    """Words (samples, BAG) of a step, int64, and the numbers (samples, 1) they are to give."""
    number = (step * BATCH + first) * BAG + np.arange(samples * BAG, dtype=np.uint64)
    words = (number * 2654435761 % 2 ** 32 // 256 % WORDS).astype(np.int64).reshape(samples, BAG)
    return words, (words % 3 - 1).mean(axis=1, keepdims=True).astype(np.float32)


def initial(variable):
    """A variable's initial values as the library makes them, where a framework holds it: UNIFORM of
    parallax.h, with the variable's number as seed."""
    def mix(z):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return z ^ (z >> np.uint64(31))

    _, rows, row_elements, _ = VARIABLES[variable]
    row = np.arange(1, rows + 1, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        bits = mix(mix(np.uint64(variable) + np.uint64(0x9e3779b97f4a7c15) * row)
                   + np.arange(row_elements, dtype=np.uint64))
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -24)
    return np.float32(-INITIAL) + np.float32(2 * INITIAL) * unit


def learn(values, wanted):
    """The loss of some samples, each weighing 1 / BATCH, and its gradients.

    values: the rows (samples, BAG, WIDTH) of the embedding, and the other variables whole.
    """
    rows, weights, bias, output = values
    mean = rows.mean(axis=1)
    hidden = np.tanh(mean @ weights + bias)
    miss = hidden @ output - wanted
    slope = 2 / BATCH * miss
    inner = slope @ output.T * (1 - hidden * hidden)
    rows_gradient = np.repeat((inner @ weights.T / BAG)[:, None, :], BAG, axis=1)
    gradients = [rows_gradient, mean.T @ inner, inner.sum(axis=0, keepdims=True), hidden.T @ slope]
    loss = (miss * miss).sum() / BATCH
    return float(loss), [np.ascontiguousarray(each, np.float32) for each in gradients]


def save(paths, rank, losses, values):
    """Writes PATH.RANK, where a path is given: the losses and each variable, by name."""
    print(f"rank {rank}: loss of its part {losses[0]:g}, then {losses[-1]:g}")
    for path in paths:
        with open(f"{path}.{rank}", "w", encoding="utf-8") as file:
            for name, numbers in [("losses", losses)] + [
                    (name, np.asarray(value).ravel())
                    for (name, *_), value in zip(VARIABLES, values)]:
                print(name, *(f"{number:.9g}" for number in numbers), file=file)


def reference():
    """Losses and values after training by one process, in NumPy alone."""
    values = [initial(variable) for variable in range(len(VARIABLES))]
    losses = []
    for step in range(STEPS):
        words, wanted = batch(step, 0, BATCH)
        loss, gradients = learn([values[0][words], *values[1:]], wanted)
        np.subtract.at(values[0], words, np.float32(RATE) * gradients[0])
        for value, gradient in zip(values[1:], gradients[1:]):
            value -= np.float32(RATE) * gradient
        losses.append(loss)
    return losses, values


if __name__ == "__main__":
    save([], 0, *reference())
