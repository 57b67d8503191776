#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training of model.py in PyTorch, by several ranks: PyTorch holds the variables and updates
them, and each gradient is on its way as soon as autograd has it.

    parallax run -n 2 -- python3 train_torch_held.py [FILE]

Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets the
losses of that part, and the values at the end.
"""

import sys

import torch

import libparallax as px
import model

# ---- libparallax ---------------------------------------------------------------------------------


class Reducer:
    """Makes gradients those of all ranks together: begin(), backward(), finish()."""

    def __init__(self, job, parameters):
        """parameters: name, parameter, and the rows that a batch touches (0: all), of each."""
        self.job, self.pending = job, []
        for name, parameter, rows_max in parameters:
            variable = job.register(name, rows=len(parameter), row_elements=parameter[0].numel(),
                                    rows_max=rows_max)
            parameter.register_hook(self.hook_of(variable, parameter))
        job.commit()

    def hook_of(self, variable, parameter):
        def hook(gradient):
            if gradient.is_sparse:
                rows = gradient.coalesce()
                request = self.step.reduce(variable, rows.indices()[0], rows.values())
            else:  # out of place: autograd copies the gradient before the sum is there
                request = self.step.reduce(variable, gradient.contiguous(),
                                           into=torch.empty(gradient.shape))
            self.pending.append((parameter, request))
        return hook

    def begin(self):
        self.step = self.job.step()

    def finish(self):
        for parameter, request in self.pending:
            gradient = request.wait()
            if isinstance(gradient, px.Rows):
                gradient = torch.sparse_coo_tensor(torch.tensor(gradient.ids)[None],
                                                   torch.tensor(gradient.values), parameter.shape)
            parameter.grad = gradient
        self.pending.clear()
        self.step.end().wait()


# ---- The training --------------------------------------------------------------------------------


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for number, (name, *_) in enumerate(model.VARIABLES):
            value = torch.from_numpy(model.initial(number))
            self.register_parameter(name, torch.nn.Parameter(value))

    def forward(self, words):
        rows = torch.nn.functional.embedding(words, self.embedding, sparse=True)
        return torch.tanh(rows.mean(dim=1) @ self.weights + self.bias) @ self.output


def main():
    network, losses = Network(), []
    optimizer = torch.optim.SGD(network.parameters(), lr=model.RATE)
    with px.open() as job:  # as the launcher says
        reducer = Reducer(job, [(name, getattr(network, name), rows_max)
                                for name, _, _, rows_max in model.VARIABLES])
        for step in range(model.STEPS):
            words, wanted = map(torch.from_numpy,
                                model.batch(step, *model.part_of(job.rank, job.world)))
            optimizer.zero_grad()
            loss = (network(words) - wanted).square().sum() / model.BATCH
            reducer.begin()
            loss.backward()
            reducer.finish()
            optimizer.step()
            losses.append(loss.item())
        model.save(sys.argv[1:], job.rank, losses,
                   [parameter.detach().numpy() for parameter in network.parameters()])


if __name__ == "__main__":
    main()
