# SPDX-License-Identifier: Apache-2.0
"""Rates by group of variables, as a step gives them and a rule of the caller's own gets them."""

from __future__ import annotations

import collections.abc
from typing import Any, NamedTuple, Sequence

from . import _core
from ._abi import RatesStruct
from ._errors import InvalidArgument


class Rates(NamedTuple):
    """The rates of a group of variables in one step: torch's param_groups.

    weight_decay: added to the gradient, or with `decoupled` taken from the value (AdamW). Of rows
        only those that some rank contributed decay.
    maximize: the gradient is negated.
    clip_norm: of the group's own gradients, before the step's; 0: none.
    """

    learning_rate: float
    weight_decay: float = 0.0
    decoupled: bool = False
    maximize: bool = False
    clip_norm: float = 0.0


def rates_array(rates: Sequence[Rates]) -> Any:
    """An array of RatesStruct; InvalidArgument names what is no rate."""
    given: Any = list(rates) if isinstance(rates, collections.abc.Sequence) else [rates]
    structs = []
    for index, group in enumerate(given):
        if not isinstance(group, Rates):
            raise InvalidArgument(f"step: rates[{index}] is {group!r}; it must be Rates(...)",
                                  field="rates")
        structs.append(_core.struct_of(f"step: rates[{index}]", RatesStruct, group._asdict()))
    return (RatesStruct * len(structs))(*structs)
