"""The machine that a process runs on."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.config.hardware import Cluster
from scenarios.seam.errors import ProgramError

if TYPE_CHECKING:
    import torch

_CPUS = Path("/proc/cpuinfo")  # proc_cpuinfo(5)
_OPEN = Path("/proc/self/fd")  # proc_pid_fd(5)

# Open files of a rank, measured with gloo of torch 2.13 on 2, 4 and 8 ranks: those that it has when it joins the world,
# on rank 0, which keeps the store, with some for each rank; and for a group one for each member and its threads'.
_OF_RANK, _OF_MEMBER, _OF_GROUP = 20, 4, 4
_GROUPS, _STREAMS = 3, 16  # the world, a host's ranks, those of one place on all hosts; of each stream


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_name(cpus: Path = _CPUS) -> str:
    """The processor's name as the kernel tells it, or else its architecture."""
    try:
        lines = cpus.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), platform.machine() or "unknown")


def device_name(device: torch.device) -> str:
    """The name of the GPU as the driver tells it, or the processor's."""
    if device.type == "cpu":
        return cpu_name()
    import torch  # noqa: PLC0415 - who asks for a GPU's name has it loaded

    name: str = torch.cuda.get_device_properties(device).name
    return name


def allow_open_files(cluster: Cluster) -> None:
    """Raise this process's limit of open files, which its ranks inherit, to what they may need, if the system lets it.

    Raises:
        ProgramError: the system's limit is below what the ranks need to join a world.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted, least = _wanted_files(cluster), _OF_RANK + _OF_MEMBER * cluster.world_size
    if hard != resource.RLIM_INFINITY and hard < least:
        raise ProgramError(_too_few(hard, wanted, f"{cluster.world_size} ranks"))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def check_open_files(name: str, members: int, cluster: Cluster) -> None:
    """Refuse a group whose connections would be more open files than this process may have; gloo tries for minutes.

    Raises:
        ProgramError: they would be.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or not _OPEN.exists():
        return
    if len(os.listdir(_OPEN)) + members + _OF_GROUP > limit:
        raise ProgramError(_too_few(limit, _wanted_files(cluster), f"group '{name}'"))


def _wanted_files(cluster: Cluster) -> int:
    sizes = cluster.world_size + cluster.host.gpus + cluster.hosts
    return _OF_RANK + _OF_MEMBER * cluster.world_size + _STREAMS * (sizes + _GROUPS * _OF_GROUP)


def _too_few(limit: int, wanted: int, what: str) -> str:
    return f"a process may have {limit} open files (ulimit -n), too few for {what}: expected a limit of {wanted:,}"
