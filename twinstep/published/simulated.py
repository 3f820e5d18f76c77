"""Predict a collective or a training step on a ready profile's cluster, to compare it with published measurements."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scenarios.config.catalogue import library_files
from scenarios.config.hardware import Cluster
from scenarios.config.interconnect import LIBRARIES
from scenarios.config.load import load, load_profile
from scenarios.config.scenario import RunSettings, Scenario
from scenarios.seam.backend import Work
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from scenarios.seam.traits import TESTED, TRAITS
from scenarios.workloads.build import build_simulation
from scenarios.workloads.collective.program import CALLS
from sim.gpu_profiles import profile_of
from sim.library import library_of
from sim.run import simulate

# Larger worlds are simulated with fidelity "links".
_MOST_FLOWS = 64
_MOST_RANKS = 1 << 14
_LABEL = "measured"
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCollective:
    """A predicted time; `formula_us` is NCCL's own figure, None where it has none; `profile` is the one used."""

    predicted_us: float
    formula_us: float | None
    algorithm: str
    protocol: str
    profile: str


def predict(
    *,
    op: str,
    library: str,
    gpu: str,
    nodes: int,
    gpus_per_node: int,
    size_bytes: int,
    link_gbit_per_s: float | None = None,
    one_way_delay_ms: float | None = None,
    profile: str | None = None,
    figures: Mapping[str, float] | None = None,
) -> PredictedCollective:
    """Predict one call that all ranks enter together.

    Args:
        op: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all or send_recv.
        library: nccl or gloo.
        gpu: the first word of a ready profile's GPU, such as H100; among several the one whose hosts fit best.
        nodes: the number of hosts.
        gpus_per_node: the number of GPUs of a host.
        size_bytes: a rank's larger buffer, as nccl-tests counts it.
        link_gbit_per_s: of one NIC, instead of the profile's.
        one_way_delay_ms: between two hosts, added to the profile's latencies.
        profile: instead of the one that has such a GPU.
        figures: by `Cluster`'s names, instead of the profile's.

    Raises:
        ScenarioError: there is no such operation, library or GPU, or the numbers fit no cluster.
    """
    name = profile or profile_of(gpu, gpus_per_node)
    like: Cluster = dataclasses.replace(load_profile(name), **(figures or {}))  # type: ignore[arg-type]
    cluster = _cluster(like, nodes, gpus_per_node, gbit_per_s=link_gbit_per_s, delay_ms=one_way_delay_ms)
    _check(op, library, cluster, size_bytes)
    scenario = _scenario(cluster, library)
    spans = [span for span in simulate(scenario, _Once(op, size_bytes)).spans if span.label == _LABEL]
    chosen = library_of(scenario.run.library).choice(op, size_bytes, cluster)
    return PredictedCollective(
        predicted_us=(max(span.end_ns for span in spans) - min(span.start_ns for span in spans)) / 1e3,
        formula_us=None if chosen is None else chosen.total_ns / 1e3,
        algorithm="" if chosen is None else chosen.algorithm,
        protocol="" if chosen is None else chosen.protocol,
        profile=name,
    )


def ready_scenario(model: str, round: str = "", system: str = "") -> str:
    """Return the name of the ready scenario for a published step time.

    Names are `mlperf_MODEL_vX_Y` of the first round X.Y not before this one, which describes submissions up to that
    round, else `mlperf_MODEL`. `mlperf_MODEL_SOFTWARE`, with or without a round, precedes these for systems whose names
    contain SOFTWARE.

    Raises:
        ScenarioError: there is none of this model.
    """
    known = {}
    for file in library_files():
        found = re.fullmatch(rf"mlperf_{re.escape(model)}(?:_([a-z]{{2,}}))?(?:_v(\d+)_(\d+))?", file.stem)
        if found is not None and (found[1] or "") in system.lower():
            until = (10**6,) if found[2] is None else (int(found[2]), int(found[3]))
            known[found[1] is None, until] = file.stem
    asked = tuple(map(int, re.findall(r"\d+", round)[:2])) or (10**6,)
    fitting = [each for each in known if each[1] >= asked]
    if not fitting:
        raise ScenarioError([f"model = '{model}': expected one of which there is a ready scenario, or a scenario"])
    return known[min(fitting)]


