"""One collective on a cluster of a ready profile, as others have measured it: what the simulator makes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from scenarios.config.catalogue import TEMPLATE, profile_names
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.nccl.costs import costs_of
from sim.nccl.model.predictor import Choice
from sim.nccl.model.topology import Function
from sim.nccl.rings_and_trees import members_by_host, shape_of
from sim.nccl.tuning import choose
from sim.run import simulate

# Larger worlds are played by their load on the links.
_MOST_FLOWS = 64
_MOST_RANKS = 1 << 14
_LABEL = "measured"
_TIMEOUT_S = 60.0
_ROOT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """`formula_us` is NCCL's own figure for it, None where it has none; `profile` is the one that was taken."""

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
) -> Predicted:
    """One call that all ranks enter together.

    Args:
        op: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all or send_recv.
        library: nccl or gloo.
        gpu: the first word of a ready profile's GPU, such as H100; of several the one whose hosts fit best.
        size_bytes: a rank's larger buffer, as nccl-tests counts it.
        link_gbit_per_s: of one NIC, instead of the profile's.
        one_way_delay_ms: between two hosts, beside the profile's latencies.
        profile: instead of the one that has such a GPU.
        figures: by `Cluster`'s names, instead of the profile's.

    Raises:
        ScenarioError: there is no such operation, library or GPU, or the numbers fit no cluster.
    """
    name = profile or _profile_of(gpu, gpus_per_node)
    like: Cluster = dataclasses.replace(load_profile(name), **(figures or {}))  # type: ignore[arg-type]
    cluster = _cluster(like, nodes, gpus_per_node, link_gbit_per_s, one_way_delay_ms)
    _check(op, library, cluster, size_bytes)
    scenario = _scenario(cluster, library)
    recording = simulate(scenario, _Once(op, size_bytes))
    chosen = _nccls(op, size_bytes, cluster) if library == "nccl" else None
    return Predicted(
        predicted_us=_taken_us(recording),
        formula_us=None if chosen is None else chosen.total_ns / 1e3,
        algorithm="" if chosen is None else chosen.algorithm,
        protocol="" if chosen is None else chosen.protocol,
        profile=name,
    )


def _profile_of(gpu: str, gpus_per_node: int) -> str:
    """Of those whose GPU is called so: that of the smallest host with enough of them, else of the largest."""
    wanted, known = gpu.strip().upper(), _profiles_by_gpu()
    if wanted not in known:
        names = ", ".join(sorted(known))
        raise ScenarioError([f"gpu = '{gpu}': expected one that a ready profile has ({names}), or a profile"])
    by_gpus = known[wanted]
    return by_gpus[min((gpus for gpus in by_gpus if gpus >= gpus_per_node), default=max(by_gpus))]


@cache
def _profiles_by_gpu() -> dict[str, dict[int, str]]:
    """By the GPU's name and how many a host has; of equals the first by name."""
    known: dict[str, dict[int, str]] = {}
    for name in profile_names():
        host = load_profile(name).host
        if host.gpu.kind == "cuda" and name != TEMPLATE:
            known.setdefault(host.gpu.name.upper().split()[0], {}).setdefault(host.gpus, name)
    return known


def _cluster(like: Cluster, nodes: int, gpus: int, gbit_per_s: float | None, delay_ms: float | None) -> Cluster:
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
    if op not in _CALLS:
        raise ScenarioError([f"op = '{op}': expected one of {', '.join(_CALLS)}"])
    if library not in ("nccl", "gloo"):
        raise ScenarioError([f"library = '{library}': expected nccl or gloo"])
    if not 2 <= cluster.world_size <= _MOST_RANKS:
        raise ScenarioError([f"nodes x gpus_per_node = {cluster.world_size}: expected 2 to {_MOST_RANKS} ranks"])
    if size_bytes < 1:
        raise ScenarioError([f"size_bytes = {size_bytes}: expected at least 1"])


def _scenario(cluster: Cluster, library: str) -> Scenario:
    return Scenario(
        name="published",
        path=Path("published.toml"),
        program="collective",  # which is not played: `_Once` is
        cluster=cluster,
        batch_size=1,
        steps=1,
        seed=0,
        payload="sizes",
        fidelity="flows" if cluster.world_size <= _MOST_FLOWS else "links",
        library="gloo" if library == "gloo" else "nccl",
        timeout_s=_TIMEOUT_S,
    )


class _Once(Program):
    """A program of one call after a barrier."""

    def __init__(self, op: str, size_bytes: int) -> None:
        self._call, self._size_bytes = _CALLS[op], size_bytes

    async def __call__(self, rank: Rank) -> None:
        await rank.barrier()
        with rank.step(0):
            work = self._call(rank, self._size_bytes)
            if work is not None:
                await work


def _bytes(rank: Rank, count: int) -> Tensor:
    """Of float32 where that many bytes can be, as the measurements are."""
    whole = count % 4 == 0
    return torch.empty(count // 4 if whole else count, dtype=torch.float32 if whole else torch.int8, device=rank.device)


def _all_gather(rank: Rank, size_bytes: int) -> Work[Tensor]:
    share = -(-size_bytes // rank.world_size)
    return rank.all_gather_into_tensor(*_alike(rank, share * rank.world_size, share), label=_LABEL)


def _reduce_scatter(rank: Rank, size_bytes: int) -> Work[Tensor]:
    share = -(-size_bytes // rank.world_size)
    return rank.reduce_scatter_tensor(*_alike(rank, share, share * rank.world_size), label=_LABEL)


def _alike(rank: Rank, output_bytes: int, input_bytes: int) -> tuple[Tensor, Tensor]:
    empty = torch.empty(output_bytes + input_bytes, dtype=torch.int8, device=rank.device)
    return empty[:output_bytes], empty[output_bytes:]


def _all_to_all(rank: Rank, size_bytes: int) -> Work[Tensor]:
    share = -(-size_bytes // rank.world_size)
    return rank.all_to_all_single(*_alike(rank, share * rank.world_size, share * rank.world_size), label=_LABEL)


def _send_recv(rank: Rank, size_bytes: int) -> Work[None] | Work[Tensor] | None:
    """From the first rank to the last, which is on another host where there are several."""
    last = rank.world_size - 1
    if rank.rank == 0:
        return rank.send(_bytes(rank, size_bytes), last, label=_LABEL)
    return rank.recv(_bytes(rank, size_bytes), 0, label=_LABEL) if rank.rank == last else None


_CALLS: dict[str, Callable[[Rank, int], Work[Tensor] | Work[None] | None]] = {
    "all_reduce": lambda rank, size: rank.all_reduce(_bytes(rank, size), label=_LABEL),
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": lambda rank, size: rank.broadcast(_bytes(rank, size), _ROOT, label=_LABEL),
    "all_to_all": _all_to_all,
    "send_recv": _send_recv,
}
_FUNCTIONS: dict[str, Function] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
}


def _taken_us(recording: Recording) -> float:
    """From the first rank's start to the last one's end."""
    spans = [span for span in recording.spans if span.label == _LABEL]
    return (max(span.end_ns for span in spans) - min(span.start_ns for span in spans)) / 1e3


def _nccls(op: str, size_bytes: int, cluster: Cluster) -> Choice | None:
    """What NCCL itself thinks of it."""
    function = _FUNCTIONS.get(op)
    if function is None:
        return None
    costs = costs_of(cluster)
    layout = [rank // cluster.host.gpus for rank in range(cluster.world_size)]
    return choose(function, size_bytes, shape_of(members_by_host(layout), costs), costs)
