"""How the steps of a scenario are run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from scenarios.config.compute_times import ComputeTimes
from scenarios.config.interconnect import LibraryName
from scenarios.config.keys import Key
from scenarios.config.toml.values import CountOrZero, Duration, File, Repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How the steps are run.

    `compute_times` and `balanced` change predictions only. `chosen`: why `ranks` and `fidelity` have their values, if
    the file leaves them open. `folded_by`: the options that simulate one host of each host class for all; "": none do.
    """

    # Three, because the first step of a run often differs from the others.
    steps: Annotated[Repeats, "Training steps to run. Default 3."] = 3
    seed: Annotated[CountOrZero, "Seed of ids, splits and initial weights. Default 0."] = 0
    batch_size: Annotated[
        Repeats, "Samples per rank and step; required by program 'dlrm', without effect in others."
    ] = 1
    payload: Annotated[
        Literal["values", "sizes"],
        "'values' moves and computes true tensors, 'sizes' only their shapes. Default 'sizes'.",
    ] = "sizes"
    fidelity: Annotated[
        Literal["flows", "links"],
        "'flows' simulates each transfer of a collective; 'links' does so in groups of up to 64 ranks, and of larger"
        " ones more coarsely. Default 'links' where hosts are simulated once, else 'flows'.",
    ] = "flows"
    ranks: Annotated[
        Literal["each", "alike"],
        "'each' simulates every rank; 'alike' simulates identical hosts once, using expected id counts instead of"
        " sampled ones. Not with fidelity 'flows', payload 'values', library 'gloo' or random splits. Default 'alike'"
        " where none of these is asked for and all ranks would take long (over 256 GPUs, a minute, 4 GiB), else"
        " 'each'.",
    ] = "each"
    library: Annotated[
        LibraryName, "The collectives' library. Default 'nccl' where cluster.gpu.kind is 'cuda', else 'gloo'."
    ]
    timeout_s: Annotated[
        float,
        Key(
            "timeout",
            "After how long without progress a real run gives up. Default '60 s'.",
            accepts=Duration,
            read=lambda time_ns: time_ns / 1e9,
        ),
    ] = 60.0
    compute_times: Annotated[
        ComputeTimes | None,
        Key(
            doc="CSV of measured times of computations, which the prediction takes. Relative to this file. Default:"
            " none.",
            accepts=File,
        ),
    ] = None
    balanced: Annotated[
        bool,
        "Whether the prediction gives each rank the mean of all ranks' work, as if it were perfectly balanced. Default"
        " false.",
    ] = False
    chosen: str = field(default="", metadata={"is_of_playing": True})
    folded_by: str = field(default="", metadata={"is_of_playing": True})
