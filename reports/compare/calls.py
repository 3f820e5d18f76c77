"""Reads the single operations of two runs into a few columns.

Of a million spans a side takes some 60 MB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, KEYS, STEP, ints
from reports.analysis.intervals import Ints
from reports.run import Run
from reports.store.columns import fixed
from reports.store.parts import Part

_NUMBERS = ["rank", "step", "sequence", "rank_count", "start_ns", "end_ns"]
_BYTES = ["bytes_out", "bytes_sent", "bytes_read", "bytes_written"]
_COLUMNS = [*KEYS, *_NUMBERS, *_BYTES]

NAMES = {**dict.fromkeys(KEYS, "str"), "part": "str"}
CALLS = dict.fromkeys(["operation", *_NUMBERS, "duration_ns", "size_bytes"], "int")

_Numbered = dict[tuple[str, str, str], int]


@dataclass(frozen=True, slots=True)
class BothCalls:
    """What ranks did inside steps, in both runs, without what either of them has left out by choice.

    `names` has a row for each operation (`kind`, `label`, `stream`, `part`). The other two have a row for each span:
    `operation` is a row of `names`; `size_bytes` is what the call sends or, where it sends nothing, what it receives;
    of a computation what it reads and writes.
    """

    names: pd.DataFrame
    predicted: pd.DataFrame
    measured: pd.DataFrame


def calls_of_both(predicted: Run, measured: Run) -> BothCalls:
    """Read a part of the spans at a time."""
    known: _Numbered = {}
    sides = [_calls(run, other, known) for run, other in ((predicted, measured), (measured, predicted))]
    names = sorted(known)  # whatever the order in which they were read
    places = np.empty(len(names), np.int64)
    places[[known[name] for name in names]] = np.arange(len(names))
    columns = {key: [name[at] for name in names] for at, key in enumerate(KEYS)}
    part = ["compute" if kind == COMPUTE else "communication" for kind in columns["kind"]]
    return BothCalls(
        fixed({**columns, "part": part}, NAMES),
        *(side.assign(operation=places[ints(side, "operation")]) for side in sides),
    )


def _calls(run: Run, other: Run, known: _Numbered) -> pd.DataFrame:
    """The calls of all parts, one after the other."""
    return pd.concat([_of_part(part, other, known) for part in run.parts(_COLUMNS, beside=False)], ignore_index=True)


def _of_part(part: Part, other: Run, known: _Numbered) -> pd.DataFrame:
    all_spans = part.spans
    kept = part.own & ((all_spans["kind"] != STEP) & (all_spans["step"] >= 0)).to_numpy(bool)
    spans = all_spans.loc[kept & other.keeps(ints(all_spans, "rank"), ints(all_spans, "step")), _COLUMNS]
    columns = {
        "operation": _numbers(spans, known),
        **{name: ints(spans, name) for name in _NUMBERS},
        "duration_ns": ints(spans, "end_ns") - ints(spans, "start_ns"),
        "size_bytes": _size_bytes(spans),
    }
    return fixed(columns, CALLS)


def _numbers(spans: pd.DataFrame, known: _Numbered) -> Ints:
    """Each span's operation; those that are new get the next numbers."""
    grouped = spans.groupby(KEYS, sort=False)
    names = spans.drop_duplicates(KEYS)[KEYS].itertuples(index=False, name=None)  # in the groups' order
    numbers = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
    return numbers[grouped.ngroup().to_numpy()]


def _size_bytes(spans: pd.DataFrame) -> Ints:
    sent, received = ints(spans, "bytes_sent"), ints(spans, "bytes_out")
    touched = (spans["bytes_read"] + spans["bytes_written"]).to_numpy(float).astype(np.int64)
    return np.where((spans["kind"] == COMPUTE).to_numpy(bool), touched, np.where(sent > 0, sent, received))
