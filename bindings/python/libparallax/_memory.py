# SPDX-License-Identifier: Apache-2.0
"""Memory of a job as arrays, and arrays of the caller's that the job is told of.

Design notes. The library takes a job's buffers back once the job is closed and the last of its
requests is released, and an array may outlive both. So the first buffer of a job leaves it an
anchor: a request of a part of this rank alone, complete and never released. Each array keeps it;
when the last one is dropped, it goes, and with it the memory. A buffer that is dropped while the
job is open is freed by the next call that makes one: a finaliser calls nothing that may wait.
"""

from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple, Union

from . import _core
from ._abi import BufferOptions
from ._buffers import borrow
from ._device import DeviceArray
from ._errors import InvalidArgument, InvalidState
from ._library import LIB
from ._numpy import empty as empty_array
from ._numpy import view
from ._rule import within_rule
from ._status import Status
from ._tables import BYTES, DType, Memory, dtype_of

if TYPE_CHECKING:
    from ._job import Job


class _Buffer:
    """Memory of the job, kept by the arrays over it."""

    def __init__(self, core: _core.Core, address: int) -> None:
        self._dropped = core.dropped
        self._anchor = core.anchor
        self._address = address

    def __del__(self) -> None:
        self._dropped.append(self._address)


def _anchor_of(core: _core.Core) -> Any:
    """A request that is complete, so that the job's memory stays while it is not released."""
    part = core.split([core.rank])
    try:
        _core.check(part.call(LIB.parallax_commit))
        handle = part.post(None, LIB.parallax_barrier)
        _core.wait([handle], None)
        return handle
    finally:
        _core.check(part.close())


def _shape_of(shape: Any) -> Tuple[int, ...]:
    try:
        given = (shape,) if isinstance(shape, int) else tuple(map(operator.index, shape))
    except TypeError as refusal:
        raise InvalidArgument(f"empty: shape is {shape!r}: {refusal}", field="shape") from None
    if not all(0 <= extent < 2 ** 62 for extent in given):
        raise InvalidArgument(f"empty: shape is {shape!r}; each extent must be 0 or more",
                              field="shape")
    return given


def empty(job: "Job", shape: Union[int, Sequence[int]], dtype: Any, numa_node: Optional[int],
          huge_pages: bool, memory: Memory, device: int, symmetric: bool) -> Any:
    """See Job.empty."""
    extents, element = _shape_of(shape), dtype_of(dtype, "empty", (BYTES,))
    _core.struct_of("empty", BufferOptions, {"numa_node": numa_node or 0, "device": device})
    options = _core.struct_of("empty", BufferOptions, {
        "numa_node": 0 if numa_node is None else numa_node + 1,  # PARALLAX_NUMA_NODE
        "huge_pages": bool(huge_pages), "memory": memory, "device": device,
        "symmetric": bool(symmetric)})
    if memory == Memory.HOST:
        address, owner = _allocate(job, extents, element, options)
        if owner is None:
            return empty_array(extents, element)
        return view(address, extents, element, owner, writable=True)
    return _on_device(job, extents, element, options)


def device_array(job: "Job", extents: Tuple[int, ...], element: DType, device: int) -> DeviceArray:
    """A new array on a device, for what a pull gives."""
    return _on_device(job, extents, element, BufferOptions(memory=Memory.CUDA, device=device))


def _on_device(job: "Job", extents: Tuple[int, ...], element: DType,
               options: BufferOptions) -> DeviceArray:
    address, owner = _allocate(job, extents, element, options)
    return DeviceArray(address, extents, element, options.device, owner)


def _allocate(job: "Job", extents: Tuple[int, ...], element: DType,
              options: BufferOptions) -> Tuple[int, Optional[_Buffer]]:
    """Memory of the job's and what keeps it; 0 and None where it has no bytes."""
    size = element.item_bytes
    for extent in extents:
        size *= extent
    core = job._core
    sweep(core)
    if size == 0:
        return 0, None
    if size >= 2 ** 63:
        raise InvalidArgument(f"empty: shape is {extents!r}, which is {size} bytes", field="shape")
    whole = core.whole
    if within_rule():  # the lock may be with whom this rule holds up
        raise InvalidState("empty: a rule of the caller's own may not use the job")
    with whole.anchoring:
        if whole.anchor is None:
            whole.anchor = _anchor_of(whole)
    pointer = ctypes.c_void_p()
    _core.check(core.call(LIB.parallax_buffer_alloc, size, ctypes.byref(options),
                          ctypes.byref(pointer)))
    address = pointer.value or 0
    return address, _Buffer(whole, address)


def sweep(core: _core.Core) -> None:
    """Frees what was dropped; what a request borrows still, later, and what NCCL has, which took
    the job's timeout to be told, with all that is left."""
    whole = core.whole
    for _ in range(len(whole.dropped)):
        try:
            address = whole.dropped.popleft()
        except IndexError:  # another thread was quicker
            return
        try:
            status = whole.call(LIB.parallax_buffer_free, address).status
        except InvalidState:  # closed: it goes with the job
            return
        if status < 0:
            whole.dropped.append(address)
        if status == Status.TIMEOUT:
            return


def register(job: "Job", buffer: Any) -> None:
    """See Job.register_buffer."""
    loan = borrow(buffer, "register_buffer: buffer", writable=True)
    core = job._core
    _core.check(core.call(LIB.parallax_buffer_register, loan.address,
                          loan.item_count * loan.item_bytes))
    core.whole.registered[loan.address] = loan


def unregister(job: "Job", buffer: Any) -> None:
    """See Job.unregister_buffer."""
    address = borrow(buffer, "unregister_buffer: buffer").address
    _core.check(job._core.call(LIB.parallax_buffer_unregister, address))
    job._core.whole.registered.pop(address, None)
