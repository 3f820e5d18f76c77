"""How far it is from a verb to where its time is known: how often issuing it goes from one module to another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from scenarios.config.load import load
from scenarios.seam.rank import Rank
from sim.run import simulate
from tests.contract.scripts import Script

# Its hosts have threads of their own, so that what is issued is played later.
TWRW = Path(__file__).parents[2] / "scenarios/library/twrw_2x2.toml"
MOST_CHANGES = 35


def modules_called(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What `call` gives, and the modules of ours whose functions it enters, in order."""
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith(("sim.", "scenarios.")):
            entered.append(module)

    sys.setprofile(note)
    try:
        return call(), entered
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("payload", ["sizes", "values"])
def test_issuing_an_exchange_changes_module_at_most_35_times(payload: Any, library: Any) -> None:
    paths: list[list[str]] = []

    async def exchanges(rank: Rank) -> None:
        given = torch.zeros(64, device=rank.device)
        output = torch.zeros_like(given)
        for _ in range(3):  # paths and groups are found with the first call
            if rank.rank == 0:
                work, entered = modules_called(lambda: rank.all_to_all_single(output, given))
                paths.append(entered)
            else:
                work = rank.all_to_all_single(output, given)
            await work

    made = load(TWRW).with_run(payload=payload, library=library)
    simulate(made, Script(exchanges))
    changes = [sum(a != b for a, b in pairwise(path)) for path in paths]
    assert 5 < changes[-1] <= MOST_CHANGES
