"""What a cluster is made of: frozen values with units in their names; reading them from TOML is left to `load`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scenarios.config.faults import Fault, Part

# NCCL's latencies are for choosing. Measured operations take longer to get going, the more so the more channels they
# use: from LLMCompass's all-reduces of 8 B to 8 GiB on 4 A100s (docs/collectives.md).
NCCL_START_NS = 32_000
# Exchanges between all pairs: from NVIDIA's 8 A100s (GTC25 S72583).
NCCL_P2P_SHARE = 0.88


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a cable. `burst_bytes` pass at once after a pause, where a token bucket shapes it."""

    bytes_per_s: float
    latency_ns: int
    burst_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, or one CPU process that stands for it (`kind = "cpu"`).

    `flops_per_s` is the datasheet's peak by dtype name ("float32", "bfloat16"); `efficiency` is the share of the peak
    (of flop/s and of memory bytes/s alike) that a kind of kernel reaches, with "default" for the kinds not listed.
    `launch_ns` is the host's time to launch one kernel, `launches_ns` that for some kinds of kernel: on a CPU it is the
    library's way to the arithmetic, which differs. `ramp_ns`, or `ramps_ns` for some kinds, is what one kernel takes
    beyond its work, until all of the GPU is busy and until its last block is through: so the efficiency grows with the
    size, and is half of `efficiency` for work that takes as long. `spread` are the quantiles of a kernel's time over
    its mean, equally far apart, from the least to the most. `compute_capability` is 90 for NVIDIA's 9.0: NCCL's choices
    depend on it. Of its `multiprocessors` NCCL's channels take one each; None: they take nothing from kernels.
    """

    name: str
    kind: Literal["cuda", "cpu"]
    memory_bytes: int
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    efficiency: Mapping[str, float] = field(default_factory=dict)
    launch_ns: int = 0
    launches_ns: Mapping[str, int] = field(default_factory=dict)
    ramp_ns: int = 0
    ramps_ns: Mapping[str, int] = field(default_factory=dict)
    spread: tuple[float, ...] = ()
    compute_capability: int = 90
    multiprocessors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """How the GPUs of one host reach each other: each GPU has one such link in, and one out.

    "nvlink": every pair at the GPU's full rate (NVSwitch); the switch joins `hosts_per_domain` hosts. "pcie": the GPUs
    also share the host's bridge, whose rate in each direction is `bridge_bytes_per_s`. "memory": ranks of one host
    exchange through its memory, shared by all, at `bridge_bytes_per_s`.

    "nvlink_mesh": no switch; `links[i][j]` NVLinks lead from GPU i to GPU j, each of them a `link`, and pairs without
    any share the host's bridge, if there are such pairs. `links` may tell of more GPUs than the host has here.
    """

    kind: Literal["nvlink", "nvlink_mesh", "pcie", "memory"]
    link: Link
    bridge_bytes_per_s: float | None = None
    links: tuple[tuple[int, ...], ...] = ()
    hosts_per_domain: int = 1

    def gpu_bytes_per_s(self, gpus: int) -> float:
        """Out of one of so many GPUs of a host, over all its links to the others; of the one with the fewest."""
        if self.kind != "nvlink_mesh":
            return self.link.bytes_per_s
        fewest = min(sum(row[:gpus]) for row in self.links[:gpus])
        return max(1, fewest) * self.link.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Nics:
    """The network interfaces of one host: `per = "gpu"` gives each GPU its own, `per = "host"` shares `count` of them.

    With `per = "host"`, GPU i uses NIC i mod count. One TCP connection carries `connection_bytes_per_s` at most, and no
    more than `window_bytes` in the time that a packet takes there and back; None: as much as the links. It begins with
    `initial_window_bytes`, which each such time doubles; None: it may send all at once. gloo has one
    connection for each pair of ranks, NCCL as many as it needs.
    """

    per: Literal["gpu", "host"]
    count: int
    link: Link
    connection_bytes_per_s: float | None = None
    window_bytes: int | None = None
    initial_window_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine: its GPUs are alike."""

    gpus: int
    gpu: Gpu
    inside: Inside
    nics: Nics
    cores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What joins the hosts. `latency_ns` is added to the two NICs' latencies, once for each switch crossed.

    "non_blocking": one ideal switch. "leaf_spine": `hosts_per_leaf` hosts a leaf; a leaf's uplinks carry, in each
    direction, the sum of its hosts' NIC rates divided by `oversubscription`. "rail_only": an ideal switch for each
    GPU number, and nothing between them.
    """

    kind: Literal["non_blocking", "leaf_spine", "rail_only"]
    latency_ns: int = 0
    hosts_per_leaf: int | None = None
    oversubscription: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """What TCP and gloo's threads cost on the hosts, and how much waits where; for library "gloo".

    A connection has up to `queue_bytes` in the queue of its NIC. A send is over when the socket has taken it: it takes
    `send_buffer_bytes` beyond what was acknowledged. Each byte of payload brings `acknowledged_share` bytes of
    acknowledgements the other way. One core writes `send_bytes_per_s` to sockets, or reads `receive_bytes_per_s`; to
    write a message costs it `post_ns` besides, to read one, or to go on after a wait, `message_ns`, and each operation
    `issue_ns` before anything is sent, and `cold_ns` more where the step has computed before; a computation costs its
    program `verb_ns` beside the kernel. A sleeping thread on an idle core runs `wake_ns` after it was told, on average;
    `wake_spread` are that time's quantiles over the mean, equally far apart, from the least to the most; but it takes
    `wake_soon_ns` if the core has been idle for less than `nap_ns`. `issue_spread` is that of `issue_ns`.

    Where threads wait for cores, `spin_share` of the posts that come while their connections are served are held up by
    a thread that spins for up to `spin_ns`. A thread whose core is taken does not move to an idle one in `stay_share`
    of the cases.
    """

    queue_bytes: int
    send_buffer_bytes: int
    acknowledged_share: float
    send_bytes_per_s: float
    receive_bytes_per_s: float
    message_ns: int
    post_ns: int
    issue_ns: int
    wake_ns: int
    wake_spread: tuple[float, ...] = ()
    issue_spread: tuple[float, ...] = ()
    nap_ns: int = 0
    wake_soon_ns: int = 0
    verb_ns: int = 0
    cold_ns: int = 0
    spin_ns: int = 0
    spin_share: float = 0.0
    stay_share: float = 0.0

    @property
    def send_bytes_per_ns(self) -> float:
        """`send_bytes_per_s` in the simulator's unit of time."""
        return self.send_bytes_per_s / 1e9

    @property
    def receive_bytes_per_ns(self) -> float:
        """`receive_bytes_per_s` in the simulator's unit of time."""
        return self.receive_bytes_per_s / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`hosts` identical machines but for their `faults`. Rank r is GPU r mod gpus of host r // gpus.

    `payload_share` is the part of a network link's rate that carries payload (headers take the rest);
    `nccl_efficiency` what NCCL's pipelines reach of what the links carry. Its collectives take up to `nccl_start_ns` to
    get going beyond NCCL's own latencies and at least `nccl_floor_ns` in all, and over NVLink its point-to-point
    exchanges reach `nccl_p2p_share` of what it counts a link for; over TCP it has `nccl_sockets` connections for each
    pair of ranks. With `tcp` the hosts' side is known; with
    `hosts_share_cores` all hosts are emulated on one machine, whose `host.cores` they share. For GPUs gloo adds and
    copies in the host's memory, of which a core reads and writes `core_bytes_per_s` (None: that takes no time).
    """

    profile: str
    hosts: int
    host: Host
    network: Network
    payload_share: float = 1.0
    nccl_efficiency: float = 1.0
    nccl_start_ns: int = NCCL_START_NS
    nccl_floor_ns: int = 0
    nccl_p2p_share: float = NCCL_P2P_SHARE
    nccl_sockets: int = 1
    core_bytes_per_s: float | None = None
    tcp: Tcp | None = None
    hosts_share_cores: bool = False
    faults: tuple[Fault, ...] = ()

    @property
    def world_size(self) -> int:
        """GPUs in all."""
        return self.hosts * self.host.gpus

    @property
    def hosts_per_domain(self) -> int:
        """Hosts whose GPUs reach each other over NVLink, without a NIC."""
        return min(self.hosts, self.host.inside.hosts_per_domain)

    @property
    def faulty_hosts(self) -> tuple[int, ...]:
        """The hosts with a faulty GPU or NIC, ascending."""
        return tuple(sorted({fault.part.host for fault in self.faults if fault.part.host is not None}))

    def speed_at(self, part: Part, t_ns: int = 0) -> float:
        """The share of its rates that a part reaches at a time since the run's start; 1 where nothing is wrong."""
        return math.prod((fault.speed_at(t_ns) for fault in self.faults if fault.part == part), start=1.0)
