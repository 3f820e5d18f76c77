"""Clusters, hosts and links as frozen values with units in their names.

A field's annotation is the only declaration of its TOML key. The section that reads the key, the JSON schema, the
reference of keys and the profiles that a calibration writes are derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from scenarios.config.faults import Fault, Part
from scenarios.config.gpu import Gpu
from scenarios.config.host_costs import Tcp
from scenarios.config.interconnect import DEFAULT_NETWORK, SUMMARIES, WITH_LEAVES, NetworkKind
from scenarios.config.keys import Inline, Key
from scenarios.config.toml.values import (
    AtLeastOne,
    Cores,
    Count,
    Efficient,
    Latency,
    Machines,
    NotNegative,
    NvLinks,
    Payload,
    Positive,
    Rate,
    Size,
    Text,
)

# NCCL's own latencies serve its choice of algorithm. Measured operations take longer to start, and longer with more
# channels: fitted to LLMCompass's all-reduces of 8 B to 8 GiB on 4 A100s (docs/collectives.md).
NCCL_START_NS = 32_000
# Efficiency of exchanges between all pairs, from NVIDIA's 8 A100s (GTC25 S72583).
NCCL_P2P_SHARE = 0.88


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a cable; a token bucket lets `burst_bytes` pass at once after a pause."""

    bytes_per_s: Rate
    latency_ns: Latency
    burst_bytes: Size = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """How the GPUs of one host reach each other.

    Each GPU has one `link` in and one out.

    "nvlink": every pair at the GPU's full rate (NVSwitch); the switch joins `hosts_per_domain` hosts. "pcie": the GPUs
    also share the host's bridge, with `bridge_bytes_per_s` in each direction. "memory": ranks of one host exchange
    through its memory, which all share at `bridge_bytes_per_s`.

    "nvlink_mesh": no switch; `links[i][j]` NVLinks, each a `link`, lead from GPU i to GPU j. Pairs without NVLinks
    share the host's bridge. `links` may describe more GPUs than the host has here.
    """

    kind: Annotated[
        Literal["nvlink", "nvlink_mesh", "pcie", "memory"],
        "'nvlink': every pair at a GPU's full rate; 'nvlink_mesh': by NVLinks between pairs,"
        " without a switch; 'pcie': also through a shared bridge; 'memory': through host memory"
        " that all share. Required.",
    ]
    link: Annotated[
        Link,
        Inline(
            bytes_per_s=Key(
                "rate",
                "One GPU's rate in each direction, such as '450 GB/s'; with 'nvlink_mesh' one NVLink's. Required.",
            ),
            latency_ns=Key("latency", "One way between two GPUs, such as '1 us'. Required."),
        ),
    ]
    bridge_bytes_per_s: Annotated[
        Rate | None,
        Key(
            "bridge_rate",
            "What all GPUs of the host share, in each direction; required by 'pcie' and 'memory', of"
            " no use to 'nvlink'. With 'nvlink_mesh', where some pair has no NVLink: what such pairs"
            " share.",
        ),
    ] = None
    links: Annotated[
        tuple[tuple[NvLinks, ...], ...],
        "NVLinks between each two GPUs, a row for each GPU, as `nvidia-smi topo -m` prints them:"
        " [[0, 2], [2, 0]]. Of more rows the first gpus_per_host count. Required by"
        " 'nvlink_mesh', of no use to others.",
    ] = ()
    hosts_per_domain: Annotated[
        Machines,
        "Hosts that one NVLink switch joins, such as 18 trays of GB200 NVL72; with several domains they divide the"
        " hosts, and each GPU has a NIC. Only for 'nvlink'. Default 1.",
    ] = 1

    host_bytes_per_s: Annotated[
        Rate | None,
        Key(
            "host_rate",
            "A GPU's rate to and from its host's memory in each direction, such as '25 GB/s'. Required by tables whose"
            " rows are there; with 'pcie' and 'memory' `rate` and `bridge_rate` say it.",
        ),
    ] = None
    gpus_per_host_link: Annotated[
        Machines,
        "GPUs that share one such link, as behind a PCIe switch; NICs are reached without it. Default 1.",
    ] = 1

    def gpu_bytes_per_s(self, gpus: int) -> float:
        """Return the rate out of one of a host's `gpus` GPUs over its links to all others; the least of all GPUs."""
        if self.kind != "nvlink_mesh":
            return self.link.bytes_per_s
        fewest = min(sum(row[:gpus]) for row in self.links[:gpus])
        return max(1, fewest) * self.link.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Nics:
    """The host's network interfaces.

    `per = "gpu"` gives each GPU its own NIC; if `per = "host"`, the host's GPUs share `count` NICs, and GPU i uses NIC
    i mod count.

    One TCP connection carries at most `connection_bytes_per_s`, and at most `window_bytes` per round trip; None: no
    limit but the links'. A connection starts with `initial_window_bytes`, which double with each round trip; None: no
    slow start. gloo has one connection for each pair of ranks, NCCL as many as it needs.
    """

    per: Annotated[Literal["gpu", "host"], "'gpu': one for each GPU; 'host': `count` for all of them. Required."]
    count: Annotated[Machines, "Interfaces a host; required with per = 'host', else one for each GPU."]
    link: Annotated[
        Link,
        Inline(
            bytes_per_s=Key("rate", "Rate of one interface in each direction, such as '400 Gbit/s'. Required."),
            latency_ns=Key("latency", "What crossing one interface takes, such as '1 us'. Required."),
            burst_bytes=Key(
                "burst",
                "What a shaper (tc tbf) on a link of the network lets pass at once after a pause, such as '16 KiB'.",
            ),
        ),
    ]
    connection_bytes_per_s: Annotated[
        Rate | None,
        Key(
            "connection_rate",
            "What one TCP connection carries at most, such as '5 Gbit/s'; NCCL opens several."
            " Default: the links' rate.",
        ),
    ] = None
    window_bytes: Annotated[
        Size | None,
        Key(
            "window",
            "What a TCP connection has on its way at most, such as '2.5 MB'; NCCL opens several. Default: no limit.",
        ),
    ] = None
    initial_window_bytes: Annotated[
        Size | None,
        Key(
            "initial_window",
            "What a TCP connection sends before anything is acknowledged, such as '14600 B', and"
            " twice as much in each round trip that follows. Default: no slow start.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine: its GPUs are alike."""

    gpus: Annotated[Machines, Key("gpus_per_host", "GPUs, and thus ranks, on each. Required.")]
    gpu: Annotated[Gpu, "The accelerator. Required."]
    inside: Annotated[Inside, "Links between the GPUs of a host. Required."]
    nics: Annotated[Nics, Key("nic", "The host's network interfaces. Required.", title="NicSection")]
    cores: Annotated[Cores, "CPU cores of one host. Required."]
    memory_bytes: Annotated[Size, Key("host_memory", "Memory of one host, such as '2 TiB'. Required.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What joins the hosts.

    `latency_ns` is added to the two NICs' latencies, once for each switch crossed. "non_blocking": one ideal switch.
    "leaf_spine": `hosts_per_leaf` hosts per leaf; a leaf's uplinks carry, in each direction, the sum of its hosts' NIC
    rates divided by `oversubscription`. "rail_only": one ideal switch for each GPU number, and no path between these
    switches. Switches reduce the data of NCCL's all-reduces if `sharp`.
    """

    kind: Annotated[NetworkKind, Key("kind", f"{SUMMARIES}. Default '{DEFAULT_NETWORK}'.", always=True)] = (
        DEFAULT_NETWORK
    )
    latency_ns: Annotated[Latency, Key("latency", "What crossing one switch takes. Default '0 ns'.", always=True)] = 0
    hosts_per_leaf: Annotated[
        Machines | None,
        f"Hosts on one leaf; the last leaf may have fewer. Required by {WITH_LEAVES}.",
    ] = None
    oversubscription: Annotated[
        AtLeastOne,
        f"A leaf's host rates over its uplink rates; 1 is enough for all. Only for {WITH_LEAVES}. Default 1.",
    ] = 1.0
    sharp: Annotated[
        bool, "Whether switches reduce (SHARP), and NCCL may use it (NCCL_COLLNET_ENABLE). Default false."
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a GPU costs and draws, with its share of the host; changes no time.

    None: not known. `pue` is the power of the data center over that of its hosts.
    """

    usd_per_gpu_hour: Annotated[
        NotNegative | None,
        "Price of one GPU for an hour in US dollars, such as 6.88. Default: not known.",
    ] = None
    price_source: Annotated[Text, "Who asks that price, for what. Default: not said."] = ""
    price_date: Annotated[Text, "When, such as '2026-11-09'. Default: not said."] = ""
    watts_per_gpu: Annotated[
        Positive | None,
        "What one GPU with its share of the host draws at most, in watts, such as 1275. Default: not known.",
    ] = None
    power_source: Annotated[Text, "Who says so, of what. Default: not said."] = ""
    power_date: Annotated[Text, "When, such as '2020-05'. Default: not said."] = ""
    pue: Annotated[AtLeastOne, "Power of the whole data center over that of its hosts. Default 1: the hosts alone."] = (
        1.0
    )

    def without_sources_of(self, keys: Collection[str]) -> Cost:
        """Return the costs without the sources of the figures in `keys`, unless `keys` replaces the sources too."""
        said = {"usd_per_gpu_hour": ("price_source", "price_date"), "watts_per_gpu": ("power_source", "power_date")}
        stale: dict[str, Any] = {
            name: "" for key, names in said.items() if key in keys for name in names if name not in keys
        }
        return replace(self, **stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Identical hosts, apart from faults.

    Rank r is GPU r mod gpus of host r // gpus.

    `hosts_share_cores`: all hosts are emulated on one machine, whose `host.cores` they share. `core_bytes_per_s` None:
    gloo's sums and copies for GPUs, in host memory, take no time. `tcp` None: messages cost hosts nothing.
    """

    profile: str
    hosts: Annotated[Machines, "How many machines. Required."]
    host: Annotated[Host, Inline()]
    network: Annotated[Network, "What joins the hosts. Default: one ideal switch."]
    payload_share: Annotated[
        Payload,
        Key(
            "payload_share", "The part of a network link's rate that headers leave to payload. Default 1.", always=True
        ),
    ] = 1.0
    nccl_efficiency: Annotated[
        Efficient,
        Key("nccl_efficiency", "What NCCL's pipelines reach of what all links carry. Default 1.", always=True),
    ] = 1.0
    nccl_start_ns: Annotated[
        Latency,
        Key(
            "nccl_start",
            "What NCCL's collectives over several hosts take at most to get going, beyond its own latencies; a tree"
            " over nodes has levels instead. Within a host their start is in proportion. Default '32 us'.",
            always=True,
        ),
    ] = NCCL_START_NS
    nccl_floor_ns: Annotated[
        Latency, Key("nccl_floor", "What NCCL's collectives take at least, however small. Default '0 ns'.", always=True)
    ] = 0
    nccl_sockets: Annotated[Count, "TCP connections that NCCL has for each pair of ranks. Default 1."] = 1
    nccl_p2p_share: Annotated[
        Efficient,
        Key(
            "nccl_p2p_share",
            "What NCCL's point-to-point exchanges reach of what it counts an NVLink for. Default 0.88.",
            always=True,
        ),
    ] = NCCL_P2P_SHARE
    core_bytes_per_s: Annotated[
        Rate | None,
        Key(
            "core_rate",
            "What a core reads and writes of host memory where gloo adds for GPUs, such as '3 GB/s'."
            " Default: no limit.",
        ),
    ] = None
    tcp: Annotated[Tcp | None, "The hosts' side of gloo's messages. Default: it costs nothing."] = None
    cost: Annotated[Cost | None, "What a GPU costs and draws. Default: not known."] = None
    hosts_share_cores: Annotated[
        bool,
        Key(
            "hosts_share_cores",
            "Whether the hosts are emulated on one machine, whose cores they share. Default false.",
            always=True,
            after="cores",
        ),
    ] = False
    faults: tuple[Fault, ...] = ()

    @property
    def world_size(self) -> int:
        """The number of GPUs of all hosts."""
        return self.hosts * self.host.gpus

    @property
    def hosts_per_domain(self) -> int:
        """The number of hosts whose GPUs reach each other over NVLink, without a NIC."""
        return min(self.hosts, self.host.inside.hosts_per_domain)

    @property
    def narrow_lanes_bytes_per_s(self) -> float | None:
        """The rate of a GPU's lanes to its NIC in each direction, in bytes/s, if below the NIC's rate; else None."""
        lanes_per_s = self.host.inside.host_bytes_per_s
        if lanes_per_s is None or lanes_per_s >= self.host.nics.link.bytes_per_s * self.payload_share:
            return None
        return lanes_per_s

    @property
    def faulty_hosts(self) -> tuple[int, ...]:
        """The hosts with a faulty GPU or NIC, ascending."""
        return tuple(sorted({fault.part.host for fault in self.faults if fault.part.host is not None}))

    def speed_at(self, part: Part, t_ns: int = 0) -> float:
        """Return the share of its rates that a part reaches at `t_ns` since the run's start; 1 without a fault."""
        return math.prod((fault.speed_at(t_ns) for fault in self.faults if fault.part == part), start=1.0)
