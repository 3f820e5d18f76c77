"""How long checkpoints take, from [job.checkpoint] and the cluster."""

from __future__ import annotations

from scenarios.config.scenario import Job, Scenario
from sim.job.model import Writing


def writing_of(scenario: Scenario, job: Job) -> Writing:
    """Return what checkpoints take."""
    given = job.checkpoint
    rate = given.store_rate
    write_s = (given.size_bytes or 0) / rate if given.write_ns is None else given.write_ns / 1e9
    restore_s = write_s if given.restore_ns is None else given.restore_ns / 1e9
    return Writing.blocking(write_s, restore_s)
