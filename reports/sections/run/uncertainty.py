"""Words on the uncertainty of a prediction, and its reasons."""

from __future__ import annotations

import math

from reports.analysis.prediction.uncertainty import Uncertainty
from reports.terminal import text


def bar(found: Uncertainty | None) -> str:
    """Return "±2.0 %", to follow a step's time; "" if unknown."""
    return "" if found is None or math.isnan(found.share) else f"±{text.percent(found.share)}"


def why(found: Uncertainty | None) -> str:
    """Return each contribution with its share in a line, or the unknown contributions; "" for a measurement."""
    if found is None:
        return ""
    unknown = [one.words for one in found.contributions if math.isnan(one.share)]
    of = unknown or [f"{text.percent(one.share)} {one.words}" for one in found.contributions]
    return f"uncertainty: {'; '.join(of)}"
