"""A training job of days: its length, checkpoints, failures and recovery; `sim.job` plays it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from scenarios.config.keys import OnlyWith
from scenarios.config.toml.values import (
    Count,
    CountOrZero,
    Days,
    Duration,
    DurationOrZero,
    Efficient,
    NotNegative,
    PerDay,
    Profile,
    Rate,
    Repeats,
    Reserve,
    Samples,
    Size,
    Text,
    Usd,
)

_S, _MIN, _H = 10**9, 60 * 10**9, 3600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKind:
    """One kind of interruption of a job: its rates and its effects.

    The three rates add up.
    """

    name: Annotated[Text, "Name of the kind in reports, such as 'GPU' or 'host maintenance'. Required."]
    per_gpu_day: Annotated[PerDay, "Interruptions a day of each GPU. Default 0."] = 0.0
    per_host_day: Annotated[PerDay, "Interruptions a day of each host. Default 0."] = 0.0
    per_day: Annotated[PerDay, "Interruptions a day of the job, whatever its size. Default 0."] = 0.0
    planned: Annotated[
        bool,
        "Whether the interruption is announced: a checkpoint is written before it, so that no work is lost and"
        " nothing has to be detected. Default false.",
    ] = False
    loses_host: Annotated[
        bool, "Whether a host must be replaced; otherwise the job restarts on the same hosts. Default false."
    ] = False
    repair_ns: Annotated[
        DurationOrZero, "Time until a lost host comes back as a spare. Default '24 h'; source: assumed."
    ] = 24 * _H
    detection_ns: Annotated[
        DurationOrZero | None,
        "Time until the job notices the failure. Default: `detection` of [job.recovery].",
    ] = None
    slow_part: Annotated[
        Literal["gpu", "nic"] | None,
        "Part of one host that is slow for a while before the interruption. Default: none.",
    ] = None
    slow_speed: Annotated[Efficient, "Share of its rates that the slow part reaches. Default 0.5; source: assumed."] = (
        0.5
    )
    slow_for_ns: Annotated[DurationOrZero, "Time for which the part is slow. Default '10 min'; source: assumed."] = (
        10 * _MIN
    )

    def per_s(self, hosts: int, gpus: int) -> float:
        """Return the interruptions a second of a job on `hosts` hosts with `gpus` GPUs in all."""
        return (self.per_day + self.per_host_day * hosts + self.per_gpu_day * gpus) / 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Rates of interruptions by kind; times between interruptions of a kind are exponentially distributed."""

    profile: Annotated[
        Profile | None,
        "Failures of a known cluster: name of a ready failure profile, or a path that ends in .toml. Default: none.",
    ] = None
    source: Annotated[Text, "Source of the rates. Default: none."] = ""
    date: Annotated[Text, "Date of the rates, such as '2024-07'. Default: none."] = ""
    grade: Annotated[
        Literal["read", "memory"] | None,
        "Whether the rates were read in the source, or are from memory. Default: none.",
    ] = None
    kinds: Annotated[
        tuple[FailureKind, ...],
        "The kinds of interruption; none: no failures happen. Default without [job.failures]: those of a known cluster,"
        " llama3_h100 from the H100 on, rsc1_a100 on older GPUs; none on processors.",
    ] = ()
    scale: Annotated[NotNegative, "Factor on all rates. Default 1."] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Times of a recovery, from the failure to the first step after it."""

    detection_ns: Annotated[
        DurationOrZero,
        "Time until the job notices a failure. Default '10 min'; source: timeout of torch.distributed's NCCL groups"
        " (torch 2.13, `default_pg_nccl_timeout`).",
    ] = 10 * _MIN
    schedule_ns: Annotated[
        DurationOrZero,
        "Time until the scheduler starts the job again. Default '30 s'; source: assumed.",
    ] = 30 * _S
    start_ns: Annotated[
        DurationOrZero,
        "Time to start containers and processes, imports and model included. Default '60 s'; source: assumed.",
    ] = 60 * _S
    setup_ns: Annotated[
        DurationOrZero,
        "Time to set process groups up, besides `setup_per_rank`. Default '5 s'; source: assumed.",
    ] = 5 * _S
    setup_per_rank_ns: Annotated[
        DurationOrZero,
        "Additional time to set process groups up, for each rank. Default '2 ms'; source: assumed.",
    ] = 2 * 10**6
    replacement_ns: Annotated[
        DurationOrZero,
        "Time to put a spare host in the place of a lost one. Default '2 min'; source: assumed.",
    ] = 2 * _MIN

    def restart_ns(self, ranks: int) -> int:
        """Return the time from the scheduler to process groups of `ranks` ranks."""
        return self.schedule_ns + self.start_ns + self.setup_ns + self.setup_per_rank_ns * ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Contents, place, times and interval of checkpoints."""

    interval_ns: Annotated[
        Duration | None,
        "Training time between two checkpoints. Default: the one with the highest goodput.",
    ] = None
    interval_steps: Annotated[Repeats | None, "The interval in steps, instead of `interval`."] = None
    kind: Annotated[
        Literal["blocking", "async"],
        "'blocking': training waits until the checkpoint is written; 'async': training waits for its copy into the"
        " host's memory, and the write overlaps with steps. Default 'blocking'.",
    ] = "blocking"
    to: Annotated[
        Literal["store", "ssd", "host"],
        "'store': a store that all hosts share; 'ssd': the host's own disk; 'host': its memory. With 'ssd' and 'host'"
        " each checkpoint is also sent to another host, because a lost host loses its disk and memory. Default"
        " 'store'.",
    ] = "store"
    shards: Annotated[
        Literal["ranks", "rank0"], "Whether every rank writes its own part, or rank 0 writes all. Default 'ranks'."
    ] = "ranks"
    store_rate: Annotated[
        Rate, "Rate of the store, which all hosts share. Default '100 GB/s'; source: assumed.", OnlyWith(to=("store",))
    ] = 100e9
    host_rate: Annotated[
        Rate | None,
        "Rate of one host to the store or to its disk. Default: all its NICs, or '5 GB/s' for a disk; source: assumed.",
    ] = None
    over: Annotated[
        Literal["network", "own"],
        "'network': checkpoints share the NICs with the step's messages; 'own': hosts have another network for storage."
        " Default 'own'.",
        OnlyWith(kind=("async",)),
    ] = "own"
    size_bytes: Annotated[
        Size | None, "Bytes of a whole checkpoint of all ranks. Default: computed from the model."
    ] = None
    write_ns: Annotated[DurationOrZero | None, "Time to write a checkpoint. Default: computed from its bytes."] = None
    staging_ns: Annotated[
        DurationOrZero | None,
        "Time that kind 'async' copies into the host's memory. Default: computed from the bytes.",
        OnlyWith(kind=("async",)),
    ] = None
    restore_ns: Annotated[
        DurationOrZero | None,
        "Time to load a checkpoint. Default: as `write`, else computed from its bytes.",
    ] = None
    overhead_ns: Annotated[
        DurationOrZero,
        "Time of each checkpoint, and of loading one, in addition to the time for its bytes. Default '0 s'.",
    ] = 0
    restore_rate: Annotated[
        Rate | None, "Rate at which all hosts together load a checkpoint. Default: the rate at which they write it."
    ] = None
    full_every: Annotated[
        Count,
        "Every n-th checkpoint is whole; those between hold only the rows that were looked up since the last whole"
        " one, as Check-N-Run does. Default 1.",
    ] = 1
    table_bits: Annotated[
        Literal[2, 3, 4, 8, 16, 32],
        "Bits of each value of a table in checkpoints, if it has more in training. With 8 bits or fewer each row has"
        " 8 bytes more, its scale and offset. Default 32.",
    ] = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A job of days on the cluster: its length, hosts and interruptions. To be simulated, a job needs one goal."""

    samples: Annotated[Samples | None, "Number of samples to train on. One of samples, days and budget_usd."] = None
    days: Annotated[Days | None, "Length of the job in days, instead of `samples`."] = None
    budget_usd: Annotated[Usd | None, "Price of all GPU hours in dollars, instead of `samples`."] = None
    step_ns: Annotated[Duration | None, "Time of a step. Default: predicted; required in a file without `program`."] = (
        None
    )
    input_stall: Annotated[Reserve, "Share of training time in which GPUs wait for samples. Default 0."] = 0.0
    evaluation_ns: Annotated[DurationOrZero, "Time of one evaluation, during which no step runs. Default '0 s'."] = 0
    evaluation_every_ns: Annotated[
        Duration, "Training time between two evaluations. Default '24 h'; source: assumed."
    ] = 24 * _H
    spare_hosts: Annotated[CountOrZero, "Hosts, paid for, that wait to replace lost ones. Default 0."] = 0
    standby: Annotated[
        Literal["cold", "hot"],
        "'cold': a spare host takes `replacement` of [job.recovery] to join; 'hot': it runs the job's processes already"
        " and joins at once. Default 'cold'.",
    ] = "cold"
    without_spare: Annotated[
        Literal["wait", "shrink"],
        "Without a spare, a job that lost a host waits for the repair ('wait'), or continues on fewer hosts ('shrink'),"
        " with their predicted step, until a host comes back. Default 'wait'.",
    ] = "wait"
    fewest_hosts: Annotated[
        Count | None,
        "Hosts below which a shrunk job waits. Default: half of them.",
        OnlyWith(without_spare=("shrink",)),
    ] = None
    draws: Annotated[
        Repeats,
        "Number of jobs that are simulated with different failures. Default 1000; source: chosen here.",
    ] = 1000
    checkpoint: Annotated[Checkpoints, "Checkpoints. Default: the default of each key."] = Checkpoints()
    failures: Annotated[Failures, "Failures. Default: none."] = Failures()
    recovery: Annotated[Recovery, "Times of a recovery. Default: the default of each key."] = Recovery()
