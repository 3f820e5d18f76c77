"""The rows that a run records, the same in the simulated and the real world; imports neither torch nor simpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scenarios.compute_kernel import ComputeKernel
from scenarios.sharding_kind import ShardingKind

SCHEMA_VERSION = 1  # grows when earlier releases would misread what is written, which a field with a default is not

# Keys of a scenario that change how it is simulated, not what it computes and sends: digests, by which runs are
# compared, leave them out.
PLAYING = frozenset(
    {"path", "payload", "fidelity", "timeout_s", "compute_times", "balanced", "ranks", "rests_on", "known_errors"}
)

# `MemoryRow.phases` of a part that is always there, of one in the host's memory, of what an allocator keeps for later.
ALWAYS, IN_HOST, CACHED = "always", "host memory", "cached"

# `Span.kernel` of computations that take nothing of what a rank computes with: data loaders' work, copies to the GPU.
LOADING, COPYING = "data_loader", "memcpy"

# Fewer steps that were timed with the recording off do not say a step's time: one odd step would count for too much.
LEAST_UNRECORDED = 3

# `RunInfo.played_on` of a run on hosts that were emulated.
EMULATED_HOSTS = "emulated hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation of one rank. Times are integer ns on the run's one axis; bytes are payload, not wire bytes.

    kind: a verb's name ("all_to_all_single", "compute", ...) or "step". `label` is the program's word for it. A step
    with `step` -1 is one that was timed with the recording off, behind those of the run; "step 7" is its label.
    `issued_ns` <= `start_ns` <= `end_ns`. A collective starts on a rank when that rank enters it, so waiting for late
    members is inside. `wait_from_ns` to `wait_until_ns` is when the program stood still in `await` (equal if it did
    not; -1 if never awaited). `sequence` counts what this rank issued on this stream. `call` counts a group's
    collectives and is the same number on every member (-1 for others; of a computation in a profiler's trace, which
    opening of its annotation in the step it was launched in). `rank_count` ranks are represented by this one.
    `bytes_in` is the size of the rank's input tensors, `bytes_out` of its outputs; `bytes_sent` of what it gives to
    other ranks in an all-to-all, a send or as root of a broadcast, else `bytes_in`.
    `formula_ns` is what NCCL itself expects of a simulated collective on an idle cluster; -1 where it expects nothing.
    `launch_ns` is the part of a simulated computation in which it waits for the host to launch its kernels.
    `recomputed_flops` are those of `flops` that are a kernel's `recomputed_flops`. `role` is what it is for, one of
    `roles.ROLES`; "": nobody has said.
    `operations` describe the operator that all of a measured computation was, by `operations.as_json`; else it is "".
    """

    rank: int
    host: int
    stream: str
    step: int
    sequence: int
    kind: str
    label: str
    group: str
    call: int
    issued_ns: int
    start_ns: int
    end_ns: int
    wait_from_ns: int
    wait_until_ns: int
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_sent: int = 0
    dtype: str = ""
    kernel: str = ""
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    rank_count: int = 1
    formula_ns: int = -1
    launch_ns: int = 0
    recomputed_flops: float = 0.0
    operations: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number that the program recorded."""

    rank: int
    step: int
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One shard of one table: where the planner put it. Offsets and sizes in elements; perf in ms, storage in bytes.

    `ids_per_step` is how many ids this shard's rank looks up in it each step, as expected by the planner.
    `storage_bytes` are of the device's memory, `host_bytes` of the host's beside it. Of `perf_ms` the look-up takes
    `forward_ms` and the update `backward_ms`; the rest are exchanges. `look_up_bytes` and `update_bytes` are what these
    two move as the simulator prices them, of blocks of rows as the first one; 0 where nobody has said.
    """

    table: str
    sharding_type: str
    compute_kernel: str
    shard: int
    rank: int
    row_offset: int
    column_offset: int
    rows: int
    columns: int
    storage_bytes: int
    perf_ms: float
    ids_per_step: float
    host_bytes: int = 0
    forward_ms: float = 0.0
    backward_ms: float = 0.0
    look_up_bytes: float = 0.0
    update_bytes: float = 0.0

    @property
    def kernel(self) -> ComputeKernel:
        """What its compute kernel is."""
        return ComputeKernel(self.compute_kernel)

    @property
    def sharding_kind(self) -> ShardingKind:
        """What its sharding type is."""
        return ShardingKind(self.sharding_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """What one part ("embedding weights", "activations", ...) takes of one rank's device memory.

    `rank_count` ranks are represented by this one. `phases`: those of a step in which it is there, "forward",
    "backward" and "update", with a space between, or ALWAYS; a part that grows or shrinks has several rows. IN_HOST: it
    takes nothing of the device, but of the host's memory, of which `capacity_bytes` is the rank's share. CACHED: it is
    there, but leaves room for whatever needs it.
    """

    rank: int
    part: str
    size_bytes: int
    capacity_bytes: int
    rank_count: int = 1
    phases: str = ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """What one link carried over the run. `busy_ns` is the time in which it carried anything.

    `link_class` is "nvlink", "pcie", "memory", "host" (a GPU's path to its host's memory), "nic" or "uplink";
    `direction` "out" or "in" as seen from its owner. `link_count` links are represented by this one.
    """

    link: str
    link_class: str
    direction: str
    host: int
    bytes_carried: float
    busy_ns: int
    bytes_per_s: float
    link_count: int = 1


@dataclass(slots=True)  # not frozen: there are very many, and this makes each in a third of the time
class LoadRow:
    """What one link, as LinkRow names it, carried in one period of a run, in which it mostly did not pause.

    A link's periods are in order, do not overlap, and add up to what it carried. Pauses are between them; of a link
    with very many, neighbours are put together, pauses and all. `link_count` as in LinkRow.
    """

    link: str
    direction: str
    from_ns: int
    until_ns: int
    bytes_carried: float
    link_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRow:
    """What one host's GPUs gave to those of another host over the run, as links count bytes.

    `bytes_carried` is what one host of `from_host`'s class gave to all other hosts of `to_host`'s, over however
    many links and relays; `bytes_inside`, of a host to itself alone, what went from GPU to GPU inside it. `from_host`
    represents `host_count` hosts.
    """

    from_host: int
    to_host: int
    bytes_carried: float
    bytes_inside: float
    host_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One distinct operator that the GPU of the first simulated rank runs in a step, `count` times in the mean.

    Steps are all but the first. Times are means over calls of an idle GPU at its nominal speed, without launches.

    Attributes:
        operator: torch's name, or what the operator's description is; of a kernel without one its kind, of a
            computation whose time was measured its label.
        priced_by: "law", "table" (a law with measured operators), "roofline" or "measured" (`run.compute_times`, or a
            row of `cluster.gpu.kernel_table` that describes the operator itself).
        predicted_us: time of one call.
        share: of the time of all kernels of a step.
    """

    operator: str
    shapes: str
    priced_by: str
    predicted_us: float
    count: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One distinct operator of all simulated ranks and its calls; those with somewhat other drawn ids are one."""

    operations: str
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """What the run would be with one thing of its scenario changed; the first row of a run is the scenario as it is.

    `status` and `sentence` are as of a study's point, `options` make the change on a command line. Numbers are of the
    median steady step, its transfer and waiting those of the mean rank; 0 where it was not played to its end.

    Attributes:
        group: "setting", "hardware" or "diagnosis"; "" of the scenario as it is.
        usd_per_1e9_samples: $ of training on 10^9 samples; 0 where the price or the samples are not known.
        speed: samples (or steps) a second over those of the scenario as it is, the median over pairs of steps of all
            draws, between `speed_low` and `speed_high`; 0 where it is not known.
        tables_moved: how many of the `tables` lie elsewhere than in the scenario as it is.
    """

    change: str
    options: str
    status: str
    sentence: str
    step_ns: float
    samples_per_s: float
    transfer_ns: float
    wait_ns: float
    group: str = ""
    usd_per_1e9_samples: float = 0.0
    speed: float = 0.0
    speed_low: float = 0.0
    speed_high: float = 0.0
    tables: int = 0
    tables_moved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change of a prediction's program that was simulated beside it, and what it saves of a step.

    `change` is its name, `made_by` how it is made, in words. `saved_ns` is the median over steps, `share` its share of
    the step; both are 0 where the program cannot have the change, and `made_by` says why.
    """

    change: str
    made_by: str
    saved_ns: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinned:
    """Which spans a prediction kept beside every step's own, of kind "step": those of `ranks` in `steps`.

    None: all; with None for `steps`, also spans outside of steps. `left_out` counts the other spans.
    `phases` are the steps that used other operations than the step before, which the spans that are left need not show;
    `steady` are the steps where `steady_steps` begin and end, in turn; None: a release that did not keep them.
    """

    ranks: tuple[int, ...] | None
    steps: tuple[int, ...] | None
    left_out: int
    phases: tuple[int, ...]
    steady: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Which run this was. `world` is "sim" or "real"; `complete` is false when it ended early, and `error` says why.

    `played_on`: a real run's hosts: "this machine", EMULATED_HOSTS, or those of "torchrun" or "srun"; "": not known.
    `thinned`: which spans were left out by choice. `host_counts`: each representative host and how many hosts it
    represents; empty: every host was simulated. `cores`: of a real run's machines; 0: not known. `devices`: its GPUs or
    processors by name. `plan_notes`: on what a comparison of a script's plan with ours rests, in sentences.
    `left_out`: what steps did of which nothing is predicted, in words; `on_cpu`: what hosts computed beside their GPUs.
    `advice`: what changes of the program save that were simulated beside it, the largest first.
    `rank_classes`: each rank of a script that was played for its class, how many ranks that has, and which, in words.
    """

    name: str
    world: str
    digest: str
    scenario: dict[str, Any]
    seed: int
    world_size: int
    started: str
    versions: dict[str, str]
    hosts: tuple[str, ...]
    complete: bool = True
    error: str = ""
    clock_residual_ns: int = 0
    elapsed_s: float = 0.0
    played_on: str = ""
    thinned: Thinned | None = None
    host_counts: tuple[tuple[int, int], ...] = ()
    cores: int = 0
    devices: tuple[str, ...] = ()
    plan_notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    rank_classes: tuple[tuple[int, int, str], ...] = ()
    schema_version: int = SCHEMA_VERSION


@dataclass(slots=True, kw_only=True)
class Recording:
    """A whole run in memory."""

    info: RunInfo
    spans: list[Span] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    plan: list[PlanRow] = field(default_factory=list)
    own_plan: list[PlanRow] = field(default_factory=list)  # by our planner, where `plan` is a script's
    memory: list[MemoryRow] = field(default_factory=list)
    links: list[LinkRow] = field(default_factory=list)
    loads: list[LoadRow] = field(default_factory=list)
    traffic: list[TrafficRow] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)  # of a prediction on GPUs
    operators: list[OperatorRow] = field(default_factory=list)  # likewise
    what_if: list[ChangeRow] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # texts of the files of a program of one's own, by name
    kept: dict[str, bytes] = field(default_factory=dict)  # further files, which the program leaves, by name
