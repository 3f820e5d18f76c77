"""The page of a comparison, and its charts of errors by operation, size and step."""

from __future__ import annotations

import numpy as np

from reports.compare.calls import errors_by_size
from reports.page.blocks import Chart, Page
from reports.page.compare import error_charts
from reports.page.compare.error_charts import COLORS
from reports.page.sections import draw_sections
from reports.run import Run
from reports.sections.comparison import COMPARISON, TITLES, CompareView, Comparison, about, named_operations, names_of
from reports.terminal import text
from reports.terminal.rows import records

_BARS = 30

_SCATTER_NOTE = """A dot is an operation: the median of one rank in one step. Bars go from the 10th to the 90th
percentile over ranks and steps. The bands are 10 % and 25 % around equality; below it the prediction is too fast."""
_OPERATIONS_NOTE = """Below zero the prediction is too fast; half and twice are equally far from zero. The largest
differences, as shares of the measured step, are at the top. The numbers are in the table below."""
_SIZES_NOTE = """A dot is the median call of an operation at one size: the bytes that it sends, or that a computation
reads and writes. Lines are medians over all operations."""


def page(comparison: Comparison, predicted_page: str, measured_page: str) -> Page:
    """Return the whole page; the paths of the two runs' own pages are relative to it, "" for none."""
    info, view = comparison.measured.info, CompareView(comparison, (predicted_page, measured_page))
    return Page(
        title=f"{info.name}: predicted against measured",
        about=[text.count_words(info.world_size, "rank"), *about(comparison)[1:]],
        sections=draw_sections(COMPARISON, view),
        foot=[_foot("predicted", comparison.predicted), _foot("measured", comparison.measured)],
    )


def places(comparison: Comparison) -> list[tuple[int, int]]:
    """Return the steps and ranks of the worst cases, which the runs' own pages must show."""
    return list(dict.fromkeys(zip(comparison.worst["step"].tolist(), comparison.worst["rank"].tolist(), strict=True)))


def _foot(role: str, run: Run) -> str:
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    return f"{role}: {info.world} run of {info.started or 'an unknown time'}, scenario {info.digest}, {versions}"


def scatter(view: CompareView) -> list[Chart] | str:
    """Draw predicted against measured times of operations; return the reason instead where none took time."""
    frame = named_operations(view.comparison)
    frame = frame[(frame["error"].notna() & (frame["predicted_ns"] > 0)).to_numpy(bool)]
    if not len(frame):
        return "No operation took time in both runs."
    points = frame.rename(columns=lambda name: name.removesuffix("_ns")).assign(group=frame["part"].map(TITLES))
    drawing = error_charts.scatter(points, {TITLES[part]: COLORS[part] for part in COLORS})
    return [Chart("scatter", "Times per rank and step", drawing, _SCATTER_NOTE)]


def steps(view: CompareView) -> list[Chart]:
    """Draw the times of each step that both runs completed, and its error."""
    known = view.comparison.steps[view.comparison.steps["error"].notna().to_numpy(bool)]
    if not len(known):
        return []
    drawing, note = error_charts.step_errors(known)
    return [Chart("steps", "Step time, and its error below", drawing, note)]


def operations(view: CompareView) -> list[Chart]:
    """Draw the errors of the operations that differ by most time."""
    frame = named_operations(view.comparison)
    known = frame[frame["error"].notna().to_numpy(bool)]
    if not len(known):
        return []
    shown = known.loc[known["error_of_step"].abs().sort_values(ascending=False, kind="stable").index].head(_BARS)
    step_ns = float(view.comparison.steps["measured_ns"].median())
    drawing = error_charts.error_bars(
        shown["name"].tolist(),
        shown["error"],
        [COLORS[part] for part in shown["part"]],
        {
            "predicted": [text.duration(ns) for ns in shown["predicted_ns"]],
            "measured": [text.duration(ns) for ns in shown["measured_ns"]],
            "share of the step": [text.percent(ns / step_ns if step_ns else np.nan) for ns in shown["measured_ns"]],
            "difference, of the step": [text.signed_percent(share) for share in shown["error_of_step"]],
        },
    )
    of = f"the {len(shown)} of {len(known)} that differ by most time" if len(shown) < len(known) else "most time first"
    return [Chart("operations", f"Signed errors, {of}", drawing, _OPERATIONS_NOTE)]


def sizes(view: CompareView) -> list[Chart]:
    """Draw the errors of single calls by size."""
    calls = view.comparison.calls
    known = calls[calls["error"].notna().to_numpy(bool)]
    known = known.assign(name=names_of(view.comparison, known))
    by_part = errors_by_size(calls, by="part")
    medians = {
        part: [(int(row["size_from_bytes"]), float(row["signed_median"])) for row in records(rows)]
        for part, rows in ((part, by_part[(by_part["part"] == part).to_numpy(bool)]) for part in COLORS)
        if len(rows)
    }
    drawing = error_charts.errors_over_sizes(known, medians)
    return [Chart("sizes", "Signed errors of single calls", drawing, _SIZES_NOTE)]
