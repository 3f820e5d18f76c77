"""Compare a prediction with a measurement: signed errors by operation, step and size, and the worst cases.

All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from reports.analysis.frames import KEYS, ints
from reports.analysis.statistics import weighted_quantiles
from reports.analysis.step_breakdown import steady_steps, timed_steps, unrecorded_steps
from reports.compare.calls import (
    BothCalls,
    call_errors,
    calls_of_both,
    errors_by_size,
    signed_error,
    warm_up_of,
    worst_cases,
)
from reports.compare.checks import WORLDS, check_all
from reports.errors import ReportError
from reports.run import Run
from reports.sections.comparison import Comparison
from reports.store.columns import frame_of_columns
from reports.user_keys import user_key
from scenarios.seam.trace import PLAYING

# Keys that digests leave out, besides those at a scenario's root.
_NOT_OF_DIGESTS = ("cluster.faults", "cluster.slow", "cluster.cost")  # cluster.slow: of older recordings

_KEYS_SHOWN = 3

_TIMES = {"predicted_ns": "float", "measured_ns": "float", "error": "float"}
OPERATION_ERRORS = {**dict.fromkeys(KEYS, "str"), "part": "str", **_TIMES, "measured_share": "float"}
_BOUNDS = [f"{side}_{bound}_ns" for side in ("predicted", "measured") for bound in ("low", "high")]
OPERATION_SPREADS = {**OPERATION_ERRORS, **dict.fromkeys([*_BOUNDS, "error_of_step"], "float")}
STEP_ERRORS = {"step": "int", **_TIMES}  # `step` is the measured run's


def compare(sim_run: Run, real_run: Run, *, any_worlds: bool = False) -> Comparison:
    """Return the comparison; a real run given first changes places with a simulated one given second.

    Raises:
        ReportError: runs of different scenarios; or two of one world without `any_worlds`.
    """
    predicted, measured = sim_run, real_run
    if (predicted.info.world, measured.info.world) == ("real", "sim"):
        predicted, measured = measured, predicted
    _refuse_different_scenarios(predicted, measured)
    if predicted.info.world == measured.info.world and not any_worlds:
        world = WORLDS.get(measured.info.world, measured.info.world)
        raise ReportError(
            f"both runs of '{measured.info.name}' are {world} ones, expected a simulated and a real one;"
            " --any compares them all the same"
        )
    both, steps = calls_of_both(predicted, measured), _step_errors(predicted, measured)
    calls = call_errors(both)
    return Comparison(
        predicted=predicted,
        measured=measured,
        operations=_spread_errors(both, float(timed_steps(measured)["step_ns"].median())),
        steps=steps,
        calls=calls,
        errors_by_size=errors_by_size(calls),
        worst=worst_cases(both, measured.steps),
        checks=check_all(predicted, measured),
    )


def _refuse_different_scenarios(first: Run, second: Run) -> None:
    if first.info.digest == second.info.digest:
        return
    found = [text for text in _differing(first.info.scenario, second.info.scenario) if text]
    shown = ", ".join(found[:_KEYS_SHOWN])
    more = f" and {len(found) - _KEYS_SHOWN} more" if len(found) > _KEYS_SHOWN else ""
    where = f"; they differ in {shown}{more}" if found else "; their digests differ"
    raise ReportError(f"runs of different scenarios, '{first.info.name}' and '{second.info.name}'{where}")


def _differing(first: object, second: object, key: str = "") -> Iterator[str]:
    if key == "sources":
        yield from _differing_sources(first, second)
    elif isinstance(first, dict) and isinstance(second, dict):
        for name in dict.fromkeys([*first, *second]):
            if key or name not in PLAYING:
                path = f"{key}.{name}" if key else str(name)
                if path not in _NOT_OF_DIGESTS:
                    yield from _differing(first.get(name), second.get(name), path)
    elif isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)) and len(first) == len(second):
        for at, pair in enumerate(zip(first, second, strict=True)):
            yield from _differing(*pair, f"{key}[{at}]")
    elif first != second:
        written = user_key(re.findall(r"[^.\[\]]+", key))
        yield f"{written} ({_short(first)} and {_short(second)})"


def _differing_sources(first: object, second: object) -> Iterator[str]:
    """Yield the program's files that differ, by name; runs of earlier releases do not record them."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in dict.fromkeys([*first, *second]):
            if first.get(name) != second.get(name):
                yield f"the program's file {name}"
    elif first != second:
        yield "the program's files (one of the runs does not know them)"


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value)} items"
    return "none" if value is None else "a table" if isinstance(value, dict) else str(value)


