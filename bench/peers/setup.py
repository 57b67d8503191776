# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of bench/peers run: on this machine, or on hosts that are network namespaces."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lm"))
# pylint: disable=wrong-import-position
import netns  # noqa: E402
from sparse_steps import SparseStep  # noqa: E402


class Setup:
    """`namespaces`: of as many hosts, or None for this machine alone. `ranks`: of each host, in
    their order."""

    def __init__(self, build, steps, ranks, namespaces=None):
        self.build, self.steps, self.ranks = build, steps, ranks
        self.sparse = isinstance(steps[0], SparseStep)
        self._namespaces = namespaces
        self.hosts, self.world = len(ranks), sum(ranks)
        self.interface = netns.DEVICE if namespaces else "lo"
        self._host_of = [host for host, count in enumerate(ranks) for _ in range(count)]

    def host_of(self, rank):
        return self._host_of[rank]

    def is_first(self, rank):
        """Of its host."""
        return self._host_of.index(self._host_of[rank]) == rank

    def address(self, host):
        return self._namespaces.address(host)

    def on_host(self, host, command):
        if self._namespaces is None:
            return command
        # A name of its own, as the agent gives it: libraries take ranks of one name for neighbours.
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"',
                 self._namespaces.hosts[host]]
        return self._namespaces.command(host, named + command)

    def agent_words(self):
        """What bench/peers/agent reads."""
        return " ".join(f"{self.address(host)}={name}"
                        for host, name in enumerate(self._namespaces.hosts))
