"""Reads this process's rank from the environment, as torchrun, srun or the project's launcher set it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError

# The launcher's own variables: where its supervisor listens, the run's secret, the store's socket, the job's file.
SUPERVISOR = "TWINSTEP_SUPERVISOR"
TOKEN = "TWINSTEP_TOKEN"
STORE_FD = "TWINSTEP_STORE_FD"
JOB = "TWINSTEP_JOB"
PARENT = "TWINSTEP_PARENT"
ENTRY = "TWINSTEP_ENTRY"  # "module:function" that a forked process calls instead of being a rank

# Between well-known ports, which end at 1024, and Linux's ephemeral ports, which begin at 32768.
_SLURM_PORTS = range(20_000, 30_000)
# Variables with the number of nodes of a job step or a job (srun(1), "OUTPUT ENVIRONMENT VARIABLES").
_SLURM_NODES = ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The rank of this process, and the store's `address` and `port`. `by` is "launcher", "torchrun" or "srun"."""

    by: str
    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int
    has_agent_store: bool = False  # torchrun's agent serves the store, not rank 0
    attempt: int = 0  # torchrun restarts a group of ranks under a new number


def place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return the placement of this process; None if no launcher started it.

    Raises:
        ScenarioError: a variable is missing or no number, in one sentence.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _of_torchrun(environment)
    if "SLURM_PROCID" in environment and "SLURM_LOCALID" in environment:
        return _of_slurm(environment)
    return None


def local_world_size(place: Place) -> int:
    """Return the ranks on each host, from torchrun's or srun's variables; all ranks if no variable says."""
    environment = os.environ
    if "LOCAL_WORLD_SIZE" in environment:
        return _number(environment, "LOCAL_WORLD_SIZE")
    nodes = next((name for name in _SLURM_NODES if name in environment), None)
    return place.world_size if nodes is None else -(-place.world_size // max(1, _number(environment, nodes)))


def check_world_size(scenario: Scenario, place: Place) -> None:
    """Raise ScenarioError unless the number of started ranks is the scenario's."""
    cluster = scenario.cluster
    if place.world_size != cluster.world_size:
        raise ScenarioError(
            f"{scenario.path}: {cluster.hosts} hosts of {cluster.host.gpus} GPUs are {cluster.world_size} ranks,"
            f" but {place.by} started {place.world_size}"
        )


def _of_torchrun(environment: Mapping[str, str]) -> Place:
    by = "launcher" if SUPERVISOR in environment else "torchrun"
    return Place(
        by=by,
        rank=_number(environment, "RANK"),
        world_size=_number(environment, "WORLD_SIZE"),
        local_rank=_number(environment, "LOCAL_RANK"),
        address=_text(environment, "MASTER_ADDR"),
        port=_number(environment, "MASTER_PORT"),
        has_agent_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")),
    )


def _of_slurm(environment: Mapping[str, str]) -> Place:
    job = _number(environment, "SLURM_JOB_ID")
    port = environment.get("MASTER_PORT") or str(_SLURM_PORTS[job % len(_SLURM_PORTS)])
    nodes = environment.get("SLURM_STEP_NODELIST") or _text(environment, "SLURM_NODELIST")
    return Place(
        by="srun",
        rank=_number(environment, "SLURM_PROCID"),
        world_size=_number(environment, "SLURM_NTASKS"),
        local_rank=_number(environment, "SLURM_LOCALID"),
        address=environment.get("MASTER_ADDR") or first_host(nodes),
        port=int(port),
    )


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list such as "gpu[003-006,9],login1", by scontrol where it is installed."""
    scontrol = shutil.which("scontrol")
    if scontrol is not None:
        answer = subprocess.run([scontrol, "show", "hostnames", nodes], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.split()[0]
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes)
    if match is None:
        raise ScenarioError(f"environment: SLURM_NODELIST = '{nodes}': expected a list of hosts such as 'gpu[01-04]'")
    return match[1] + (match[2] or "") + (match[3] or "")


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise ScenarioError(f"environment: {name}: missing; expected as set by torchrun or srun")
    return value


def _number(environment: Mapping[str, str], name: str) -> int:
    value = _text(environment, name)
    if not value.isdigit():
        raise ScenarioError(f"environment: {name} = '{value}': expected a number")
    return int(value)