def operation_errors(predicted: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return operations with both medians; the longest measured ones first."""
    keys = [*KEYS, "part"]
    left = predicted[[*keys, "median_ns"]].rename(columns={"median_ns": "predicted_ns"})
    right = measured[[*keys, "median_ns"]].rename(columns={"median_ns": "measured_ns"})
    both = left.merge(right, on=keys, how="outer")
    total = both["measured_ns"].sum()
    both = both.assign(error=signed_error(both), measured_share=both["measured_ns"] / total if total else 0.0)
    ordered = both.sort_values(["measured_ns", *KEYS], ascending=[False, True, True, True], ignore_index=True)
    return frame_of_columns(ordered, OPERATION_ERRORS)


def _step_errors(predicted: Run, measured: Run) -> pd.DataFrame:
    """Return steps with both times, paired by number; steps timed with the recording off are paired with steady
    predicted steps in their order, up to the shorter of both lists.
    """
    timed = unrecorded_steps(measured)
    if len(timed):
        steady = steady_steps(predicted.steps).head(len(timed))
        timed = timed.head(len(steady))
        columns = {"step": timed["step"], "predicted_ns": steady["step_ns"], "measured_ns": timed["step_ns"]}
        in_turn = pd.DataFrame({name: column.to_numpy() for name, column in columns.items()})
        return frame_of_columns(in_turn.assign(error=signed_error(in_turn)), STEP_ERRORS)
    left_out = warm_up_of(predicted, measured)
    left, right = (
        run.steps.loc[run.steps["complete"] & ~run.steps["step"].isin(left_out), ["step", "step_ns"]].rename(
            columns={"step_ns": f"{side}_ns"}
        )
        for side, run in (("predicted", predicted), ("measured", measured))
    )
    both = left.merge(right, on="step", how="outer").sort_values("step")
    return frame_of_columns(both.assign(error=signed_error(both)), STEP_ERRORS)


def _spread_errors(both: BothCalls, step_ns: float) -> pd.DataFrame:
    """Return `operation_errors` with each side's 10th and 90th percentile, and the difference over a measured step."""
    sides = [_per_rank_and_step(calls, both.names) for calls in (both.predicted, both.measured)]
    found = operation_errors(*sides)
    for side, spread in zip(("predicted", "measured"), sides, strict=True):
        renamed = spread.rename(columns={"low_ns": f"{side}_low_ns", "high_ns": f"{side}_high_ns"})
        found = found.merge(renamed.drop(columns=["part", "median_ns"]), on=KEYS, how="left")
    of_step = (found["predicted_ns"] - found["measured_ns"]) / step_ns if step_ns else np.nan
    return frame_of_columns(found.assign(error_of_step=of_step), OPERATION_SPREADS)


def _per_rank_and_step(calls: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Return each operation's 10th percentile, median and 90th percentile of its summed calls over ranks and steps."""
    grouped = calls.groupby(["operation", "rank", "step"], sort=True)
    each = grouped.agg({"duration_ns": "sum", "rank_count": "first"}).reset_index()
    operations, groups = np.unique(ints(each, "operation"), return_inverse=True)
    times, weights = each["duration_ns"].to_numpy(float), ints(each, "rank_count")
    quantiles = weighted_quantiles(groups, times, weights, count=len(operations), shares=[0.1, 0.5, 0.9])
    columns = dict(zip(["low_ns", "median_ns", "high_ns"], quantiles, strict=True))
    return names.iloc[operations].reset_index(drop=True).assign(**columns)
