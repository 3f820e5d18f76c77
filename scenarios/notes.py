"""What a user should know of a scenario that is right but may not mean what it seems; mistakes are left to `load`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from scenarios.scenario import Scenario


def notes(scenario: Scenario) -> Iterator[str]:
    """One sentence each, with file, key and value."""
    compression, gpu = scenario.compression, scenario.cluster.host.gpu
    if compression.kind != "none" and compression.start_powerSGD_iter >= scenario.steps:
        yield (
            f"{scenario.path}: compression.start_powerSGD_iter = {compression.start_powerSGD_iter}: nothing is"
            f" compressed in {scenario.steps} steps; a smaller number lets a run show it"
        )
    if scenario.library == "gloo" and gpu.kind == "cuda":
        yield (
            f"{scenario.path}: run.library = 'gloo': with GPUs, copies to the host and sums there are not modelled;"
            " the prediction is a lower bound"
        )


def print_notes(scenario: Scenario) -> None:
    """To stderr, each behind "note: "."""
    for note in notes(scenario):
        print(f"note: {note}", file=sys.stderr)
