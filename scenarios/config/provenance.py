"""Sources of a profile's figures, and their known errors; no prediction depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from scenarios.config.keys import Key
from scenarios.config.toml.values import Duration, Error, Machines, Size, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """One group of parameters: how far the model with them is off what was measured, relative to that.

    The fit keeps the median error near 0. The worst error keeps its sign.
    """

    name: Annotated[Text, "What they describe: a kind of kernel, or of link. Required."]
    median_error: Annotated[
        Error, Key("median_error", "The median of predicted over measured, less 1. Required.", write=float)
    ]
    typical_error: Annotated[
        Error, Key("typical_error", "The median of the errors without their signs. Required.", write=float)
    ]
    worst_error: Annotated[
        Error, Key("worst_error", "That of the measurement which the model misses most. Required.", write=float)
    ]
    spread: Annotated[
        Error | None,
        Key(
            "spread",
            "Interquartile range of a measurement's repeats over their median, in the median. Default: not known.",
            write=float,
        ),
    ] = None
    least_bytes: Annotated[Size, Key("least", "The smallest size measured; what is smaller is extrapolated. Required.")]
    most_bytes: Annotated[Size, Key("most", "The largest size measured; what is larger is extrapolated. Required.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Where a profile's figures come from; allowed in profiles only, and without influence on what they predict.

    An empty text, or a duration of 0, means not known: the figures were read from logs, not measured by this project.
    """

    machine: Annotated[Text, "The machine's name. Required."]
    cpu: Annotated[Text, Key("cpu", "Its processor. Default: not known.", always=True)] = ""
    kernel: Annotated[Text, Key("kernel", "Its operating system's kernel. Default: not known.", always=True)] = ""
    python: Annotated[Text, Key("python", "Version of Python. Default: not known.", always=True)] = ""
    torch: Annotated[Text, Key("torch", "Version of PyTorch. Default: not known.", always=True)] = ""
    date: Annotated[Text, "When: an ISO time. Required."]
    command: Annotated[Text, "What repeats it. Required."]
    ranks: Annotated[Machines, "Ranks that took part. Required."]
    duration_ns: Annotated[Duration, Key("duration", "How long it took. Default: not known.")] = 0
    groups: Annotated[
        tuple[ErrorGroup, ...],
        Key("groups", "Groups of parameters, and how good they are. Default: none.", title="GroupsSection"),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownErrors:
    """What is known of a prediction's error before the prediction is made.

    `typical_errors` are those of the calibration's groups. `sets_figures`: the scenario changes figures of its profile,
    and the changed figures were never validated.
    """

    typical_errors: Mapping[str, float] = field(default_factory=dict)
    sets_figures: bool = False


def come_from(measured: Measured | None) -> str:
    """Return in a few words where a profile's figures come from."""
    if measured is None:
        return "datasheet values and assumptions, not calibrated"
    machine = f"{measured.machine} ({measured.cpu})" if measured.cpu else measured.machine
    return f"calibrated on {machine}, {measured.date}"
