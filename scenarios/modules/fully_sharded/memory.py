"""The memory of a fully sharded module on a rank's device without activations: shards, and gathered units."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from scenarios.modules.fully_sharded.replica import layout_of, schedule_of
from scenarios.modules.fully_sharded.schedule import most_held
from scenarios.modules.trace import Trace
from scenarios.seam.memory import GATHERED, GRADIENTS, REDUCED, WEIGHTS, MemoryPart

if TYPE_CHECKING:
    from scenarios.modules.module import Module

SHARDED_GRADIENTS = "gradient shards"


def sharded_parts(model: Module, traced: Trace) -> Iterator[MemoryPart]:
    """Yield the parts of a rank's memory.

    A gather's result exists until it is copied into parameters, which exist until their unit is sharded again. Reduced
    gradients exist until the next reduction begins.
    """
    size = model.shard_ranks
    layouts = [layout_of(traced, unit.parameters, size) for unit in model.units]
    sharded = sum(layout.size_bytes // size for layout in layouts)
    buffers = sum(prod(each.shape) * each.dtype.itemsize for each in traced.buffers)
    yield MemoryPart("weights", sharded + buffers, kind=WEIGHTS)
    found = schedule_of(model, traced, reduces=True)
    whole = [layout.size_bytes for layout in layouts]
    for phase, most in most_held(found.actions, lambda unit: (whole[unit], whole[unit])).items():
        yield MemoryPart("gathered units", most, phase, GATHERED)
    yield MemoryPart("reduced units", max(whole, default=0), "backward", REDUCED)
    yield MemoryPart(SHARDED_GRADIENTS, sharded, "backward update", GRADIENTS)
