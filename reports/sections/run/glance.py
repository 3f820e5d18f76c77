"""The section "At a glance": main numbers, classes of a step's time, what dominates it, and what delays it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reports.analysis import by_role, critical_path
from reports.analysis.by_role import REDUCTIONS
from reports.analysis.prediction.uncertainty import uncertainty
from reports.analysis.step_breakdown import (
    PARTS,
    parts_of_step,
    steady_kept,
    steady_steps,
    sync_period,
    timed_steps,
    utilisation_of,
)
from reports.run import Run
from reports.sections.model import (
    LEAST_SHARE,
    PAGE,
    Bar,
    Fact,
    Facts,
    ReportSection,
    SectionPiece,
    Words,
    on_page,
    on_terminal,
)
from reports.sections.run import changes
from reports.sections.run.causes import dominant, timed_faults, with_launching
from reports.sections.run.headline import of_recording
from reports.sections.run.subject import RunView
from reports.sections.run.uncertainty import bar
from reports.terminal import text
from reports.terminal.rows import records, represent_rows, straggler_sentence
from scenarios.seam import roles
from scenarios.seam.traits import TRAITS

# A letter for each class: capitals are computed, small letters sent.
LETTERS = {
    **{by_role.DENSE: "D", by_role.LOOK_UPS: "L", by_role.TABLE_UPDATES: "U", by_role.OPTIMIZER: "O"},
    **{by_role.COMPRESSION: "C", by_role.PACKING: "P", by_role.INPUT: "I", by_role.OTHER: "X"},
    **{by_role.IDS: "i", by_role.EMBEDDINGS: "e", by_role.GRADIENTS: "g", by_role.EXCHANGES: "x", REDUCTIONS: "r"},
    **{by_role.TRANSFERS: "t", by_role.LAUNCHING: "=", by_role.WAITING: ".", by_role.HOST: "_"},
}
_BAR_NOTE = (
    "Shares add up to the step. Waiting: the path is on a rank that computes while at least half of the other ranks"
    " are idle, waiting for it. Launching: a GPU waits for the host."
)
_STAND_STILL = "waiting: most ranks are idle, waiting for one that still computes"
_STRAGGLERS_SHOWN = 5
_NO_STRAGGLERS = "No stragglers and no hot spots: no GPU and no link is slower, or has more work, than its peers."
# A smaller share of a step is nothing.
_NOTHING = 0.0005
# The exposed share of gradients' transfer from which compressing them is worthwhile.
_WORTH = 0.02
# Gradients of replicated tables, and averages of replicas of tables, are not compressed.
_OF_TABLES = (roles.TABLE_REDUCTION, roles.REPLICAS)
_REDUCED = [verb for verb, known in TRAITS.items() if known.has_sums and known.size]


def _absent(view: RunView) -> str:
    return "" if view.step is not None or len(timed_steps(view.run)) else "No rank completed a step."


def _tiles(view: RunView) -> Iterator[Facts]:
    if len(timed_steps(view.run)) and (found := [*_part_facts(view), *_link_facts(view.run), *_rate_facts(view.run)]):
        yield Facts(found)


def time_facts(run: Run) -> Iterator[Fact]:
    """Yield the step time and the samples per second."""
    timed = timed_steps(run)
    step_ns, rate = float(timed["step_ns"].median()), float(timed["samples_per_s"].median())
    of = f"median of {text.steps(timed['step'].tolist())}"
    note = ", ".join(filter(None, (bar(uncertainty(run)), of, of_recording(run))))
    yield Fact("step time", text.duration(step_ns), note, step_ns)
    if not np.isnan(rate):
        yield Fact("samples/s", text.number(rate), "all ranks together", rate)


def _rate_facts(run: Run) -> Iterator[Fact]:
    done = utilisation_of(run)
    if done is not None:
        note = f"per GPU, of the model; {', '.join(done.dtypes)}"
        yield Fact("arithmetic", text.flop_rate(done.flops_per_s), note, done.flops_per_s)
        if not np.isnan(done.mfu):
            peak = text.flop_rate(done.peak_flops_per_s)
            yield Fact("MFU", text.percent(done.mfu), f"of {peak}, without recomputation", done.mfu)
            if done.hfu > done.mfu:
                yield Fact("HFU", text.percent(done.hfu), f"of {peak}, with recomputation", done.hfu)
    period = sync_period(run)
    if period is not None and period.steps:
        note = f"mean over {period.every:,} steps; the one that averages replicas takes {text.duration(period.sync_ns)}"
        yield Fact("step of a sync period", text.duration(period.mean_ns), note, period.mean_ns)


def _part_facts(view: RunView) -> Iterator[Fact]:
    if not view.kept_steps:
        return
    spent = parts_of_step(view.run, view.kept_steps).set_index("part")
    for name in ("compute_ns", "transfer_ns", "wait_ns", "idle_ns", "hidden_ns"):
        part = PARTS[name]
        if part in spent.index:
            mean, share = (float(spent.loc[part, value]) for value in ("mean_ns", "share"))  # type: ignore[arg-type]
            if mean:
                included = with_launching(view.run, view.step) if name == "compute_ns" else ""
                yield Fact(part, text.duration(mean), f"{text.percent(share)} of a step, mean rank{included}", mean)


def memory_facts(run: Run) -> Iterator[Fact]:
    """Yield how full the fullest memory is."""
    if len(run.rank_memory):
        share, (rank,) = float(run.rank_memory["used_share"].iloc[0]), represent_rows(run.rank_memory.head(1))
        free_bytes = float(run.rank_memory["free_bytes"].iloc[0])
        room = f"{text.size(abs(free_bytes))} {'to spare' if free_bytes >= 0 else 'too much'}"
        yield Fact("fullest memory", text.percent(share), f"rank {rank}; {room}", share)


def _link_facts(run: Run) -> Iterator[Fact]:
    if len(run.links):
        load, (link,) = float(run.links["utilisation"].iloc[0]), represent_rows(run.links.head(1), "link")
        busy = text.percent(float(run.links["busy_utilisation"].iloc[0]))
        yield Fact("hottest link", text.percent(load), f"{link}, mean over the run; {busy} while busy", load)


def path_bar(view: RunView, least: float = LEAST_SHARE) -> Iterator[Bar]:
    """Yield the critical path by kind of work; pieces with a share below `least` are not named in a terminal."""
    parts = [] if view.step is None else records(by_role.by_what(view.run.critical_path_of(view.step)))
    if not parts:
        return
    pieces = [SectionPiece(row["what"], LETTERS[row["what"]], row["duration_ns"], row["share"]) for row in parts]
    whole = text.duration(float(sum(piece.duration_ns for piece in pieces)))
    title = f"Critical path of step {view.step}{view.phrase_on_ranks} by kind of work, {whole}"
    waits = any(piece.name == by_role.WAITING and piece.share >= LEAST_SHARE for piece in pieces)
    yield Bar("by-what", title, f"step {view.step}", pieces, _BAR_NOTE, _STAND_STILL if waits else "", least)


def _what_helps(view: RunView) -> Iterator[Words]:
    """Yield why compressing gradients cannot help, if so."""
    if view.step is not None and (said := gradients_hidden(view.run, view.kept_steps)):
        yield Words(said)


def _best(view: RunView) -> Iterator[Words]:
    if view.step is not None and (said := changes.best(view.run)):
        yield Words(said)


def _dominant(view: RunView) -> Iterator[Words]:
    if view.step is not None and (said := dominant(view.run, view.step)):
        title = f"What dominates the critical path of step {view.step}{view.phrase_on_ranks}"
        yield Words(title, [f"{sentence}." for sentence in said])


def _stragglers(view: RunView) -> Iterator[Words]:
    found = view.run.stragglers_of(view.kept_steps) if view.kept_steps else view.run.stragglers.iloc[:0]
    shown = [f"{straggler_sentence(row)}." for row in records(found.head(_STRAGGLERS_SHOWN))]
    more = f"; {len(found) - len(shown)} more not shown" if len(found) > len(shown) else ""
    title = f"Stragglers and hot spots, and what they cost a step at most{view.phrase_on_ranks}{more}"
    yield Words(title, shown) if shown else Words(_NO_STRAGGLERS)


def _timed_faults(view: RunView) -> Iterator[Words]:
    if said := timed_faults(view.run):
        yield Words("Parts that the scenario slows for a time", [f"{sentence}." for sentence in said])


def gradients_hidden(run: Run, steps: list[int]) -> str:
    """Return why compressing gradients cannot help, without a full stop; "" where it might, or none are reduced.

    The criterion is the mean rank's reduction of dense gradients that is neither hidden behind computation nor waiting
    for others. The result is also "" where gradients are compressed already.
    """
    compression = run.info.scenario.get("compression")
    if isinstance(compression, dict) and compression.get("kind") != "none":
        return ""
    frame = run.operations_of(steps)
    reduced = frame[frame["kind"].isin(_REDUCED).to_numpy(bool) & ~frame["role"].isin(_OF_TABLES).to_numpy(bool)]
    reduced = reduced[np.equal(by_role.whats(reduced.assign(kernel="")), REDUCTIONS).astype(bool)]
    total, hidden, wait = (float(reduced[name].sum()) for name in ("mean_ns", "hidden_ns", "wait_ns"))
    step_ns = float(steady_steps(run.steps)["step_ns"].median())
    share = (total - hidden - wait) / step_ns if step_ns > 0 else 1.0
    if not total > 0 or share >= _WORTH:
        return ""
    waits = f", {text.percent(wait / total)} is waiting for other ranks" if wait >= LEAST_SHARE * total else ""
    left = f"the rest, transfer, is {text.percent(share)} of the step" if share >= _NOTHING else "nothing is left"
    can = "cannot" if share < LEAST_SHARE else "can hardly"
    return (
        f"compressing gradients {can} help: {text.percent(hidden / total)} of their reduction is hidden by"
        f" computation{waits}; {left}"
    )


def _data(view: RunView) -> dict[str, Any]:
    run, done, step = view.run, utilisation_of(view.run), view.step
    path = None if step is None else run.critical_path_of(step)
    found = [{**row, "sentence": straggler_sentence(row)} for row in records(run.stragglers)]
    return {
        "by_what": [] if path is None else by_role.by_what(path),
        "dominant": [] if path is None else critical_path.dominant(path),
        "gradients_hidden": gradients_hidden(run, steady_kept(run)) if step is not None else "",
        "arithmetic": None if done is None else done._asdict(),
        "stragglers": found,
    }


GLANCE = ReportSection(
    "glance",
    "At a glance",
    [
        on_terminal(path_bar),
        on_page(_tiles),
        _what_helps,
        on_terminal(_best),
        _dominant,
        _stragglers,
        on_terminal(_timed_faults),
    ],
    absent=_absent,
    absent_in=PAGE,
    data=_data,
)
