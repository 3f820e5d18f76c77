"""Request the prediction of a published row, or return a sentence on why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from reports.errors import ReportError

Row = TypeVar("Row")
Prediction = TypeVar("Prediction")


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
