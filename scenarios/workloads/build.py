"""Builds a scenario's program, and checks that each rank's tensors fit into its GPU's memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.config.scenario import Scenario
from scenarios.config.units import format_bytes
from scenarios.seam.errors import NoRoomError, ProgramError, ScenarioError, tell_error, users_traceback
from scenarios.seam.memory import CONTEXT, FRAGMENTATION, peaks, remedy, size_of
from scenarios.seam.program import Program
from scenarios.seam.trace import ALWAYS, CACHED, MemoryRow
from scenarios.workloads.effort import Effort, check_memory
from scenarios.workloads.locate import BUILT_IN, factory

_LEAST_OPERATIONS = 2  # per rank and step

# The driver's memory and a process's loaded kernels, by compute capability. Before CUDA 11.7 all of torch's kernels
# were loaded: 1,008 MB with a Titan V (pytorch issue 28394). Since then they are loaded when used, some 300 MB at
# first (pytorch issue 107667); a TorchRec job has about 1 GB outside torch's reserved memory on A100s and H100s,
# NCCL's buffers for rings included (TorchRec pull requests 3580 and 3770). The values are between these two; newer
# generations were not measured, and get more.
_CONTEXT_BYTES = {70: 400 << 20, 75: 400 << 20, 80: 500 << 20, 86: 500 << 20, 89: 500 << 20, 90: 550 << 20}
_LATER_CONTEXT_BYTES = 650 << 20

# Share of the tensors' peak bytes that the caching allocator holds in addition before it has to release cached blocks:
# 1 % with one stream, up to 50 % where nothing forced a release (TorchRec pull requests 3480 and 3770). This is an
# allowance for a job that is nearly full.
_FRAGMENTATION = 0.05


def build(scenario: Scenario) -> Program:
    """Return the scenario's program.

    Raises:
        ScenarioError: the factory raises or returns no program; only representatives of host classes are to be
            simulated, but the program has no host classes; or a rank needs more memory than its GPU has.
    """
    key = f"{scenario.path}: program = '{scenario.program}'"
    try:
        make = factory(scenario.program, scenario.program_folder)
    except ValueError as error:
        raise ScenarioError(f"{key}: expected {error}") from error
    try:
        program = make(scenario)
    except (ScenarioError, ProgramError):
        raise
    except Exception as error:
        if scenario.program in BUILT_IN:
            raise
        sentence = f"{key}: expected a program made of the scenario, but {_name(make)} raised {tell_error(error)}"
        raise ScenarioError("\n".join([sentence, *users_traceback(error)])) from error
    if not isinstance(program, Program):
        raise ScenarioError(
            f"{key}: expected a function that returns a"
            f" scenarios.seam.program.Program, but it returns a {type(program).__name__}"
        )
    has_classes = program.host_classes is not None or program.finds_classes
    if scenario.run.ranks == "alike" and not (has_classes or scenario.run.chosen):
        raise ScenarioError(
            f"{scenario.path}: run.ranks = 'alike': expected 'each', because program '{scenario.program}' sets no"
            " host_classes; where all ranks do the same work,"
            " self.host_classes = scenarios.config.host_classes.uniform_host_classes(scenario) in its constructor"
        )
    program.memory = (*program.memory, *_device_rows(scenario.cluster.host.gpu, program.memory))
    check_fits(scenario, program.memory)
    return program


def _device_rows(gpu: Gpu, memory: tuple[MemoryRow, ...]) -> Iterator[MemoryRow]:
    """Yield each rank's CUDA context and fragmentation; nothing for CPUs or for programs without memory rows."""
    if not gpu.device.has_own_memory:
        return
    context = _LATER_CONTEXT_BYTES if gpu.compute_capability > 90 else _CONTEXT_BYTES[gpu.compute_capability]
    context = context if gpu.context_bytes is None else gpu.context_bytes
    share = _FRAGMENTATION if gpu.fragmentation is None else gpu.fragmentation
    for held in peaks(memory).values():
        row = replace(held[0], part="CUDA context", kind=CONTEXT, size_bytes=context, phases=ALWAYS)
        yield row
        yield replace(row, part="fragmentation", kind=FRAGMENTATION, size_bytes=round(share * size_of(held)))


def check_fits(scenario: Scenario, memory: Iterable[MemoryRow]) -> None:
    """Check that the peak phase of every rank's step fits into its GPU's memory, whose rows a program or a run has.

    Raises:
        NoRoomError: it does not fit; names the largest part and its remedy.
    """
    fullest = max(peaks(memory).values(), key=size_of, default=[])  # the first if equal
    needed, capacity_bytes = size_of(fullest), scenario.cluster.host.gpu.memory_bytes
    if needed <= capacity_bytes:
        return
    largest = max(fullest, key=lambda row: row.size_bytes)
    raise NoRoomError(
        f"{scenario.path}: cluster.gpu.memory = '{format_bytes(capacity_bytes)}': expected at least"
        f" {format_bytes(needed)}, which rank {largest.rank} needs; its largest part is"
        f" {largest.part} with {format_bytes(largest.size_bytes)}: expected"
        f" {remedy((row.part, row.kind, row.size_bytes) for row in fullest)}",
        math.ceil(needed - capacity_bytes),
    )


def _name(make: object) -> str:
    return str(getattr(make, "__qualname__", type(make).__name__))


def build_unprepared(scenario: Scenario) -> Program:
    """Build a scenario's program to be simulated on this machine, without its slow preparation.

    Raises:
        ScenarioError: as for `build`, or the simulation needs more memory than this machine has.
    """
    program = build(scenario)
    check_memory(scenario, effort_of(scenario, program))
    return program


def build_simulation(scenario: Scenario, does: Callable[[str, str], None] = Program.does) -> Program:
    """Build and prepare a scenario's program to be simulated on this machine; `does` becomes `Program.does`.

    Raises:
        ScenarioError: as for `build_unprepared`.
        ProgramError: as for `Program.prepare`.
    """
    program = build_unprepared(scenario)
    program.does = does
    program.prepare()
    # Again: `prepare` may have found more host classes, and the effort.
    check_memory(scenario, effort_of(scenario, program))
    return program


def are_classes_known(scenario: Scenario, program: Program) -> bool:
    """Return whether the hosts to simulate are known; some programs find them in `prepare`."""
    return scenario.run.ranks == "each" or not program.finds_classes or program.effort is not None


def effort_of(scenario: Scenario, program: Program) -> Effort:
    """Return the effort of simulating a step; with payload it includes all tensors that ranks hold.

    A program that states no effort counts as a barrier and a call per rank, the minimum. While host classes are
    unknown, one host is counted.
    """
    effort = program.effort or Effort(operations=_LEAST_OPERATIONS * scenario.cluster.world_size)
    if not are_classes_known(scenario, program):
        effort = effort.of_share(1 / scenario.cluster.hosts)
    elif program.host_classes is not None:
        effort = effort.of_share(len(program.host_classes.ranks) / scenario.cluster.world_size)
    rows = (row for row in program.memory if row.kind not in (CONTEXT, FRAGMENTATION))
    # Tensors in host memory count as well: all are in this machine's memory.
    tensors = (row.size_bytes for row in rows if row.phases != CACHED)
    held = sum(tensors) if scenario.run.payload == "values" else 0
    return replace(effort, held_bytes=effort.held_bytes + held)
