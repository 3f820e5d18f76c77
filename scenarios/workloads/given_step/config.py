"""The declaration of the program `given_step`; loads no torch."""

from __future__ import annotations

from scenarios.config.toml.program_spec import ProgramSpec

SPEC = ProgramSpec(
    factory="scenarios.workloads.given_step.program:GivenStep",
    summary="steps of a given time; the default of a file with job.step",
)
