"""Checks of [job]: what its keys need, and keys that have no effect."""

from __future__ import annotations

from typing import Any

from scenarios.config.toml.look import Look
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath

_PATH: KeyPath = ("job",)
GOALS = ("samples", "days", "budget_usd")


def check_job(document: Document, look: Look) -> None:
    """Add everything that is missing from [job] or does not fit together."""
    job: Any = document.job
    if document.program == "given_step" and (job is None or job.step is None):
        at = (*_PATH, "step") if job is not None else _PATH
        look.mistakes.missing(at, "the time of a step, such as '4.6 s', because program = 'given_step'")
    if job is None:
        return
    look.refuse_elsewhere(_PATH, job)
    given = [key for key in GOALS if getattr(job, key) is not None]
    look.refuse(_PATH, job, tuple(given[1:]), f"beside {given[0]}" if given else "")
    if job.budget_usd is not None and not _price(document):
        look.mistakes.missing(("cluster", "cost"), "usd_per_gpu_hour, because of job.budget_usd")
    has_batch = document.run is not None and document.run.batch_size
    if job.samples is not None and document.program == "given_step" and not has_batch:
        look.mistakes.missing(("run",), "batch_size, the samples of a rank in a step, because of job.samples")
    hosts = document.cluster.hosts if document.cluster else None
    if hosts and job.fewest_hosts and job.fewest_hosts > hosts:
        look.mistakes.add((*_PATH, "fewest_hosts"), f"at most cluster.hosts = {hosts}")
    _check_checkpoint(job.checkpoint, document.program, look)
    _check_kinds(job.failures, look)


def _check_checkpoint(section: Any, program: str | None, look: Look) -> None:
    path = (*_PATH, "checkpoint")
    if section is None:
        return
    if section.interval is not None:
        look.refuse(path, section, ("interval_steps",), "beside interval")
    if section.write is not None:
        look.refuse(path, section, ("store_rate", "host_rate", "shards"), "beside write, which says how long it takes")
        look.refuse(path, section, ("overhead",), "beside write, which includes it")
    for key in ("restore", "write"):
        if getattr(section, key) is not None:
            look.refuse(path, section, ("restore_rate",), f"beside {key}, which says how long loading takes")
            break
    of_tables = ("full_every", "table_bits")
    if section.size is not None:
        look.refuse(path, section, of_tables, "beside size, for which no tables are known")
    elif program == "given_step":
        look.refuse(path, section, of_tables, "with program = 'given_step', which has no tables")


def _check_kinds(section: Any, look: Look) -> None:
    kinds = (section.kinds if section is not None else None) or []
    names: set[str] = set()
    for index, kind in enumerate(kinds):
        path = (*_PATH, "failures", "kinds", index)
        look.need(path, kind, "name")
        if kind.name in names:
            look.mistakes.add((*path, "name"), "a name of its own")
        names.add(kind.name)
        if kind.slow_part is None:
            look.refuse(path, kind, ("slow_speed", "slow_for"), "without slow_part")
        if not kind.loses_host:
            look.refuse(path, kind, ("repair",), "without loses_host = true")
        if kind.planned:
            look.refuse(path, kind, ("detection", "slow_part"), "with planned = true")


def _price(document: Document) -> float | None:
    cost = document.cluster.cost if document.cluster else None
    return cost.usd_per_gpu_hour if cost else None
