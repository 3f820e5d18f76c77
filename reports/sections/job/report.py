"""The report of a job of days: goodput, time and money, what its time is lost on, and what would help."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from reports.job.folder import JobRun, content
from reports.printed import Printed
from reports.sections import model
from reports.sections.model import (
    BarGroup,
    Fact,
    Facts,
    RankedBar,
    RankedBars,
    ReportSection,
    ReportTable,
    SectionPiece,
    Words,
    figure,
    lacking,
    on_page,
    on_terminal,
    table_of,
)
from reports.terminal import text
from reports.terminal.rows import records

# A letter for each part of a job's time, and what the part is.
LETTERS = {
    **{"steps": "S", "input": "i", "evaluation": "E", "checkpoint": "C", "shrunk": "f", "slow part": "p"},
    **{"rework": "w", "detection": "d", "replacement": "h", "restart": "r", "restore": "l"},
}
MEANINGS = {
    "steps": "steps that count",
    "input": "GPUs wait for samples",
    "evaluation": "evaluations",
    "checkpoint": "checkpoints are written",
    "shrunk": "fewer hosts train",
    "slow part": "a GPU or NIC is slow before it fails",
    "rework": "steps that were lost with a failure and are done again",
    "detection": "a failure is not noticed yet",
    "replacement": "a host is put in the place of a lost one, or awaited",
    "restart": "scheduler, processes and process groups start again",
    "restore": "the checkpoint is loaded",
}
_SHOWN = 3  # changes of the first screen, and kinds of interruption
_SEEN = 0.05  # least mean number of interruptions that is not 0.0
_DAY_S = 86_400


def _long(seconds: float) -> str:
    return text.duration(1e9 * seconds)


def _lines(job: JobRun) -> list[str]:
    head = job.head
    gpus = f"{head['gpus']:,} {head['gpu']}" if head["gpu"] else text.count_words(head["gpus"], "GPU")
    hosts = text.count_words(head["hosts"], "host")
    if head["spare_hosts"]:
        hosts = f"{head['hosts']:,} + {head['spare_hosts']:,} spare hosts"
    return [f"{head['name']}: predicted job of {_goal(head['goal'])}, {gpus}, {hosts}"]


def _count(mean: float) -> str:
    """Return a mean number of interruptions: with a digit behind the point where it is small."""
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:,.1f}" if mean >= _SEEN else f"{mean:.1g}"


def _goal(goal: Mapping[str, Any]) -> str:
    value = float(goal["value"])
    if goal["kind"] == "days":
        return f"{value:g} days"
    return f"{value:.4g} samples" if goal["kind"] == "samples" else f"${value:,.0f}"


def _verdict(job: JobRun) -> Iterator[Fact]:
    yield from _progress(job.head)
    yield from _prices(job.head)
    yield from _failures(job.head)
    yield _checkpoints(job.head)
    yield _certainty(job.head)
    yield _help(job)


def _progress(head: Mapping[str, Any]) -> Iterator[Fact]:
    low, high = (head["goodput_quantiles"][name] for name in ("p5", "p95"))
    spread = f"mean; {text.percent(low)} to {text.percent(high)} in 9 of 10 jobs" if high > low else ""
    yield Fact("goodput", text.percent(head["goodput"]), spread, head["goodput"])
    if head["goal"]["kind"] == "samples":
        low, high = (head["time_to_train_s_quantiles"][name] for name in ("p5", "p95"))
        spread = f"; {_long(low)} to {_long(high)} in 9 of 10 jobs" if high > low else ""
        yield Fact("time to train", _long(head["time_to_train_s"]), f"mean{spread}", head["time_to_train_s"])
    elif head["goal"]["kind"] != "days":
        yield Fact("time", _long(head["time_to_train_s"]), "", head["time_to_train_s"])
    done = f"{head['steps']:,.0f} of {_long(head['step_s'])}, {head['step_source']}"
    yield Fact("steps", done, f"{head['samples']:.4g} samples" if _known(head["samples"]) else "")


def _prices(head: Mapping[str, Any]) -> Iterator[Fact]:
    energy = f"at most {text.number(head['kwh'])} kWh" if _known(head["kwh"]) else ""
    yield Fact("GPU hours", text.number(head["gpu_hours"]), energy, head["gpu_hours"])
    if _known(head["usd"]):
        per = f"${text.to_three_digits(head['usd_per_1e9'])} per 10^9 samples" if _known(head["usd_per_1e9"]) else ""
        yield Fact("price", f"${head['usd']:,.0f}", per, head["usd"])


def _failures(head: Mapping[str, Any]) -> Iterator[Fact]:
    if not head["failures"]:
        yield Fact("interrupted", "never; no kind in job.failures has a rate, as those of profile = 'llama3_h100' do")
        return
    total = sum(head["failures"].values())
    kinds = sorted(head["failures"].items(), key=lambda one: -one[1])
    seen = [(name, count) for name, count in kinds[:_SHOWN] if count >= _SEEN]
    shown = [f"{name} {_count(count)}" for name, count in seen]
    if others := len(kinds) - len(seen):
        shown.append(text.count_words(others, "other kind" if shown else "kind"))
    every = _long(head["failure_rates"]["between_s"])
    yield Fact("interrupted", f"{_count(total)} times, every {every}", ", ".join(shown), total)


def _checkpoints(head: Mapping[str, Any]) -> Fact:
    kept = head["checkpoint"]
    chosen = "the best" if kept["interval"] == "best" else "given"
    every = f"every {kept['interval_steps']:,} steps ({_long(kept['interval_s'])}, {chosen})"
    beside = f", written within {_long(kept['background_s'])} beside steps" if kept["background_s"] else ""
    return Fact("checkpoints", every, f"training waits {_long(kept['blocks_s'])}{beside}", kept["interval_s"])


def _certainty(head: Mapping[str, Any]) -> Fact:
    rates = head["failure_rates"]
    source = rates["source"] if rates["profile"] is None else f"profile {rates['profile']}"
    named = ", ".join(filter(None, (source, rates["date"]))) or "the scenario"
    off = head["goodput"] - head["goodput_closed_form"]
    said = [f"failure rates: {named}"] if head["failures"] else []
    said.append(f"step: {head['step_source']}; {head['rests_on']}" if head["step_source"] != "given" else "step: given")
    closed = text.percent(head["goodput_closed_form"])
    said.append(f"closed form for enough spare hosts: {closed}, {100 * off:+.1f} points apart")
    return Fact("how sure", "\n".join(said))


def _help(job: JobRun) -> Fact:
    best = records(job.changes.head(_SHOWN))
    said = [f"{row['group']}: {row['change']}, {100 * row['gain']:+.1f} points" for row in best]
    return Fact("would help", "\n".join(said or ["no single change gains anything"]))


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _bar(job: JobRun) -> Iterator[model.Bar]:
    """Yield the job's time by what it is spent on."""
    shares = {"steps": job.goodput, **job.lost}
    pieces = [
        SectionPiece(name, LETTERS[name], 1e9 * share * job.head["time_to_train_s"], share)
        for name, share in shares.items()
        if share > 0
    ]
    lost = text.percent(sum(job.lost.values()))
    note = "; ".join(f"{piece.name}: {MEANINGS[piece.name]}" for piece in pieces)
    yield model.Bar("time", f"Where the time goes; {lost} is lost", "the job", pieces, note)


