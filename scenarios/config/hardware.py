"""Clusters, hosts and links as frozen values with units in their names.

A field's annotation is the only declaration of its TOML key. The section that reads the key, the JSON schema, the
reference of keys and the profiles that a calibration writes are derived from it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from scenarios.config.faults import NOMINAL, Fault, LeafPart, NicPart, Pace, Part
from scenarios.config.gpu import Gpu
from scenarios.config.host_costs import Tcp
from scenarios.config.interconnect import DEFAULT_NETWORK, SUMMARIES, WITH_LEAVES, NetworkKind
from scenarios.config.keys import ALWAYS, Inline, Key
from scenarios.config.toml.values import (
    AtLeastOne,
    Cores,
    Count,
    Efficient,
    HostGpus,
    Latency,
    Machines,
    NvLinks,
    Payload,
    Profile,
    Rate,
    Size,
    Text,
    UsdPerHour,
    Watts,
)

# NCCL's own latencies serve its choice of algorithm. Measured operations take longer to start, and longer with more
# channels.
NCCL_START_NS = 32_000
NCCL_P2P_SHARE = 0.88


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a cable; a token bucket lets `burst_bytes` pass at once after a pause."""

    bytes_per_s: Rate
    latency_ns: Latency
    burst_bytes: Size = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Links between the GPUs of one host.

    Each GPU has one `link` in and one out.

    "nvlink": every pair at the GPU's full rate (NVSwitch); the switch joins `hosts_per_domain` hosts. "pcie": the GPUs
    also share the host's bridge, with `bridge_bytes_per_s` in each direction. "memory": ranks of one host exchange
    through its memory, which all share at `bridge_bytes_per_s`.

    "nvlink_mesh": no switch; `links[i][j]` NVLinks, each a `link`, lead from GPU i to GPU j. Pairs without NVLinks
    share the host's bridge. `links` may describe more GPUs than the host has here.
    """

    kind: Annotated[
        Literal["nvlink", "nvlink_mesh", "pcie", "memory"],
        "'nvlink': every pair of GPUs at full rate, through a switch; 'nvlink_mesh': NVLinks between pairs of"
        " GPUs, no switch; 'pcie': through each GPU's lanes and a bridge that all GPUs share; 'memory': through"
        " host memory that all ranks share. Required.",
    ]
    link: Annotated[
        Link,
        Inline(
            bytes_per_s="Rate of one GPU in each direction, such as '450 GB/s'; with 'nvlink_mesh' the rate of one"
            " NVLink. Required.",
            latency_ns="One-way latency between two GPUs, such as '1 us', for gloo; NCCL's law has its own. Required.",
        ),
    ]
    bridge_bytes_per_s: Annotated[
        Rate | None,
        "Rate in each direction that all GPUs of the host share. Required by 'pcie' and 'memory', not used by"
        " 'nvlink'. With 'nvlink_mesh', pairs of GPUs without an NVLink share it.",
    ] = None
    links: Annotated[
        tuple[tuple[NvLinks, ...], ...],
        "Number of NVLinks between each two GPUs, one row per GPU, as `nvidia-smi topo -m` prints them: [[0, 2],"
        " [2, 0]]. The first gpus_per_host rows count. Required by 'nvlink_mesh', not used by others.",
    ] = ()
    hosts_per_domain: Annotated[
        Machines,
        "Hosts that one NVLink switch joins, such as 18 trays of GB200 NVL72. With several domains the number"
        " divides `hosts`, and each GPU needs a NIC. Only for 'nvlink'. Default 1.",
    ] = 1

    host_bytes_per_s: Annotated[
        Rate | None,
        "Rate of a GPU to and from its host's memory in each direction, such as '25 GB/s'. Required by tables"
        " with rows in host memory; 'pcie' and 'memory' use `rate` and `bridge_rate` instead.",
    ] = None
    gpus_per_host_link: Annotated[
        Machines,
        "GPUs behind one PCIe switch, which share the link to host memory at `host_rate`. Data to a NIC at that"
        " switch does not use the link. Default 1.",
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

    per: Annotated[
        Literal["gpu", "host"],
        "'gpu': one interface per GPU; 'host': `count` interfaces per host, which its GPUs share. Required.",
    ]
    count: Annotated[Machines, "Interfaces per host. Required with per = 'host', else one per GPU."]
    link: Annotated[
        Link,
        Inline(
            bytes_per_s="Rate of one interface in each direction, such as '400 Gbit/s'. Required.",
            latency_ns="Latency of one interface, such as '1 us'. Required.",
            burst_bytes="Bytes that a traffic shaper (tc tbf) on a network link passes at once after a pause, such as"
            " '16 KiB'. Default: no shaper.",
        ),
    ]
    connection_bytes_per_s: Annotated[
        Rate | None,
        "Maximal rate of one TCP connection, such as '5 Gbit/s'. NCCL opens several connections. Default: the"
        " links' rate.",
    ] = None
    window_bytes: Annotated[
        Size | None,
        "Maximal bytes in flight of one TCP connection, such as '2.5 MB'. NCCL opens several connections."
        " Default: no limit.",
    ] = None
    initial_window_bytes: Annotated[
        Size | None,
        "Bytes that a TCP connection sends before the first acknowledgement, such as '14600 B'. The amount"
        " doubles with each round trip. Default: no slow start.",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine: its GPUs are alike."""

    gpus: Annotated[HostGpus, "GPUs per host, one rank each. Required.", Key("gpus_per_host")]
    gpu: Annotated[Gpu, "The GPU. Required."]
    inside: Annotated[Inside, "Links between the GPUs of a host. Required."]
    nics: Annotated[Nics, "The host's network interfaces. Required.", Key("nic", title="NicSection")]
    cores: Annotated[Cores, "CPU cores of one host. Required."]
    memory_bytes: Annotated[Size, "Memory of one host, such as '2 TiB'. Required.", Key("host_memory")]

    @property
    def shared_gpu_bytes_per_s(self) -> float:
        """One GPU's rate to others of its host while all GPUs exchange."""
        inside = self.inside
        if inside.bridge_bytes_per_s is None or inside.kind == "nvlink_mesh":
            return inside.gpu_bytes_per_s(self.gpus)
        return min(inside.link.bytes_per_s, inside.bridge_bytes_per_s / self.gpus)

    @property
    def shared_memory_bytes_per_s(self) -> float | None:
        """One GPU's rate to the host's memory while all GPUs use theirs; None: unknown."""
        inside = self.inside
        if inside.kind in ("pcie", "memory"):
            return self.shared_gpu_bytes_per_s
        return None if inside.host_bytes_per_s is None else inside.host_bytes_per_s / inside.gpus_per_host_link


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The network between the hosts.

    `latency_ns` is added to the two NICs' latencies, once for each switch crossed. "non_blocking": one ideal switch.
    "leaf_spine": `hosts_per_leaf` hosts per leaf; a leaf's uplinks carry, in each direction, the sum of its hosts' NIC
    rates divided by `oversubscription`. "rail_only": one ideal switch for each GPU number, and no path between these
    switches. Switches reduce the data of NCCL's all-reduces if `sharp`.
    """

    kind: Annotated[NetworkKind, f"{SUMMARIES}. Default '{DEFAULT_NETWORK}'.", ALWAYS] = DEFAULT_NETWORK
    latency_ns: Annotated[Latency, "Latency of one switch. Default '0 ns'.", ALWAYS] = 0
    hosts_per_leaf: Annotated[
        Machines | None,
        f"Hosts per leaf switch; the last leaf may have fewer. Required by {WITH_LEAVES}.",
    ] = None
    oversubscription: Annotated[
        AtLeastOne,
        f"Rate of a leaf's hosts divided by the rate of its uplinks. Only for {WITH_LEAVES}. Default 1.",
    ] = 1.0
    sharp: Annotated[
        bool, "Whether switches reduce (SHARP) and NCCL may use this (NCCL_COLLNET_ENABLE). Default false."
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Price and power of a GPU with its share of the host; they change no times.

    None: not known. `pue` is the power of the data center over that of its hosts.
    """

    usd_per_gpu_hour: Annotated[
        UsdPerHour | None,
        "Price of one GPU, such as 6.88. Default: unknown.",
    ] = None
    price_source: Annotated[Text, "Source of the price. Default: none."] = ""
    price_date: Annotated[Text, "Date of the price, such as '2026-11-09'. Default: none."] = ""
    watts_per_gpu: Annotated[
        Watts | None,
        "Maximal power of one GPU with its share of the host, such as 1275. Default: unknown.",
    ] = None
    power_source: Annotated[Text, "Source of the power. Default: none."] = ""
    power_date: Annotated[Text, "Date of the power figure, such as '2020-05'. Default: none."] = ""
    pue: Annotated[
        AtLeastOne,
        "Power usage effectiveness: power of the data center divided by the power of its hosts. Default 1: only"
        " the hosts.",
    ] = 1.0

    def without_sources_of(self, keys: Collection[str]) -> Cost:
        """Return the costs without the sources of the figures in `keys`, unless `keys` replaces the sources too."""
        said = {"usd_per_gpu_hour": ("price_source", "price_date"), "watts_per_gpu": ("power_source", "power_date")}
        stale: dict[str, Any] = {
            name: "" for key, names in said.items() if key in keys for name in names if name not in keys
        }
        return replace(self, **stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster of hosts that are identical, apart from faults.

    Rank r is GPU r mod gpus of host r // gpus.

    `hosts_share_cores`: all hosts are emulated on one machine, whose `host.cores` they share. `core_bytes_per_s` None:
    gloo's sums and copies for GPUs, in host memory, take no time. `tcp` None: messages cost hosts nothing.
    """

    profile: Annotated[
        str, "Name of a ready profile, or a path that ends in .toml. Default: none.", Key(accepts=Profile)
    ]
    hosts: Annotated[Machines, "Number of hosts. Required."]
    host: Annotated[Host, Inline()]
    network: Annotated[Network, "The network between the hosts. Default: one ideal switch."]
    payload_share: Annotated[
        Payload,
        "Share of a network link's rate that is left for payload after headers. Default 1.",
        ALWAYS,
    ] = 1.0
    nccl_efficiency: Annotated[
        Efficient,
        "Share of the links' total rate that NCCL's pipelined collectives reach. Default 1.",
        ALWAYS,
    ] = 1.0
    nccl_start_ns: Annotated[
        Latency,
        "Maximal start time of NCCL's collectives over several hosts, in addition to NCCL's own latencies. Trees"
        " over nodes take a time per level instead. Starts within a host scale with this value. Default '32 us';"
        " source: fitted to LLMCompass's all-reduces of 8 B to 8 GiB on 4 A100s.",
        ALWAYS,
    ] = NCCL_START_NS
    nccl_floor_ns: Annotated[Latency, "Minimal time of NCCL's collectives of any size. Default '0 ns'.", ALWAYS] = 0
    nccl_sockets: Annotated[Count, "TCP connections that NCCL opens between each two ranks. Default 1."] = 1
    nccl_p2p_share: Annotated[
        Efficient,
        "Share of NCCL's nominal NVLink rate that its point-to-point exchanges reach. Default 0.88; source:"
        " NVIDIA's all-to-all on 8 A100s (GTC25 S72583).",
        ALWAYS,
    ] = NCCL_P2P_SHARE
    core_bytes_per_s: Annotated[
        Rate | None,
        "Rate at which a core reads and writes host memory where gloo reduces for GPUs, such as '3 GB/s'."
        " Default: no limit.",
    ] = None
    tcp: Annotated[Tcp | None, "Costs of gloo's messages on the hosts. Default: no costs."] = None
    cost: Annotated[Cost | None, "Price and power of a GPU. Default: unknown."] = None
    hosts_share_cores: Annotated[
        bool,
        "Whether all hosts are emulated on one machine and share its cores. Default false.",
        Key(always=True, after="cores"),
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
    def host_nics_bytes_per_s(self) -> float:
        """The payload rate of all NICs of a host together, in each direction."""
        nics = self.host.nics
        count = self.host.gpus if nics.per == "gpu" else nics.count
        return count * nics.link.bytes_per_s * self.payload_share

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

    def bytes_per_s(self, part: NicPart | LeafPart) -> float:
        """Return the rate of a NIC, or of all uplinks of a leaf together, in each direction without a fault."""
        nics = self.host.nics
        if isinstance(part, NicPart):
            return nics.link.bytes_per_s
        per_leaf = self.network.hosts_per_leaf
        assert per_leaf is not None, "only a network with leaves has leaf parts"
        # The last leaf may have fewer hosts: its uplinks shrink with them, so every leaf is equally oversubscribed.
        hosts = min(per_leaf, self.hosts - part.leaf * per_leaf)
        count = self.host.gpus if nics.per == "gpu" else nics.count
        return hosts * count * nics.link.bytes_per_s / self.network.oversubscription

    def pace(self, part: Part) -> Pace:
        """Return the speed of a part over time."""
        faults = [fault for fault in self.faults if fault.part == part]
        return Pace.of(faults) if faults else NOMINAL
