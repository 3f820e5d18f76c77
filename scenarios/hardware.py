"""What a cluster is made of: frozen values with units in their names; reading them from TOML is left to `load`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


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
    `launch_ns` is what one kernel launch costs at least, `launches_ns` what it costs for some kinds of kernel: on a CPU
    it is the library's way to the arithmetic, which differs. `spread` are the quantiles of a kernel's time over its
    mean, equally far apart, from the least to the most. `compute_capability` is 90 for NVIDIA's 9.0: NCCL's choices
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
    spread: tuple[float, ...] = ()
    compute_capability: int = 90
    multiprocessors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """How the GPUs of one host reach each other: each GPU has one such link in, and one out.

    "nvlink": every pair at the GPU's full rate (NVSwitch). "pcie": the GPUs also share the host's bridge, whose rate
    in each direction is `bridge_bytes_per_s`. "memory": ranks of one host exchange through its memory, shared by all,
    at `bridge_bytes_per_s`.
    """

    kind: Literal["nvlink", "pcie", "memory"]
    link: Link
    bridge_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nics:
    """The network interfaces of one host: `per = "gpu"` gives each GPU its own, `per = "host"` shares `count` of them.

    With `per = "host"`, GPU i uses NIC i mod count. One TCP connection carries `connection_bytes_per_s` at most, and no
    more than `window_bytes` in the time that a packet takes there and back; None: as much as the links. gloo has one
    connection for each pair of ranks, NCCL as many as it needs.
    """

    per: Literal["gpu", "host"]
    count: int
    link: Link
    connection_bytes_per_s: float | None = None
    window_bytes: int | None = None


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
    direction, the sum of its hosts' NIC rates divided by `oversubscription`.
    """

    kind: Literal["non_blocking", "leaf_spine"]
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
    """`hosts` machines that are alike. Rank r is GPU r mod gpus of host r // gpus.

    `payload_share` is the part of a network link's rate that carries payload (headers take the rest);
    `nccl_efficiency` what NCCL's pipelines reach of what the links carry. With `tcp` the hosts' side is known; with
    `hosts_share_cores` all hosts are emulated on one machine, whose `host.cores` they share. For GPUs gloo adds and
    copies in the host's memory, of which a core reads and writes `core_bytes_per_s` (None: that takes no time).
    """

    profile: str
    hosts: int
    host: Host
    network: Network
    payload_share: float = 1.0
    nccl_efficiency: float = 1.0
    core_bytes_per_s: float | None = None
    tcp: Tcp | None = None
    hosts_share_cores: bool = False

    @property
    def world_size(self) -> int:
        """GPUs in all."""
        return self.hosts * self.host.gpus
