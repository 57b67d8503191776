# SPDX-License-Identifier: Apache-2.0
"""The names of parallax.h as Python sees them. A new row of the header is one new line here.

Every enum of the header is a class, whose members are the enumerators without their prefix, and a
row of C_ENUMS. Users write names in lower case ("adagrad"), the members, or None for the default.
tests/python/test_abi.py compares all of it with the header.
"""

from __future__ import annotations

import enum
from typing import Any, Dict, NamedTuple, Tuple, Type, TypeVar

from ._errors import InvalidArgument
from ._status import Status


class PlanMode(enum.IntEnum):
    """A pin on the placement of managed variables; AUTO measures and plans."""

    AUTO = 0
    HYBRID = 1
    PS = 2
    AR = 3


class Tag(enum.IntEnum):
    """Whether a variable's slices carry every row, or row ids and rows."""

    AUTO = 0
    DENSE = 1
    SPARSE = 2


class Reduction(enum.IntEnum):
    """How gradients of the ranks become one."""

    SUM = 0
    MEAN_WORLD = 1
    MEAN_CONTRIBUTORS = 2
    MEAN_ROW = 3


class Rule(enum.IntEnum):
    """The update rule of a managed variable; NONE: framework-held."""

    NONE = 0
    SGD = 1
    ADAGRAD = 2
    ADAM = 3
    MOMENTUM = 4
    ROWWISE_ADAGRAD = 5
    SUM = 6
    FTRL = 7
    CALLBACK = 8


class InitKind(enum.IntEnum):
    """How initial values are made; see Constant and Uniform."""

    CONSTANT = 0
    UNIFORM = 1
    NORMAL = 2
    TRUNCATED_NORMAL = 3
    BUFFER = 4
    BROADCAST = 5


class Form(enum.IntEnum):
    """The form of a slice."""

    DENSE = 0
    ROWS = 1


class Phase(enum.IntEnum):
    """Where in a step a rank kept the others waiting; JobInfo.late_phase."""

    NONE = 0
    PULL = 1
    PUSH = 2  # and reduces
    STEP_END = 3


class Placement(enum.IntEnum):
    """Where a managed variable lives; AUTO plans it."""

    AUTO = 0
    SHARDED = 1
    MIRRORED = 2


class Method(enum.IntEnum):
    """How a gradient travels; AUTO plans it."""

    AUTO = 0
    ALLREDUCE = 1
    ALLGATHERV = 2
    REDUCE_ROWS = 3
    MADE_DENSE = 4
    PUSH_PULL = 5


class Rounding(enum.IntEnum):
    """How values are rounded to the type they are kept in."""

    NEAREST_EVEN = 0
    STOCHASTIC = 1


class Memory(enum.IntEnum):
    """Where the buffers of a slice lie."""

    HOST = 0
    CUDA = 1


class Collective(enum.IntEnum):
    """What Job.collective does."""

    ALLREDUCE = 1
    REDUCE_SCATTER = 2
    ALLGATHER = 3
    ALLGATHERV = 4
    ALLTOALLV = 5
    BROADCAST = 6
    REDUCE = 7
    GATHER = 8


class Op(enum.IntEnum):
    """How numbers of several ranks become one."""

    SUM = 0
    MEAN = 1  # no integers
    MIN = 2
    MAX = 3
    PRODUCT = 4
    AND = 5  # this and the next, bit by bit: integers only
    OR = 6
    XOR = 7


class Report(enum.IntEnum):
    """What Job.report tells."""

    PLAN = 0
    STATS = 1
    TOPOLOGY = 2
    SETTINGS = 3


class LogLevel(enum.IntEnum):
    """How much a log line matters; see set_log_callback."""

    NONE = 0
    WARN = 1
    INFO = 2
    DEBUG = 3
    TRACE = 4


# (class, typedef of the header without _t, prefix of its enumerators)
C_ENUMS: Tuple[Tuple[Type[enum.IntEnum], str, str], ...] = (
    (Status, "parallax_status", "PARALLAX_"),
    (PlanMode, "parallax_plan_mode", "PARALLAX_PLAN_"),
    (Tag, "parallax_tag", "PARALLAX_"),
    (Reduction, "parallax_reduction", "PARALLAX_"),
    (Rule, "parallax_rule", "PARALLAX_RULE_"),
    (InitKind, "parallax_init", "PARALLAX_INIT_"),
    (Form, "parallax_form", "PARALLAX_FORM_"),
    (Phase, "parallax_phase", "PARALLAX_PHASE_"),
    (Report, "parallax_report", "PARALLAX_REPORT_"),
    (Placement, "parallax_placement", "PARALLAX_PLACEMENT_"),
    (Method, "parallax_method", "PARALLAX_METHOD_"),
    (Rounding, "parallax_rounding", "PARALLAX_ROUNDING_"),
    (Memory, "parallax_memory", "PARALLAX_MEMORY_"),
    (Collective, "parallax_collective_kind", "PARALLAX_"),
    (Op, "parallax_op", "PARALLAX_OP_"),
    (LogLevel, "parallax_log_level", "PARALLAX_LOG_"),
)


