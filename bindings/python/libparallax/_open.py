# SPDX-License-Identifier: Apache-2.0
"""Opening jobs: how the ranks meet."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from . import _core
from ._abi import (ASYNC, UNIQUE_ID_BYTES, AllgatherFunction, JobInfoStruct, Options,
                   UniqueIdStruct)
from ._errors import InvalidArgument, ParallaxError
from ._job import Job
from ._library import LIB
from ._tables import PlanMode, member_of

Allgather = Callable[[bytes], Sequence[bytes]]


class _Exchange:
    """The caller's allgather as the function that the header wants."""

    def __init__(self, allgather: Allgather, world: int) -> None:
        self.failure: Optional[BaseException] = None
        self._allgather = allgather
        self._world = world
        self.function = AllgatherFunction(self._call)

    def _call(self, _: Optional[int], send: int, receive: int, size: int) -> int:
        try:
            blobs: List[bytes] = [bytes(blob)
                                  for blob in self._allgather(ctypes.string_at(send, size))]
            sizes = [len(blob) for blob in blobs]
            if sizes != [size] * self._world:
                raise InvalidArgument(
                    f"open: allgather gave blobs of {sizes} bytes; it must give one of {size} "
                    f"bytes for each of {self._world} ranks, in the order of ranks")
            ctypes.memmove(receive, b"".join(blobs), size * self._world)
            return 0
        except BaseException as failure:  # must not pass through the library; open raises it
            self.failure = failure
            return 1


def unique_id() -> bytes:
    """Makes an id by which the ranks of one job find and know each other; pass it to open() as
    unique_id on every rank.

    To be called in the process of rank 0, once for each job; carry the bytes to the others by a
    channel that strangers do not see: whoever has them can join.
    """
    made = UniqueIdStruct()
    _core.check(_core.ask(LIB.parallax_unique_id, ctypes.byref(made)))
    return bytes(made.bytes)


def _pointer_to(unique_id: Any) -> Any:
    if unique_id is None:
        return None
    if not isinstance(unique_id, (bytes, bytearray)) or len(unique_id) != UNIQUE_ID_BYTES:
        raise InvalidArgument("open: unique_id must be the bytes that libparallax.unique_id() "
                              f"gave in the process of rank 0, all {UNIQUE_ID_BYTES} of them")
    return ctypes.pointer(UniqueIdStruct.from_buffer_copy(unique_id))


def open(*, rank: int = 0, world: int = 0, rendezvous: Optional[str] = None,
         allgather: Optional[Allgather] = None, unique_id: Optional[bytes] = None,
         secret_file: Optional[str] = None, host: Optional[str] = None,
         transport: Optional[str] = None, net_device: Optional[str] = None,
         lease: Optional[float] = None, timeout: Optional[float] = None,
         plan_mode: Union[str, PlanMode, None] = None, plan_after_steps: int = 0,
         deterministic: bool = False, memory_max_bytes: int = 0, compute_threads: int = 0,
         manual_progress: bool = False, faults: Optional[str] = None,
         sparse_as_dense: bool = False, pins: Optional[str] = None,
         staleness: Union[int, str] = 0) -> Job:
    """Meets the other ranks and returns the job, when all are connected.

    rank, world: this rank's number and how many there are; by default what
        PARALLAX_RANK and PARALLAX_WORLD say (parallax run sets them), else one rank alone; with
        rendezvous="env", what the launcher's environment says; without one, one rank alone.
    rendezvous: "file:DIR", a directory that is new, or empty and closed to other users;
        "tcp:HOST:PORT", where rank 0 listens; "env", as the launcher's environment says (torchrun,
        mpirun, srun, parallax run); "inproc:NAME" when ranks are threads of this process.
    unique_id: instead of rendezvous, the result of libparallax.unique_id() in rank 0's process.
    secret_file: of rendezvous "tcp:" and of transport "tcp", needed beyond loopback: a file of
        mode 0600 with the ranks' secret.
    allgather: instead of rendezvous, the caller's own allgather: a function from this rank's bytes
        to the list of all ranks' bytes, such as mpi4py's comm.allgather. Called on this thread.
    host: what a host is; None is the machine's name. transport, net_device: between hosts: "tcp",
        authenticated and encrypted, with a secret beyond loopback; "ucx", which declares the
        network trusted (docs/security.md); or "rdma", which is UCX over RDMA devices alone, and
        where a rank has none Unsupported says why. None is "rdma" where net_device names an RDMA
        device, else "tcp".
    lease: seconds after which a silent rank is lost, the same on every rank; None is 5.
    timeout: seconds for open, commit, close, and a wait that gives none; None is 120.
    plan_mode: "auto", "hybrid", "ps" or "ar"; plan_after_steps: steps measured for it.
    deterministic: the same bits at any timing and plan, for a given map of ranks to hosts.
    memory_max_bytes: commit refuses to reserve more. compute_threads: for coalescing and updates.
    manual_progress: no progress thread; call Job.progress() every third of the lease, or wait.
    faults: what this rank's transport is to do wrong, to test a program with; see parallax.h.
    pins: placement or method of variables by name pattern: "emb.*=push_pull; head*=allreduce";
        sparse_as_dense: reduce variables with row ids whole, where nothing pins them. Both the same
        on every rank; docs/planning.md.
    staleness: how many steps this rank's pulls may be ahead of the slowest rank, or "async"; the
        same on every rank. What that gives up stands in parallax.h. To get ahead, end a step by
        Step.end() and wait for its request later.

    Blocks up to `timeout`; Ctrl-C interrupts it, unless allgather is given. Raises InvalidArgument,
    Unsupported, Timeout (names ranks that never came), PeerLost, IOFailure, LimitExceeded.
    """
    exchange = None if allgather is None else _Exchange(allgather, max(world, 1))
    fields: Dict[str, Any] = dict(
        rank=rank, world=world, rendezvous=rendezvous, unique_id=_pointer_to(unique_id),
        secret_file=secret_file, host=host, transport=transport, net_device=net_device,
        lease_ms=_core.milliseconds(lease, "open: lease", 0),
        timeout_ms=_core.milliseconds(timeout, "open: timeout", 0),
        plan_mode=member_of(PlanMode, plan_mode, "open: plan_mode"),
        plan_after_steps=plan_after_steps, deterministic=deterministic,
        memory_max_bytes=memory_max_bytes, compute_threads=compute_threads,
        manual_progress=manual_progress, faults=faults, sparse_as_dense=sparse_as_dense, pins=pins,
        staleness=ASYNC if staleness == "async" else staleness)
    if exchange is not None:
        fields["allgather"] = exchange.function
    options = _core.struct_of("open", Options, fields)
    if exchange is None:
        core = _core.interruptible(lambda: _open(options),
                                   lambda opened: _give_up(opened))
    else:
        try:
            core = _open(options)
        except ParallaxError as refusal:
            if exchange.failure is not None:
                raise exchange.failure from refusal
            raise
    return Job(core)


def _open(options: Options) -> _core.Core:
    pointer = ctypes.c_void_p()
    _core.check(_core.ask(LIB.parallax_open, ctypes.byref(options), ctypes.byref(pointer)))
    info = JobInfoStruct()  # the rank may be the environment's
    _core.check(_core.ask(LIB.parallax_query, pointer, ctypes.byref(info)))
    return _core.Core(pointer.value or 0, info.rank)


def _give_up(core: _core.Core) -> None:
    core.close(f"rank {core.rank} was interrupted while opening the job")
