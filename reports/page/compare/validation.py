"""The page of a validation, and its charts of errors by scenario and operation."""

from __future__ import annotations

import pandas as pd

from reports.page import theme
from reports.page.blocks import Chart, Page
from reports.page.compare import error_charts
from reports.page.compare.error_charts import COLORS
from reports.page.sections import draw_sections
from reports.sections import validation as sections
from reports.sections.comparison import SIDES
from reports.sections.validation import VALIDATION, ValidationView
from reports.terminal import text
from reports.validation.folder import Validated

_BARS = 30
_LIBRARIES = ("gloo", "nccl")
_SCATTER_NOTE = """A dot is a scenario: its median step. Bars are the 95 % intervals of the medians. The bands are 10 %
and 25 % around equality; below it the prediction is too fast."""
_OPERATIONS_NOTE = """The median over the scenarios that have the operation; the largest parts of a step's error
are at the top."""


def page(found: Validated) -> Page:
    """Return the whole page, for the validation's folder."""
    head = found.head
    machine = ", ".join(str(value) for value in head.get("machine", {}).values())
    about = [f"{text.count_words(len(found.scenarios), 'scenario')}, begun {head.get('started', 'at an unknown time')}"]
    if not head.get("is_complete", True):
        about.append("ENDED EARLY: not every scenario had its turn")
    versions = ", ".join(f"{name} {version}" for name, version in head.get("versions", {}).items())
    foot, title = [str(head.get("command", "")), f"on {machine}" if machine else "", versions], found.folder.resolve()
    shown = draw_sections(VALIDATION, ValidationView(found))
    return Page(title=f"Validation {title.name}", about=about, sections=shown, foot=foot)


def scatter(view: ValidationView) -> list[Chart] | str:
    """Draw predicted against measured steps of scenarios; say why not where none has both."""
    known = view.compared_rows
    if not len(known):
        return "No scenario has both a prediction and a measurement."
    points = known.rename(columns={"scenario": "name", "library": "group"})
    for side in SIDES:
        median = known[f"{side}_median_ns"]
        bounds = {f"{side}_{end}": known[f"{side}_median_{end}_ns"].fillna(median) for end in ("low", "high")}
        points = points.assign(**{side: median}, **bounds)
    drawing = error_charts.scatter(points, dict(zip(_LIBRARIES, (theme.EXPOSED, theme.COMPUTE), strict=True)))
    return [Chart("scatter", "Median step of each scenario", drawing, _SCATTER_NOTE)]


def scenarios(view: ValidationView) -> list[Chart] | str:
    """Draw the greatest errors of scenarios; say why not where none had its turn."""
    if not len(view.found.scenarios):
        return "No scenario had its turn."
    shown, count = view.by_error.head(_BARS), len(view.compared_rows)
    if not count:
        return []
    drawing = error_charts.error_bars(
        shown["scenario"].tolist(),
        shown["error"],
        [theme.EXPOSED] * len(shown),
        {
            "predicted": [text.duration(ns) for ns in shown["predicted_median_ns"]],
            "measured": [text.duration(ns) for ns in shown["measured_median_ns"]],
            "interval": _errors_between(shown["error_low"], shown["error_high"]),
        },
    )
    of = f", the {len(shown)} greatest of {count}" if len(shown) < count else ""
    return [Chart("scenarios", f"Signed errors{of}", drawing, "Half and twice are equally far from zero.")]


def _errors_between(low: pd.Series, high: pd.Series) -> list[str]:
    return [text.interval(*pair, form=text.signed_percent) for pair in zip(low, high, strict=True)]


def operations(view: ValidationView) -> list[Chart] | str:
    """Draw the errors of the operations that make most of the steps' errors; say why not where none is known."""
    frame = sections.operations(view)
    if not len(frame):
        return "No operation was both predicted and measured."
    each = frame.groupby("name", sort=True).agg(
        error=("error", "median"),
        error_of_step=("error_of_step", "median"),
        size=("size", "median"),
        part=("part", "first"),
        scenarios=("scenario", "nunique"),
        low=("error", "min"),
        high=("error", "max"),
    )
    shown = each.sort_values("size", ascending=False, kind="stable").head(_BARS)
    drawing = error_charts.error_bars(
        shown.index.tolist(),
        shown["error"],
        [COLORS[part] for part in shown["part"]],
        {
            "least to greatest": _errors_between(shown["low"], shown["high"]),
            "difference, of the step": [text.signed_percent(share) for share in shown["error_of_step"]],
            "scenarios": [str(count) for count in shown["scenarios"]],
        },
    )
    of = f", the {len(shown)} of {len(each)} that matter most" if len(shown) < len(each) else ""
    return [Chart("operations", f"Signed errors{of}", drawing, _OPERATIONS_NOTE)]
