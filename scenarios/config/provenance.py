"""Sources of a profile's figures, and their known errors; no prediction depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from scenarios.config.keys import ALWAYS, Key
from scenarios.config.toml.values import Duration, Error, Machines, Size, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """A group of parameters, with the model's errors relative to its measurements.

    The fit keeps the median error near 0. The worst error keeps its sign.
    """

    name: Annotated[Text, "What the parameters describe: a kind of kernel or of link. Required."]
    median_error: Annotated[Error, "Median of predicted / measured - 1. Required.", Key(write=float)]
    typical_error: Annotated[Error, "Median of the absolute errors. Required.", Key(write=float)]
    worst_error: Annotated[Error, "Largest error, with its sign. Required.", Key(write=float)]
    spread: Annotated[
        Error | None,
        "Interquartile range of a measurement's repeats divided by their median; the median of all measurements."
        " Default: unknown.",
        Key(write=float),
    ] = None
    least_bytes: Annotated[Size, "Smallest measured size; smaller sizes are extrapolated. Required."]
    most_bytes: Annotated[Size, "Largest measured size; larger sizes are extrapolated. Required."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Sources of a profile's figures; only in profiles, and no prediction depends on them.

    An empty text, or a duration of 0, means not known: the figures were read from logs, not measured by this project.
    """

    machine: Annotated[Text, "Name of the measured machine. Required."]
    cpu: Annotated[Text, "Processor of the machine. Default: unknown.", ALWAYS] = ""
    kernel: Annotated[Text, "Kernel of the operating system. Default: unknown.", ALWAYS] = ""
    python: Annotated[Text, "Version of Python. Default: unknown.", ALWAYS] = ""
    torch: Annotated[Text, "Version of PyTorch. Default: unknown.", ALWAYS] = ""
    date: Annotated[Text, "ISO time of the measurement. Required."]
    command: Annotated[Text, "Command that repeats the measurement. Required."]
    ranks: Annotated[Machines, "Number of ranks. Required."]
    duration_ns: Annotated[Duration, "Duration of the measurement. Default: unknown."] = 0
    groups: Annotated[
        tuple[ErrorGroup, ...],
        "Groups of parameters, with their errors. Default: none.",
        Key(title="GroupsSection"),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownErrors:
    """The errors of a prediction that are known before it is made.

    `typical_errors` are those of the calibration's groups. `sets_figures`: the scenario changes figures of its profile,
    and the changed figures were never validated. `sets_prices`: among them are others than those of links.
    """

    typical_errors: Mapping[str, float] = field(default_factory=dict)
    sets_figures: bool = False
    sets_prices: bool = False


def come_from(measured: Measured | None) -> str:
    """Return in a few words where a profile's figures come from."""
    if measured is None:
        return "datasheet values and assumptions, not calibrated"
    machine = f"{measured.machine} ({measured.cpu})" if measured.cpu else measured.machine
    return f"calibrated on {machine}, {measured.date}"
