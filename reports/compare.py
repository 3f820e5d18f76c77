"""Predicted against measured: signed errors by operation and step, and whether both runs did the same.

Pure functions of two runs; showing the comparison is left to `tables`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from reports.columns import fixed
from reports.errors import ReportError
from reports.frames import KEYS, STEP, ints
from reports.run import Run
from scenarios.trace import PLAYING

# What the digest leaves out of what is not at a scenario's root.
_FAULTS = "cluster.slow"

# A recorded number counts as equal up to this share of the larger one: float32 keeps 1.2e-7, and a loss is the end of
# some hundred roundings in an order that the two worlds do not share.
METRIC_TOLERANCE = 1e-5

_KEYS_SHOWN = 3
_OF_IDS = ["int32", "int64"]
_WORLDS = {"sim": "simulated", "real": "real"}

_TIMES = {"predicted_ns": "float", "measured_ns": "float", "error": "float"}
OPERATION_ERRORS = {**dict.fromkeys(KEYS, "str"), "part": "str", **_TIMES, "measured_share": "float"}
STEP_ERRORS = {"step": "int", **_TIMES}
BYTES_DIFFERENCES = {
    "rank": "int",
    "step": "int",
    **dict.fromkeys(KEYS, "str"),
    **{
        f"{side}_{column}": "float"
        for column in ("bytes_in", "bytes_out", "bytes_sent")
        for side in ("predicted", "measured")
    },
}
ORDER_DIFFERENCES = {
    "rank": "int",
    "stream": "str",
    "position": "int",
    "predicted": "str",
    "measured": "str",
}
METRIC_DIFFERENCES = {
    "rank": "int",
    "step": "int",
    "name": "str",
    **dict.fromkeys(["predicted", "measured", "difference", "relative"], "float"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether the two runs agree in one respect; `differences` has one row for each place where they do not.

    `compared` counts the places looked at; with 0 of them nothing is claimed and `reason` says why. Where places differ
    as they must, by how the runs were played, `reason` says that. `worst` is the greatest difference as a share.
    """

    name: str
    compared: int
    differences: pd.DataFrame
    worst: float = 0.0
    reason: str = ""

    @property
    def agrees(self) -> bool:
        """Something was compared, and nothing differs."""
        return self.compared > 0 and not len(self.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs side by side. Errors are (predicted - measured) / measured; nan where one side lacks it."""

    predicted: Run
    measured: Run
    operations: pd.DataFrame
    steps: pd.DataFrame
    checks: tuple[Check, ...]


def compare(sim_run: Run, real_run: Run, *, any_worlds: bool = False) -> Comparison:
    """The comparison; a real run given first changes places with a simulated one given second.

    Raises:
        ReportError: runs of different scenarios; or two of the same world without `any_worlds`.
    """
    predicted, measured = sim_run, real_run
    if (predicted.info.world, measured.info.world) == ("real", "sim"):
        predicted, measured = measured, predicted
    _refuse_different_scenarios(predicted, measured)
    if predicted.info.world == measured.info.world and not any_worlds:
        world = _WORLDS.get(measured.info.world, measured.info.world)
        raise ReportError(
            f"both runs of '{measured.info.name}' are {world} ones, expected a simulated and a real one;"
            " --any compares them all the same"
        )
    return Comparison(
        predicted=predicted,
        measured=measured,
        operations=operation_errors(predicted.operations, measured.operations),
        steps=_step_errors(predicted.steps, measured.steps),
        checks=(
            _check_bytes(predicted, measured),
            _check_order(predicted, measured),
            _check_metrics(predicted, measured),
        ),
    )


def typical_and_worst(errors: pd.DataFrame) -> tuple[float, float]:
    """The median of the errors' sizes, and the error of greatest size with its sign; nan and nan without any."""
    known = errors["error"].dropna().to_numpy(float)
    if not len(known):
        return float("nan"), float("nan")
    return float(np.median(np.abs(known))), float(known[np.abs(known).argmax()])


def _refuse_different_scenarios(first: Run, second: Run) -> None:
    if first.info.digest == second.info.digest:
        return
    found = [text for text in _differing(first.info.scenario, second.info.scenario) if text]
    shown = ", ".join(found[:_KEYS_SHOWN])
    more = f" and {len(found) - _KEYS_SHOWN} more" if len(found) > _KEYS_SHOWN else ""
    where = f"; they differ in {shown}{more}" if found else "; their digests differ"
    raise ReportError(f"runs of different scenarios, '{first.info.name}' and '{second.info.name}'{where}")


def _differing(first: object, second: object, key: str = "") -> Iterator[str]:
    if isinstance(first, dict) and isinstance(second, dict):
        for name in dict.fromkeys([*first, *second]):
            if key or name not in PLAYING:
                path = f"{key}.{name}" if key else str(name)
                if path != _FAULTS:
                    yield from _differing(first.get(name), second.get(name), path)
    elif isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)) and len(first) == len(second):
        for at, pair in enumerate(zip(first, second, strict=True)):
            yield from _differing(*pair, f"{key}[{at}]")
    elif first != second:
        yield f"{key} ({_short(first)} and {_short(second)})"


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value)} items"
    return "none" if value is None else "a table" if isinstance(value, dict) else str(value)


