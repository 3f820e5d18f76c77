"""The rows that a run records, the same for simulated and real runs; imports neither torch nor simpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scenarios.compute_kernel import ComputeKernel
from scenarios.sharding_kind import ShardingKind

# Incremented when earlier releases would misread a run; a new field with a default needs no increment.
SCHEMA_VERSION = 1

# Keys of a scenario that change how it is simulated, not what it computes and sends; not part of a run's digest, so
# that such runs stay comparable.
PLAYING = frozenset(
    {"path", "payload", "fidelity", "timeout_s", "compute_times", "balanced", "ranks", "rests_on", "known_errors"}
)

# Special `MemoryRow.phases`: allocated in all phases; in the host's memory; kept by an allocator for later.
ALWAYS, IN_HOST, CACHED = "always", "host memory", "cached"

# `Span.kernel` of work outside the rank's compute units: data loaders, copies to the GPU.
LOADING, COPYING = "data_loader", "memcpy"

# Steps timed with the recording off are used only if there are this many: one outlier would weigh too much.
LEAST_UNRECORDED = 3

# `RunInfo.played_on` of a run on emulated hosts.
EMULATED_HOSTS = "emulated hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation of one rank. Times are integer ns on the run's common axis; bytes are payload, not wire bytes.

    A collective starts on a rank when that rank enters it, so that its duration includes waiting for late members.
    """

    rank: int
    host: int
    stream: str
    step: int  # -1 outside of steps; a "step" with -1 was timed with the recording off, and has the label "step 7"
    sequence: int  # operations that this rank issued on this stream before
    kind: str  # a verb's name ("all_to_all_single", "compute", ...) or "step"
    label: str  # the program's name for it
    group: str
    # Collectives of the group before, equal on all members; -1 for other kinds. A computation from a profiler's trace:
    # which occurrence of its annotation, in the step that launched it.
    call: int
    issued_ns: int  # <= start_ns <= end_ns
    start_ns: int
    end_ns: int
    wait_from_ns: int  # when the program was blocked in `await`; equal if it was not, -1 if never awaited
    wait_until_ns: int
    bytes_in: int = 0  # size of the rank's input tensors
    bytes_out: int = 0  # size of its outputs
    bytes_sent: int = 0  # for other ranks, in an all-to-all, a send or as root of a broadcast; else `bytes_in`
    dtype: str = ""
    kernel: str = ""
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    rank_count: int = 1  # ranks that this one represents
    formula_ns: int = -1  # NCCL's own estimate for a simulated collective on an idle cluster; -1 where it has none
    launch_ns: int = 0  # part of a simulated computation in which it waits for the host to launch its kernels
    recomputed_flops: float = 0.0  # part of `flops` that recomputes forward results
    operations: str = ""  # by `operations.as_json`, of a measured computation that is a single operator
    role: str = ""  # one of `roles.ROLES`; "" if unknown
    sharding: str = ""  # the `ShardingKind` of the tables that it is for; "" if none, or of several


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number recorded by the program."""

    rank: int
    step: int
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One shard of one table, as placed by the planner. Offsets and sizes are in elements."""

    table: str
    sharding_type: str
    compute_kernel: str
    shard: int
    rank: int
    row_offset: int
    column_offset: int
    rows: int
    columns: int
    storage_bytes: int  # of device memory
    perf_ms: float  # as the planner expects: lookup, update and exchanges
    ids_per_step: float  # ids that the shard's rank looks up in it, as the planner expects
    host_bytes: int = 0  # of host memory, in addition
    forward_ms: float = 0.0  # of `perf_ms`, the lookup
    backward_ms: float = 0.0  # of `perf_ms`, the update
    look_up_bytes: float = 0.0  # as the simulator prices the first of a run of row blocks; 0 if unknown
    update_bytes: float = 0.0

    @property
    def kernel(self) -> ComputeKernel:
        """Compute kernel, as a value with its properties."""
        return ComputeKernel(self.compute_kernel)

    @property
    def sharding_kind(self) -> ShardingKind:
        """Sharding type, as a value with its properties."""
        return ShardingKind(self.sharding_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Device memory of one rank that one part ("embedding weights", "activations", ...) occupies.

    `phases` are the phases of a step in which it is allocated ("forward", "backward", "update", separated by spaces),
    or ALWAYS; a part that grows or shrinks has several rows. IN_HOST: it occupies host memory, of which
    `capacity_bytes` is the rank's share. CACHED: it is allocated, but given up when memory runs short.
    """

    rank: int
    part: str
    size_bytes: int
    capacity_bytes: int
    rank_count: int = 1  # ranks that this one represents
    phases: str = ALWAYS
    kind: str = ""  # what the memory is for, as in `scenarios.seam.memory`; "" if nothing there fits, or unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """Traffic of one link over the run."""

    link: str
    link_class: str  # "nvlink", "pcie", "memory", "host" (a GPU's path to its host's memory), "nic" or "uplink"
    direction: str  # "out" or "in" as seen from the link's owner
    host: int
    bytes_carried: float
    busy_ns: int  # time in which it carried anything
    bytes_per_s: float  # mean over the run of its rate, which faults change
    link_count: int = 1  # links that this one represents


@dataclass(slots=True)  # not frozen: runs have very many, and frozen ones take three times as long to make
class LoadRow:
    """Traffic of one link, named as in LinkRow, in one period of the run with hardly any pauses.

    A link's periods are in order, do not overlap, and add up to its traffic. Pauses lie between periods; for links with
    very many periods, neighbours are merged, pauses included. `link_count` as in LinkRow.
    """

    link: str
    direction: str
    from_ns: int
    until_ns: int
    bytes_carried: float
    link_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRow:
    """Bytes that one host's GPUs sent to those of another host over the run, as links count them.

    `bytes_carried` is sent by one host of `from_host`'s class to all other hosts of `to_host`'s class, over any number
    of links and relays; `bytes_inside`, only in rows of a host to itself, went from GPU to GPU inside it. `from_host`
    represents `host_count` hosts.
    """

    from_host: int
    to_host: int
    bytes_carried: float
    bytes_inside: float
    host_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One distinct operator that the GPU of the first simulated rank runs; the first step is excluded.

    Times are means over calls on an idle GPU at nominal speed, without launches.
    """

    operator: str  # torch's name or the description's; else the kernel's kind, or the label of a measured computation
    shapes: str
    # "law", "table" (a law with measured operators), "roofline" or "measured" (`run.compute_times`, or a row of
    # `cluster.gpu.kernel_table` that describes the operator itself), "recurrence": a less certain law.
    priced_by: str
    predicted_us: float  # of one call
    count: float  # calls per step, on average
    share: float  # of the time of all kernels of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """An operator of a module that runs in computations of one label, forward or backward, on any rank."""

    label: str
    layer: str  # path of the module below the outermost one; that one's class for its own operators; "" if unknown
    operator: str  # as in KernelRow
    shapes: str
    share: float  # of these computations' time on an idle GPU, without launches


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One distinct operator of all simulated ranks, and its calls; calls that differ only in drawn ids are one."""

    operations: str
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """The predicted step with one change to the scenario; a run's first row is the unchanged scenario.

    Numbers are those of the median steady step, transfer and waiting of the mean rank; 0 where the simulation did not
    finish.
    """

    change: str
    options: str  # which make the change on a command line
    status: str  # as for a study's point, like `sentence`
    sentence: str
    step_ns: float
    samples_per_s: float
    transfer_ns: float
    wait_ns: float
    group: str = ""  # "setting", "hardware", "more" or "diagnosis"; "" for the unchanged scenario
    usd_per_1e9_samples: float = 0.0  # $ for training on 10^9 samples; 0 where price or samples are unknown
    # Samples (or steps) per second relative to the unchanged scenario, the median over pairs of steps of all draws,
    # between `speed_low` and `speed_high`; 0 if unknown.
    speed: float = 0.0
    speed_low: float = 0.0
    speed_high: float = 0.0
    tables: int = 0
    tables_moved: int = 0  # tables that are placed differently than in the unchanged scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change of a prediction's program that was simulated in addition, and the time per step that it saves."""

    change: str
    made_by: str  # how to make the change, in words; or why it does not apply, if it saves 0
    saved_ns: float  # median over steps
    share: float  # of the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinned:
    """The spans that a prediction kept, in addition to all spans of kind "step": those of `ranks` in `steps`."""

    ranks: tuple[int, ...] | None  # None: all
    steps: tuple[int, ...] | None  # None: all, and spans outside of steps
    left_out: int  # number of other spans
    phases: tuple[int, ...]  # steps with other operations than the step before, which the kept spans may not show
    steady: tuple[int, ...] | None = None  # where `steady_steps` begin and end, in turn; None: an earlier release


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The origin of a run: its scenario, hosts and versions, and whether it is complete."""

    name: str
    world: str  # "sim" or "real"
    digest: str
    scenario: dict[str, Any]
    seed: int
    world_size: int
    started: str
    versions: dict[str, str]
    hosts: tuple[str, ...]
    complete: bool = True  # false if it ended early
    error: str = ""  # why it ended early
    clock_residual_ns: int = 0
    elapsed_s: float = 0.0
    played_on: str = ""  # a real run's hosts: "this machine", EMULATED_HOSTS, "torchrun" or "srun"; "": unknown
    thinned: Thinned | None = None  # which spans were left out on purpose
    host_counts: tuple[tuple[int, int], ...] = ()  # representative hosts and their counts; empty: all were simulated
    cores: int = 0  # of a real run's machines; 0: unknown
    devices: tuple[str, ...] = ()  # names of its GPUs or processors
    plan_notes: tuple[str, ...] = ()  # assumptions behind a comparison of a script's plan with ours, in sentences
    step_samples: int = 0  # of a rank in a step, as a script's lookups show it; 0: unknown
    left_out: tuple[str, ...] = ()  # parts of steps that are not predicted, in words
    on_cpu: tuple[str, ...] = ()  # host computation concurrent with the GPUs, in words
    advice: tuple[Advice, ...] = ()  # simulated changes of the program and their savings, the largest first
    rank_classes: tuple[tuple[int, int, str], ...] = ()  # (simulated rank, size of its class, the class in words)
    schema_version: int = SCHEMA_VERSION


@dataclass(slots=True, kw_only=True)
class Recording:
    """A complete run in memory."""

    info: RunInfo
    spans: list[Span] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    plan: list[PlanRow] = field(default_factory=list)
    own_plan: list[PlanRow] = field(default_factory=list)  # our planner's, where `plan` is a script's
    memory: list[MemoryRow] = field(default_factory=list)
    links: list[LinkRow] = field(default_factory=list)
    loads: list[LoadRow] = field(default_factory=list)
    traffic: list[TrafficRow] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)  # in predictions on GPUs
    operators: list[OperatorRow] = field(default_factory=list)  # in predictions on GPUs
    layers: list[LayerRow] = field(default_factory=list)  # in predictions of programs that run modules
    what_if: list[ChangeRow] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # texts of a user's program's files, by name
    kept: dict[str, bytes] = field(default_factory=dict)  # the program's further files, by name
