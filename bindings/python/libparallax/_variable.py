# SPDX-License-Identifier: Apache-2.0
"""Variables and their initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Tuple

from ._tables import DType, InitKind, Rule

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


class Variable:
    """A variable of a job; made by Job.register(). Only a name for it: holds no values."""

    __slots__ = ("id", "name", "rows", "row_elements", "dtype", "rule", "_core", "_traits")

    def __init__(self, core: "Core", number: int, name: str, rows: int, row_elements: int,
                 dtype: DType, rule: Rule, traits: bytes = b"") -> None:
        self._core = core
        self._traits = traits  # the same for the compiled core
        self.id = number
        self.name = name
        self.rows = rows
        self.row_elements = row_elements
        self.dtype = dtype
        self.rule = rule

    @property
    def shape(self) -> Tuple[int, int]:
        """(rows, row_elements)"""
        return self.rows, self.row_elements

    def __repr__(self) -> str:
        return (f"<libparallax.Variable '{self.name}' {self.rows} x {self.row_elements} "
                f"{self.dtype}>")
