"""The planner's model of a cluster: memory of each rank, and the bandwidths that its formulas use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Protocol

from scenarios.planner.types import Perf, Storage
from scenarios.run_length import KeptRuns, Run

GIB = 1024**3

# TorchRec 1.8's default constants. Its Topology has bandwidths in bytes/ms; the figures here begin as GiB/s.
HBM_CAP = 32 * GIB
DDR_CAP = 128 * GIB
SSD_CAP = 2 * 1024 * GIB
HBM_MEM_BW = 897 * GIB / 1000
DDR_MEM_BW = 51 * GIB / 1000
HBM_TO_DDR_MEM_BW = 32 * GIB / 1000
SSD_MEM_BW = 100 * 1024**2 / 1000
INTRA_NODE_BANDWIDTH = 600 * GIB / 1000
CROSS_NODE_BANDWIDTH = 12.5 * GIB / 1000
BWD_COMPUTE_MULTIPLIER = 2
WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER = 1

DEVICES_WITH_HBM = ("cuda", "mtia", "tpu")
_CUSTOM_FIELDS = ("hbm_cap", "ddr_cap", "ssd_cap")


class CollectiveType(StrEnum):
    """A collective whose bandwidth the estimator needs."""

    ALL_TO_ALL = "all_to_all"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"


class GeneralizedCommsBandwidth(Protocol):
    """Bandwidths of one rank by collective, in bytes/ms; a user's measurements may replace the two basic figures."""

    @property
    def inter_host_bw(self) -> float: ...
    @property
    def intra_host_bw(self) -> float: ...
    def get_bw(self, local_world_size: int, world_size: int, collective_type: CollectiveType) -> float:
        """Return the bandwidth of a collective of `world_size` ranks, `local_world_size` to a host."""
        ...


@dataclass(frozen=True, slots=True)
class BasicCommsBandwidths:
    """Two figures, inside a host and between hosts; an all-reduce uses all links out of a host."""

    inter_host_bw: float = CROSS_NODE_BANDWIDTH
    intra_host_bw: float = INTRA_NODE_BANDWIDTH

    def get_bw(self, local_world_size: int, world_size: int, collective_type: CollectiveType) -> float:
        if collective_type == CollectiveType.ALL_REDUCE:
            return self.inter_host_bw * local_world_size
        return self.inter_host_bw if world_size > local_world_size else self.intra_host_bw


@dataclass(slots=True)
class DeviceHardware:
    """One rank's free memory, and the load that it has already."""

    rank: int
    storage: Storage
    perf: Perf = field(default_factory=lambda: Perf(0.0, 0.0, 0.0, 0.0))


def next_device(first: DeviceHardware, index: int) -> DeviceHardware:
    """Return a copy of the state of rank `first.rank` for rank `first.rank + index`."""
    return DeviceHardware(first.rank + index, replace(first.storage), replace(first.perf))


@dataclass(frozen=True, slots=True)
class CustomTopologyData:
    """Capacities in bytes that differ by rank: "hbm_cap", "ddr_cap", "ssd_cap", each with one value per rank."""

    data: Mapping[str, Sequence[int]]
    world_size: int

    def __post_init__(self) -> None:
        for name, values in self.data.items():
            if name not in _CUSTOM_FIELDS:
                raise ValueError(f"custom topology data {name!r}: expected one of {', '.join(_CUSTOM_FIELDS)}")
            if len(values) != self.world_size:
                raise ValueError(
                    f"custom topology data {name!r} has {len(values)} values, expected the world size {self.world_size}"
                )

    def has_data(self, key: str) -> bool:
        return key in self.data

    def get_data(self, key: str) -> Sequence[int]:
        """Return one value per rank; KeyError if there are none."""
        return self.data[key]


@dataclass(slots=True, eq=False)
class Topology:
    """Ranks, their capacities in bytes (ddr and ssd per rank, too) and bandwidths in bytes/ms.

    All ranks are on one host unless `local_world_size` is set. `hbm_cap` counts on devices with hbm (cuda, mtia, tpu).
    `pod_size` hosts together count as one host. `generalized_comms_bandwidths` replaces the two host bandwidths.
    Arguments are in TorchRec 1.8's order; use keywords for 0.2.0, which lacks ssd_cap and pod_size.
    `created_by_factory` has no effect: in TorchRec it silences a warning. `devices[i].rank` is i.
    """

    world_size: int
    compute_device: str
    hbm_cap: int | None = None
    ddr_cap: int | None = None
    ssd_cap: int | None = None
    local_world_size: int = 0
    pod_size: int | None = None
    hbm_mem_bw: float = HBM_MEM_BW
    ddr_mem_bw: float = DDR_MEM_BW
    ssd_mem_bw: float = SSD_MEM_BW
    hbm_to_ddr_mem_bw: float = HBM_TO_DDR_MEM_BW
    intra_host_bw: float = INTRA_NODE_BANDWIDTH
    inter_host_bw: float = CROSS_NODE_BANDWIDTH
    bwd_compute_multiplier: float = BWD_COMPUTE_MULTIPLIER
    custom_topology_data: CustomTopologyData | None = None
    weighted_feature_bwd_compute_multiplier: float = WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER
    uneven_sharding_perf_multiplier: float = 1.0
    generalized_comms_bandwidths: GeneralizedCommsBandwidth | None = None
    created_by_factory: bool = False
    comms_bandwidths: GeneralizedCommsBandwidth = field(init=False)
    devices: Sequence[DeviceHardware] = field(init=False)

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise ValueError(f"world_size = {self.world_size}: expected at least 1")
        self.local_world_size = self.local_world_size or self.world_size
        if self.pod_size and self.pod_size > self.world_size:
            raise ValueError(f"pod_size={self.pod_size} cannot be greater than world_size={self.world_size}")
        basic = BasicCommsBandwidths(self.inter_host_bw, self.intra_host_bw)
        self.comms_bandwidths = self.generalized_comms_bandwidths or basic
        custom = self.custom_topology_data
        if custom is not None and custom.world_size != self.world_size:
            raise ValueError(f"custom topology data is for {custom.world_size} ranks, expected {self.world_size}")
        hbm = self._caps("hbm_cap", HBM_CAP if self.hbm_cap is None else self.hbm_cap)
        if self.compute_device not in DEVICES_WITH_HBM:
            hbm = [0] * self.world_size
        ddr = self._caps("ddr_cap", DDR_CAP if self.ddr_cap is None else self.ddr_cap)
        ssd = self._caps("ssd_cap", SSD_CAP if self.ssd_cap is None else self.ssd_cap)
        self.devices = KeptRuns(_runs(zip(hbm, ddr, ssd, strict=True)), next_device)

    @property
    def intra_group_size(self) -> int:
        """The number of ranks that count as one host."""
        return self.local_world_size * self.pod_size if self.pod_size else self.local_world_size

    def _caps(self, name: str, default: int) -> list[int]:
        custom = self.custom_topology_data
        if custom is not None and custom.has_data(name):
            return list(custom.get_data(name))
        return [default] * self.world_size


def _runs(caps: Iterable[tuple[int, int, int]]) -> Iterator[Run[DeviceHardware]]:
    """Yield runs of ranks with these bytes of hbm, ddr and ssd, and without load."""
    rank = 0
    for storage, ranks in groupby(caps):
        count = len(list(ranks))
        yield count, DeviceHardware(rank, Storage(*storage))
        rank += count
