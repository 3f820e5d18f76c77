"""The page of several runs, and its charts, whose colours stand for runs."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import BasicTicker

from reports.analysis.step_breakdown import PARTS
from reports.page import charts, theme
from reports.page.blocks import Chart, Page
from reports.page.sections import draw_sections
from reports.page.side_by_side.charts import colors, dots, over_steps
from reports.sections.side_by_side import BESIDE, BesideView, lines, loads, memory_by_part, steps_of
from reports.side_by_side.frames import SideBySide
from reports.side_by_side.words import DIFFERENT_BATCHES, operations_by_change
from reports.terminal import text
from reports.terminal.rows import ratio

_DRAWN = 16
_LAYERS = 9


def page(found: SideBySide, hrefs: Sequence[str], tables: str = "") -> Page:
    """Return the whole page; `hrefs` lead to each run's own ("": it has none), `tables` is the path of the tables."""
    where = f"All numbers are those of the tables in {tables}; `twinstep docs runs` describes every column."
    view = BesideView(found, hrefs)
    title = f"{text.count_words(len(found.names), 'run')} side by side"
    return Page(title=title, about=lines(view), sections=draw_sections(BESIDE, view), foot=[where] if tables else [])


def parts(view: BesideView) -> list[Chart] | str:
    """Draw the parts of a step of each run that has kept its spans."""
    frame = view.found.results
    if not frame["step_ns"].notna().any():
        return "No rank of any run completed a step."
    has = frame["compute_ns"].notna()
    if not has.any():
        return []
    names = [label for label, own in zip(view.labels.values(), has, strict=True) if own]
    layers = {PARTS[name]: (charts.ms(frame.loc[has, name]), color) for name, color in theme.PARTS.items()}
    note = "Means over ranks and steady steps; the parts add up to the mean step."
    note += f" {DIFFERENT_BATCHES}." if view.found.batches_differ else ""
    return [Chart("parts", "Parts of a step", charts.stacked_bars(names, layers, x="ms per step"), note)]


def steps(view: BesideView) -> list[Chart]:
    """Draw the time of each step, a line for each run."""
    kept = steps_of(view)
    if all(len(own) < 2 for own in kept.values()):
        return []
    note = "From the first rank's start to the last rank's end."
    return [Chart("steps", "Time of each step", over_steps(kept, colors(view.found)), note)]


def operations(view: BesideView) -> list[Chart]:
    """Draw the medians of the operations that change most."""
    held = list(dict.fromkeys(view.found.operations["run"].tolist()))
    pairs = [pair for pair, _ in zip(operations_by_change(view.found), range(_DRAWN), strict=False)]
    values = {
        view.labels[name]: [float(rows["median_ns"].iloc[at]) for _, rows in pairs] for at, name in enumerate(held)
    }
    names = [name for name, _ in pairs]
    drawing = dots(names, values, text.duration, colors(view.found), x="ms per step", scale=1e-6)
    note = "The largest changes first; medians over ranks and steady steps. The ring is the first run."
    title = "Operations that change most" if len(held) > 1 else "Operations"
    return [Chart("operations", title, drawing, note)]


def memory(view: BesideView) -> list[Chart]:
    """Draw the memory of each run's fullest rank, by part."""
    table = memory_by_part(view)
    unit, factor = text.size_unit(float(table.sum().max()))
    layers = {str(part): (row / factor).tolist() for part, row in table.head(_LAYERS).iterrows()}
    if len(table) > _LAYERS:
        layers["all else"] = (table.iloc[_LAYERS:].sum() / factor).tolist()
    colored = {part: (sizes, color) for (part, sizes), color in zip(layers.items(), theme.EVERY, strict=False)}
    drawing = charts.stacked_bars([view.labels[str(name)] for name in table.columns], colored, x=unit)
    return [Chart("memory", "By part", drawing)]


def links(view: BesideView) -> list[Chart]:
    """Draw, for each class of links and run, the utilisation of the most loaded link over the whole run."""
    table = view.found.link_classes.pivot(index="link_class", columns="run", values="peak_utilisation")
    values = {label: table[name].tolist() for name, label in view.labels.items() if name in table.columns}
    classes, x = [str(name) for name in table.index], "mean load of the hottest link"
    drawing = dots(classes, values, text.percent, colors(view.found), x=x)
    charts.percent_axis(drawing.xaxis[0])
    drawing.xaxis[0].ticker = BasicTicker(min_interval=0.01)
    return [Chart("links", "Hottest link of each class, over the whole run", drawing)]


def balance(view: BesideView) -> list[Chart]:
    """Draw how far the most loaded rank is from the mean."""
    frame = loads(view)
    table = frame.pivot(index="load", columns="run", values="max_over_mean").reindex(frame["load"].unique())
    values = {label: table[name].tolist() for name, label in view.labels.items() if name in table.columns}
    names, x = [str(load) for load in table.index], "max over mean; 1 is balanced"
    drawing = dots(names, values, ratio, colors(view.found), x=x)
    drawing.x_range.start = 0.9
    note = "Compute is from spans; the others are the plan's expectations."
    return [Chart("balance", "Max over mean by load", drawing, note)]
