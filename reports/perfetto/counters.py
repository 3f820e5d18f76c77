"""The load of links as counters of a trace: which links have one, and what it shows when; the text is `perfetto`'s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from reports.analysis.frames import ints
from reports.analysis.intervals import Ints
from reports.store.columns import schema_of, to_frame
from scenarios.seam.trace import LinkRow, LoadRow

EVENTS_MAX = 100_000
# A period has an event at its begin and one at its end, where no other begins there.
_PERIODS_MAX = EVENTS_MAX // 2
# Periods that a link has at least, before neighbours are put together.
_PERIODS_LEAST = 256
_LINK = ["link", "direction"]


class Counter(NamedTuple):
    """From this moment on a link has this load; on `host` -1 are the links between leaf switches."""

    host: int
    link: str
    link_count: int
    at_ns: int
    percent: float


@dataclass(frozen=True, slots=True)
class Counters:
    """`periods` in the order of links, those that carried most first, and of time; `left_out` links are without."""

    periods: pd.DataFrame
    left_out: int

    @staticmethod
    def none() -> Counters:
        """No counters, for a run without links."""
        empty = [to_frame(schema_of(kind).empty_table(), kind) for kind in (LinkRow, LoadRow)]
        return Counters.of(*empty)

    @staticmethod
    def of(link_rows: pd.DataFrame, load_rows: pd.DataFrame) -> Counters:
        """So many that there are no more than `EVENTS_MAX` events."""
        periods = _fewer(load_rows.drop(columns="link_count")).merge(link_rows, on=_LINK, suffixes=("", "_in_all"))
        periods = periods.sort_values(
            ["bytes_carried_in_all", *_LINK, "from_ns"], ascending=[False, True, True, True], ignore_index=True
        )
        number = periods.groupby(_LINK, sort=False).ngroup().to_numpy(np.int64)
        last = np.searchsorted(number, number, side="right")  # of its link
        return Counters(periods[last <= _PERIODS_MAX], int(np.unique(number[last > _PERIODS_MAX]).size))

    def events(self) -> Iterator[Counter]:
        """The mean load of each period at its begin; nothing at its end, where no other begins there."""
        frame = self.periods
        hosts = np.where((frame["link_class"] == "uplink").to_numpy(bool), -1, ints(frame, "host"))
        took_s = (frame["until_ns"] - frame["from_ns"]) / 1e9
        percent = 100 * frame["bytes_carried"] / took_s / frame["bytes_per_s"]
        columns = [frame["link"], frame["link_count"], frame["from_ns"], frame["until_ns"], percent, self._follows()]
        rows = zip(hosts.tolist(), *(column.tolist() for column in columns), strict=True)
        for host, link, count, from_ns, until_ns, load, follows in rows:
            yield Counter(host, link, count, from_ns, load)
            if not follows:
                yield Counter(host, link, count, until_ns, 0.0)

    def _follows(self) -> pd.Series:
        """Whether the next period of the same link begins where this one ends."""
        following = self.periods.groupby(_LINK, sort=False)["from_ns"].shift(-1)
        return following == self.periods["until_ns"]


def _fewer(load_rows: pd.DataFrame) -> pd.DataFrame:
    """Neighbours put together, with the pauses between them, where a link has more than its part of all."""
    by_link = load_rows.groupby(_LINK, sort=False)
    most = max(_PERIODS_LEAST, _PERIODS_MAX // max(by_link.ngroups, 1))
    together: Ints = -(-by_link["from_ns"].transform("size").to_numpy(np.int64) // most)
    place = by_link.cumcount().to_numpy(np.int64) // together
    merged = load_rows.assign(place=place).groupby([*_LINK, "place"], sort=False)
    whole = merged.agg(
        from_ns=("from_ns", "first"), until_ns=("until_ns", "last"), bytes_carried=("bytes_carried", "sum")
    )
    return whole.reset_index()