class DType(NamedTuple):
    """An element type: its names here, in the header, in NumPy, in memoryview and in DLPack."""

    name: str  # the enumerator of parallax_dtype, PARALLAX_F32, in lower case
    value: int
    long_name: str  # as NumPy and PyTorch call it
    kind: str  # f: floating point, i: signed, u: unsigned integer, b: bfloat16
    item_bytes: int
    storage: str  # the NumPy dtype of arrays made here; bfloat16 has none of its own
    char: str  # the format of memoryviews made here, without NumPy

    def __str__(self) -> str:
        return self.long_name


# name, value of the enumerator, long name, kind, bytes, NumPy dtype and memoryview format
DTYPES: Tuple[DType, ...] = (
    DType("f32", 0, "float32", "f", 4, "float32", "f"),
    DType("f64", 1, "float64", "f", 8, "float64", "d"),
    DType("f16", 2, "float16", "f", 2, "float16", "H"),
    DType("bf16", 3, "bfloat16", "b", 2, "uint16", "H"),
    DType("i32", 4, "int32", "i", 4, "int32", "i"),
    DType("i64", 5, "int64", "i", 8, "int64", "q"),
)

# Of collectives that combine nothing: bytes as they are. Of no variable.
BYTES = DType("bytes", 16, "uint8", "u", 1, "uint8", "B")

# What a managed variable is kept in, by the dtype that it has; others are kept as they are.
KEPT_IN = {"f16": DTYPES[0], "bf16": DTYPES[0]}

class RuleTraits(NamedTuple):
    """What an update rule keeps and asks for."""

    # Beside the values, array by array: True, one number for each row; False, one for each element.
    states: Tuple[bool, ...] = ()
    has_epsilon: bool = False
    has_betas: bool = False
    has_power: bool = False


RULES: Dict[Rule, RuleTraits] = {
    Rule.NONE: RuleTraits(),
    Rule.SGD: RuleTraits(),
    Rule.ADAGRAD: RuleTraits(states=(False,), has_epsilon=True),
    Rule.ADAM: RuleTraits(states=(False, False), has_epsilon=True, has_betas=True),
    Rule.MOMENTUM: RuleTraits(states=(False,)),
    Rule.ROWWISE_ADAGRAD: RuleTraits(states=(True,), has_epsilon=True),
    Rule.SUM: RuleTraits(),
    Rule.FTRL: RuleTraits(states=(False, False), has_power=True),
    Rule.CALLBACK: RuleTraits(),
}

# What row ids are where the library gives them.
INT64 = DType("i64", -1, "int64", "i", 8, "int64", "q")

# Element types of row ids that are borrowed as they lie: (kind, bytes, field of parallax_slice_t).
ID_TYPES: Tuple[Tuple[str, int, str], ...] = (
    ("i", 8, "ids"),
    ("i", 4, "ids_i32"),
)

# DLPack's DLDataTypeCode as our kinds.
DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 4: "b", 5: "c", 6: "?"}

# DLPack's DLDeviceType, for sentences.
DLPACK_DEVICES = {
    1: "CPU", 2: "CUDA", 3: "CUDA pinned host", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 9: "VPI",
    10: "ROCm", 11: "ROCm pinned host", 13: "CUDA managed", 14: "oneAPI", 15: "WebGPU",
    16: "Hexagon",
}

_Member = TypeVar("_Member", bound=enum.IntEnum)


def member_of(members: Type[_Member], given: Any, what: str) -> _Member:
    """The member that a name, a member or its number means; None is 0, where that is the
    default."""
    if given is None and 0 in list(members):
        return members(0)
    if isinstance(given, str):
        for member in members:
            if member.name.lower() == given.lower():
                return member
    elif isinstance(given, int) and not isinstance(given, bool):
        if given in list(members):
            return members(given)
    choices = ", ".join(repr(member.name.lower()) for member in members)
    raise InvalidArgument(f"{what} is {given!r}; it must be one of {choices}",
                          field=what.rpartition(" ")[2])


def as_dtype_of(dtype: DType) -> int:
    """PARALLAX_AS of parallax.h."""
    return dtype.value + 1


def dtype_of(given: Any, what: str = "register", also: Tuple[DType, ...] = ()) -> DType:
    """The DType meant by "f32", "float32", numpy.float32, a numpy.dtype or torch.float32.

    also: what the call takes beside those of variables.
    """
    if isinstance(given, DType):
        return given
    name = _name_of_type(given)
    for dtype in (*DTYPES, *also):
        if name in (dtype.name, dtype.long_name):
            return dtype
    choices = ", ".join(repr(dtype.name) for dtype in (*DTYPES, *also))
    raise InvalidArgument(f"{what}: dtype is {given!r}; it must be one of {choices}",
                          field="dtype")


def _name_of_type(given: Any) -> str:
    name = getattr(given, "__name__", None) or getattr(given, "name", None) or str(given)
    return str(name).rpartition(".")[2]  # torch.float32 has no name but its text
