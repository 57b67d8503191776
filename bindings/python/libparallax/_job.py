# SPDX-License-Identifier: Apache-2.0
"""Jobs: registering, beginning steps, collectives, closing."""

from __future__ import annotations

import ctypes
import numbers
import operator
import os
import warnings
from types import TracebackType
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, NamedTuple, Optional, Sequence, Type, Union

from . import _core
from ._abi import JobInfoStruct, StepEndOptions
from ._buffers import borrow
from ._collectives import Terms, of_value, post
from ._errors import InvalidArgument
from ._library import LIB
from ._memory import empty
from ._memory import register as register_buffer
from ._memory import unregister as unregister_buffer
from ._objects import broadcast_object
from ._rates import Rates, rates_array
from ._register import register
from ._request import Request
from ._rows import StoredRows, read, write
from ._rule import RuleBlock, within_rule
from ._status import Status
from ._step import Step
from ._tables import (Collective, Memory, Method, Op, Phase, Placement, Reduction, Report,
                      Rounding, Rule, Tag, member_of)
from ._variable import Variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

class JobInfo(NamedTuple):
    """This rank, its host and its last steps."""

    rank: int
    world: int
    host: int  # index of this rank's host
    hosts: int
    local_rank: int  # among the ranks of this host
    local_world: int
    variables: int
    committed: bool  # whether Job.commit is done
    step: int  # last step begun, 0 before the first
    step_committed: int  # last step committed here
    wait_fd: int  # an eventfd, readable after a request completed that no wait was for
    late_phase: Phase  # the rank that the others wait for: before which call; NONE: nobody is late
    late_rank: int
    late_ms: int  # a step, more than the mean of the others
    late_steps: int  # of the last 16
    job_rank: int  # of a part: this rank's number in the whole job; else rank
    epoch: int  # the same on the ranks of a job or part, another in each part
    view: int  # how often the ranks, or who owns what, has changed
    bytes_reserved: int  # memory of all variables
    bytes_touched: int  # of that, what lies in memory; 0 unless asked for


