# SPDX-License-Identifier: Apache-2.0
"""Update rules of the caller's own: a Python function that the library calls for blocks of rows."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Tuple

from ._abi import RuleBlockStruct, RuleFunction
from ._numpy import view
from ._rates import Rates
from ._tables import DTYPES, INT64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._core import Core


class RuleBlock(NamedTuple):
    """Rows to update, in place. Views of the library's memory: they end with the call, so copy what
    is to stay."""

    rows: "NDArray[Any]"  # ids, int64, ascending
    values: "NDArray[Any]"  # (n, row_elements), to be written
    state: Tuple["NDArray[Any]", ...]  # (n, state_elements[i]) each, to be written
    gradient: "NDArray[Any]"  # (n, row_elements): reduced, and after clips and `maximize`
    learning_rate: float
    step: int
    updates: int  # committed steps in which any rank pushed, this one included
    rates: Rates  # of the variable's group, as given; weight decay is the rule's own to do


Rule = Callable[[RuleBlock], None]

_running = threading.local()  # `here`: this thread runs a rule
_FAILED = 1  # what the header's function answers after an exception


def within_rule() -> bool:
    """Whether this thread runs a rule, and so may use no job: the library refuses it."""
    return getattr(_running, "here", False)


def _block_of(struct: RuleBlockStruct, widths: Tuple[int, ...]) -> RuleBlock:
    kept = DTYPES[struct.dtype]
    count = struct.row_count
    rates = struct.rates[0]
    shape = count, struct.row_elements
    return RuleBlock(
        view(struct.rows, (count,), INT64, None), view(struct.values, shape, kept, None, True),
        tuple(view(struct.state[index], (count, width), kept, None, True)
              for index, width in enumerate(widths) if width),
        view(struct.gradient, shape, kept, None), struct.learning_rate, struct.step,
        struct.updates,
        Rates(rates.learning_rate, rates.weight_decay, bool(rates.decoupled), bool(rates.maximize),
              rates.clip_norm))


def function_of(core: "Core", name: str, rule: Rule, widths: Tuple[int, ...]) -> Any:
    """The function that the header wants. What `rule` raises ends the job, and is the cause of what
    this rank's calls raise then."""
    def call(_: Optional[int], block: int) -> int:
        _running.here = True
        try:
            rule(_block_of(RuleBlockStruct.from_address(block), widths))
            return 0
        except BaseException as failure:  # must not pass through the library
            # Its frames have views of memory that goes with the job.
            traceback.clear_frames(failure.__traceback__)
            core.whole.rule_failure = name, failure
            return _FAILED
        finally:
            _running.here = False

    return RuleFunction(call)
