"""Check whether two runs did equal work: bytes and order of their operations, and recorded metrics.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, KEYS, STEP, ints
from reports.analysis.prediction.uncertainty import on_gpus
from reports.run import Run
from reports.store.columns import frame_of_columns

# A recorded number counts as equal up to this share of the larger one: float32 keeps 1.2e-7, and a loss is the end of
# some hundred roundings in an order that the two worlds do not share.
METRIC_TOLERANCE = 1e-5

_OF_IDS = ["int32", "int64"]
WORLDS = {"sim": "simulated", "real": "real"}

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
    """A comparison of two runs in one respect; `differences` has one row for each place where they differ.

    `compared` counts the places compared; if 0, `reason` states why. `reason` also states why differences are expected,
    such as how the runs were simulated. `worst` is the greatest difference as a share.
    """

    name: str
    compared: int
    differences: pd.DataFrame
    worst: float = 0.0
    reason: str = ""

    @property
    def agrees(self) -> bool:
        """Whether at least one place was compared, and none differs."""
        return self.compared > 0 and not len(self.differences)


def check_all(predicted: Run, measured: Run) -> tuple[Check, ...]:
    """Check bytes, order and recorded metrics, over the ranks with spans of their own in both runs."""
    return _check_bytes(predicted, measured), _check_order(predicted, measured), _check_metrics(predicted, measured)


def _common_ranks(predicted: Run, measured: Run) -> list[int]:
    """Return the ranks with spans of their own in both runs; other ranks are represented by one of their class."""
    return sorted(set.intersection(*(_ranks(run) for run in (predicted, measured))))


def _ranks(run: Run) -> set[int]:
    return {rank for part in run.parts(["rank"], beside=False) for rank in part.spans["rank"].unique().tolist()}


def _operations_of(run: Run, other: Run, columns: Sequence[str]) -> pd.DataFrame:
    """Return the operations of the common ranks that neither run leaves out; read a part at a time to save memory."""
    ranks, found = _common_ranks(run, other), []
    # The prediction of a script on GPUs has kernels, its measurement only modules.
    left_out = [STEP, COMPUTE] if _is_gpu_script(run) and run.info.world != other.info.world else [STEP]
    for part in run.parts(columns, beside=False):
        spans = part.spans
        kept = part.own & (~spans["kind"].isin(left_out) & spans["rank"].isin(ranks)).to_numpy(bool)
        found.append(spans.loc[kept & other.keeps(ints(spans, "rank"), ints(spans, "step")), [*columns]])
    together = pd.concat(found, ignore_index=True)
    if len(together):
        return together
    # pandas cannot merge two text columns without a memory buffer, which Arrow makes of an empty file
    return pd.DataFrame({name: pd.Series([], dtype=together[name].dtype) for name in columns})


def _is_gpu_script(run: Run) -> bool:
    return run.info.scenario.get("program") == "script" and on_gpus(run)


def _check_bytes(predicted: Run, measured: Run) -> Check:
    keys, columns = ["rank", "step", *KEYS], ["bytes_in", "bytes_out", "bytes_sent"]
    sides = [
        _operations_of(run, other, [*keys, *columns, "dtype"])
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
    unlike = (one != other).any(axis=1)  # an operation missing on one side is nan there, and so unequal
    size = np.maximum(one, other)
    relative = np.divide(np.abs(one - other), size, out=size * 0.0, where=size > 0)
    return Check(
        name="bytes per operation and rank",
        compared=len(both),
        differences=frame_of_columns(both[unlike], BYTES_DIFFERENCES),
        worst=float(np.nanmax(relative, initial=0.0)),
        reason=_no(both) or _expected_ids(predicted, measured, both[unlike]),
    )


def _expected_ids(predicted: Run, measured: Run, unlike: pd.DataFrame) -> str:
    """Return which run has expected numbers of ids, if that alone explains unequal bytes; else "".

    Ids are whole numbers: all other payloads have equal bytes, and both runs have them.
    """
    sides = [role for role, run in (("predicted", predicted), ("measured", measured)) if _has_expected_ids(run)]
    dtypes = unlike[["predicted_dtype", "measured_dtype"]].fillna("")
    if len(sides) != 1 or not len(unlike) or not dtypes.isin(_OF_IDS).to_numpy(bool).all():
        return ""
    return f"the {sides[0]} run has expected instead of sampled id counts"


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
    differences = frame_of_columns(first, ORDER_DIFFERENCES)
    return Check(
        name="order of operations per rank and stream", compared=streams, differences=differences, reason=_no(both)
    )


def _in_order(run: Run, other: Run, name: str) -> pd.DataFrame:
    columns = ["rank", "step", "sequence", *KEYS]
    spans = _operations_of(run, other, columns).sort_values(["rank", "stream", "sequence"], kind="stable")
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
        name=f"recorded metrics, within {METRIC_TOLERANCE:g}",
        compared=len(both),
        differences=frame_of_columns(both[~same], METRIC_DIFFERENCES),
        worst=float(np.nanmax(relative, initial=0.0)),
        reason=_no_metrics(predicted, measured, both),
    )


def _common_metrics(predicted: Run, measured: Run) -> pd.DataFrame:
    """Return the metrics of common ranks in one frame; no rows if one run recorded none at all."""
    ranks = _common_ranks(predicted, measured)
    keys, sides = ["rank", "step", "name"], list[pd.DataFrame]()
    for run, name in ((predicted, "predicted"), (measured, "measured")):
        kept = run.metrics[run.metrics["rank"].isin(ranks).to_numpy(bool)].rename(columns={"value": name})
        sides.append(kept.assign(time=kept.groupby(keys).cumcount()))  # a program may record one name several times
    how: Literal["outer", "inner"] = "outer" if len(sides[0]) and len(sides[1]) else "inner"
    return sides[0].merge(sides[1], on=[*keys, "time"], how=how, indicator=True)


def _no(both: pd.DataFrame) -> str:
    return "" if len(both) else "the runs have no ranks in common"


def _no_metrics(predicted: Run, measured: Run, both: pd.DataFrame) -> str:
    if len(both):
        return ""
    silent = [WORLDS.get(run.info.world, run.info.world) for run in (predicted, measured) if not len(run.metrics)]
    return f"the {' and the '.join(silent)} run recorded none" if silent else "no rank, step and name in common"
