"""Words on the uncertainty of a prediction, its reasons, and how its draws vary."""

from __future__ import annotations

import math
from typing import Any

from reports.analysis.prediction.uncertainty import Uncertainty
from reports.analysis.repeats import Plays
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


def main_reason(found: Uncertainty | None) -> str:
    """Return why the uncertainty is unknown, or its largest contribution, in a line; "" for a measurement."""
    if found is None:
        return ""
    shares = [math.inf if math.isnan(one.share) else one.share for one in found.contributions]
    main = found.contributions[shares.index(max(shares))]
    return f"{bar(found)} {main.words.partition(', worst ')[0]}".strip()


def spread_line(plays: Plays) -> str:
    """Return median and p10-p90 of a prediction's draws, in one line."""
    sample = plays.sample
    of = "the same in every draw" if len(plays.each) == 1 else f"over {text.count_words(len(plays.each), 'draw')}"
    where = text.format_range(sample.low, sample.high)
    return f"median {text.duration(sample.median)}, 10th to 90th percentile {where}, {of}"


def spread_json(plays: Plays) -> dict[str, Any]:
    """Return how a prediction's draws vary, for scripts."""
    sample = plays.sample
    interval = {"interval_median_ns": sample.median, "interval_ns": [sample.low, sample.high]}
    return {"draws": len(plays.each), **interval}