def _tiles(job: JobRun) -> Iterator[model.Block]:
    facts = list(_verdict(job))
    tiles = [fact for fact in facts if fact.name in ("goodput", "time to train", "time", "GPU hours", "price")]
    yield Facts(tiles)
    yield Facts([fact for fact in facts if fact not in tiles], lines=True)


def _lost(job: JobRun) -> Iterator[ReportTable]:
    seconds = job.head["time_to_train_s"]
    rows = [
        [cause, MEANINGS[cause], _long(share * seconds), text.percent(share)]
        for cause, share in sorted(job.lost.items(), key=lambda one: -one[1])
        if share > 0
    ]
    columns: model.Columns = ["cause", model.Column("meaning", model.PAGE), "time", "share"]
    yield ReportTable("Time lost, mean job", columns, rows, left=2)


def _kinds(job: JobRun) -> Iterator[ReportTable]:
    per_day = job.head["failure_rates"]["per_day"]
    rows = [
        [name, _count(count), text.number(per_day[name])]
        for name, count in sorted(job.head["failures"].items(), key=lambda one: -one[1])
    ]
    yield ReportTable("Interruptions by kind", ["kind", "in the job", "a day"], rows)


def _intervals(job: JobRun) -> Iterator[model.Block]:
    frame = job.intervals.assign(
        every=[_long(seconds) for seconds in job.intervals["seconds"]],
        simulated=job.intervals["goodput"].map(text.percent),
        formula=job.intervals["closed_form"].map(text.percent),
        own=["<- the job's" if own else "" for own in job.intervals["is_own"]],
    )
    columns = {"steps": "steps", "every": "interval", "simulated": "goodput", "formula": "closed form", "own": ""}
    yield table_of("Goodput by checkpoint interval", frame, columns, left=0, folded=True)
    rules = job.head["checkpoint"]["rules_s"]
    if _known(rules["young"]):
        names = {"young": "Young", "daly": "Daly", "availability": "highest availability", "closed_form": "closed form"}
        yield Words("best interval by " + ", ".join(f"{name} {_long(rules[key])}" for key, name in names.items()))