def _with_error(frame: pd.DataFrame) -> pd.DataFrame:
    measured = frame["measured_ns"].to_numpy(float)
    difference = frame["predicted_ns"].to_numpy(float) - measured
    return frame.assign(error=np.divide(difference, measured, out=np.full(len(frame), np.nan), where=measured > 0))


def operation_errors(predicted: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Operations' medians side by side; the longest measured ones first."""
    keys = [*KEYS, "part"]
    left = predicted[[*keys, "median_ns"]].rename(columns={"median_ns": "predicted_ns"})
    right = measured[[*keys, "median_ns"]].rename(columns={"median_ns": "measured_ns"})
    both = _with_error(left.merge(right, on=keys, how="outer"))
    total = both["measured_ns"].sum()
    both = both.assign(measured_share=both["measured_ns"] / total if total else 0.0)
    ordered = both.sort_values(["measured_ns", *KEYS], ascending=[False, True, True, True], ignore_index=True)
    return fixed({**ordered}, OPERATION_ERRORS)


def _step_errors(predicted: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    left = predicted.loc[predicted["complete"], ["step", "step_ns"]].rename(columns={"step_ns": "predicted_ns"})
    right = measured.loc[measured["complete"], ["step", "step_ns"]].rename(columns={"step_ns": "measured_ns"})
    both = _with_error(left.merge(right, on="step", how="outer").sort_values("step"))
    return fixed({**both}, STEP_ERRORS)


def _common_ranks(predicted: Run, measured: Run) -> list[int]:
    """Ranks with spans of their own in both runs; others are stood for by one that behaves alike."""
    return sorted(set(predicted.spans["rank"].unique()) & set(measured.spans["rank"].unique()))


def _operations_of(run: Run, other: Run) -> pd.DataFrame:
    """Of the common ranks, what neither run leaves out."""
    spans = run.spans
    kept = ((spans["kind"] != STEP) & spans["rank"].isin(_common_ranks(run, other))).to_numpy(bool)
    places = ints(spans, "rank"), ints(spans, "step")
    return spans[kept & run.keeps(*places) & other.keeps(*places)]


def _check_bytes(predicted: Run, measured: Run) -> Check:
    keys, columns = ["rank", "step", *KEYS], ["bytes_in", "bytes_out", "bytes_sent"]
    sides = [
        _operations_of(run, other)
        .groupby(keys)
        .agg({**dict.fromkeys(columns, "sum"), "dtype": "first"})
        .add_prefix(prefix)
        .reset_index()
        for run, other, prefix in ((predicted, measured, "predicted_"), (measured, predicted, "measured_"))
    ]
    both = sides[0].merge(sides[1], on=keys, how="outer")
    one, other = (
        both[[f"{side}_{column}" for column in columns]].to_numpy(float) for side in ("predicted", "measured")
    )
    unlike = (one != other).any(axis=1)  # an operation that one side lacks is nan there, and so unequal
    size = np.maximum(one, other)
    relative = np.divide(np.abs(one - other), size, out=size * 0.0, where=size > 0)
    return Check(
        name="bytes per operation and rank",
        compared=len(both),
        differences=fixed({**both[unlike]}, BYTES_DIFFERENCES),
        worst=float(np.nanmax(relative, initial=0.0)),
        reason=_no(both) or _expected_ids(predicted, measured, both[unlike]),
    )


def _expected_ids(predicted: Run, measured: Run, unlike: pd.DataFrame) -> str:
    """Which run has expected numbers of ids, where that alone is why bytes differ; "" else.

    Ids are whole numbers: what else is sent has the same bytes, and both runs have it.
    """
    sides = [role for role, run in (("predicted", predicted), ("measured", measured)) if _has_expected_ids(run)]
    dtypes = unlike[["predicted_dtype", "measured_dtype"]].fillna("")
    if len(sides) != 1 or not len(unlike) or not dtypes.isin(_OF_IDS).to_numpy(bool).all():
        return ""
    return f"expected numbers of ids stand in place of drawn ones in the {sides[0]} run"


def _has_expected_ids(run: Run) -> bool:
    scenario = run.info.scenario
    return run.info.world == "sim" and scenario.get("ranks") == "alike" and bool(scenario.get("model"))


def _check_order(predicted: Run, measured: Run) -> Check:
    sides = [_in_order(predicted, measured, "predicted"), _in_order(measured, predicted, "measured")]
    both = sides[0].merge(sides[1], on=["rank", "stream", "position"], how="outer")
    both = both.fillna({"predicted": "nothing", "measured": "nothing"})
    unlike = (both["predicted"] != both["measured"]).to_numpy(bool)
    first = both[unlike].sort_values("position").drop_duplicates(["rank", "stream"]).sort_values(["rank", "stream"])
    streams = len(both.drop_duplicates(["rank", "stream"]))
    differences = fixed({**first}, ORDER_DIFFERENCES)
    return Check(
        name="order of operations per rank and stream", compared=streams, differences=differences, reason=_no(both)
    )


def _in_order(run: Run, other: Run, name: str) -> pd.DataFrame:
    spans = _operations_of(run, other).sort_values(["rank", "stream", "sequence"], kind="stable")
    words = spans["kind"] + " '" + spans["label"] + "' of step " + spans["step"].astype(str).astype(spans["kind"].dtype)
    position = spans.groupby(["rank", "stream"]).cumcount()
    return spans[["rank", "stream"]].assign(position=position, **{name: words})


def _check_metrics(predicted: Run, measured: Run) -> Check:
    both = _common_metrics(predicted, measured)
    one, other = both["predicted"].to_numpy(float), both["measured"].to_numpy(float)
    with np.errstate(invalid="ignore"):  # infinite minus infinite
        difference, size = one - other, np.maximum(np.abs(one), np.abs(other))
        relative = np.divide(np.abs(difference), size, out=size * 0.0, where=size > 0)  # nan stays nan
    recorded_twice = (both["_merge"] == "both").to_numpy(bool)
    same = recorded_twice & ((relative <= METRIC_TOLERANCE) | (one == other) | (np.isnan(one) & np.isnan(other)))
    both = both.assign(difference=difference, relative=relative)
    return Check(
        name=f"recorded numbers, within {METRIC_TOLERANCE:g}",
        compared=len(both),
        differences=fixed({**both[~same]}, METRIC_DIFFERENCES),
        worst=float(np.nanmax(relative, initial=0.0)),
        reason=_no_metrics(predicted, measured, both),
    )


def _common_metrics(predicted: Run, measured: Run) -> pd.DataFrame:
    """The numbers of common ranks side by side; when one run recorded none at all, nothing is common."""
    ranks = _common_ranks(predicted, measured)
    sides = [
        run.metrics[run.metrics["rank"].isin(ranks).to_numpy(bool)].rename(columns={"value": name})
        for run, name in ((predicted, "predicted"), (measured, "measured"))
    ]
    how: Literal["outer", "inner"] = "outer" if len(sides[0]) and len(sides[1]) else "inner"
    return sides[0].merge(sides[1], on=["rank", "step", "name"], how=how, indicator=True)


def _no(both: pd.DataFrame) -> str:
    return "" if len(both) else "the runs have no ranks in common"


def _no_metrics(predicted: Run, measured: Run, both: pd.DataFrame) -> str:
    if len(both):
        return ""
    silent = [_WORLDS.get(run.info.world, run.info.world) for run in (predicted, measured) if not len(run.metrics)]
    return f"the {' and the '.join(silent)} run recorded none" if silent else "no rank, step and name in common"
