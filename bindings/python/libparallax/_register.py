# SPDX-License-Identifier: Apache-2.0
"""Registering variables: what Python names becomes a parallax_variable_t."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Dict, Optional, Tuple

from . import _core
from ._abi import ZERO, VariableStruct
from ._buffers import borrow_values
from ._device import READY
from ._errors import InvalidArgument, Unsupported
from ._library import LIB
from ._rule import function_of
from ._tables import (KEPT_IN, RULES, DType, InitKind, Reduction, Rule, Tag, as_dtype_of, dtype_of,
                      member_of)
from ._variable import (Constant, FromRank0, Normal, TruncatedNormal, Uniform, Variable)


def _coefficient(name: str, value: Any, used: bool) -> Any:
    """What stands in the struct: there 0 is the default, and zero has a spelling of its own. A rule
    that has no such number takes 0 alone."""
    if value is None or (value == 0 and not used):
        return 0.0
    if value == 0:
        return ZERO
    if value == ZERO:
        raise InvalidArgument(f"register: {name} is {value!r}; it must not be negative", field=name)
    return value


def _power(value: Optional[float], used: bool) -> Any:
    """What stands in the struct, where 0 is the default and zero itself has no spelling."""
    if value == 0 and used:
        raise Unsupported("register: learning_rate_power is 0; this version has -0.5 alone, the "
                          "default", field="learning_rate_power")
    return 0.0 if value is None else value


def _initial(init: Any, name: Any, element: DType, shape: Any) -> Tuple[Dict[str, Any], Any]:
    """What the header says of the initial values, and what is borrowed for them."""
    if isinstance(init, (int, float)):
        init = Constant(init)
    if isinstance(init, (Constant, Uniform, Normal, TruncatedNormal)):
        return init.fields(), None
    kind, values = InitKind.BUFFER, init
    if isinstance(init, FromRank0):
        kind, values = InitKind.BROADCAST, init.values
        if values is None:
            return {"init": kind}, None
    try:
        loan = borrow_values(values, KEPT_IN.get(element.name, element), shape,
                             f"register: init of variable '{name}'")
    except InvalidArgument as refusal:
        refusal.add(field="init")
        if not isinstance(init, str) and hasattr(values, "__len__"):
            raise
        raise InvalidArgument(f"register: init is {init!r}; give a number, Constant(value), "
                              "Uniform(low, high, seed), Normal(mean, std, seed), TruncatedNormal, "
                              "an array, or FromRank0(array)", field="init") from None
    return {"init": kind, "initial": loan.address}, loan


def _rule(core: _core.Core, name: str, rule: Any, state_elements: Any) -> Tuple[Rule,
                                                                                Dict[str, Any]]:
    """The rule, and what the header says of one of the caller's own."""
    try:
        widths = [operator.index(width) for width in state_elements]
    except TypeError:
        widths = [-1]
    if len(widths) > 2 or not all(0 <= width < 2 ** 32 for width in widths):
        raise InvalidArgument(f"register: state_elements is {state_elements!r}; give up to two "
                              "numbers, each 0 or more", field="state_elements")
    named = Rule.CALLBACK if callable(rule) else member_of(Rule, rule, "register: rule")
    if named != Rule.CALLBACK:
        given = (ctypes.c_uint32 * 2)(*widths)
        return named, {"state_elements": given} if any(widths) else {}
    if not callable(rule):
        raise InvalidArgument("register: rule is 'callback'; give the function itself",
                              field="rule")
    function = function_of(core, name, rule, tuple(widths))
    core.kept.append(function)
    return named, {"rule_fn": ctypes.cast(function, ctypes.c_void_p),
                   "state_elements": (ctypes.c_uint32 * 2)(*widths)}


def _narrower(field: str, given: Any, types: str) -> int:
    """PARALLAX_AS of parallax.h; None is 0."""
    if given is None:
        return 0
    try:
        return as_dtype_of(dtype_of(given))
    except InvalidArgument:
        raise InvalidArgument(f"register: {field} is {given!r}; it must be None, {types}",
                              field=field) from None


def _places(given: Dict[str, Any], name: str, element: DType, shape: Any) -> None:
    """Puts addresses in place of arrays. The memory is the job's, which keeps it."""
    for field in ("place_values", "place_into"):
        if given[field] is None:
            continue
        try:
            given[field] = borrow_values(given[field], element, shape,
                                         f"register: {field} of variable '{name}'", writable=True,
                                         stream=READY).address
        except InvalidArgument as refusal:
            refusal.add(field=field)
            raise


def register(core: _core.Core, name: str, tag: Any, rule: Any, reduction: Any,
             given: Dict[str, Any]) -> Variable:
    """See Job.register, whose other arguments are `given`."""
    element = dtype_of(given.pop("dtype"))
    rows, row_elements = given["rows"], given["row_elements"]
    _core.struct_of("register", VariableStruct, {"rows": rows, "row_elements": row_elements})
    initial, loan = _initial(given.pop("init"), name, element, (rows, row_elements))
    _places(given, name, element, (rows, row_elements))
    given["storage_dtype"] = _narrower("storage_dtype", given["storage_dtype"], "'f16' or 'bf16'")
    given["wire_dtype"] = _narrower("wire_dtype", given["wire_dtype"], "or 'bf16'")
    named_rule, own = _rule(core, name, rule, given.pop("state_elements"))
    traits = RULES[named_rule]
    for field, used in (("epsilon", traits.has_epsilon), ("beta1", traits.has_betas),
                        ("beta2", traits.has_betas),
                        ("initial_accumulator_value", traits.has_power)):
        given[field] = _coefficient(field, given[field], used)
    given["learning_rate_power"] = _power(given["learning_rate_power"], traits.has_power)
    struct = _core.struct_of("register", VariableStruct, dict(
        initial, name=name, dtype=element.value, tag=member_of(Tag, tag, "register: tag"),
        reduction=member_of(Reduction, reduction, "register: reduction"), rule=named_rule, **own,
        **given))
    number = ctypes.c_uint32()
    _core.check(core.call(LIB.parallax_register, ctypes.byref(struct), ctypes.byref(number)))
    core.variables[number.value] = name
    if loan is not None:
        core.lent.append(loan)
    packed = b"" if _core.NATIVE is None else _core.NATIVE.traits(
        number.value, rows, row_elements, element.kind, element.item_bytes)
    return Variable(core, number.value, name, rows, row_elements, element, named_rule, packed,
                    tuple(filter(None, own.get("state_elements", ()))), given["memory"])