def _sizes(job: JobRun) -> Iterator[ReportTable]:
    frame = job.sizes.assign(
        share=job.sizes["goodput"].map(text.percent),
        useful=job.sizes["useful_hosts"].map(lambda hosts: f"{hosts:,.1f}"),
        time=[_long(seconds) for seconds in job.sizes["time_to_train_s"]],
    )
    columns = {"hosts": "hosts", "gpus": "GPUs", "share": "goodput", "useful": "hosts that count"}
    columns |= {"time": "time to train"} if job.head["goal"]["kind"] == "samples" else {}
    interval = "its best" if job.head["checkpoint"]["interval"] == "best" else "the given"
    note = f"Each with {interval} interval, spare hosts in proportion, and the step of the job's own hosts."
    yield table_of("Goodput by number of hosts", frame, columns, left=0, note=note)


def _changes(job: JobRun) -> Iterator[model.Block]:
    groups = [
        BarGroup(group, kind, bars)
        for group, kind, title in (("Free", "free", "free"), ("Bought", "bought", "bought"))
        if (
            bars := [
                RankedBar(row["change"], row["gain"] / (1 - job.goodput), f"{100 * row['gain']:+.1f} points")
                for row in records(job.changes[(job.changes["group"] == title).to_numpy(bool)])
            ]
        )
    ]
    yield RankedBars("help", "What would help", groups, "The track is all time that is lost.")


def _changes_table(job: JobRun) -> Iterator[ReportTable]:
    shares, gains = job.changes["goodput"], [f"{100 * gain:+.1f} points" for gain in job.changes["gain"]]
    shown = job.changes.assign(share=shares.map(text.percent), more=gains)
    columns = {"group": "", "change": "change", "share": "goodput", "more": "gain"}
    yield table_of("What would help", shown, columns, left=2)


_NO_CHANGE = lacking(lambda job: job.changes, "No single change gains anything.")
_FIRST = ReportSection(
    "verdict", "Verdict", [on_terminal(lambda job: [Facts(list(_verdict(job)))]), on_page(_tiles), _bar]
)
JOB_SUMMARY = model.Report(lines=_lines, sections=[_FIRST])
JOB = model.Report(
    lines=_lines,
    data=content,
    sections=[
        _FIRST,
        ReportSection("week", "What happened in a typical job", [figure("job.timeline")]),
        ReportSection("lost", "Time lost", [_lost, _kinds]),
        ReportSection("help", "What would help", [on_page(_changes), on_terminal(_changes_table)], absent=_NO_CHANGE),
        ReportSection("intervals", "Checkpoint interval", [figure("job.intervals"), _intervals]),
        ReportSection("sizes", "Size of the cluster", [figure("job.sizes"), _sizes]),
        ReportSection("draws", "Jobs with other failures", [figure("job.draws")]),
    ],
)


class PrintedJob(Printed, JobRun):
    """A job that prints as its first screen."""

    def _report(self) -> tuple[model.Report, JobRun]:
        return JOB_SUMMARY, self


def printed_job(job: JobRun) -> PrintedJob:
    """Return the same job, to be printed."""
    return PrintedJob(**{field.name: getattr(job, field.name) for field in fields(job)})
