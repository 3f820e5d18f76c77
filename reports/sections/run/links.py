"""The section on links: bytes between hosts, load over time, classes of links and the hottest ones."""

from __future__ import annotations

from collections.abc import Iterator

from reports.sections.model import (
    PAGE,
    Column,
    FrameColumns,
    Most,
    ReportSection,
    ReportTable,
    figure,
    lacking,
    table_of,
)
from reports.sections.run.subject import RunView
from reports.terminal.rows import represent_rows

_CLASSES_TITLE = "Links: load, mean over the run, and of the hottest also while it is busy"


def _classes(view: RunView) -> Iterator[ReportTable]:
    links, classes = view.run.links, view.run.link_classes
    classes = classes[(classes["bytes_carried"] > 0).to_numpy(bool)]
    classes = classes.assign(hottest=classes["hottest_link"] + " " + classes["hottest_direction"])
    columns = {"link_class": "class", "links": "links", "bytes_carried": "carried", "mean_utilisation": "mean load"}
    columns |= {"peak_utilisation": "hottest link", "busy_utilisation": "while busy"}
    raw = {"bytes": float((links["bytes_carried"] * links["link_count"]).sum())}
    yield table_of(
        _CLASSES_TITLE,
        classes,
        {**columns, "hottest": Column("hottest", PAGE)},
        raw=raw,
        name="Classes of links",
        folded=True,
    )


def _hottest(view: RunView) -> Iterator[ReportTable]:
    links = view.run.links[(view.run.links["bytes_carried"] > 0).to_numpy(bool)]
    columns: FrameColumns = {
        "link": "link",
        "direction": "direction",
        "link_class": "class",
        "bytes_carried": "carried",
        "bytes_per_s": Column("rate", PAGE),
        "utilisation": "mean load",
        "busy_share": "busy",
        "busy_utilisation": "while busy",
    }
    shown, most = links.assign(link=represent_rows(links, "link")), Most(5, 24)
    yield table_of(
        "Hottest links", shown, columns, left=3, most=most, others="cooler ones", file="links.csv", folded=True
    )


def _absent(view: RunView) -> str:
    return "Not available for real runs." if view.run.info.world == "real" else "This run used no links."


LINKS = ReportSection(
    "links",
    "Links",
    [figure("run.cluster.cluster"), figure("run.links.hosts"), figure("run.links.over_time"), _classes, _hottest],
    absent=lacking(lambda view: view.run.links, _absent),
    data=lambda view: {"link_classes": view.run.link_classes, "links": view.run.links},
)
