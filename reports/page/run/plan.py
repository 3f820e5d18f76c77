"""Draw the plan of the tables: ranks as columns, tables as blocks as high as what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from reports.analysis.table_costs import PARTS
from reports.page import svg, theme
from reports.page.blocks import Picture
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import records

# Of more ranks, this many are shown: the slowest, then evenly spaced ones down to the fastest.
_RANKS = 48
_HEIGHT, _ABOVE, _BELOW = 260, 34, 20  # px of columns, of the mark above them, of ranks' numbers below them
_AXIS = 0.09  # the share of the width that the axis takes
_LEAST = 2.0  # px of a block: lower ones are one block
_NAMED, _LINE, _LETTERS = 16, 12, 130  # ranks and px from which blocks have names; letters across the whole picture


def plan(view: RunView) -> list[Picture]:
    """Draw what each rank spends on its tables, in the step if that is known, else by the planner."""
    run = view.run
    costs = run.rank_costs_of(view.step) if view.step is not None else run.plan.iloc[:0]
    of = f"in step {view.step}{view.phrase_on_ranks}"
    if not len(costs):
        keys = ["table", "sharding_type", "rank"]
        costs = run.plan.groupby(keys, sort=False)["perf_ms"].sum().mul(1e6).rename("total_ns").reset_index()
        costs, of = costs.sort_values("total_ns", ascending=False, kind="stable"), "by the planner"
    if not costs["total_ns"].any():
        return []
    ranks = costs.groupby("rank")["total_ns"].sum()
    ranks = ranks.reindex(ranks.index.union(run.rank_counts.index), fill_value=0.0)
    peers = run.rank_counts.reindex(ranks.index, fill_value=1)
    types = dict(zip(costs["sharding_type"].drop_duplicates(), theme.EVERY, strict=False))
    shown = _ranks_to_show(ranks)
    columns = _Columns(costs, ranks, peers, types, shown)
    note = f"Height, in {'ms' if columns.unit_ns > 1e3 else 'us'}: look-up, update and exchange of the rank's shards"
    if len(shown) < len(ranks):
        noun = "simulated ranks" if (peers > 1).any() else "ranks"
        note += f"; {len(shown)} of {len(ranks):,} {noun}, from the slowest to the fastest"
    drawn = columns.draw(f"Time of tables on each rank, {of}")
    slowest, mean = ranks.index.tolist()[int(ranks.to_numpy().argmax())], float(np.average(ranks, weights=peers))
    said = (
        f"Slowest: rank {text.representative(slowest, int(peers[slowest]))}, {text.duration(float(ranks.max()))},"
        f" {float(ranks.max()) / mean:.2f} times the mean rank's {text.duration(mean)} (dashed)."
    )
    legend = [(color, name) for name, color in types.items()]
    return [Picture("plan", f"The plan: what tables cost on each rank, {of}", drawn, f"{note}.", legend, said)]


def _ranks_to_show(ranks: pd.Series) -> list[int]:
    """Return all of a few ranks in order; of many some, the slowest first."""
    if len(ranks) <= _RANKS:
        return sorted(ranks.index.tolist())
    order = ranks.sort_values(ascending=False, kind="stable").index.to_numpy()
    return order[np.linspace(0, len(order) - 1, _RANKS).round().astype(int)].tolist()  # type: ignore[no-any-return]


class _Columns:
    """A column of blocks for each of `shown`, on an axis from 0 to the slowest rank's time."""

    def __init__(
        self, costs: pd.DataFrame, ranks: pd.Series, peers: pd.Series, types: dict[str, str], shown: list[int]
    ) -> None:
        self._blocks, self._none = dict(iter(costs.groupby("rank"))), costs.iloc[:0]
        self._ranks, self._peers, self._types, self._shown = ranks, peers, types, shown
        self._px = _HEIGHT / float(ranks.max())
        self.unit_ns = 1e6 if float(ranks.max()) >= 1e6 else 1e3
        self._wide = (1 - _AXIS) / len(shown)

    def draw(self, says: str) -> Markup:
        """Return the plan as an SVG; `says` describes it for screen readers."""
        found = list(self._axis())
        for at, rank in enumerate(self._shown):
            found += self._column(_AXIS + at * self._wide, rank, is_named=at % math.ceil(len(self._shown) / 16) == 0)
        level = f"{self._top(float(np.average(self._ranks, weights=self._peers))):.1f}"
        found.append(svg.element("line", x1=svg.share(_AXIS), x2="100%", y1=level, y2=level, class_="mean"))
        return svg.drawing(_ABOVE + _HEIGHT + _BELOW, found, says)

    def _top(self, ns: float) -> float:
        return _ABOVE + _HEIGHT - ns * self._px

    def _axis(self) -> Iterator[Markup]:
        most = float(self._ranks.max())
        unit = 10 ** math.floor(math.log10(most / 2))
        every = next(unit * by for by in (1, 2, 5, 10) if most / (unit * by) <= 5)
        for ns in np.arange(0, most, every).tolist():
            level = f"{self._top(ns):.1f}"
            yield svg.element("line", x1=svg.share(_AXIS), x2="100%", y1=level, y2=level, class_="rule")
            yield svg.words(_AXIS - 0.01, self._top(ns) + 4, f"{ns / self.unit_ns:g}", text_anchor="end")

    def _column(self, left: float, rank: int, *, is_named: bool) -> Iterator[Markup]:
        inner, gap = 0.84 * self._wide, 0.08 * self._wide
        name = f"rank {text.representative(rank, int(self._peers[rank]))}"
        top, small, rest = float(_ABOVE + _HEIGHT), 0, 0.0
        for block in records(self._blocks.get(rank, self._none)):
            height = block["total_ns"] * self._px
            if height < _LEAST:
                small, rest = small + 1, rest + block["total_ns"]
                continue
            top -= height
            color = self._types[block["sharding_type"]]
            yield svg.box(left + gap, top, inner, height, f"{name}: {_says(block)}", fill=color, class_="piece")
            letters = int(_LETTERS / len(self._shown))
            if len(self._shown) <= _NAMED and height >= _LINE:
                short = text.shorten(block["table"], letters)
                yield svg.words(left + 2 * gap, top + height / 2 + 4, short, class_="within")
        if small:
            said = f"{name}: {text.count_words(small, 'smaller table')}, {text.duration(rest)}"
            yield svg.box(left + gap, top - rest * self._px, inner, rest * self._px, said, fill=theme.IDLE)
        middle, bottom = left + self._wide / 2, _ABOVE + _HEIGHT + 14
        if is_named:
            yield svg.words(middle, bottom, str(rank), text_anchor="middle")
        if rank == self._ranks.idxmax():
            yield svg.words(middle, 12, f"slowest: {rank}", text_anchor=_anchor(middle), class_="mark")
            yield svg.words(middle, _ABOVE - 8, "\N{BLACK DOWN-POINTING TRIANGLE}", text_anchor="middle", class_="mark")


def _anchor(at: float) -> str:
    return "start" if at < 0.15 else "end" if at > 0.85 else "middle"


def _says(block: dict[str, Any]) -> str:
    """Return a block's table, its sharding type and what it costs."""
    known = {part: block[name] for part in PARTS if (name := f"step_{part}_ns") in block}
    parts = ", ".join(f"{part.replace('_', '-')} {text.duration(ns)}" for part, ns in known.items())
    took = text.duration(block["total_ns"])
    return f"{block['table']}, {block['sharding_type']}: {took}{f' ({parts})' if parts else ''}"
