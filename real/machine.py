"""Facts about the machine that a process runs on: processors, GPU, limit of open files."""

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

# Open files of a rank, measured with gloo of torch 2.13 on 2, 4 and 8 ranks: of the rank when it joins the world; on
# rank 0, which serves the store, for each rank; and of a group, for each member and for the group's threads.
_OF_RANK, _OF_MEMBER, _OF_GROUP = 20, 4, 4
_GROUPS, _STREAMS = 3, 16  # a stream's groups: the world, the ranks of a host, the ranks of one place on all hosts


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_name(cpus: Path = _CPUS) -> str:
    """Return the processor's name from /proc/cpuinfo, or its architecture."""
    try:
        lines = cpus.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), platform.machine() or "unknown")


def device_name(device: torch.device) -> str:
    """Return the GPU's name from the driver, or the processor's name."""
    if device.type == "cpu":
        return cpu_name()
    import torch  # noqa: PLC0415 - only callers that have loaded torch ask for a GPU

    name: str = torch.cuda.get_device_properties(device).name
    return name


def allow_open_files(cluster: Cluster) -> None:
    """Raise this process's limit of open files to what its ranks may need, as far as the system allows; ranks inherit
    the limit.

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
    """Refuse a group whose connections need more open files than this process may have; gloo would retry for minutes.

    Raises:
        ProgramError: the group needs more open files.
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
