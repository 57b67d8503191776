# SPDX-License-Identifier: Apache-2.0
"""Variables and their initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Tuple

from ._tables import DType, InitKind, Memory, Rule

if TYPE_CHECKING:
    from ._core import Core


class Constant:
    """Initial values: every element is `value`."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = float(value)

    def fields(self) -> Dict[str, Any]:
        return {"init": InitKind.CONSTANT, "init_low": self.value}

    def __repr__(self) -> str:
        return f"libparallax.Constant({self.value})"


class Uniform:
    """Initial values in [low, high), a function of (seed, row, column) alone: no rank needs the
    whole table, and any placement gives the same values. The formula stands in parallax.h."""

    def __init__(self, low: float, high: float, seed: int = 0) -> None:
        self.low = float(low)
        self.high = float(high)
        self.seed = int(seed)

    def fields(self) -> Dict[str, Any]:
        return {"init": InitKind.UNIFORM, "init_low": self.low, "init_high": self.high,
                "init_seed": self.seed}

    def __repr__(self) -> str:
        return f"libparallax.Uniform({self.low}, {self.high}, seed={self.seed})"


class _ByCounter:
    """Of a mean and a standard deviation, and of (seed, row, column) alone."""

    kind: InitKind

    def __init__(self, mean: float = 0.0, std: float = 1.0, seed: int = 0) -> None:
        self.mean = float(mean)
        self.std = float(std)
        self.seed = int(seed)

    def fields(self) -> Dict[str, Any]:
        return {"init": self.kind, "init_mean": self.mean, "init_std": self.std,
                "init_seed": self.seed}

    def __repr__(self) -> str:
        return f"libparallax.{type(self).__name__}({self.mean}, {self.std}, seed={self.seed})"


class Normal(_ByCounter):
    """Initial values of the normal distribution, as Uniform a function of (seed, row, column)
    alone, the same on every machine. The formula stands in parallax.h."""

    kind = InitKind.NORMAL


class TruncatedNormal(_ByCounter):
    """Normal, but within two `std` of the mean, as tf.keras' TruncatedNormal and torch's
    trunc_normal_(a=mean - 2 * std, b=mean + 2 * std)."""

    kind = InitKind.TRUNCATED_NORMAL


class FromRank0:
    """Initial values from an array of rank 0, which goes to the others within commit; they need not
    give any. The array is of the shape of the variable and of the dtype that it is kept in (float32
    for float16 and bfloat16), and borrowed until commit is over."""

    def __init__(self, values: Any = None) -> None:
        self.values = values

    def __repr__(self) -> str:
        return f"libparallax.FromRank0({'' if self.values is None else '...'})"


class Variable:
    """A variable of a job; made by Job.register(). Only a name for it: holds no values."""

    __slots__ = ("id", "name", "rows", "row_elements", "dtype", "rule", "state_elements", "memory",
                 "_core", "_traits")

    def __init__(self, core: "Core", number: int, name: str, rows: int, row_elements: int,
                 dtype: DType, rule: Rule, traits: bytes = b"",
                 state_elements: Tuple[int, ...] = (), memory: Memory = Memory.HOST) -> None:
        self._core = core
        self._traits = traits  # the same for the compiled core
        self.id = number
        self.name = name
        self.rows = rows
        self.row_elements = row_elements
        self.dtype = dtype
        self.rule = rule
        self.state_elements = state_elements  # of a rule of the caller's own
        self.memory = memory

    @property
    def shape(self) -> Tuple[int, int]:
        """(rows, row_elements)"""
        return self.rows, self.row_elements

    def __repr__(self) -> str:
        return (f"<libparallax.Variable '{self.name}' {self.rows} x {self.row_elements} "
                f"{self.dtype}>")
