"""The report of one run: its sections in their order, for the terminal, the page and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from reports.analysis.prediction.costs import costs, prices_of
from reports.analysis.prediction.uncertainty import uncertainty
from reports.analysis.step_breakdown import steady_steps, sync_period, timed_steps
from reports.sections.model import Block, Listing, Report, ReportSection, Words, figure, on_page
from reports.sections.run.changes import CHANGES
from reports.sections.run.glance import GLANCE
from reports.sections.run.headline import WORLDS, headline, rests_on
from reports.sections.run.links import LINKS
from reports.sections.run.operations import COMMUNICATION, KERNELS, LAYERS, OPERATIONS
from reports.sections.run.ranks import MEMORY, RANKS
from reports.sections.run.steps import CRITICAL_PATH, METRICS, PARTS_OF_STEP, STEPS
from reports.sections.run.subject import RunView
from reports.sections.run.summary import VERDICT
from reports.sections.run.tables import BALANCE, PLAN
from reports.sections.run.uncertainty import spread_json, spread_line
from reports.terminal import text

_HOSTS = 64


def _scenario(view: RunView) -> Iterator[Block]:
    info = view.run.info
    hosts = ", ".join(info.hosts[:_HOSTS]) + (f" and {len(info.hosts) - _HOSTS:,} more" if info.hosts[_HOSTS:] else "")
    lines = [
        f"{WORLDS.get(info.world, info.world)}, started {info.started or 'at an unknown time'}",
        f"wall time {info.elapsed_s:.1f} s; seed {info.seed}; digest {info.digest}",
        f"hosts: {hosts or 'unknown'}",
    ]
    if info.clock_residual_ns:
        lines.append(f"clocks of the hosts agree within {text.duration(info.clock_residual_ns)}")
    yield Words("\n".join(lines))
    yield Listing("Scenario", json.dumps(info.scenario, indent=2, ensure_ascii=False))
    known = "\n".join(f"{name} {version}" for name, version in sorted(info.versions.items()))
    yield Listing("Versions", known or "none were kept", open=True)


SCENARIO = ReportSection("scenario", "Scenario and versions", [on_page(_scenario)], folded=True)


TIMELINE = ReportSection("timeline", "Timeline", [figure("timeline.timeline")])


def _data(view: RunView) -> dict[str, Any]:
    """Return the facts about the run as a whole."""
    run, info = view.run, view.run.info
    timed, period, known = timed_steps(run), sync_period(run), uncertainty(run)
    names = ("name", "world", "digest", "world_size", "seed", "complete", "host_counts", "error", "plan_notes")
    return {
        **{name: getattr(info, name) for name in (*names, "on_cpu", "left_out")},
        "rests_on": rests_on(info),
        "thinned": None if info.thinned is None else dataclasses.asdict(info.thinned),
        "advice": [dataclasses.asdict(one) for one in info.advice],
        "median_step_ns": timed["step_ns"].median(),
        "median_recorded_step_ns": steady_steps(run.steps)["step_ns"].median(),
        "uncertainty": None if known is None else {"share": known.share, **dataclasses.asdict(known)},
        "samples_per_s": timed["samples_per_s"].median(),
        **dataclasses.asdict(costs(run)),
        "cost": prices_of(run) or None,
        "median_of_steps": timed["step"].tolist(),
        "warm_up": run.warm_up,
        **({} if period is None else {"sync_period": dataclasses.asdict(period)}),
        **({} if view.draws is None else spread_json(view.draws)),
    }


_FIRST = (VERDICT, GLANCE, CHANGES, BALANCE, LINKS, STEPS, TIMELINE, PARTS_OF_STEP)
_FOLDED = (LAYERS, OPERATIONS, COMMUNICATION, KERNELS, CRITICAL_PATH, RANKS, MEMORY, PLAN, METRICS, SCENARIO)


def _lines(view: RunView) -> list[str]:
    return headline(view.run, "" if view.draws is None else spread_line(view.draws))


RUN = Report(lines=_lines, sections=[*_FIRST, *_FOLDED], data=_data)
