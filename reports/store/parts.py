"""Read the spans of a run, whole or a part at a time, so that memory does not grow with the length of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reports.analysis.intervals import Ints
from reports.errors import ReportError
from reports.store.columns import TABLES, complete_columns, mistake, needed_columns, schema_of, to_frame

Bools = npt.NDArray[np.bool_]

# A frame of this many spans takes some 150 MB; smaller runs are read at once.
PART_ROWS = 1 << 19

# Options of every read of a Parquet file: pages that have a checksum must have the right one.
VERIFIED: dict[str, Any] = {"page_checksum_verification": True}

_EXTENT = ["step", "start_ns", "end_ns"]


@dataclass(frozen=True, slots=True)
class Part:
    """A number of whole steps of a run: the rows that are `own`, among others that overlap them in time."""

    spans: pd.DataFrame
    own: Bools

    def own_spans(self) -> pd.DataFrame:
        """Return the spans of this part's own steps, without those around them."""
        return self.spans if self.own.all() else self.spans[self.own]


class SpansInMemory:
    """A run's spans in memory: one part, of all columns; methods as in `SpansInFile`."""

    def __init__(self, spans: pd.DataFrame) -> None:
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans)

    def whole(self) -> pd.DataFrame:
        """Return all spans in one frame."""
        return self._spans

    def parts(self, columns: Sequence[str], steps: Sequence[int] | None = None, *, beside: bool) -> Iterator[Part]:
        """Yield the spans of these steps; with `beside`, among all others."""
        if steps is None:
            yield Part(self._spans, np.ones(len(self._spans), bool))
            return
        own = self._spans["step"].isin(steps).to_numpy(bool)
        if beside:
            yield Part(self._spans, own)
        else:
            spans = self._spans[own]
            yield Part(spans, np.ones(len(spans), bool))


