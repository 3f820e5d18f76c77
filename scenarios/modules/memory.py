"""The memory of a traced module on a rank's device, by part and by phase of a step.

Tensors are tracked as `torch.distributed._tools.fsdp2_mem_tracker` does: on fake tensors, each storage from its
allocation to its last reference, by purpose. The caching allocator's rounding is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from scenarios.config.host_classes import HostClasses, simulated_ranks
from scenarios.config.scenario import Scenario
from scenarios.modules.ddp_buckets import reduction_parts
from scenarios.modules.fully_sharded.replica import layout_of, schedule_of
from scenarios.modules.fully_sharded.schedule import most_held
from scenarios.modules.trace import GRADIENTS, TEMPORARIES, Arguments, Trace, tensors_of
from scenarios.seam import memory
from scenarios.seam.memory import MemoryPart
from scenarios.seam.trace import ALWAYS, MemoryRow

if TYPE_CHECKING:
    from scenarios.modules.module import Module

_SHARDED_GRADIENTS = "gradient shards"


def memory_rows(
    scenario: Scenario, parts: Iterable[MemoryPart], host_classes: HostClasses | None = None
) -> tuple[MemoryRow, ...]:
    """Return a program's `memory` if each rank, or one of each class, has these parts, from `Module.memory`.

    The temporaries of all modules add up, as if the modules ran concurrently.
    """
    capacity_bytes, all_parts = scenario.cluster.host.gpu.memory_bytes, list(parts)
    return tuple(
        part.row(rank, capacity_bytes, count)
        for rank, count in simulated_ranks(scenario, host_classes)
        for part in all_parts
    )


def parts_of(
    model: Module, arguments: Arguments, depth: int, late: tuple[int, ...] = (), *, accumulates: bool = False
) -> tuple[MemoryPart, ...]:
    """Return the parts of `Module.memory`; `late` are arguments that arrive during the pass, as in `Module.traced`.

    The peak with `accumulates` is that of a micro-batch with the gradients of earlier ones: whole, or in shards.
    """
    adds = accumulates and not model.reduces_each
    traced = model.traced(arguments, late=late, accumulates=adds)
    found = [*_parts(model, traced, arguments, depth)]
    if accumulates and model.reduces_each:
        found = [replace(part, phases=ALWAYS) if part.name == _SHARDED_GRADIENTS else part for part in found]
    if adds:
        found.append(MemoryPart("gradients", _gradient_bytes(traced), "forward backward", memory.GRADIENTS))
    return tuple(part for part in found if part.size_bytes)


def _parts(model: Module, traced: Trace, arguments: Arguments, depth: int) -> Iterator[MemoryPart]:
    if model.parallel.shards:
        yield from _sharded_parts(model, traced)
    else:
        yield MemoryPart("weights", traced.state_bytes, kind=memory.WEIGHTS)
    inputs = sum(each.numel() * each.dtype.itemsize for each in tensors_of(arguments))
    yield MemoryPart("inputs", inputs, kind=memory.BATCH)
    yield from _activations(traced.kept_bytes, "forward", depth)
    temporaries = traced.forward_peak_bytes - sum(traced.kept_bytes.values())
    yield MemoryPart("temporaries", temporaries, "forward", memory.BATCH)
    at_peak = dict(traced.held_at_peak)
    yield MemoryPart("gradients", at_peak.pop(GRADIENTS, 0), "backward", memory.GRADIENTS)
    yield MemoryPart("temporaries", at_peak.pop(TEMPORARIES, 0), "backward", memory.BATCH)
    yield from _activations(at_peak, "backward", depth)
    shapes, dtypes = [each.shape for each in traced.parameters], [each.dtype for each in traced.parameters]
    if model.reduce:  # gradients are then views of buckets
        yield from reduction_parts(shapes, dtypes, model.buckets, model.compression, assigned=model.buckets_of(traced))
    elif not model.parallel.shards:
        yield MemoryPart("gradients", _gradient_bytes(traced), "update", memory.GRADIENTS)
    if model.optimizer is not None:
        updated = model.updated_on(model.shard_ranks)
        yield MemoryPart("optimizer state", updated.state_bytes, kind=memory.OPTIMIZER)
        yield MemoryPart("temporaries", updated.temporary_bytes, "update", memory.BATCH)


def _sharded_parts(model: Module, traced: Trace) -> Iterator[MemoryPart]:
    """Yield the parts of a fully sharded module without activations: shards, and gathered units.

    A gather's result exists until it is copied into parameters, which exist until their unit is sharded again. Reduced
    gradients exist until the next reduction begins.
    """
    size = model.shard_ranks
    layouts = [layout_of(traced, unit.parameters, size) for unit in model.units]
    sharded = sum(layout.size_bytes // size for layout in layouts)
    buffers = sum(prod(each.shape) * each.dtype.itemsize for each in traced.buffers)
    yield MemoryPart("weights", sharded + buffers, kind=memory.WEIGHTS)
    found = schedule_of(model, traced, reduces=True)
    whole = [layout.size_bytes for layout in layouts]
    for phase, most in most_held(found.actions, lambda unit: (whole[unit], whole[unit])).items():
        yield MemoryPart("gathered units", most, phase, memory.GATHERED)
    yield MemoryPart("reduced units", max(whole, default=0), "backward", memory.REDUCED)
    yield MemoryPart(_SHARDED_GRADIENTS, sharded, "backward update", memory.GRADIENTS)


def _gradient_bytes(traced: Trace) -> int:
    used = (each for index, each in enumerate(traced.parameters) if index not in traced.unused)
    return sum(prod(each.shape) * each.dtype.itemsize for each in used)


def _activations(bytes_of: Mapping[str, int], phase: str, depth: int) -> Iterator[MemoryPart]:
    """Yield activations by submodule, whose names leave out the outermost, a class name."""
    sizes = Counter[str]()
    for module, size in bytes_of.items():
        sizes[".".join(module.split(".")[1 : 1 + depth])] += size
    for path, size in sizes.items():
        yield MemoryPart(f"activations {path}".rstrip(), size, phase, memory.ACTIVATIONS)
