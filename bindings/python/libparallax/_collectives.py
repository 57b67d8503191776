# SPDX-License-Identifier: Apache-2.0
"""Collectives on any buffers, beside the steps: what the ranks give, and room for what they get."""

from __future__ import annotations

import array
import ctypes
import operator
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from . import _core
from ._abi import CollectiveStruct
from ._buffers import Loan, borrow, borrow_values
from ._errors import InvalidArgument
from ._library import LIB
from ._numpy import empty
from ._request import Request
from ._tables import BYTES, DTYPES, Collective, DType, Op, dtype_of, member_of

if TYPE_CHECKING:
    from ._job import Job

_GATHERS = (Collective.ALLGATHER, Collective.GATHER)
_TO_ROOT = (Collective.REDUCE, Collective.GATHER)  # only the root gets something
_BY_COUNTS = (Collective.ALLGATHERV, Collective.ALLTOALLV)


class Terms(NamedTuple):
    """What a call says beside its buffers."""

    kind: Any
    op: Any = None
    root: int = 0
    send_counts: Optional[Sequence[int]] = None
    recv_counts: Optional[Sequence[int]] = None
    dtype: Any = None
    tag: int = 0


def post(job: "Job", terms: Terms, send: Any, recv: Any,
         finish: Optional[Callable[[Any], Any]] = None) -> Request[Any]:
    """Posts a collective. wait() gives `finish` of what this rank gets: recv, a new array in its
    place where it is None, or None on a rank that gets nothing."""
    kind = member_of(Collective, terms.kind, "collective: kind")
    counts = [_counts(job, given, name, needed) for given, name, needed in (
        (terms.send_counts, "send_counts", kind == Collective.ALLTOALLV),
        (terms.recv_counts, "recv_counts", kind in _BY_COUNTS))]
    if kind == Collective.BROADCAST:
        lent, loan, got, element = _broadcast_buffers(job, terms, send, recv)
    else:
        lent, loan, got, element = _buffers(job, kind, terms, (send, recv), counts)
    count = (lent or loan or _NOTHING).item_count
    struct = _core.struct_of("collective", CollectiveStruct, dict(
        kind=kind, dtype=element.value, op=member_of(Op, terms.op, "collective: op"),
        root=terms.root, send=lent and lent.address, recv=loan and loan.address,
        count=count // job.world if kind == Collective.REDUCE_SCATTER else count, tag=terms.tag))
    for name, given in zip(("send_counts", "recv_counts"), counts):
        if given is not None:
            setattr(struct, name, (ctypes.c_uint64 * len(given))(*given))
    try:
        handle = job._core.post((lent, loan), LIB.parallax_collective, ctypes.byref(struct))
    except InvalidArgument as refusal:
        if element is BYTES and refusal.field == "dtype":
            raise InvalidArgument(f"{refusal.message}: uint8 is bytes as they are, so convert what "
                                  "is to be combined, as in array.astype(numpy.int32)",
                                  field="dtype") from None
        raise
    return Request(job, handle, lambda _: got if finish is None else finish(got))


def of_value(job: "Job", terms: Terms, value: Any, out: Any) -> Request[Any]:
    """An allreduce or allgather of an array, or of a Python number: then wait() gives numbers."""
    if not isinstance(value, (int, float)):
        return post(job, terms, value, out)
    if out is not None:
        raise InvalidArgument("collective: out is given, but the value is a number; wait() gives "
                              "the result", field="recv")
    code = "d" if isinstance(value, float) else "q"
    try:
        given = array.array(code, [value])
    except OverflowError:
        raise InvalidArgument(f"collective: {value!r} does not fit into 64 bits",
                              field="send") from None
    if terms.kind == Collective.ALLREDUCE:
        return post(job, terms, given, given, lambda result: result[0])
    room = array.array(code, [0] * job.world)
    return post(job, terms, given, room, lambda result: result.tolist())


_NOTHING = Loan(0, "?", 1, (0,), True, None)


# send, recv, what wait() gives, and the dtype of all of them
Buffers = Tuple[Optional[Loan], Optional[Loan], Any, DType]


def _buffers(job: "Job", kind: Collective, terms: Terms, given: Tuple[Any, Any],
             counts: List[Optional[List[int]]]) -> Buffers:
    send, recv = given
    element = _element(borrow(send, "collective: send"), terms.dtype)
    lent = _lend(send, element, "send")
    _check_size(job, kind, lent, counts)
    shape = _shape_got(job, kind, terms.root, lent.shape, counts[1])
    if shape is None:
        return lent, None, None, element
    got = empty(shape, element) if recv is None else recv
    loan = _lend(got, element, "recv")
    if loan.item_count != _product(shape):
        raise InvalidArgument(f"collective: recv has {loan.item_count} numbers; it must have "
                              f"{_product(shape)}", field="recv")
    return lent, loan, got, element


def _broadcast_buffers(job: "Job", terms: Terms, send: Any, recv: Any) -> Buffers:
    """The root gives send, or recv in place; the others get recv."""
    if job.rank != terms.root:
        element = _element(borrow(recv, "collective: recv"), terms.dtype)
        return None, _lend(recv, element, "recv"), recv, element
    given = recv if send is None else send
    element = _element(borrow(given, "collective: send"), terms.dtype)
    lent = _lend(given, element, "send")
    if send is None or recv is None:
        return lent, None, given, element
    loan = _lend(recv, element, "recv")
    if loan.item_count != lent.item_count:
        raise InvalidArgument(f"collective: recv has {loan.item_count} numbers; it must have "
                              f"{lent.item_count}", field="recv")
    return lent, loan, recv, element


def _lend(given: Any, element: DType, name: str) -> Loan:
    """Borrows a buffer of any shape, writable where it is recv."""
    what = f"collective: {name}"
    size = borrow(given, what).item_count
    return borrow_values(given, element, (size, 1), what, writable=name == "recv")


def _element(loan: Loan, given: Any) -> DType:
    """The dtype of a buffer: the one named, else what the buffer says."""
    if given is not None:
        return dtype_of(given, "collective", (BYTES,))
    for dtype in (*DTYPES, BYTES):
        if (loan.kind, loan.item_bytes) == (dtype.kind, dtype.item_bytes):
            return dtype
    choices = ", ".join(dtype.long_name for dtype in DTYPES)
    raise InvalidArgument(f"collective: the buffer is {loan.type_name}; it must be one of "
                          f"{choices}, the bits of bfloat16 with dtype='bf16', or, where nothing "
                          "is combined, uint8, as in array.view(numpy.uint8)", field="dtype")


def _counts(job: "Job", given: Optional[Sequence[int]], name: str,
            needed: bool) -> Optional[List[int]]:
    """Numbers for each rank, where the kind looks at them."""
    if not needed:
        return None
    try:
        counts = [operator.index(count) for count in given or ()]
    except TypeError as refusal:
        raise InvalidArgument(f"collective: {name}: {refusal}", field=name) from None
    if len(counts) != job.world or min(counts) < 0 or max(counts) >= 2 ** 48:
        raise InvalidArgument(f"collective: {name} is {given!r}; it must have {job.world} counts, "
                              "one for each rank, each 0 or more", field=name)
    return counts


def _check_size(job: "Job", kind: Collective, send: Loan,
                counts: List[Optional[List[int]]]) -> None:
    """Refuses a send that has not as many numbers as the kind and the counts say."""
    wanted = None
    if kind == Collective.ALLTOALLV:
        wanted = sum(counts[0] or ())
    elif kind == Collective.ALLGATHERV and counts[1] is not None:
        wanted = counts[1][job.rank]
    if wanted is not None and send.item_count != wanted:
        raise InvalidArgument(f"collective: send has {send.item_count} numbers; by the counts it "
                              f"must have {wanted}", field="send")
    if kind == Collective.REDUCE_SCATTER and send.item_count % job.world != 0:
        raise InvalidArgument(f"collective: send has {send.item_count} numbers, which {job.world} "
                              "ranks cannot share alike", field="send")


def _shape_got(job: "Job", kind: Collective, root: int, shape: Tuple[int, ...],
               recv_counts: Optional[List[int]]) -> Optional[Tuple[int, ...]]:
    """The shape of what this rank gets; None: it gets nothing."""
    if kind in _TO_ROOT and job.rank != root:
        return None
    if kind in _GATHERS:
        return (job.world, *shape)
    if recv_counts is not None:
        return (sum(recv_counts),)
    if kind == Collective.REDUCE_SCATTER:
        if shape and shape[0] % job.world == 0:
            return (shape[0] // job.world, *shape[1:])
        return (_product(shape) // job.world,)
    return shape


def _product(shape: Sequence[int]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product
