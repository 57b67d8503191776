#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training of model.py in PyTorch on CUDA devices, one a rank of a host: the library holds the
embedding, whose rows it gives and whose gradients it takes on the device, and PyTorch the rest,
whose gradients are reduced there. In host memory where PyTorch finds no device.

    parallax run -n 2 -- python3 train_torch_cuda.py [FILE]

Each rank takes its part of every batch, and what they learn is what one would. FILE.RANK gets the
losses of that part, and the values at the end.
"""

import sys

import torch

import libparallax as px
import model

# ---- libparallax ---------------------------------------------------------------------------------


class Variables:
    """The embedding, in the library; and the network's weights, in PyTorch. Devices sum the
    gradients of these among themselves, by NCCL, where every rank has it and a device of its own:
    job.report()["variables"] says whether, and why not."""

    def __init__(self, job, weights):
        self.weights = weights
        on_devices = weights[0].is_cuda
        self.embedding, *self.held = [
            job.register(name, rows=rows, row_elements=row_elements, rows_max=rows_max,
                         rule="sgd" if rows_max else None,
                         init=px.Uniform(-model.INITIAL, model.INITIAL) if rows_max else 0.0,
                         memory="cuda" if on_devices and not rows_max else "host")
            for name, rows, row_elements, rows_max in model.VARIABLES]
        job.commit()

    def pull(self, step, words):
        """The rows of `words`, on their device."""
        rows = torch.empty(*words.shape, self.embedding.row_elements, device=words.device)
        return step.pull(self.embedding, words, out=rows, stream=stream_of(words)).wait()

    def reduce(self, step, words, rows):
        """Makes what backward() has left that of all ranks, behind all work of this stream; what is
        put on it next waits for the sums, and this thread for nothing but that they are under way:
        the end of the step waits for them."""
        stream = stream_of(words)
        step.push(self.embedding, words, rows.grad, stream=stream)
        reduced = step.reduce_many(
            [(held, weight.grad) for held, weight in zip(self.held, self.weights)], stream=stream)
        if stream is None:
            reduced.wait()
        else:
            reduced.on_stream(stream)


def stream_of(tensor):
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


# ---- The training --------------------------------------------------------------------------------


def device_of(local_rank):
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def network(rows, weights):
    first, bias, second = weights
    return torch.tanh(rows.mean(dim=1) @ first + bias) @ second


def main():
    losses = []
    with px.open() as job:  # as the launcher says
        device = device_of(job.info().local_rank)
        weights = [torch.from_numpy(model.initial(number)).to(device).requires_grad_()
                   for number in range(1, len(model.VARIABLES))]
        optimizer = torch.optim.SGD(weights, lr=model.RATE)
        variables = Variables(job, weights)
        for number in range(model.STEPS):
            words, wanted = (torch.from_numpy(each).to(device) for each in
                             model.batch(number, *model.part_of(job.rank, job.world)))
            optimizer.zero_grad()
            with job.step(learning_rate=model.RATE) as step:
                rows = variables.pull(step, words).requires_grad_()
                loss = (network(rows, weights) - wanted).square().sum() / model.BATCH
                loss.backward()
                variables.reduce(step, words, rows)
            optimizer.step()
            losses.append(loss.item())
        with job.step(absent=True) as step:
            table = variables.pull(step, torch.arange(model.WORDS, device=device))
        model.save(sys.argv[1:], job.rank, losses,
                   [value.detach().cpu().numpy() for value in (table, *weights)])


if __name__ == "__main__":
    main()
