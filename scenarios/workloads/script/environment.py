"""What a script finds in its environment, in both worlds."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.rank import Rank
from scenarios.workloads.script.config import Script


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank's place where no `Rank` is."""

    rank: int
    world_size: int
    local_world_size: int

    @property
    def host(self) -> int:
        return self.rank // self.local_world_size

    @property
    def local_rank(self) -> int:
        return self.rank % self.local_world_size


def environment_of(script: Script, rank: Rank | Seat, *, address: str, port: int) -> dict[str, str]:
    """The variables that torchrun sets for a rank, and those of the script; the ranks meet at `address` and `port`."""
    return {
        **dict(script.env),
        "RANK": str(rank.rank),
        "LOCAL_RANK": str(rank.local_rank),
        "WORLD_SIZE": str(rank.world_size),
        "LOCAL_WORLD_SIZE": str(rank.local_world_size),
        "GROUP_RANK": str(rank.host),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
