"""The page of one run: its sections in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from reports.analysis.prediction.uncertainty import uncertainty
from reports.analysis.step_breakdown import (
    PARTS,
    parts_of_step,
    steady_kept,
    step_shown,
    sync_period,
    timed_steps,
    utilisation_of,
)
from reports.page.blocks import Block, Fact, Facts, Listing, Page, Section, Words
from reports.page.run import kernels as kernel_sections
from reports.page.run import links as link_sections
from reports.page.run import ranks as rank_sections
from reports.page.run import times as time_sections
from reports.page.run import what_a_step_is
from reports.page.timeline import NAME, timeline
from reports.run import Run
from reports.terminal import headline as about
from reports.terminal import text
from reports.terminal.causes import DOMINANT_TITLE, dominant
from reports.terminal.rows import STRAGGLERS_TITLE, records, represented, straggler_sentence
from reports.terminal.uncertainty import bar

_STRAGGLERS_SHOWN = 5


def page(run: Run, asked: int | None = None, also: Sequence[tuple[int, int]] = (), tables: str = "") -> Page:
    """All of a run. The critical path is that of step `asked`, by default of a typical one.

    `also` are steps and ranks that its timeline must show; `tables` says where the numbers lie.

    Raises:
        ReportError: the run has no such step.
    """
    step = step_shown(run, asked)
    sections = [
        _glance(run, step),
        what_a_step_is.changes_of(run),
        time_sections.steps(run),
        time_sections.parts(run),
        _timeline(run, step, also),
        time_sections.hidden(run),
        kernel_sections.kernels(run),
        time_sections.critical_path(run, step),
        link_sections.links(run, step),
        rank_sections.ranks(run),
        rank_sections.tables(run),
        rank_sections.memory(run),
        rank_sections.plan(run, step),
        time_sections.metrics(run),
        _scenario(run),
    ]
    return Page(title=run.info.name, about=about.headline(run), sections=sections, foot=_foot(run, tables))


def _glance(run: Run, step: int | None) -> Section:
    facts = _facts(run)
    if not facts:
        return Section("glance", "At a glance", absent="No rank completed a step.")
    blocks: list[Block] = [Facts(facts)]
    if step is not None:
        blocks += what_a_step_is.bar(run, step)
    said = [f"{sentence}." for sentence in dominant(run, step)] if step is not None else []
    if said:
        blocks.append(Words(f"{DOMINANT_TITLE} of step {step}:", said))
    found = run.stragglers_of(steady_kept(run)) if steady_kept(run) else run.stragglers.iloc[:0]
    sentences = [f"{straggler_sentence(row)}." for row in records(found.head(_STRAGGLERS_SHOWN))]
    left_out = len(found) - _STRAGGLERS_SHOWN
    more = f"; {left_out} more in steady_stragglers.csv" if left_out > 0 else ""
    nothing = "No stragglers and no hot spots: no GPU and no link is slower, or has more work, than its peers."
    blocks.append(Words(f"{STRAGGLERS_TITLE}{more}:" if sentences else nothing, sentences))
    return Section("glance", "At a glance", blocks)


def _room(run: Run) -> str:
    free_bytes = float(run.rank_memory["free_bytes"].iloc[0])
    return f"{text.size(abs(free_bytes))} {'to spare' if free_bytes >= 0 else 'too much'}"


def _facts(run: Run) -> list[Fact]:
    timed = timed_steps(run)
    if not len(timed):
        return []
    step_ns = float(timed["step_ns"].median())
    of = f"median of {text.steps(timed['step'].tolist())}"
    note = ", ".join(filter(None, (bar(uncertainty(run)), of, about.of_recording(run))))
    facts = [Fact("step time", text.duration(step_ns), note, step_ns)]
    rate = float(timed["samples_per_s"].median())
    if not np.isnan(rate):
        facts.append(Fact("samples/s", text.number(rate), "all ranks together", rate))
    done = utilisation_of(run)
    if done is not None:
        note = f"per GPU, of the model; {', '.join(done.dtypes)}"
        facts.append(Fact("arithmetic", text.flop_rate(done.flops_per_s), note, done.flops_per_s))
        if not np.isnan(done.mfu):
            peak = text.flop_rate(done.peak_flops_per_s)
            facts.append(Fact("MFU", text.percent(done.mfu), f"of {peak}, without recomputation", done.mfu))
            facts.append(Fact("HFU", text.percent(done.hfu), f"of {peak}, with recomputation", done.hfu))
    period = sync_period(run)
    if period is not None and period.steps:
        note = f"mean over {period.every:,}, of which one averages replicas in {text.duration(period.sync_ns)}"
        facts.append(Fact("step of a sync period", text.duration(period.mean_ns), note, period.mean_ns))
    kept = steady_kept(run)
    if kept:
        spent = parts_of_step(run, kept).set_index("part")
        for name in ("compute_ns", "transfer_ns", "wait_ns", "idle_ns", "hidden_ns"):
            part = PARTS[name]
            if part in spent.index:
                mean, share = (float(spent.loc[part, value]) for value in ("mean_ns", "share"))  # type: ignore[arg-type]
                facts.append(Fact(part, text.duration(mean), f"{text.percent(share)} of a step, mean rank", mean))
    if len(run.rank_memory):
        share, (rank,) = float(run.rank_memory["used_share"].iloc[0]), represented(run.rank_memory.head(1))
        facts.append(Fact("fullest memory", text.percent(share), f"rank {rank}; {_room(run)}", share))
    if len(run.links):
        load, (link,) = float(run.links["utilisation"].iloc[0]), represented(run.links.head(1), "link")
        busy = text.percent(float(run.links["busy_utilisation"].iloc[0]))
        facts.append(Fact("hottest link", text.percent(load), f"{link}, mean over the run; {busy} while busy", load))
    return facts


def _timeline(run: Run, step: int | None, also: Sequence[tuple[int, int]]) -> Section:
    block = timeline(run, step, also)
    if block is None:
        none = "No operation has ended inside a step."
        why = "This run has not kept spans of operations." if run.info.thinned else none
        return Section(NAME, "Timeline", absent=why)
    return Section(NAME, "Timeline", [block])


def _scenario(run: Run) -> Section:
    info = run.info
    whole = json.dumps(info.scenario, indent=2, ensure_ascii=False)
    known = "\n".join(f"{name} {version}" for name, version in sorted(info.versions.items()))
    hosts = ", ".join(info.hosts[:64]) + (f" and {len(info.hosts) - 64:,} more" if len(info.hosts) > 64 else "")
    lines = [
        f"{about.WORLDS.get(info.world, info.world)}, started {info.started or 'at an unknown time'}",
        f"wall time {info.elapsed_s:.1f} s; seed {info.seed}; digest {info.digest}",
        f"hosts: {hosts or 'unknown'}",
    ]
    if info.clock_residual_ns:
        lines.append(f"clocks of the hosts agree within {text.duration(info.clock_residual_ns)}")
    blocks: list[Block] = [Words(f"{line[0].upper()}{line[1:]}.") for line in lines]
    blocks += [Listing("Scenario", whole), Listing("Versions", known or "none were kept", open=True)]
    return Section("scenario", "Scenario and versions", blocks)


def _foot(run: Run, tables: str) -> list[str]:
    where = [f"All numbers here are those of the tables in {tables}, of which every column is in docs/reports.md."]
    return where if tables else []
