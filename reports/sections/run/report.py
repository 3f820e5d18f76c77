"""The report of one run: its sections in their order, for the terminal, the page and JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from reports.analysis.prediction.costs import costs, prices_of
from reports.analysis.prediction.uncertainty import uncertainty
from reports.analysis.step_breakdown import steady_steps, sync_period, timed_steps
from reports.sections.model import Report, ReportSection, figure
from reports.sections.run.changes import CHANGES
from reports.sections.run.glance import GLANCE
from reports.sections.run.headline import headline, rests_on
from reports.sections.run.links import LINKS
from reports.sections.run.memory import MEMORY
from reports.sections.run.operations import COMMUNICATION, KERNELS, LAYERS, OPERATIONS
from reports.sections.run.ranks import RANKS
from reports.sections.run.scenario import SCENARIO
from reports.sections.run.steps import CRITICAL_PATH, METRICS, PARTS_OF_STEP, STEPS
from reports.sections.run.subject import RunView
from reports.sections.run.summary import VERDICT
from reports.sections.run.tables import BALANCE, PLAN
from reports.sections.run.uncertainty import spread_json, spread_line

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
