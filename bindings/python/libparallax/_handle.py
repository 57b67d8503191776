# SPDX-License-Identifier: Apache-2.0
"""Who may call into the library, and when: the handle of a job and the handles of its requests.

Design notes. Python objects are dropped in any order, by any thread, in the middle of anything; the
library's are not. So:

- A Gate counts the calls that run on a job; close() refuses new ones, waits for those that run, and
  only then closes.
- A Handle counts the threads that use its request; it is released when nobody does. Row results
  keep their Handle alive.
- A request that is dropped while pending cannot be released, and its buffers are borrowed: they go
  to the gate's orphans, which every later call sweeps, and close() at last, when none is pending.
- After a fork the child has copies of all of these. Each knows the process that opened the job;
  elsewhere calls raise ForkedJob, and dropping does nothing.
- Finalisers take no locks: deque.append and popleft are atomic.

This is the reference. The compiled core (bindings/python/native) has both classes with the same
members, guarded by the GIL alone.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Deque, Optional, Tuple

from ._errors import InvalidState
from ._library import LIB
from ._status import Status

if TYPE_CHECKING:
    from ._core import Core

Orphan = Tuple[int, object, Optional["Handle"]]


class Gate:
    """The handle of an open job, with the calls that run on it.

    idle: called once the gate is shut and the last call has left.
    orphans: requests that were dropped while pending: (request, what it borrows, its handle if a
        thread used it).
    """

    def __init__(self, pointer: int, idle: Callable[[], object], orphans: Deque[Orphan]) -> None:
        self.pointer: Optional[int] = pointer
        self.pid = os.getpid()
        self.orphans = orphans
        self.calls = 0
        self.closed = False
        self._idle_callback = idle
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Lets a call in; False once the gate is shut."""
        with self._lock:
            if self.closed:
                return False
            self.calls += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self.calls -= 1
            last = self.closed and self.calls == 0
        if last:
            self._idle_callback()

    def shut(self) -> bool:
        """Lets no more calls in; True for the first who asks."""
        with self._lock:
            first = not self.closed
            self.closed = True
            return first

    def take(self) -> int:
        """Takes the job out, to close it."""
        pointer, self.pointer = self.pointer, None
        return pointer or 0


class Handle:
    """A request of the library, with what it borrows. Released when dropped and complete."""

    def __init__(self, core: "Core", pointer: int, keep: object) -> None:
        self.core = core
        self.pointer: Optional[int] = pointer
        self.keep = keep
        self.shared = False  # its memory is viewed: released only when dropped
        self._given_back = False
        self._users = 0
        self._lock = threading.Lock()

    def enter(self) -> int:
        """Counts the calling thread as a user, so that the request is not released meanwhile."""
        self.core.check_process()
        with self._lock:
            if self.pointer is None or self._given_back:
                raise InvalidState("the request is released, by release() or at the end of its "
                                   "`with`; call wait() before that")
            self._users += 1
            return self.pointer

    def leave(self) -> None:
        with self._lock:
            self._users -= 1

    def release(self) -> None:
        """Releases it, or leaves it to the sweep while it is pending or used."""
        if self.core.foreign:
            return
        with self._lock:
            self._given_back = True
            if self.pointer is None or self.shared:
                return
            pointer, self.pointer = self.pointer, None
            if self._users or LIB.parallax_request_release(pointer) != Status.OK:
                self.core.orphans.append((pointer, self.keep, self))
            self.keep = None

    @property
    def used(self) -> bool:
        return self._users > 0

    def __del__(self, library: Any = LIB, getpid: Callable[[], int] = os.getpid) -> None:
        # Nobody uses it any more, so there is no lock. The defaults are bound early: at interpreter
        # exit the module may be empty already.
        pointer = self.pointer
        if pointer is not None and getpid() == self.core.pid:
            self.pointer = None
            if library.parallax_request_release(pointer) != 0:
                self.core.orphans.append((pointer, self.keep, None))
