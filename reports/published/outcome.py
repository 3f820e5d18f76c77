"""Join published rows with their predictions, or with the sentences that say why there are none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd

from reports.errors import ReportError
from reports.store.columns import frame_of_columns
from reports.terminal import text
from reports.terminal.rows import records

Row = TypeVar("Row")
Prediction = TypeVar("Prediction")

_LINES = 60  # most letters of a list of lines


def outcome_of(
    row: Row, predict: Callable[[Row, str | None], Prediction], profile: str | None, unit: str
) -> Prediction | str:
    """Return the prediction of a row, or the sentence that states why there is none.

    Args:
        row: the measurement.
        predict: gets the row and `profile`, and raises ReportError where it cannot predict the row.
        profile: the profile's name; None: the row's GPU decides.
        unit: the unit of the predicted time, which is `predicted_` with that unit, finite and above 0.
    """
    try:
        found = predict(row, profile)
    except ReportError as error:
        return " ".join(str(error).split())
    time: float = getattr(found, f"predicted_{unit}")
    assert 0 < time < math.inf, f"{row}: predicted {time} {unit}"
    return found


def join_outcomes(
    rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Any], kinds: Mapping[str, str], errors: Mapping[str, str]
) -> pd.DataFrame:
    """Return a frame of rows with the fields of their predictions, or with the `reason` why they have none.

    A value that neither has is nan, text "".

    Args:
        rows: the measurements, by column.
        outcomes: of each row the prediction, a dataclass, or the reason.
        kinds: the frame's columns.
        errors: names of columns of signed errors, each with the predicted and the measured column, a blank between.
    """
    found = [
        {**row, **({"reason": outcome} if isinstance(outcome, str) else dataclasses.asdict(outcome))}
        for row, outcome in zip(rows, outcomes, strict=True)
    ]
    columns = {
        name: [("" if kind == "str" else math.nan) if row.get(name) is None else row[name] for row in found]
        for name, kind in kinds.items()
    }
    frame = frame_of_columns(columns, kinds)
    for name, pair in errors.items():
        predicted, measured = pair.split()
        frame[name] = frame[predicted] / frame[measured] - 1
    return frame


def tell_missed(joined: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each file and reason why rows have no prediction, with their lines."""
    for (file, reason), lines in _lines_by_reason(joined).items():
        yield f"{file}: {'line' if len(lines) == 1 else 'lines'} {text.ranges(lines)}: {reason}"


def tell_missed_by_count(joined: pd.DataFrame) -> Iterator[str]:
    """Yield sentences as `tell_missed`, most frequent reasons first, with the number of rows, as lines have several."""
    for (file, reason), lines in sorted(_lines_by_reason(joined).items(), key=lambda group: -len(group[1])):
        places = text.shorten(text.ranges(list(dict.fromkeys(lines))), _LINES)
        yield f"{file}: {text.count_words(len(lines), 'row')} (line {places}): {reason}"


def _lines_by_reason(joined: pd.DataFrame) -> dict[tuple[str, str], list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for row in records(joined.loc[joined["reason"].ne(""), ["file", "line", "reason"]]):
        groups.setdefault((row["file"], row["reason"]), []).append(row["line"])
    return groups
