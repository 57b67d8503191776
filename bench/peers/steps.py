# SPDX-License-Identifier: Apache-2.0
"""What a step reduces in bench/peers: one tensor of a size, or the gradients of a model.

Models are torchvision's; gradients come in the order of a backward pass, the last layer's first."""
from dataclasses import dataclass, replace

from figures import size_words

FLOAT = 4
DTYPES = ("f32", "f16", "bf16")
REDUCTIONS = ("sum", "mean")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Step:
    name: str
    tensors: tuple  # bytes of each
    dtype: str = "f32"
    reduction: str = "sum"

    @property
    def bytes(self):
        return sum(self.tensors)

    @property
    def is_list(self):
        return len(self.tensors) > 1

    def words(self):
        return f"{self.dtype}/{self.reduction}/{','.join(map(str, self.tensors))}"


def _convolution(tensors, out, into, *kernel):
    """Weights and the two of the batch norm behind it; how many channels come out."""
    height, width = kernel if len(kernel) == 2 else kernel * 2
    tensors += [out * into * height * width, out, out]
    return out


def resnet50():
    """He et al., 2015: 161 tensors, 25,557,032 numbers."""
    tensors = []
    channels = _convolution(tensors, 64, 3, 7)
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            _convolution(tensors, width, channels, 1)
            _convolution(tensors, width, width, 3)
            _convolution(tensors, width * 4, width, 1)
            if block == 0:
                _convolution(tensors, width * 4, channels, 1)
            channels = width * 4
    return tensors + [1000 * channels, 1000]


# Inception's blocks: branches of (channels out, kernel), one behind the other, and what of a branch
# goes on beside each other.
def _branches(tensors, channels, branches, pooled=0):
    """`branches`: lists of (out, kernel...); a list within forks. `pooled` channels come through a
    pool as they are."""
    total = pooled
    for branch in branches:
        into = channels
        for part in branch:
            if isinstance(part, list):
                into = sum(_convolution(tensors, out, into, *kernel) for out, *kernel in part)
            else:
                into = _convolution(tensors, part[0], into, *part[1:])
        total += into
    return total


def inception_v3():
    """Szegedy et al., 2015, without the classifier beside: 284 tensors, 23,834,568 numbers."""
    tensors = []
    channels = 3
    for out, kernel in ((32, 3), (32, 3), (64, 3), (80, 1), (192, 3)):
        channels = _convolution(tensors, out, channels, kernel)
    for pool in (32, 64, 64):
        channels = _branches(tensors, channels, [
            [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], [(pool, 1)]])
    channels = _branches(tensors, channels, [[(384, 3)], [(64, 1), (96, 3), (96, 3)]], channels)
    for width in (128, 160, 160, 192):
        channels = _branches(tensors, channels, [
            [(192, 1)],
            [(width, 1), (width, 1, 7), (192, 7, 1)],
            [(width, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7)],
            [(192, 1)]])
    channels = _branches(tensors, channels, [
        [(192, 1), (320, 3)], [(192, 1), (192, 1, 7), (192, 7, 1), (192, 3)]], channels)
    for _ in range(2):
        channels = _branches(tensors, channels, [
            [(320, 1)],
            [(384, 1), [(384, 1, 3), (384, 3, 1)]],
            [(448, 1), (384, 3), [(384, 1, 3), (384, 3, 1)]],
            [(192, 1)]])
    return tensors + [1000 * channels, 1000]


def hundred():
    """100 tensors from 1 KB to 1 MB, each as much larger than the one before: 14.7 MB."""
    return [round(256 * 1024 ** (at / 99)) for at in range(100)]


LISTS = {"resnet50": resnet50, "inception3": inception_v3, "hundred": hundred}


def step_of(word):
    """A size such as 8, 4K or 16M, or a list's name. ValueError for what is neither."""
    if word in LISTS:
        return Step(word, tuple(FLOAT * count for count in reversed(LISTS[word]())))
    digits = word.rstrip("KM")
    unit = word[len(digits):]
    if not digits.isdigit() or unit not in UNITS or int(digits) * UNITS[unit] % FLOAT \
            or int(digits) == 0:
        raise ValueError(f"'{word}' is neither a size in whole 4-byte numbers, such as 8, 4K, 16M, "
                         f"nor one of {', '.join(LISTS)}")
    size = int(digits) * UNITS[unit]
    return Step(size_words(size), (size,))


def one_of(step):
    """One tensor of all bytes of a list."""
    return replace(step, name=f"{step.name} as one", tensors=(step.bytes,))
