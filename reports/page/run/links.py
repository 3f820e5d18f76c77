"""Sections on links: bytes between hosts, load over time, the hottest links."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource

from reports.analysis.link_load import HostMatrix, class_load, host_matrix
from reports.page import charts, theme
from reports.page.blocks import Block, Chart, Section, Table, Words
from reports.run import Run
from reports.terminal import text
from reports.terminal.rows import cells, represented
from reports.terminal.run_tables import CLASS_CELLS, CLASS_COLUMNS

_HOSTS = 48
_TIMES = 240
_LINKS = 24


def links(run: Run, step: int | None) -> Section:
    """All of it, or why there is nothing; load over time is that of one step."""
    if not len(run.links):
        why = "Not available for real runs." if run.info.world == "real" else "This run used no links."
        return Section("links", "Links", absent=why)
    return Section("links", "Links", [_hosts(run), *_over_time(run, step), *_tables(run)])


def _hosts(run: Run) -> Block:
    matrix = host_matrix(run.traffic, _HOSTS)
    if matrix is None:
        why = "no traffic between hosts" if len(run.traffic) else "not available for this run"
        return Words(f"Load from host to host: {why}.")
    names = _names(matrix)
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
    return Chart("hosts", "Load from host to host", drawn, note)


def _names(matrix: HostMatrix) -> list[str]:
    each = zip(matrix.firsts.tolist(), matrix.lasts.tolist(), matrix.counts.tolist(), strict=True)
    return [text.representative(first, count) if first == last else f"{first}-{last}" for first, last, count in each]


def _over_time(run: Run, step: int | None) -> list[Block]:
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


def _tables(run: Run) -> list[Block]:
    classes = run.link_classes
    classes = classes.assign(hottest=classes["hottest_link"] + " " + classes["hottest_direction"])
    hottest = run.links.head(_LINKS)
    hottest = hottest.assign(link=represented(hottest, "link"))
    numbers = ["bytes_carried", "bytes_per_s", "utilisation", "busy_share", "busy_utilisation"]
    columns = ["link", "direction", "class", "carried", "rate", "mean load", "busy", "while busy"]
    more = f"{len(run.links) - _LINKS:,} more are in links.csv." if len(run.links) > _LINKS else ""
    raw = {"bytes": float((run.links["bytes_carried"] * run.links["link_count"]).sum())}
    class_rows, rows = (
        cells(classes, [*CLASS_CELLS, "hottest"]),
        cells(hottest, ["link", "direction", "link_class", *numbers]),
    )
    return [
        Table("Classes of links, over the whole run", [*CLASS_COLUMNS, "hottest"], class_rows, raw=raw),
        Table("Hottest links", columns, rows, left=3, note=more),
    ]