def scenario_of_step(
    scenario: str, *, gpu: str, nodes: int, gpus: int, global_batch: int, profile: str | None = None
) -> Scenario:
    """Return the scenario to compare a published step time with, on `gpus` GPUs of the profile that has them.

    Args:
        scenario: a file, or the name of a ready scenario.
        gpu: the first word of a ready profile's GPU.
        nodes: the number of hosts.
        gpus: the number of GPUs of all hosts.
        global_batch: the samples of a step of all GPUs.
        profile: instead of the one that has such a GPU.

    Raises:
        ScenarioError: there is no such scenario or GPU, or the numbers do not fit it.
    """
    if global_batch % gpus:
        raise ScenarioError([f"global_batch = {global_batch}: expected a multiple of gpus = {gpus}"])
    overrides: dict[str, object] = {
        "profile": profile or profile_of(gpu, gpus // nodes),
        "batch_size": global_batch // gpus,
        "cluster.hosts": nodes,
        "cluster.gpus_per_host": gpus // nodes,
    }
    return load(scenario, overrides)


def simulate_step(scenario: Scenario) -> Recording:
    """Simulate the scenario's own program; errors are those of `build_simulation` and `simulate`."""
    return simulate(scenario, build_simulation(scenario))


def _cluster(like: Cluster, nodes: int, gpus: int, *, gbit_per_s: float | None, delay_ms: float | None) -> Cluster:
    for key, count in (("nodes", nodes), ("gpus_per_node", gpus)):
        if count < 1:
            raise ScenarioError([f"{key} = {count}: expected at least 1"])
    inside, nics = like.host.inside, like.host.nics
    if inside.links and gpus > len(inside.links):
        raise ScenarioError([f"gpus_per_node = {gpus}: expected at most {len(inside.links)}, the GPUs of the mesh"])
    rate = nics.link.bytes_per_s if gbit_per_s is None else gbit_per_s * 1e9 / 8
    link = dataclasses.replace(nics.link, bytes_per_s=rate)
    network = dataclasses.replace(like.network, latency_ns=like.network.latency_ns + round((delay_ms or 0.0) * 1e6))
    count = gpus if nics.per == "gpu" else nics.count
    host = dataclasses.replace(like.host, gpus=gpus, nics=dataclasses.replace(nics, link=link, count=count))
    return dataclasses.replace(like, hosts=nodes, host=host, network=network)


def _check(op: str, library: str, cluster: Cluster, size_bytes: int) -> None:
    if op not in TESTED:
        raise ScenarioError([f"op = '{op}': expected one of {', '.join(TESTED)}"])
    if library not in LIBRARIES:
        raise ScenarioError([f"library = '{library}': expected {' or '.join(LIBRARIES)}"])
    if not 2 <= cluster.world_size <= _MOST_RANKS:
        raise ScenarioError([f"nodes x gpus_per_node = {cluster.world_size}: expected 2 to {_MOST_RANKS} ranks"])
    if size_bytes < 1:
        raise ScenarioError([f"size_bytes = {size_bytes}: expected at least 1"])


def _scenario(cluster: Cluster, library: str) -> Scenario:
    run = RunSettings(
        library=library,  # type: ignore[arg-type]
        steps=1,
        fidelity="flows" if cluster.world_size <= _MOST_FLOWS else "links",
        timeout_s=_TIMEOUT_S,
    )
    return Scenario(
        name="published",
        path=Path("published.toml"),
        program="collective",  # not run; `_Once` is run instead
        cluster=cluster,
        run=run,
    )


class _Once(Program):
    """A program of one call after a barrier."""

    def __init__(self, op: str, size_bytes: int) -> None:
        self._op, self._size_bytes = op, size_bytes

    async def __call__(self, rank: Rank) -> None:
        await rank.barrier()
        with rank.step(0):
            work = _issued(rank, self._op, self._size_bytes)
            if work is not None:
                await work


def _issued(rank: Rank, op: str, size_bytes: int) -> Work[Any] | None:
    """Issue an operation; None on ranks that have no part in it. A rank's larger buffer has at least `size_bytes`.

    Buffers in place are of float32, as in the measurements, if their size allows, else of int8.
    """

    def empty(count: int, dtype: torch.dtype = torch.int8) -> Tensor:
        return torch.empty(count, dtype=dtype, device=rank.device)

    known, share, last = TRAITS.get(op), -(-size_bytes // rank.world_size), rank.world_size - 1
    if known is not None and known.receives:
        sizes = {"all": share * rank.world_size, "share": share}
        return CALLS[op](rank, empty(sizes[known.receives]), empty(sizes[known.gives]), label=_LABEL)
    buffer = empty(size_bytes) if size_bytes % 4 else empty(size_bytes // 4, torch.float32)
    if known is not None:
        return CALLS[op](rank, buffer, buffer, label=_LABEL)
    # From the first rank to the last, which is on another host if there are several.
    if rank.rank == 0:
        return rank.send(buffer, last, label=_LABEL)
    return rank.recv(buffer, 0, label=_LABEL) if rank.rank == last else None