class Job:
    """One rank of a job, or of a part of one; made by libparallax.open() and Job.split().

    As a context manager it closes when the block ends; a block left by an exception aborts the job
    first, so that the other ranks learn why at once. A job that is dropped without close(), or left
    open at the interpreter's exit, is aborted too.

    Threads: any thread may call, several at once. Processes: only the one that opened it; a forked
    child gets ForkedJob.
    """

    def __init__(self, core: _core.Core, parent: Optional["Job"] = None) -> None:
        self._core = core
        self._parent = parent  # is not dropped before its part
        info = self.info()
        self.rank = info.rank
        self.world = info.world

    def __repr__(self) -> str:
        closed = " (closed)" if self.closed else ""
        part = "" if self._parent is None else f", a part of {self._parent!r}"
        return f"<libparallax.Job rank {self.rank} of {self.world}{closed}{part}>"

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._core.closed

    def register(self, name: str, *, rows: int, row_elements: int = 1, dtype: Any = "f32",
                 tag: Union[str, Tag, None] = None, rows_max: int = 0,
                 rule: Union[str, Rule, Callable[[RuleBlock], None], None] = None,
                 reduction: Union[str, Reduction, None] = None, init: Any = 0.0,
                 state_elements: Sequence[int] = (), epsilon: Optional[float] = None,
                 initial_accumulator_value: Optional[float] = None, beta1: Optional[float] = None,
                 beta2: Optional[float] = None, momentum: float = 0.0, nesterov: bool = False,
                 refuse_nonfinite: bool = False, accumulate: bool = False, rates: int = 0,
                 l1: float = 0.0, l2: float = 0.0, l2_shrinkage: float = 0.0, beta: float = 0.0,
                 learning_rate_power: Optional[float] = None,
                 memory: Union[str, Memory, None] = None,
                 table_memory: Union[str, Memory, None] = None, place_values: Any = None,
                 place_into: Any = None, placement: Union[str, Placement, None] = None,
                 method: Union[str, Method, None] = None, priority: int = 0,
                 storage_dtype: Any = None,
                 rounding: Union[str, Rounding, None] = None,
                 wire_dtype: Any = None, exchange_bytes_max: int = 0) -> Variable:
        """Registers a variable, before commit() or between steps: the same ones on every rank, in
        any order. The next commit() brings it in.

        name: unique in the job, up to 127 bytes.
        rows, row_elements: its shape.
        dtype: "f32", "f64", "f16", "bf16", "i32", "i64", or "float32" and so on; a NumPy dtype or
            a PyTorch one is accepted.
        tag: "dense", "sparse" or "auto", the default: sparse if rows_max is given.
        rows_max: the most rows in one slice; required for "sparse". Bounds all staging memory.
        rule: "sgd", "adagrad", "adam", "momentum", "rowwise_adagrad", "ftrl" or "sum": managed,
            the library holds the value. None: framework-held. The formulas stand in parallax.h.
            Or a function of your own, which gets a RuleBlock: rows to update in place, each by
            itself. It is called on a thread of the library or one that waits, must be the same on
            every rank and a function of the block alone, and must not use the job. What it raises
            ends the job.
        state_elements: of such a function, numbers a row that it keeps beside the value: one or
            two arrays, which begin at 0 (the first at initial_accumulator_value).
        reduction: "sum", the default, "mean_world", "mean_contributors" or "mean_row".
        init: of managed variables. A number, Constant, Uniform, Normal or TruncatedNormal; an array
            that every rank has, in the dtype that is kept (float32 for f16 and bf16); or FromRank0
            with rank 0's. Arrays are borrowed until commit() is over.
        epsilon, beta1, beta2: of the rules that have them. None: their framework's default; 0.0
            is zero itself.
        initial_accumulator_value: of the rules that have it. None: 0.1 of "ftrl", as in Keras, and
            0 of the others.
        momentum, nesterov: of the rules that have them.
        refuse_nonfinite: a gradient with an infinity or a NaN is InvalidArgument.
        accumulate: a step's gradients may come in several calls; see `more` of Step.push.
        rates: its group, the index in `rates` of step().
        l1, l2, l2_shrinkage, beta, learning_rate_power: of "ftrl", as Keras names them, without
            "_regularization_strength". learning_rate_power: None is -0.5, and no other is
            supported.
        memory: "cuda": all its slices lie on CUDA devices, on every rank; "host", the default: any
            slice says for itself. table_memory: "cuda": the library keeps a managed variable and
            its optimizer state on the devices of its owners; "host" is the default.
        place_values, place_into: a promise of this rank, of a variable with memory="cuda" that has
            neither a rule nor rows_max: the arrays on a device that every reduce of it is given,
            and whose `into` takes what comes of it (None: it is reduced in place). They lie in
            memory of empty(symmetric=True), which is kept until the job is closed. Where all ranks
            promise alike NCCL sums them in windows of symmetric memory; parallax.h says what else
            that asks.
        placement: "sharded" or "mirrored": where a managed variable lies, whatever plan_mode is.
        method: "allreduce", "allgatherv", "reduce_rows", "made_dense" or "push_pull": how its
            gradient travels. None: both are planned (docs/planning.md).
        priority: where gradients of several variables wait on this rank the higher goes first,
            past what is left of a large one. A hint: no result depends on it, and ranks may differ.
        storage_dtype: "bf16" or "f16", of a managed variable of floats of 32 or 16 bits: its values
            are kept so, in half the memory, and without a float master. rounding: of an update to
            that, "nearest_even", the default, or "stochastic", which loses no small update on the
            average, and has the same bits on every number of ranks.
        wire_dtype: "bf16", of a managed variable of such floats that has row ids: pushed rows cross
            between hosts so, in half the bytes. What a host's ranks pushed for a row is summed in
            float and then rounded once; parallax.h states the bound.
        exchange_bytes_max: of a variable without a rule that has row ids: the most memory that
            exchanging its gradient takes beside the slice and the result; a step then goes in as
            many rounds as that takes. 0: no bound.

        InvalidArgument names the field; InvalidState within a step; Unsupported for what the
        library loaded lacks.
        """
        if not isinstance(priority, numbers.Integral) or not -2**31 <= priority < 2**31:
            raise InvalidArgument(f"register: priority is {priority!r}; it is a whole number from "
                                  f"{-2**31} to {2**31 - 1}", field="priority")
        return register(self._core, name, tag, rule, reduction, dict(
            rows=rows, row_elements=row_elements, dtype=dtype, rows_max=rows_max, init=init,
            state_elements=state_elements, epsilon=epsilon, beta1=beta1, beta2=beta2,
            initial_accumulator_value=initial_accumulator_value, momentum=momentum,
            nesterov=nesterov, refuse_nonfinite=refuse_nonfinite, accumulate=accumulate,
            rates=rates, l1=l1, l2=l2, l2_shrinkage=l2_shrinkage, beta=beta,
            learning_rate_power=learning_rate_power,
            memory=member_of(Memory, memory, "register: memory"),
            table_memory=member_of(Memory, table_memory, "register: table_memory"),
            place_values=place_values, place_into=place_into,
            placement=member_of(Placement, placement, "register: placement"),
            method=member_of(Method, method, "register: method"), priority=priority,
            storage_dtype=storage_dtype,
            rounding=member_of(Rounding, rounding, "register: rounding"), wire_dtype=wire_dtype,
            exchange_bytes_max=exchange_bytes_max))

    def commit(self) -> None:
        """Collective: checks that all ranks registered the same since the last one, places those
        variables and fills in initial values; what was there stays as it is. Blocks up to the
        job's timeout; Ctrl-C interrupts it. Mismatch names the variable, the field and two ranks
        that differ."""
        _core.check(_core.interruptible(self._core.commit, lambda _: None))

    def split(self, ranks: Sequence[int]) -> "Job":
        """A part of this job: a Job of the `ranks` named alone, numbered in that order, with its
        own variables, commit, steps and reports. Collective over them, all with the same list; the
        others do not call. Legal at any time; a rank may be in several parts, and split those.

        Close it, best by `with`, on all of its ranks and before this job. A failure is not split:
        a part that is aborted, or dropped without close(), ends the whole job.

        Blocks up to the job's timeout; Ctrl-C interrupts it. Timeout names ranks that have not
        called.
        """
        try:
            numbers = [operator.index(rank) for rank in ranks]
        except TypeError as refusal:
            raise InvalidArgument(f"split: ranks is {ranks!r}: {refusal}", field="ranks") from None
        if not all(0 <= number < self.world for number in numbers):
            raise InvalidArgument(f"split: ranks is {numbers}; each must be from 0 to "
                                  f"{self.world - 1}", field="ranks")
        return Job(_core.interruptible(lambda: self._core.split(numbers), _give_up_part), self)

    def step(self, *, learning_rate: float = 0.0, clip_norm: float = 0.0,
             absent: bool = False, rates: Sequence[Rates] = ()) -> Step:
        """Begins the next step, number 1, 2, 3, ... on every rank. Does not block.

        learning_rate, clip_norm: the same on every rank, else the step is discarded everywhere
            with Mismatch. clip_norm 0: no clipping.
        absent: this rank has no batch and contributes nothing; it is no contributor.
        rates: in place of learning_rate, Rates for each group of variables (`rates` of register),
            the same on every rank.

        A step may begin once the one before was ended; InvalidState otherwise.
        """
        # Arguments that are no numbers are refused before the step begins.
        try:
            StepEndOptions(learning_rate=learning_rate, clip_norm=clip_norm)
        except TypeError:  # says which
            _core.struct_of("step", StepEndOptions, {"learning_rate": learning_rate,
                                                     "clip_norm": clip_norm})
        rates_array(rates)
        number = ctypes.c_uint64()
        _core.check(self._core.call(LIB.parallax_step_begin, ctypes.byref(number)))
        return Step(self, number.value, learning_rate, clip_norm, absent, rates)

    def pull(self, variable: Variable, ids: Any = None, *, out: Any = None, dtype: Any = None,
             stream: Any = None, memory: Union[str, Memory, None] = None,
             device: Optional[int] = None) -> Request["NDArray[Any]"]:
        """An evaluation: values of a managed variable as of the last commit, asked for by this rank
        alone, between steps. Arguments and result as in Step.pull. InvalidState while a step of
        this rank is not over; no step begins before the pull is complete."""
        return Step(self, 0, 0.0, 0.0, False).pull(variable, ids, out=out, dtype=dtype,
                                                      stream=stream, memory=memory, device=device)

    def read(self, variable: Variable, first_row: int = 0, row_count: Optional[int] = None, *,
             state: bool = True) -> Request[StoredRows]:
        """Reads rows of a managed variable with their optimizer state, as of the last commit: for
        checkpoints, in chunks as large as you like. This rank alone, between steps.

        row_count: None is all from first_row on. state=False: values alone.
        wait() gives StoredRows: float32 arrays for f16 and bf16 variables, and for what is kept in
        a storage_dtype.
        """
        return read(self, variable, first_row, row_count, state)

    def write(self, variable: Variable, rows: StoredRows, first_row: int = 0) -> Request[None]:
        """Writes rows that read() gave, in this job or another of any world size. Any rank may, but
        no rank may be in a step: call barrier() on every rank before the first write and after the
        last, and wait for it."""
        return write(self, variable, rows, first_row)

    def barrier(self) -> Request[None]:
        """Completes when every rank has called it. Matched by order among barriers."""
        return Request(self, self._core.post(None, LIB.parallax_barrier), lambda _: None)

    def broadcast(self, buffer: Any, root: int = 0) -> Request[Any]:
        """Copies the root's buffer, of any type, into every rank's; wait() gives it back. Matched
        by order among broadcasts; sizes or roots that differ are a Mismatch. Borrowed until the
        request is complete; writable except on the root."""
        loan = borrow(buffer, "broadcast: buffer", writable=self.rank != root)
        handle = self._core.post(loan, LIB.parallax_broadcast, loan.address,
                                 loan.item_count * loan.item_bytes, root)
        return Request(self, handle, lambda _: buffer)

    def allreduce(self, value: Any, op: Union[str, Op] = "sum", *, out: Any = None,
                  dtype: Any = None, tag: int = 0) -> Request[Any]:
        """Combines an array of every rank, element by element: wait() gives the result, in `out`
        or a new array; out=value is in place. Of a Python number, a number: int of ints, which are
        64 bits, float of floats.

        op: "sum", "mean" (no integers), "min", "max", "product", or of integers "and", "or", "xor".
        dtype: only of bfloat16's bits in uint16: "bf16". uint8 is bytes, which nothing combines.
        tag: 0: matched by order among those of tag 0, of whatever kind; else with this tag.

        No variable is needed, and any number may be under way, in steps and between them, after
        commit(). Arrays are borrowed until the request is complete. Calls that differ are a
        Mismatch, after which the job goes on.
        """
        return of_value(self, Terms(Collective.ALLREDUCE, op, dtype=dtype, tag=tag), value, out)

    def allgather(self, value: Any, *, out: Any = None, dtype: Any = None,
                  tag: int = 0) -> Request[Any]:
        """Gives every rank all ranks' arrays, which have one size: wait() gives `out` or a new
        array of shape (world, *value.shape); of a Python number, the list of them. Of bytes too:
        arrays, tensors and buffers of uint8. Else as allreduce."""
        return of_value(self, Terms(Collective.ALLGATHER, dtype=dtype, tag=tag), value, out)

    def collective(self, kind: Union[str, Collective], send: Any = None, recv: Any = None, *,
                   op: Union[str, Op] = "sum", root: int = 0,
                   send_counts: Optional[Sequence[int]] = None,
                   recv_counts: Optional[Sequence[int]] = None, dtype: Any = None,
                   tag: int = 0) -> Request[Any]:
        """Any collective of parallax.h, where each kind's buffers are told: "allreduce",
        "reduce_scatter", "allgather", "allgatherv", "alltoallv", "broadcast", "reduce", "gather".

        wait() gives recv, or a new array where that is None; None on a rank that gets nothing. How
        many numbers move is what send has; of a broadcast, what recv has, which the others need and
        the root does not. send_counts, recv_counts: numbers for each rank; alltoallv needs both,
        allgatherv recv_counts. The kinds that combine nothing take uint8: bytes of any type, as in
        array.view(numpy.uint8). Else as allreduce.
        """
        return post(self, Terms(kind, op, root, send_counts, recv_counts, dtype, tag), send, recv)

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Gives every rank the root's `value`, pickled; what the others pass is ignored. Blocks
        until every rank has called it, up to the job's timeout.

        Unpickling runs what the pickle says: a rank that calls this lets the root, and whoever can
        alter what travels between the hosts, run code in it. See docs/security.md.

        What cannot be pickled fails on every rank: there with pickle's own exception, elsewhere
        with InvalidArgument.
        """
        return broadcast_object(self, value, root)

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = "f32", *,
              numa_node: Optional[int] = None, huge_pages: bool = False,
              memory: Union[str, Memory, None] = None, device: int = 0,
              symmetric: bool = False) -> Any:
        """An array, zeros at first, over memory of the job's own (parallax_buffer_alloc), for any
        buffer of any call: a NumPy array, from which torch.from_numpy and the like make tensors
        without a copy; a memoryview where NumPy is missing. It may outlive the job: the memory
        goes when the job is closed and the last array over it is dropped.

        dtype: as of register, or "uint8"; bfloat16 is its bits in uint16.
        numa_node: the kernel's number; None: where this rank's memory lies. huge_pages: asks for
            them.
        memory, device: "cuda": a DeviceArray on the device of that number, as the CUDA driver
            counts; torch.from_dlpack and the like make tensors of it. Unsupported says what such
            memory lacks on this machine.
        symmetric: on a device: of NCCL's memory, for variables with a place (place_values of
            register); it takes multiples of 2 MiB.

        A job that has failed gives arrays all the same if it gave one before; else this raises its
        failure, as the first array needs a call of the job.
        """
        return empty(self, shape, dtype, numa_node, huge_pages,
                     member_of(Memory, memory, "empty: memory"), device, symmetric)

    def register_buffer(self, buffer: Any) -> None:
        """Tells the job of memory of yours, to be prepared for networks once; nothing does in this
        version. The buffer is kept until unregister_buffer, or the end of the job."""
        register_buffer(self, buffer)

    def unregister_buffer(self, buffer: Any) -> None:
        """Ends it. InvalidState while a request borrows some of it."""
        unregister_buffer(self, buffer)

    def set(self, name: str, value: Any) -> None:
        """Changes a setting of the whole job, on this rank, by the name that docs/settings.md has:
        "timeout_ms", "memory_max_bytes", "memory_check", "debug", "debug_subsys", "debug_file".
        Unsupported names what is fixed when the job opens; InvalidArgument what there is not."""
        text = [os.fsencode(str(each)) for each in (name, value)]
        if any(b"\0" in each for each in text):
            raise InvalidArgument(f"set: {name!r}: {value!r} holds a NUL")
        _core.check(self._core.call(LIB.parallax_set, *text))

    def info(self, count_touched: bool = False) -> JobInfo:
        """This rank, its host and its last steps. Never blocks on a peer. count_touched:
        bytes_touched too, for which the kernel is asked, some ms for GiB."""
        info = JobInfoStruct(bytes_touched=int(count_touched))
        _core.check(self._core.call(LIB.parallax_query, ctypes.byref(info)))
        fields = {name: getattr(info, name) for name in JobInfo._fields}
        fields["committed"] = bool(info.committed)
        fields["late_phase"] = Phase(info.late_phase)
        return JobInfo(**fields)

    def report(self, what: Union[str, Report] = "plan") -> Dict[str, Any]:
        """A report as a dict: "plan" (per variable: method, alternatives, why), "stats" (bytes and
        messages of this rank), "topology" (hosts, ranks, NUMA nodes, caches, NICs) or "settings"
        (every setting: its value, and where that came from)."""
        which = member_of(Report, what, "report: what")
        return self._core.report(which)

    def progress(self) -> None:
        """Runs the engine once on this thread; only needed with manual_progress."""
        _core.check(self._core.call(LIB.parallax_progress))

    def abort(self, reason: str = "") -> None:
        """Ends the job on every rank: pending and later calls raise Aborted with the reason. Does
        not block. The job must still be closed."""
        _core.check(self._core.abort(reason))

    def close(self) -> None:
        """Waits for all ranks to close, up to the job's timeout, and frees everything, whatever it
        raises. Requests that are pending fail with Aborted; results at hand stay valid. Closing
        again, and closing in a forked child, does nothing. PeerLost and Timeout name the ranks
        that did not close. A failure of the job that an earlier call raised is not raised
        again, and no abort once this rank has aborted too. InvalidState, and nothing is done, while
        parts of it are open."""
        _core.check(self._core.close())

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:  # the exception that goes on says more than a failure of close
            said = f"{kind.__name__}: {error}" if str(error) else kind.__name__
            self._core.close(f"rank {self._core.job_rank} left by {said}")

    def __del__(self) -> None:
        core = self.__dict__.get("_core")
        if core is not None and not core.closed and not core.foreign:
            warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, source=self)
            reason = f"rank {core.job_rank} dropped the job without closing it"
            if within_rule():  # of a cycle, collected by chance here, where no job may be closed
                threading.Thread(target=core.close, name="libparallax-close",
                                 args=(reason,)).start()
            else:
                core.close(reason)


def _give_up_part(core: _core.Core) -> None:
    core.close(f"rank {core.job_rank} was interrupted while splitting the job")
