"""The shape of a scenario file's [cluster]: its tables, keys and what each accepts."""

from __future__ import annotations

from typing import Literal

from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import (
    Acknowledged,
    AtLeastOne,
    Count,
    Efficient,
    FlopRate,
    Latency,
    Machines,
    Name,
    NvLinks,
    Payload,
    Place,
    Profile,
    Quantiles,
    Rate,
    Size,
)


class Efficiency(Section):
    """The share of the peak rates that each kind of kernel reaches; 'default' is for those not listed."""

    gemm: Efficient | None = about("Matrix multiplications. Default: that of 'default'.")
    embedding_lookup: Efficient | None = about("Gathering and pooling embedding rows. Default: that of 'default'.")
    embedding_update: Efficient | None = about("Scattering gradients into embedding rows. Default: that of 'default'.")
    bucketize: Efficient | None = about("Sorting ids into the buckets of their shards. Default: that of 'default'.")
    permute: Efficient | None = about("Reordering jagged features. Default: that of 'default'.")
    elementwise: Efficient | None = about("Activations, sums and copies. Default: that of 'default'.")
    reduction: Efficient | None = about("Checksums. Default: that of 'default'.")
    qr: Efficient | None = about("QR in PowerSGD. Default: that of 'default'.")
    optimizer: Efficient | None = about("Updating dense parameters. Default: that of 'default'.")
    default: Efficient | None = about("Every kind of kernel that is not listed. Default 1.")


class Launches(Section):
    """What launching one kernel of each kind costs, where that differs; a calibration writes it."""

    gemm: Latency | None = about("Matrix multiplications. Default: cluster.gpu.launch.")
    embedding_lookup: Latency | None = about("Gathering and pooling embedding rows. Default: cluster.gpu.launch.")
    embedding_update: Latency | None = about("Scattering gradients into rows. Default: cluster.gpu.launch.")
    bucketize: Latency | None = about("Sorting ids into buckets. Default: cluster.gpu.launch.")
    permute: Latency | None = about("Reordering jagged features. Default: cluster.gpu.launch.")
    elementwise: Latency | None = about("Activations, sums and copies. Default: cluster.gpu.launch.")
    reduction: Latency | None = about("Checksums. Default: cluster.gpu.launch.")
    qr: Latency | None = about("QR in PowerSGD. Default: cluster.gpu.launch.")
    optimizer: Latency | None = about("Updating dense parameters. Default: cluster.gpu.launch.")


class Ramps(Section):
    """What one kernel of each kind takes beyond its work: so small ones have a smaller efficiency."""

    gemm: Latency | None = about("Matrix multiplications. Default: cluster.gpu.ramp.")
    embedding_lookup: Latency | None = about("Gathering and pooling embedding rows. Default: cluster.gpu.ramp.")
    embedding_update: Latency | None = about("Scattering gradients into rows. Default: cluster.gpu.ramp.")
    bucketize: Latency | None = about("Sorting ids into buckets. Default: cluster.gpu.ramp.")
    permute: Latency | None = about("Reordering jagged features. Default: cluster.gpu.ramp.")
    elementwise: Latency | None = about("Activations, sums and copies. Default: cluster.gpu.ramp.")
    reduction: Latency | None = about("Checksums. Default: cluster.gpu.ramp.")
    qr: Latency | None = about("QR in PowerSGD. Default: cluster.gpu.ramp.")
    optimizer: Latency | None = about("Updating dense parameters. Default: cluster.gpu.ramp.")


class FlopRates(Section):
    """Peak arithmetic by dtype, from the datasheet and without sparsity."""

    float64: FlopRate | None = about("Peak of float64, such as '33.5 TFLOP/s'.")
    float32: FlopRate | None = about("Peak of float32, such as '67 TFLOP/s'; required.")
    bfloat16: FlopRate | None = about("Peak of bfloat16; required where a model computes in it.")
    float16: FlopRate | None = about("Peak of float16; required where a model computes in it.")


