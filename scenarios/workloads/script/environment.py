"""The environment variables of a script's rank, on simulated and real ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scenarios.seam.rank import Rank
from scenarios.workloads.script.config import Script


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank's numbers, where no `Rank` exists."""

    rank: int
    world_size: int
    local_world_size: int

    @property
    def host(self) -> int:
        return self.rank // self.local_world_size

    @property
    def local_rank(self) -> int:
        return self.rank % self.local_world_size


def environment_of(script: Script, rank: Rank | Seat, *, address: str, port: int, folder: Path) -> dict[str, str]:
    """Return the variables that torchrun (torch 2.13) sets for a rank, and the script's own.

    Ranks rendezvous in the launcher's store at `address`:`port`; a rank's error file is in `folder`.
    """
    hosts = rank.world_size // rank.local_world_size
    return {
        **dict(script.env),
        "RANK": str(rank.rank),
        "LOCAL_RANK": str(rank.local_rank),
        "WORLD_SIZE": str(rank.world_size),
        "LOCAL_WORLD_SIZE": str(rank.local_world_size),
        "GROUP_RANK": str(rank.host),
        "GROUP_WORLD_SIZE": str(hosts),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank.rank),
        "ROLE_WORLD_SIZE": str(rank.world_size),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": str(folder / f"rank-{rank.rank}-error.json"),
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
