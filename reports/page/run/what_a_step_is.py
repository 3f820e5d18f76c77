"""The bar at the top of a run's page, its critical path by what it is; and what would change it."""

from __future__ import annotations

from reports.analysis.by_what import by_what
from reports.analysis.step_breakdown import steady_kept
from reports.page import charts, theme
from reports.page.blocks import Block, Chart, Listing, Section, Table, Words
from reports.run import Run
from reports.terminal import changes, text
from reports.terminal.headline import only
from reports.terminal.what_a_step_is import gradients_hidden, shares_said


def bar(run: Run, step: int) -> list[Block]:
    """A stacked bar of one step with its shares, and why compressing gradients cannot help, where it cannot."""
    parts = by_what(run.critical_path_of(step))
    if not len(parts):
        return []
    layers = {
        words: ([duration / 1e6], theme.WHATS[name])
        for words, name, duration in zip(shares_said(parts), parts["what"], parts["duration_ns"], strict=True)
    }
    whole = text.duration(float(parts["duration_ns"].sum()))
    note = (
        "Shares add up to the step. Waiting: the path is on a rank that computes while at least half of the others"
        " stand still for it. Launching: a GPU waits for the host."
    )
    drawn = charts.stacked_bars([f"step {step}"], layers, x="ms")
    title = f"Critical path of step {step}{only(run)} by what it is, {whole}"
    blocks: list[Block] = [Chart("by-what", title, drawn, note)]
    if said := gradients_hidden(run, steady_kept(run)):
        blocks.append(Words(f"{said[0].upper()}{said[1:]}."))
    return blocks


def changes_of(run: Run) -> Section:
    """Show what each change of the scenario gains, if it was asked for."""
    found, title = changes.ranked(run), "What would help"
    if not len(found):
        how = "with --what-if a prediction changes one thing at a time, and simulates each."
        return Section(
            "what-if", title, absent=f"Not asked for: {how}" if run.info.world == "sim" else "Not predicted."
        )
    blocks: list[Block] = [
        Table(title, columns, rows, note=changes.SHARES_NOTE, raw={"best": gain})
        for title, columns, rows, gain in changes.groups(found)
    ]
    blocks += map(Words, changes.notes(found))
    blocks += [Words(f"{said[0].upper()}{said[1:]}") for said in changes.not_played(found)]
    blocks.append(Listing("How each is made", "\n".join(changes.options(found))))
    return Section("what-if", title, blocks)
