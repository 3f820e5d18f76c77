"""The single operations whose predicted and measured times lie furthest apart; pure functions of both runs' calls."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.analysis.frames import KEYS, ints
from reports.compare.calls import BothCalls
from reports.compare.errors_by_size import signed_error
from reports.store.columns import fixed

MOST = 20
MOST_OF_ONE = 3

_SIDES = ("predicted", "measured")
WORST = {
    "rank": "int",
    "step": "int",
    **dict.fromkeys(KEYS, "str"),
    "call": "int",
    **{f"{side}_{moment}": "int" for side in _SIDES for moment in ("start_ns", "end_ns")},
    **dict.fromkeys(["predicted_ns", "measured_ns", "difference_ns"], "int"),
    **dict.fromkeys(["error", "error_of_step"], "float"),
}
_PLACE = ["operation", "step", "call", "rank"]


def worst_cases(both: BothCalls, measured_steps: pd.DataFrame) -> pd.DataFrame:
    """At most `MOST` operations, the furthest apart first, at most `MOST_OF_ONE` with the same kind and label.

    What is paired are the n-th calls (`call`, from 0, by `sequence`) of an operation on a rank in a step. Of ranks that
    did the same in a step the one furthest apart counts. `difference_ns` is predicted - measured, `error_of_step` that
    over the measured step, of `measured_steps` (a run's `steps`).
    """
    pairs = _pairs(both)
    furthest = np.argsort(-np.abs(ints(pairs, "difference_ns")), kind="stable")
    pairs = pairs.iloc[furthest].drop_duplicates(["operation", "step", "call"])
    names = both.names.iloc[ints(pairs, "operation")]
    labelled = pairs.assign(**{key: names[key].array for key in KEYS})
    kept = labelled.groupby(["kind", "label"], sort=False).cumcount() < MOST_OF_ONE
    shown = labelled[kept.to_numpy(bool)].head(MOST)
    step_ns = shown["step"].map(measured_steps.set_index("step")["step_ns"]).to_numpy(float)
    of_step = np.divide(shown["difference_ns"], step_ns, out=np.full(len(shown), np.nan), where=step_ns > 0)
    return fixed({**shown.assign(error=signed_error(shown), error_of_step=of_step)}, WORST)


def _pairs(both: BothCalls) -> pd.DataFrame:
    sides = [
        _placed(calls).add_prefix(f"{side}_")
        for side, calls in zip(_SIDES, (both.predicted, both.measured), strict=True)
    ]
    pairs = sides[0].join(sides[1], how="inner").reset_index()
    return pairs.assign(difference_ns=pairs["predicted_ns"] - pairs["measured_ns"])


def _placed(calls: pd.DataFrame) -> pd.DataFrame:
    """By where a call stands: which one it is of its operation on its rank in its step."""
    ordered = calls.sort_values(["operation", "step", "rank", "sequence"], kind="stable", ignore_index=True)
    ordered = ordered.assign(call=ordered.groupby(["operation", "step", "rank"], sort=False).cumcount())
    return ordered.set_index(_PLACE)[["start_ns", "end_ns", "duration_ns"]].rename(columns={"duration_ns": "ns"})
