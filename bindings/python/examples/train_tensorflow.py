#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training of model.py in TensorFlow 2, by several ranks: TensorFlow holds the variables and
updates them, and the library sums their gradients between the tape and the update.

    parallax run -n 2 -- python3 train_tensorflow.py [FILE]

Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets the
losses of that part, and the values at the end.
"""

import sys

import numpy as np
import tensorflow as tf

import libparallax as px
import model

# ---- libparallax ---------------------------------------------------------------------------------


class Reducer:
    """Sums the gradients of variables over all ranks."""

    def __init__(self, job, variables):
        """variables: name, variable, and the rows that a batch touches (0: all), of each."""
        self.job = job
        self.held = [job.register(name, rows=variable.shape[0], row_elements=variable.shape[1],
                                  rows_max=rows_max) for name, variable, rows_max in variables]
        job.commit()

    def sums_of(self, gradients):
        """Each as it is given, tf.IndexedSlices or a tensor. What they hold is left alone."""
        slices, into = [], []
        for variable, gradient in zip(self.held, gradients):
            if isinstance(gradient, tf.IndexedSlices):
                slices.append((variable, gradient.indices.numpy(), gradient.values.numpy()))
                into.append(None)
            else:
                slices.append((variable, gradient.numpy()))
                into.append(np.empty(gradient.shape, np.float32))
        with self.job.step() as step:
            sums = step.reduce_many(slices, into=into).wait()
        return [tf.IndexedSlices(tf.constant(each.values), tf.constant(each.ids))
                if isinstance(each, px.Rows) else tf.constant(each) for each in sums]


# ---- The training --------------------------------------------------------------------------------


def network(variables, words):
    embedding, weights, bias, output = variables
    rows = tf.nn.embedding_lookup(embedding, words)
    return tf.tanh(tf.reduce_mean(rows, axis=1) @ weights + bias) @ output


def update(variable, gradient):
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(model.RATE * gradient.values, gradient.indices))
    else:
        variable.assign_sub(model.RATE * gradient)


def main():
    variables = [tf.Variable(model.initial(number)) for number in range(len(model.VARIABLES))]
    losses = []
    with px.open() as job:  # as the launcher says
        reducer = Reducer(job, [(name, variable, rows_max) for (name, _, _, rows_max), variable
                                in zip(model.VARIABLES, variables)])
        for step in range(model.STEPS):
            words, wanted = model.batch(step, *model.part_of(job.rank, job.world))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((network(variables, words) - wanted) ** 2) / model.BATCH
            for variable, gradient in zip(variables,
                                          reducer.sums_of(tape.gradient(loss, variables))):
                update(variable, gradient)
            losses.append(float(loss))
        model.save(sys.argv[1:], job.rank, losses, [variable.numpy() for variable in variables])


if __name__ == "__main__":
    main()
