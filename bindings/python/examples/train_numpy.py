#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training of model.py in NumPy, by several ranks: the library holds the variables.

    parallax run -n 2 -- python3 train_numpy.py [FILE]

Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets the
losses of that part, and the values at the end.
"""

import sys

import numpy as np

import libparallax as px
import model

# ---- libparallax ---------------------------------------------------------------------------------


def start(job):
    """Registers all variables."""
    variables = [
        job.register(name, rows=rows, row_elements=row_elements, rows_max=rows_max, rule="sgd",
                     init=px.Uniform(-model.INITIAL, model.INITIAL, seed=number))
        for number, (name, rows, row_elements, rows_max) in enumerate(model.VARIABLES)]
    job.commit()
    return variables


def train_step(job, variables, words, wanted):
    """Pulls what the batch needs and pushes its gradients: one update, everywhere alike."""
    embedding, *dense = variables
    with job.step(learning_rate=model.RATE) as step:
        values = step.pull_many([(embedding, words), *dense]).wait()
        loss, gradients = model.learn(values, wanted)
        step.push_many([(embedding, words, gradients[0]), *zip(dense, gradients[1:])])
    return loss


# ---- The training --------------------------------------------------------------------------------


def main():
    with px.open() as job:  # as the launcher says
        variables = start(job)
        first, samples = model.part_of(job.rank, job.world)
        losses = [train_step(job, variables, *model.batch(step, first, samples))
                  for step in range(model.STEPS)]
        values = [job.pull(variables[0], np.arange(model.WORDS)).wait(),
                  *(job.pull(variable).wait() for variable in variables[1:])]
        model.save(sys.argv[1:], job.rank, losses, values)


if __name__ == "__main__":
    main()
