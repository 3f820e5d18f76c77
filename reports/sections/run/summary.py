"""The first screen of a run, at most 25 lines of 80 columns, which lead to the tables of the whole report.

A page begins with as much: the verdict.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from reports.analysis.prediction.costs import costs, prices_of
from reports.analysis.prediction.uncertainty import uncertainty
from reports.analysis.step_breakdown import timed_steps, why_no_step
from reports.run import Run
from reports.sections.model import PAGE, Bar, Block, Fact, Facts, Listing, Report, ReportSection, on_page, on_terminal
from reports.sections.run import changes
from reports.sections.run.causes import largest_part, launching, timed_faults, waiting
from reports.sections.run.glance import memory_facts, path_bar, time_facts
from reports.sections.run.headline import (
    HIDDEN,
    OF_SEARCH,
    bound_by_host,
    ended_early,
    fits,
    headline,
    identity,
    of_recording,
    per_rank,
    rests_on,
    sync_words,
    tell_left_out,
    warm_up,
)
from reports.sections.run.operations import shown_layers
from reports.sections.run.subject import RunView
from reports.sections.run.uncertainty import bar, main_reason, spread_line
from reports.terminal import text
from reports.terminal.rows import records, straggler_sentence

# Pieces of the bar with a smaller share are summed as the rest.
_LEAST_PIECE = 0.03
# Where facts need more lines than there are, lines of text are clipped to the first of these numbers of letters that
# suffices. A name and its gap take 12 columns of the 80.
_LINES, _WIDTH, _LETTERS = 14, 68, (272, 204, 136, 68)
# Shares of a step: of launches, from which they are named, and of a straggler's cost.
_LARGE, _LEAST_COST = 0.25, 0.05
_WHAT_IF = "--what-if tries settings, hardware and the program"
_ASK_BATCH = "unknown; --set script.batch_size=N gives a rank's samples a step"
# Tiles of pages have the numbers of these facts.
_IN_TILES = ("step time", "samples/s", "price")
_LAYERS = 5  # named by a page
PLANS = "      twinstep plan SCENARIO (looks for a faster plan of the tables)"


def next_line(folder: str, shows: str = "all tables") -> str:
    """Return the command that shows more of a run, in one line, with as many words around it as there is room for."""
    command = f"twinstep report {shlex.quote(folder)} --full"
    lines = (f"next: {command} ({shows}, a page)", f"next: {command}")
    return next((line for line in lines if len(line) <= text.WIDTH), command)


def _lines(view: RunView) -> list[str]:
    info = view.run.info
    is_folded = any(count > 1 for _, count in info.host_counts)
    simulated = f", {len(info.host_counts):,} of them simulated" if is_folded else ""
    return [f"{identity(view.run)}{simulated}", *ended_early(info)]


def _facts(view: RunView) -> Iterator[Facts]:
    found = verdict(view)
    room = _LINES - sum(len(text.fold(line, text.WIDTH)) for line in _lines(view)[1:])
    for most in _LETTERS:
        clipped = [[text.clip(text.printable(line), most) for line in one.value.split("\n")] for one in found]
        if sum(len(text.fold("\n".join(lines), _WIDTH)) for lines in clipped) <= room:
            break
    yield Facts([one._replace(value="\n".join(lines)) for one, lines in zip(found, clipped, strict=True)])


def verdict(view: RunView) -> list[Fact]:
    """Return time, rate and price of a step, whether memory fits, what limits the step, how sure, what would help."""
    run = view.run
    found = [*_times(view), *_money(run), *_memory(run), *_plan(run), *_faults(run)]
    return [*found, *_limits(view), *_certainty(run), *_changes(run)] if len(timed_steps(run)) else found


def _times(view: RunView) -> Iterator[Fact]:
    run, timed = view.run, timed_steps(view.run)
    if not len(timed):
        yield Fact("step time", f"unknown: no rank completed a step{why_no_step(run)}")
        return
    known = " ".join(filter(None, (text.duration(float(timed["step_ns"].median())), bar(uncertainty(run)))))
    steps = timed["step"].tolist()
    of = f"{'' if len(steps) == 1 else 'median of '}{text.steps(steps)}"
    spread = "" if view.draws is None else spread_line(view.draws)
    remarks = [f"{known}, {of}", spread, *sync_words(run), of_recording(run), warm_up(run)]
    yield Fact("step time", "; ".join(filter(None, remarks)))
    rate = float(timed["samples_per_s"].median())
    if run.batch_size is not None and not np.isnan(rate):
        yield Fact("samples/s", f"{text.number(rate)}, {per_rank(run)}")
    elif run.info.scenario.get("program") == "script":
        yield Fact("samples/s", _ASK_BATCH)


def _money(run: Run) -> Iterator[Fact]:
    usd = costs(run).usd_per_1e9_samples
    if not math.isnan(usd):
        price = prices_of(run)["usd_per_gpu_hour"]
        yield Fact("price", f"${text.to_three_digits(usd)} per 10^9 samples, at ${price:,.2f} a GPU hour")


def _memory(run: Run) -> Iterator[Fact]:
    if said := fits(run):
        yield Fact("memory", said.partition(": ")[2] if said.startswith("memory") else said)


def _plan(run: Run) -> Iterator[Fact]:
    """Yield what the search of a plan by simulation came to, where there was one."""
    for note in run.info.plan_notes:
        if note.startswith(OF_SEARCH):
            yield Fact("plan", note.partition(": ")[2])


def _faults(run: Run) -> Iterator[Fact]:
    if said := timed_faults(run):
        yield Fact("slow parts", "\n".join(said))


def _limits(view: RunView) -> Iterator[Fact]:
    """Yield what the step's time goes into, then what makes it longer than that of equal ranks."""
    if view.step is None:
        return
    share = launching(view.run, view.step)
    host = f"launching of operations: {text.percent(share)} of the step" if share >= _LARGE else ""
    bound = bound_by_host(view.run).removeprefix("bound by ")
    on_cpu = [words for words in view.run.info.on_cpu[:1] if bound and not words.endswith(HIDDEN)]
    longest = [f"CPU work of the hosts: {text.printable(words)}" for words in on_cpu]
    late = waiting(view.run, view.kept_steps, _LEAST_COST) or _straggler(view)
    said = [bound or host or largest_part(view.run, view.step), *longest, late]
    if any(said):
        yield Fact("limited by", "\n".join(filter(None, said)))


