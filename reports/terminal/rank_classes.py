"""The classes of a script's ranks, of each of which one was played, as tables have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from reports.run import Run
from reports.terminal import text

TITLE, COLUMNS = "Classes of ranks, of each of which one was played", ["played", "for", "ranks"]
_KEYS = ("rank", "count", "ranks")
_ROWS = 16


def summarize(run: Run) -> Iterator[RenderableType]:
    """Yield the table; nothing if each rank was played, or no script."""
    if run.info.rank_classes:
        yield text.table(TITLE, COLUMNS, table_rows(run))


def as_rows(run: Run) -> list[dict[str, Any]]:
    """Return all classes for JSON."""
    return [dict(zip(_KEYS, each, strict=True)) for each in run.info.rank_classes]


def table_rows(run: Run) -> list[list[str]]:
    """Return the rows of the largest classes of a script's ranks under `COLUMNS`."""
    found = sorted(run.info.rank_classes, key=lambda each: (-each[1], each[0]))
    rows = [[f"rank {rank}", f"{count:,}", ranks] for rank, count, ranks in found[:_ROWS]]
    return rows if len(found) <= _ROWS else [*rows, ["", "", f"{len(found) - _ROWS} smaller classes not shown"]]
