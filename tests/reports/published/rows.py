"""Published rows, and a stand-in for the simulator that predicts them."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from reports.published.collectives import PublishedRow

MIB = 2**20


def row(**changes: Any) -> PublishedRow:
    """Return the row of an all-reduce of 1 MiB on a host of 8 GPUs, with changes."""
    known: dict[str, Any] = {
        "file": "m.csv", "line": 2, "source": "s", "op": "all_reduce", "library": "nccl", "gpu": "H100", "nodes": 1,
        "gpus_per_node": 8, "size_bytes": MIB, "link_gbit_per_s": None, "one_way_delay_ms": None, "time_us": 100.0,
        "quality": "",
    }  # fmt: skip
    return PublishedRow(**(known | changes))


def stand_in(monkeypatch: pytest.MonkeyPatch, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Any]:
    """Replace `predict` of published rows by `answer`; return the list to which its arguments are added."""
    asked: list[Any] = []

    def predict(**given: Any) -> types.SimpleNamespace:
        asked.append(given)
        return types.SimpleNamespace(algorithm="ring", **answer(given))

    door = types.ModuleType("twinstep.published.simulated")
    door.predict = predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "twinstep.published.simulated", door)
    return asked
