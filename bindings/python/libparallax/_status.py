# SPDX-License-Identifier: Apache-2.0
"""What a call answers: what errors and tables are both made of."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """What a call answered; ParallaxError.status holds one."""

    OK = 0
    PENDING = 1
    INVALID = -1
    UNSUPPORTED = -2
    STATE = -3
    TIMEOUT = -4
    PEER_LOST = -5
    CANCELED = -6
    ABORTED = -7
    MISMATCH = -8
    LIMIT = -9
    IO = -10
    INTERNAL = -11
