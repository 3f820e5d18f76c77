"""The outcome of a published row: a prediction, or why there is none."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from reports.errors import ReportError
from reports.published.outcome import outcome_of


def test_a_row_gets_its_prediction_or_the_reason_in_one_line() -> None:
    found = SimpleNamespace(predicted_ms=2.0)

    def predict(row: str, profile: str | None) -> SimpleNamespace:
        if row == "odd":
            raise ReportError(f"{profile}:\n  no law")
        return found

    assert outcome_of("even", predict, "h100", "ms") is found
    assert outcome_of("odd", predict, "h100", "ms") == "h100: no law"


@pytest.mark.parametrize("time", [0.0, -1.0, math.inf, math.nan])
def test_a_time_that_is_none_is_our_own_mistake(time: float) -> None:
    with pytest.raises(AssertionError, match=f"^row: predicted {time} us$"):
        outcome_of("row", lambda row, profile: SimpleNamespace(predicted_us=time), None, "us")