def _straggler(view: RunView) -> str:
    found = records(view.run.stragglers_of(view.kept_steps).head(1)) if view.kept_steps else []
    return "".join(straggler_sentence(row) for row in found if row["cost_ns"] >= _LEAST_COST * row["step_ns"])


def _certainty(run: Run) -> Iterator[Fact]:
    """Yield the uncertainty with its main reason, what figures rest on, and what is not predicted."""
    if said := [*filter(None, (main_reason(uncertainty(run)), rests_on(run.info), *tell_left_out(run.info)))]:
        yield Fact("how sure", "\n".join(said))


def _changes(run: Run) -> Iterator[Fact]:
    """Yield the best simulated change of each group, else what was simulated anyway and how to request the others."""
    if run.info.world != "sim":
        return
    if len(run.what_if):
        said = [*changes.best_of_groups(run), *changes.not_tried(run.what_if)]
        yield Fact("would help", "\n".join(said or ["no single change gains anything"]))
        return
    saving = [one for one in run.info.advice if one.saved_ns > 0][:2]
    said = [f"free: {one.change}, {text.signed_percent(-one.share)} of the step" for one in saving]
    yield Fact("would help", "\n".join([*said, f"{'others:' if said else 'not simulated;'} {_WHAT_IF}"]))


def _bar(view: RunView) -> Iterator[Bar]:
    yield from (replace(one, short_note="") for one in path_bar(view, _LEAST_PIECE))


FIRST_SCREEN = ReportSection("first-screen", "First screen", [on_terminal(_facts), on_terminal(_bar)])


def _on_page(view: RunView) -> Iterator[Block]:
    found = [fact for fact in verdict(view) if fact.name not in _IN_TILES]
    yield Facts([*time_facts(view.run), *_price_facts(view.run), *memory_facts(view.run)])
    found += _layers(view)
    if found:
        yield Facts(found, lines=True)
    yield from path_bar(view)
    yield Listing("All about this run", "\n".join(headline(view.run)))


def _layers(view: RunView) -> Iterator[Fact]:
    found = records(shown_layers(view))
    named = [f"{text.printable(row['layer'])} {text.duration(row['both_ns'])}" for row in found[:_LAYERS]]
    more = [f"{len(found) - _LAYERS} more"] if len(found) > _LAYERS else []
    if found:
        yield Fact("layers", f"{', '.join([*named, *more])} of a step, forward and backward")


def _price_facts(run: Run) -> Iterator[Fact]:
    usd = costs(run).usd_per_1e9_samples
    if not math.isnan(usd):
        yield Fact("$ per 10^9 samples", f"${text.to_three_digits(usd)}", "at the scenario's price of a GPU hour", usd)


VERDICT = ReportSection(
    "verdict",
    "Verdict",
    [on_page(_on_page)],
    absent=lambda view: "" if len(timed_steps(view.run)) else "No rank completed a step.",
    absent_in=PAGE,
)
SUMMARY = Report(lines=_lines, sections=[FIRST_SCREEN, VERDICT])