class SpansInFile:
    """A run's spans in a Parquet file; a part reads only the row groups that it needs."""

    def __init__(self, path: Path, part_rows: int = PART_ROWS) -> None:
        self._path = path
        self._part_rows = part_rows

    def __len__(self) -> int:
        with self._open() as file:
            return int(file.metadata.num_rows)

    def whole(self) -> pd.DataFrame:
        """Return all spans in one frame."""
        with self._open() as file:
            return self._frame(file.read(), self._schema.names)

    def parts(self, columns: Sequence[str], steps: Sequence[int] | None = None, *, beside: bool) -> Iterator[Part]:
        """Yield parts of whole steps, in order, with at least these columns; at least one part, which may be empty.

        Args:
            columns: columns to read.
            steps: the steps to read; without it also spans outside of steps (step -1), alone in a part unless the run
                is one part.
            beside: include overlapping spans of steps that were not requested.
        """
        by_step, _ = self._extents
        known = by_step["step"].to_numpy(np.int64)
        kept = np.ones(len(known), bool) if steps is None else np.isin(known, np.array(steps, np.int64))
        beside_steps = None if beside or steps is None else known[kept]
        for chosen in self._choose_steps(np.flatnonzero(kept)):
            yield self._part(columns, chosen, beside_steps)
        if not kept.any():
            yield Part(to_frame(self._schema.empty_table(), TABLES["spans"]), np.zeros(0, bool))

    def _choose_steps(self, rows: Ints) -> Iterator[Ints]:
        """Yield as many steps at a time as a part can hold, at least one."""
        by_step, _ = self._extents
        steps, sizes = by_step["step"].tolist(), by_step["rows"].tolist()
        chosen: list[int] = []
        count = 0
        for row in rows.tolist():
            if chosen and (steps[chosen[-1]] < 0 or count + sizes[row] > self._part_rows):
                yield np.array(chosen)
                chosen, count = [], 0
            chosen.append(row)
            count += sizes[row]
        if chosen:
            yield np.array(chosen)

    def _part(self, columns: Sequence[str], chosen: Ints, beside: Ints | None) -> Part:
        by_step, groups = self._extents
        own_steps = by_step.iloc[chosen]
        numbers = own_steps["step"].to_numpy(np.int64)
        from_ns, until_ns = int(own_steps["from_ns"].min()), int(own_steps["until_ns"].max())
        if numbers[-1] < 0:  # spans outside of steps may last as long as the run, so they have no neighbours
            from_ns = until_ns = 0
        overlap = (by_step["until_ns"] > from_ns) & (by_step["from_ns"] < until_ns) & (from_ns < until_ns)
        near = by_step.loc[overlap, "step"].to_numpy(np.int64)  # whole steps: a collective's members are in one
        wanted = np.union1d(numbers, near if beside is None else np.intersect1d(near, beside))
        first = np.searchsorted(wanted, groups["step"].to_numpy(np.int64))
        needed = first < np.searchsorted(wanted, groups["last_step"].to_numpy(np.int64), side="right")
        names = [name for name in self._schema.names if name in {*columns, *_EXTENT}]
        tables, owns = [], []
        with self._open() as file:
            for group in np.flatnonzero(needed).tolist():
                written = file.schema_arrow.names
                wanted_too = needed_columns(written, TABLES["spans"], names)
                table = file.read_row_group(group, columns=[one for one in written if one in (*names, *wanted_too)])
                step = table["step"].to_numpy()
                own, kept = np.isin(step, numbers), np.isin(step, wanted)
                tables.append(table if kept.all() else table.filter(pa.array(kept)))
                owns.append(own[kept])
            return Part(self._frame(pa.concat_tables(tables), names), np.concatenate(owns))

    @cached_property
    def _extents(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows, first and last step, first start and last end of each step and of each row group."""
        frames = []
        with self._open() as file:
            for group in range(file.num_row_groups):
                frame = file.read_row_group(group, columns=_EXTENT).to_pandas()
                columns = {"last_step": frame["step"], "from_ns": frame["start_ns"], "until_ns": frame["end_ns"]}
                frames.append(_extents(frame[["step"]].assign(group=group, rows=1, **columns), "step"))
        # A step may lie in several row groups, and a group may hold several steps: summed up by either.
        both = pd.concat(frames, ignore_index=True)
        return _extents(both, "step"), _extents(both, "group")

    @cached_property
    def _schema(self) -> pa.Schema:
        return schema_of(TABLES["spans"])

    def _frame(self, table: pa.Table, names: Sequence[str]) -> pd.DataFrame:
        schema = pa.schema([self._schema.field(name) for name in names])
        frame = to_frame(complete_columns(table, TABLES["spans"], names).select(names).cast(schema), TABLES["spans"])
        return check_frame(self._path, frame, TABLES["spans"])

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        try:
            # Read as dictionaries: text columns have few distinct values, and take far less memory so.
            texts = [field.name for field in pq.read_schema(self._path) if pa.types.is_string(field.type)]
            with pq.ParquetFile(self._path, read_dictionary=texts, **VERIFIED) as file:
                yield file
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # also raised for names in a damaged footer
            raise unreadable(self._path, error) from error


Spans = SpansInMemory | SpansInFile


def _extents(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return rows, first and last step, first start and last end of the groups by `key`."""
    ends = {"group": "min", "step": "min", "last_step": "max", "from_ns": "min", "until_ns": "max", "rows": "sum"}
    return rows.groupby(rows[key].to_numpy(), sort=True).agg(ends).reset_index(drop=True)


def check_frame(path: Path, frame: pd.DataFrame, row_type: type) -> pd.DataFrame:
    """Return the frame of a file after a check that its values are possible.

    Raises:
        ReportError: for the first impossible value.
    """
    if (found := mistake(frame, row_type)) is not None:
        raise ReportError(f"{path}: {found}; the file is damaged")
    return frame


def unreadable(path: Path, error: Exception) -> ReportError:
    """Return the error for a Parquet file that Arrow refuses."""
    first_line = str(error).splitlines()[0].rstrip(".")
    return ReportError(f"{path}: not a readable Parquet file: {first_line}")
