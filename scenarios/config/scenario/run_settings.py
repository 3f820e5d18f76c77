"""How the steps of a scenario are run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from scenarios.config.compute_times import ComputeTimes
from scenarios.config.interconnect import LibraryName
from scenarios.config.keys import Key
from scenarios.config.toml.values import Duration, File, Repeats, Seed

# Three, because the first step of a run often differs from the others.
DEFAULT_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How the steps are run.

    `compute_times` and `balanced` change predictions only. `chosen`: why `ranks` and `fidelity` have their values, if
    the file leaves them open. `folded_by`: the options that simulate one host of each host class for all; "": none do.
    """

    steps: Annotated[Repeats, "Number of steps. Default 3."] = DEFAULT_STEPS
    seed: Annotated[Seed, "Seed of ids, splits and initial weights. Default 0."] = 0
    batch_size: Annotated[
        Repeats,
        "Samples per rank, in each micro-batch of a step. Required by program 'dlrm', refused by other ready programs.",
    ] = 1
    payload: Annotated[
        Literal["values", "sizes"],
        "'values': tensors hold numbers, which are computed and sent; 'sizes': tensors only have shapes. Default"
        " 'sizes', for a script on CPUs 'values'.",
    ] = "sizes"
    fidelity: Annotated[
        Literal["flows", "links"],
        "'flows': simulate each transfer of a collective; 'links': the same for groups of up to 64 ranks, and"
        " coarser for larger ones. Default 'links' with ranks = 'alike', else 'flows'.",
    ] = "flows"
    ranks: Annotated[
        Literal["each", "alike"],
        "'each': simulate every rank; 'alike': simulate one host of each host class, with expected instead of"
        " sampled numbers of ids. 'alike' excludes fidelity 'flows', payload 'values', library 'gloo' and random"
        " splits. Default 'alike' if none of these is set and simulating every rank would be slow (over 256 GPUs,"
        " a minute or 4 GiB), else 'each'.",
    ] = "each"
    library: Annotated[
        LibraryName, "Library of the collectives. Default 'nccl' where cluster.gpu.kind is 'cuda', else 'gloo'."
    ]
    timeout_s: Annotated[
        float,
        "Time without progress after which a real run, or a predicted script, is given up. Default '60 s'.",
        Key(accepts=Duration, read=lambda time_ns: time_ns / 1e9),
    ] = 60.0
    compute_times: Annotated[
        ComputeTimes | None,
        "CSV file of measured times of computations, which a prediction uses. Relative to this file. Default: none.",
        Key(accepts=File),
    ] = None
    balanced: Annotated[
        bool,
        "Whether the prediction gives each rank the mean work of all ranks, as if the work were perfectly"
        " balanced. Default false.",
    ] = False
    chosen: str = field(default="", metadata={"is_of_playing": True})
    folded_by: str = field(default="", metadata={"is_of_playing": True})
