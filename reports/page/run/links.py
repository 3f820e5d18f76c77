"""Draw links: bytes between hosts, load over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource

from reports.analysis.link_load import HostMatrix, class_load, host_matrix
from reports.page import charts, theme
from reports.page.blocks import Chart
from reports.sections.model import Words
from reports.sections.run.subject import RunView
from reports.terminal import text

_HOSTS = 48
_TIMES = 240
_PAIR = 2


def hosts(view: RunView) -> list[Chart | Words]:
    """Draw the bytes that each host sent to each other, or state why not."""
    run = view.run
    matrix = host_matrix(run.traffic, _HOSTS)
    if matrix is None:
        why = "no traffic between hosts" if len(run.traffic) else "not available for this run"
        return [Words(f"Load from host to host: {why}.")]
    names = _names(matrix)
    if len(names) <= _PAIR and all(count == 1 for _, count in run.info.host_counts):
        return []  # the picture of the cluster shows as much
    words = [[text.size(value) for value in row] for row in np.nan_to_num(matrix.bytes_carried).tolist()]
    unit, factor = text.size_unit(float(np.nanmax(matrix.bytes_carried)))
    carried = matrix.bytes_carried / factor
    drawn = charts.heat_map(carried, names, names, words, x="to host", y="from host", unit=unit)
    note = "Bytes on the wire over the whole run, without traffic inside a host."
    hosts = len(run.traffic["from_host"].unique())
    if len(names) < hosts:
        of = f"up to {-(-hosts // len(names))} hosts either way"
        note += f" Each square is of {of}{', and of all hosts that they represent' if run.info.host_counts else ''}."
    elif run.info.host_counts:
        note += " Each square: from one host of the row's class to one of the column's."
    return [Chart("hosts", "Load from host to host", drawn, note)]


def _names(matrix: HostMatrix) -> list[str]:
    each = zip(matrix.firsts.tolist(), matrix.lasts.tolist(), matrix.counts.tolist(), strict=True)
    return [text.representative(first, count) if first == last else f"{first}-{last}" for first, last, count in each]


def over_time(view: RunView) -> list[Chart | Words]:
    """Draw the load of each class of links in one step, or state why not."""
    run, step = view.run, view.step
    if not len(run.loads):
        return [Words("Load over time: not available for this run.")]
    outline = run.outline
    from_ns, until_ns, where = outline.first_ns, outline.last_ns, "over the whole run"
    own = run.steps[(run.steps["step"] == step).to_numpy(bool)]
    if len(own):
        from_ns, until_ns, where = int(own["start_ns"].iloc[0]), int(own["end_ns"].iloc[0]), f"in step {step}"
    frame = class_load(run.loads, run.links, (from_ns, until_ns), _TIMES)
    if not len(frame):
        return [Words(f"Load over time: no time passed {where}.")]
    tooltips = [("", "@name"), ("from", "@left{0.000} ms"), ("load", "@load{0.0 %}")]
    drawn = charts.figure(height=180, x="ms from the beginning of the run", y="load", zooms="width", tooltips=tooltips)
    for (name, own), color in zip(frame.groupby("link_class", sort=True), theme.EVERY, strict=False):
        drawn.step(
            x="left", y="load", mode="after", source=ColumnDataSource(_points(own, str(name), outline.first_ns)),
            line_color=color, line_width=1.6, legend_label=str(name),
        )  # fmt: skip
    charts.legend(drawn)
    charts.percent_axis(drawn.yaxis[0])
    drawn.y_range.start = 0
    note = "Bytes carried over capacity, all links of a class together: a single link may be full."
    return [Chart("load", f"Load over time, {where}", drawn, note)]


def _points(own: Any, name: str, origin_ns: int) -> dict[str, Any]:
    left = charts.ms(own["from_ns"] - origin_ns)
    return {"left": left, "load": own["utilisation"].to_numpy(float), "name": [name] * len(own)}
