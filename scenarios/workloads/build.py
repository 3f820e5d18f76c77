"""The program of a scenario; checks that what each rank needs fits into its GPU's memory."""

from __future__ import annotations

from dataclasses import replace

from scenarios.config.scenario import Scenario
from scenarios.config.units import format_bytes
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.workloads.effort import Effort, check_memory
from scenarios.workloads.locate import factory


def build(scenario: Scenario) -> Program:
    """The scenario's program.

    Raises:
        ScenarioError: the factory returns no program, or what a rank needs exceeds its GPU's memory.
    """
    program = factory(scenario.program, scenario.path.parent)(scenario)
    if not isinstance(program, Program):
        raise ScenarioError(
            f"{scenario.path}: program = '{scenario.program}': expected a function that returns a"
            f" scenarios.seam.program.Program, but it returns a {type(program).__name__}"
        )
    _check_memory(scenario, program)
    return program


def build_simulation(scenario: Scenario) -> Program:
    """The same, for this machine to simulate.

    Raises:
        ScenarioError: as `build` does, or the simulation takes more memory than this machine has.
    """
    program = build(scenario)
    check_memory(f"{scenario.path}: run.ranks = '{scenario.ranks}'", effort_of(scenario, program))
    return program


def effort_of(scenario: Scenario, program: Program) -> Effort:
    """What simulating a step takes; with payload, all that the ranks hold is there."""
    effort = program.effort or Effort()
    held = sum(row.size_bytes for row in program.memory) if scenario.payload == "values" else 0
    return replace(effort, held_bytes=effort.held_bytes + held)


def _check_memory(scenario: Scenario, program: Program) -> None:
    needed: dict[int, int] = {}
    for row in program.memory:
        needed[row.rank] = needed.get(row.rank, 0) + row.size_bytes
    if not needed:
        return
    fullest = max(needed, key=lambda rank: (needed[rank], -rank))
    capacity_bytes = scenario.cluster.host.gpu.memory_bytes
    if needed[fullest] > capacity_bytes:
        largest = max((row for row in program.memory if row.rank == fullest), key=lambda row: row.size_bytes)
        raise ScenarioError(
            f"{scenario.path}: cluster.gpu.memory = '{format_bytes(capacity_bytes)}': expected at least"
            f" {format_bytes(needed[fullest])}, which rank {fullest} needs; its largest part is"
            f" {largest.part} with {format_bytes(largest.size_bytes)}"
        )
