#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training of model.py in PyTorch, by several ranks: the library holds the variables and
updates them, and a rank has only the rows of the embedding that its batch needs.

    parallax run -n 2 -- python3 train_torch_managed.py [FILE]

Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets the
losses of that part, and the values at the end.
"""

import sys

import torch

import libparallax as px
import model

# ---- libparallax ---------------------------------------------------------------------------------


class Variables:
    """All variables of model.py, in the library."""

    def __init__(self, job):
        self.job = job
        self.embedding, *self.dense = [
            job.register(name, rows=rows, row_elements=row_elements, rows_max=rows_max, rule="sgd",
                         init=px.Uniform(-model.INITIAL, model.INITIAL, seed=number))
            for number, (name, rows, row_elements, rows_max) in enumerate(model.VARIABLES)]
        job.commit()

    def pull(self, step, words):
        """Tensors of the rows of `words` and of the other variables, as of the last step."""
        values = [torch.empty(*words.shape, self.embedding.row_elements),
                  *(torch.empty(variable.shape) for variable in self.dense)]
        step.pull_many([(self.embedding, words, values[0]),
                        *((variable, None, value)
                          for variable, value in zip(self.dense, values[1:]))]).wait()
        return [value.requires_grad_() for value in values]

    def push(self, step, words, values):
        """Hands over what backward() has left in the tensors."""
        step.push_many([(self.embedding, words, values[0].grad),
                        *((variable, value.grad)
                          for variable, value in zip(self.dense, values[1:]))])


# ---- The training --------------------------------------------------------------------------------


def network(values):
    rows, weights, bias, output = values
    return torch.tanh(rows.mean(dim=1) @ weights + bias) @ output


def main():
    losses = []
    with px.open() as job:  # as the launcher says
        variables = Variables(job)
        for number in range(model.STEPS):
            words, wanted = map(torch.from_numpy,
                                model.batch(number, *model.part_of(job.rank, job.world)))
            with job.step(learning_rate=model.RATE) as step:
                values = variables.pull(step, words)
                loss = (network(values) - wanted).square().sum() / model.BATCH
                loss.backward()
                variables.push(step, words, values)
            losses.append(loss.item())
        with job.step(absent=True) as step:
            values = variables.pull(step, torch.arange(model.WORDS))
        model.save(sys.argv[1:], job.rank, losses, [value.detach().numpy() for value in values])


if __name__ == "__main__":
    main()