class GpuSection(Section):
    """One accelerator, or the CPU process that stands for it."""

    name: Name | None = about("What reports call it. Default: its kind.")
    kind: Literal["cuda", "cpu"] | None = about("'cuda', or 'cpu' for a process on the host's cores. Required.")
    memory: Size | None = about("Memory of one GPU, such as '80 GB'. Required.")
    memory_rate: Rate | None = about("Peak rate of that memory, such as '3.35 TB/s'. Required.")
    launch: Latency | None = about(
        "The host's time to launch one kernel, such as '4 us'; a 'cuda' GPU is at work on earlier ones meanwhile."
        " Default '0 ns'."
    )
    launches: Launches | None = about("What launching costs by kind of kernel. Default: `launch` for all.")
    ramp: Latency | None = about(
        "What one kernel takes beyond its work, until all of the GPU is busy and until its last block is through."
        " Work that takes as long reaches half of `efficiency`. Default '0 ns'."
    )
    ramps: Ramps | None = about("The same by kind of kernel. Default: `ramp` for all.")
    spread: Quantiles | None = about(
        "Quantiles of a kernel's time over its mean, equally far apart, such as [0.8, 1, 1.4]. Default: all are the"
        " mean."
    )
    compute_capability: Literal["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"] | None = about(
        "NVIDIA's number for the GPU, such as '9.0': NCCL's choices depend on it. Default '9.0'."
    )
    multiprocessors: Count | None = about(
        "Of which each of NCCL's channels takes one from kernels. Default: NCCL takes nothing from them."
    )
    flops: FlopRates | None = about("Peak arithmetic by dtype. Required.")
    efficiency: Efficiency | None = about("The share of both peaks that kernels reach. Default 1 for all.")


class InsideSection(Section):
    """How the GPUs of one host reach each other."""

    kind: Literal["nvlink", "nvlink_mesh", "pcie", "memory"] | None = about(
        "'nvlink': every pair at a GPU's full rate; 'nvlink_mesh': by NVLinks between pairs, without a switch; 'pcie':"
        " also through a shared bridge; 'memory': through host memory that all share. Required."
    )
    rate: Rate | None = about(
        "One GPU's rate in each direction, such as '450 GB/s'; with 'nvlink_mesh' one NVLink's. Required."
    )
    latency: Latency | None = about("One way between two GPUs, such as '1 us'. Required.")
    bridge_rate: Rate | None = about(
        "What all GPUs of the host share, in each direction; required by 'pcie' and 'memory', of no use to 'nvlink'."
        " With 'nvlink_mesh', where some pair has no NVLink: what such pairs share."
    )
    links: list[list[NvLinks]] | None = about(
        "NVLinks between each two GPUs, a row for each GPU, as `nvidia-smi topo -m` prints them: [[0, 2], [2, 0]]. Of"
        " more rows the first gpus_per_host count. Required by 'nvlink_mesh', of no use to others."
    )
    hosts_per_domain: Machines | None = about(
        "Hosts that one NVLink switch joins, such as 18 trays of GB200 NVL72; with several domains they divide the"
        " hosts, and each GPU has a NIC. Only for 'nvlink'. Default 1."
    )


class NicSection(Section):
    """The host's network interfaces."""

    per: Literal["gpu", "host"] | None = about("'gpu': one for each GPU; 'host': `count` for all of them. Required.")
    count: Machines | None = about("Interfaces a host; required with per = 'host', else one for each GPU.")
    rate: Rate | None = about("Rate of one interface in each direction, such as '400 Gbit/s'. Required.")
    latency: Latency | None = about("What crossing one interface takes, such as '1 us'. Required.")
    burst: Size | None = about(
        "What a shaper (tc tbf) on a link of the network lets pass at once after a pause, such as '16 KiB'."
    )
    connection_rate: Rate | None = about(
        "What one TCP connection carries at most, such as '5 Gbit/s'; NCCL opens several. Default: the links' rate."
    )
    window: Size | None = about(
        "What a TCP connection has on its way at most, such as '2.5 MB'; NCCL opens several. Default: no limit."
    )
    initial_window: Size | None = about(
        "What a TCP connection sends before anything is acknowledged, such as '14600 B', and twice as much in each"
        " round trip that follows. Default: no slow start."
    )


class NetworkSection(Section):
    """What joins the hosts."""

    kind: Literal["non_blocking", "leaf_spine", "rail_only"] | None = about(
        "'non_blocking': one ideal switch; 'leaf_spine': uplinks may be too narrow; 'rail_only': a switch for NIC j of"
        " all hosts and nothing between these, so that NVLink takes bytes to the NIC. Default 'non_blocking'."
    )
    latency: Latency | None = about("What crossing one switch takes. Default '0 ns'.")
    hosts_per_leaf: Machines | None = about(
        "Hosts on one leaf; the last leaf may have fewer. Required by 'leaf_spine'."
    )
    oversubscription: AtLeastOne | None = about(
        "A leaf's host rates over its uplink rates; 1 is enough for all. Only for 'leaf_spine'. Default 1."
    )


