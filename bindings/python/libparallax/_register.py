# SPDX-License-Identifier: Apache-2.0
"""Registering variables: what Python names becomes a parallax_variable_t."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional

from . import _core
from ._abi import ZERO, VariableStruct
from ._errors import InvalidArgument, Unsupported
from ._library import LIB
from ._tables import RULES, Reduction, Rule, Tag, dtype_of, member_of
from ._variable import Constant, Uniform, Variable


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


def _initial(init: Any) -> Any:
    """What the header says of the initial values."""
    if isinstance(init, (int, float)):
        init = Constant(init)
    if not isinstance(init, (Constant, Uniform)):
        raise InvalidArgument(f"register: init is {init!r}; give a number, Constant(value) or "
                              "Uniform(low, high, seed)", field="init")
    return init.fields()


def register(core: _core.Core, name: str, tag: Any, rule: Any, reduction: Any,
             given: Dict[str, Any]) -> Variable:
    """See Job.register, whose other arguments are `given`."""
    initial = _initial(given.pop("init"))
    element = dtype_of(given.pop("dtype"))
    named_rule = member_of(Rule, rule, "register: rule")
    traits = RULES[named_rule]
    for field, used in (("epsilon", traits.has_epsilon), ("beta1", traits.has_betas),
                        ("beta2", traits.has_betas)):
        given[field] = _coefficient(field, given[field], used)
    given["learning_rate_power"] = _power(given["learning_rate_power"], traits.has_power)
    struct = _core.struct_of("register", VariableStruct, dict(
        initial, name=name, dtype=element.value, tag=member_of(Tag, tag, "register: tag"),
        reduction=member_of(Reduction, reduction, "register: reduction"), rule=named_rule, **given))
    number = ctypes.c_uint32()
    _core.check(core.call(LIB.parallax_register, ctypes.byref(struct), ctypes.byref(number)))
    core.variables[number.value] = name
    rows, row_elements = given["rows"], given["row_elements"]
    packed = b"" if _core.NATIVE is None else _core.NATIVE.traits(
        number.value, rows, row_elements, element.kind, element.item_bytes)
    return Variable(core, number.value, name, rows, row_elements, element, named_rule, packed)
