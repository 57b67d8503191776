# SPDX-License-Identifier: Apache-2.0
"""libparallax: exact, planned communication of dense and sparse gradients, from Python.

    import numpy as np
    import libparallax as px

    with px.open(rank=rank, world=4, rendezvous="file:/home/me/meet") as job:
        table = job.register("embedding", rows=1000, row_elements=64, tag="sparse", rows_max=256,
                             rule="adagrad", init=px.Uniform(-0.1, 0.1, seed=1))
        job.commit()
        with job.step(learning_rate=0.1) as step:
            rows = step.pull(table, ids).wait()
            step.push(table, ids, gradient_of(rows))

Arrays are NumPy's, or any memory with the buffer protocol or DLPack, in steps on CUDA devices too;
none is copied here. What the library promises stands in parallax.h, what is Python's own in
docs/python.md.

Units: times are seconds, as Python has them; sizes are bytes, rows or elements, as named.
Threads: any thread may call anything; waiting releases the GIL.
Errors: every failure is a ParallaxError, whose subclass tells the kind.
"""

from ._compiled import core_path
from ._device import DeviceArray
from ._errors import (Aborted, Canceled, ForkedJob, InternalError, InvalidArgument, InvalidState,
                      IOFailure, LimitExceeded, Mismatch, ParallaxError, PeerLost, Timeout,
                      Unsupported)
from ._job import Job, JobInfo
from ._library import library_path, library_version
from ._log import set_log_callback
from ._open import open, unique_id
from ._rates import Rates
from ._request import Request, Rows, StepInfo, wait_all
from ._rows import StoredRows
from ._rule import RuleBlock
from ._status import Status
from ._step import Step
from ._tables import (Collective, DType, LogLevel, Memory, Method, Op, Phase, Placement, PlanMode,
                      Reduction, Report, Rule, Tag)
from ._variable import Constant, FromRank0, Normal, TruncatedNormal, Uniform, Variable
from ._version import __version__

__all__ = [
    "Aborted", "Canceled", "Collective", "Constant", "DType", "DeviceArray", "ForkedJob",
    "FromRank0", "IOFailure", "InternalError", "InvalidArgument", "InvalidState", "Job",
    "JobInfo", "LimitExceeded", "LogLevel", "Memory", "Method", "Mismatch", "Normal", "Op",
    "ParallaxError", "PeerLost", "Phase", "Placement", "PlanMode", "Rates", "Reduction", "Report",
    "Request", "Rows", "Rule", "RuleBlock", "Status", "Step", "StepInfo", "StoredRows", "Tag",
    "Timeout", "TruncatedNormal", "Uniform", "Unsupported", "Variable", "__version__",
    "core_path", "library_path", "library_version", "open", "set_log_callback", "unique_id",
    "wait_all",
]