class TcpSection(Section):
    """What TCP and gloo's threads cost on the hosts, and how much waits where; a calibration writes it."""

    queue: Size | None = about("Bytes of one connection in the queue of its interface, such as '128 KiB'. Required.")
    send_buffer: Size | None = about("Bytes that a socket takes beyond what was acknowledged. Required.")
    acknowledgements: Acknowledged | None = about("Bytes that go back for each byte of payload. Required.")
    send_rate: Rate | None = about("What one core writes to sockets, such as '2 GB/s'. Required.")
    receive_rate: Rate | None = about("What one core reads from sockets, such as '1.5 GB/s'. Required.")
    message: Latency | None = about(
        "A core's time to read a message beside its bytes, or to go on after a wait, such as '5 us'. Required."
    )
    post: Latency | None = about("A core's time to write a message beside its bytes, such as '5 us'. Required.")
    issue: Latency | None = about("A core's time before an operation begins to send, such as '15 us'. Required.")
    wake: Latency | None = about("Until a sleeping thread runs on an idle core, in the mean: '30 us'. Required.")
    wake_spread: Quantiles | None = about(
        "Quantiles of that time over its mean, equally far apart, such as [0.6, 1, 4]. Default: all are the mean."
    )
    issue_spread: Quantiles | None = about("The same of `issue`. Default: all are the mean.")
    nap: Latency | None = about("A core that has been idle for less wakes up sooner. Default 0: none does.")
    wake_soon: Latency | None = about("Until a sleeping thread runs on such a core. Default 0.")
    verb: Latency | None = about("A core's time for a computation beside its kernel, such as '80 us'. Default 0.")
    cold: Latency | None = about("Added to `issue` after a computation of the same step. Default 0.")
    spin: Latency | None = about("How long a thread spins at most on a lock whose owner waits for a core. Default 0.")
    spin_share: Acknowledged | None = about(
        "How many of the messages are held up so that are posted while their group's are served and cores are short."
        " Default 0."
    )
    stay_share: Acknowledged | None = about(
        "How often a thread whose core is taken does not move to an idle one. Default 0."
    )


class SlowSection(Section):
    """A GPU, a NIC or a leaf that a fault makes slower than its like; neither planner nor library knows of it."""

    host: Place | None = about("Whose GPU or NIC; the first is 0. Required, except with `leaf`.")
    gpu: Place | None = about("Which GPU of the host: its kernels take longer, their launches do not.")
    nic: Place | None = about("Which interface of the host, in both directions.")
    leaf: Place | None = about("Which leaf, by its uplinks in both directions. Only for 'leaf_spine'.")
    speed: Efficient | None = about("The share of its rates that it reaches, such as 0.5. Required.")


class ClusterSection(Section):
    """Hosts that are alike, but for what is slow."""

    profile: Profile | None = about("A ready profile by name, or a path that ends in .toml. Default: none.")
    hosts: Machines | None = about("How many machines. Required.")
    gpus_per_host: Machines | None = about("GPUs, and thus ranks, on each. Required.")
    cores: Machines | None = about("CPU cores of one host. Required.")
    hosts_share_cores: bool | None = about(
        "Whether the hosts are emulated on one machine, whose cores they share. Default false."
    )
    host_memory: Size | None = about("Memory of one host, such as '2 TiB'. Required.")
    payload_share: Payload | None = about("The part of a network link's rate that headers leave to payload. Default 1.")
    nccl_efficiency: Efficient | None = about("What NCCL's pipelines reach of what all links carry. Default 1.")
    nccl_start: Latency | None = about(
        "What NCCL's collectives take at most to get going, beyond its own latencies; a tree over nodes has levels"
        " instead. Default '32 us'."
    )
    nccl_floor: Latency | None = about("What NCCL's collectives take at least, however small. Default '0 ns'.")
    nccl_sockets: Count | None = about("TCP connections that NCCL has for each pair of ranks. Default 1.")
    nccl_p2p_share: Efficient | None = about(
        "What NCCL's point-to-point exchanges reach of what it counts an NVLink for. Default 0.88."
    )
    core_rate: Rate | None = about(
        "What a core reads and writes of host memory where gloo adds for GPUs, such as '3 GB/s'. Default: no limit."
    )
    gpu: GpuSection | None = about("The accelerator. Required.")
    inside: InsideSection | None = about("Links between the GPUs of a host. Required.")
    nic: NicSection | None = about("The host's network interfaces. Required.")
    network: NetworkSection | None = about("What joins the hosts. Default: one ideal switch.")
    tcp: TcpSection | None = about("The hosts' side of gloo's messages. Default: it costs nothing.")
    slow: list[SlowSection] | None = about("Parts that are slower than their like, each one once. Default: none.")
