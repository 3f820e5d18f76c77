"""Rail-only: NIC j of every host is attached to rail switch j, and nothing joins the rails.

What is for a GPU of another number goes over NVLink to the sender's own GPU of that number first, as in W. Wang et al.,
"Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion Parameters" (arXiv 2307.12169).
"""

from __future__ import annotations

from sim.engine.network.between import Between


class RailOnly(Between):
    """One ideal switch for each GPU number of a host; a path crosses one of them, from NIC to NIC of one number."""

    by_rail = True

    def part(self, rank: int) -> int:
        """The rail of a rank's NIC."""
        return rank % self.cluster.host.gpus
