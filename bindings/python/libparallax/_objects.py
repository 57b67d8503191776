# SPDX-License-Identifier: Apache-2.0
"""Objects of Python carried to every rank: pickled, by two broadcasts, its size and its bytes."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

from ._errors import InvalidArgument

if TYPE_CHECKING:
    from ._job import Job

_SIZE = struct.Struct("<q")
_NONE = -1  # in place of the size: the root has nothing to send


def _pickled(value: Any) -> bytearray:
    return bytearray(pickle.dumps(value, protocol=4))  # of Python 3.4 on: ranks may differ


def broadcast_object(job: "Job", value: Any, root: int) -> Any:
    """See Job.broadcast_object."""
    header = bytearray(_SIZE.size)
    if job.rank == root:
        try:
            content = _pickled(value)
        except BaseException:  # the others must not wait for it
            _SIZE.pack_into(header, 0, _NONE)
            job.broadcast(header, root).wait()
            raise
        _SIZE.pack_into(header, 0, len(content))
        job.broadcast(header, root).wait()
        job.broadcast(content, root).wait()
        return value
    job.broadcast(header, root).wait()
    size, = _SIZE.unpack(header)
    if size == _NONE:
        raise InvalidArgument(f"broadcast_object: rank {root} could not pickle its object; its own "
                              "exception says why", peer=root)
    content = bytearray(size)
    job.broadcast(content, root).wait()
    return pickle.loads(content)
