"""What a fully sharded module takes of a rank's device beside activations: shards, and units while they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from scenarios.modules.fully_sharded.replica import layout_of, schedule_of
from scenarios.modules.fully_sharded.schedule import most_held
from scenarios.modules.trace import Trace

if TYPE_CHECKING:
    from scenarios.modules.module import Module

SHARDED_GRADIENTS = "gradient shards"


def sharded_sizes(model: Module, traced: Trace) -> Iterator[tuple[str, int, str]]:
    """Each part's name, bytes, and phases as in MemoryRow, "" for all.

    A gather's result is there until it is copied into parameters, those until their unit is sharded again. Gradients
    that are reduced are there until the next ones are about to be.
    """
    size = model.shard_ranks
    layouts = [layout_of(traced, unit.parameters, size) for unit in model.units]
    sharded = sum(layout.size_bytes // size for layout in layouts)
    buffers = sum(prod(each.shape) * each.dtype.itemsize for each in traced.buffers)
    yield "weights", sharded + buffers, ""
    found = schedule_of(model, traced, reduces=True)
    whole = [layout.size_bytes for layout in layouts]
    for phase, most in most_held(found.actions, lambda unit: (whole[unit], whole[unit])).items():
        yield "gathered units", most, phase
    yield "reduced units", max(whole, default=0), "backward"
    yield SHARDED_GRADIENTS, sharded, "backward update"
