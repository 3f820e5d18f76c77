"""Classify each span (dense, lookups, exchanges, reductions, ...), and add up a critical path and FLOPs by class.

A span's class follows from its kind, kernel and the role that the program gave, which simulated and real runs share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from reports.analysis.frames import COMPUTE, STEP
from reports.store.columns import frame_of_columns
from reports.store.parts import Part
from scenarios.seam import roles
from scenarios.seam.trace import COPYING, LOADING
from scenarios.seam.traits import TRAITS

DENSE, LOOK_UPS, TABLE_UPDATES, OPTIMIZER = "dense", "lookups", "table updates", "optimizer"
COMPRESSION, PACKING, INPUT, OTHER = "compression", "packing", "input", "other computation"
IDS, EMBEDDINGS, GRADIENTS = "exchanges of ids", "exchanges of embeddings", "exchanges of embeddings' gradients"
EXCHANGES, REDUCTIONS, TRANSFERS = "other exchanges", "reductions", "other transfers"
LAUNCHING, WAITING, HOST = "launching", "waiting", "host"
# All classes of a step's time, in the order of a bar: computed, sent, and neither.
WHATS = (
    *(DENSE, LOOK_UPS, TABLE_UPDATES, OPTIMIZER, COMPRESSION, PACKING, INPUT, OTHER),
    *(IDS, EMBEDDINGS, GRADIENTS, EXCHANGES, REDUCTIONS, TRANSFERS, LAUNCHING, WAITING, HOST),
)
FLOP_COLUMNS = ["kind", "kernel", "role", "step", "rank_count", "flops", "recomputed_flops", "dtype"]
FLOPS = {"dtype": "str", "flops": "float", "recomputed_flops": "float"}
BY_WHAT = {"what": "str", "duration_ns": "int", "share": "float"}

# The classes of communication and of computation by role; a span whose role is missing here is classed by its kind.
_SENT = {**dict.fromkeys([roles.SIZES, roles.IDS], IDS), roles.ROWS: EMBEDDINGS, roles.GRADIENTS: GRADIENTS}
_COMPUTED = {
    **{roles.LOOKUP: LOOK_UPS, roles.CACHING: LOOK_UPS, roles.UPDATE: TABLE_UPDATES, roles.OPTIMIZER: OPTIMIZER},
    **{roles.SCALING: OPTIMIZER, roles.COMPRESSION: COMPRESSION, roles.PACKING: PACKING, roles.OTHER: OTHER},
    **dict.fromkeys([roles.LOAD, roles.COPY], INPUT),
}
# Classes of computations that belong to dense work or to communication, by role; a class in `_OF_KERNEL` precedes them.
_BESIDE = {
    roles.DENSE: DENSE,
    **dict.fromkeys([roles.SIZES, roles.IDS, roles.ROWS, roles.GRADIENTS], PACKING),
    **dict.fromkeys([roles.REDUCTION, roles.TABLE_REDUCTION, roles.REPLICAS, roles.PARAMETERS], PACKING),
}
_OF_KIND = {
    verb: EXCHANGES if known.has_splits else REDUCTIONS
    for verb, known in TRAITS.items()
    if known.has_splits or known.has_sums or known.function == "all_gather"
}
_OF_KERNEL = {
    **{"embedding_lookup": LOOK_UPS, "embedding_update": TABLE_UPDATES, "optimizer": OPTIMIZER},
    **dict.fromkeys([LOADING, COPYING], INPUT),
}
_ARITHMETIC = ("gemm", "attention", "convolution")
_BY_ITSELF = {
    **dict.fromkeys([*_ARITHMETIC, "elementwise", "reduction", "qr", "module"], DENSE),
    **dict.fromkeys(["permute", "bucketize"], PACKING),
}


def what(kind: str, kernel: str, role: str) -> str:
    """Return the class of a span, one of `WHATS`; "host" for the program's own time."""
    if kind == HOST:
        return HOST
    if kind != COMPUTE:
        return _SENT.get(role) or _OF_KIND.get(kind, TRANSFERS)
    return _COMPUTED.get(role) or _OF_KERNEL.get(kernel) or _BESIDE.get(role) or _BY_ITSELF.get(kernel, OTHER)


def whats(frame: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the class of each row of a frame with `kind`, `kernel` and `role`."""
    numbers, known = pd.factorize(pd.MultiIndex.from_frame(frame[["kind", "kernel", "role"]]))
    found = np.array([what(*map(str, key)) for key in known], object)
    return found[numbers] if len(frame) else np.zeros(0, object)


def by_what(path: pd.DataFrame) -> pd.DataFrame:
    """Return the critical path of one step by class, in the order of `WHATS`; classes without time are left out.

    Shares are of the step and add up to 1; durations add up to the step.
    """
    # Waiting and launching are taken out of each class first, so that no time counts twice.
    own = path["duration_ns"] - path["waiting_ns"] - path["launching_ns"]
    taken = own.groupby(path["what"].to_numpy(object)).sum().to_dict()
    taken[WAITING], taken[LAUNCHING] = path["waiting_ns"].sum(), path["launching_ns"].sum()
    whole = path["duration_ns"].sum()
    names = [name for name in WHATS if taken.get(name)]
    durations = np.array([taken[name] for name in names], np.int64)
    return frame_of_columns({"what": names, "duration_ns": durations, "share": durations / max(whole, 1)}, BY_WHAT)


class Utilisation(NamedTuple):
    """A GPU's arithmetic in a step: FLOP/s, and their shares of the GPU's peak; nan where unknown.

    `flops_per_s` and `mfu` (model FLOPs utilization) are of the model, which needs each product once;
    `hardware_flops_per_s` and `hfu` (hardware FLOPs utilization) also count what is computed again for the backward
    pass, as by activation checkpointing. `peak_flops_per_s` is the peak of the dtypes used, `dtypes` their names.
    """

    flops_per_s: float
    hardware_flops_per_s: float
    mfu: float
    hfu: float
    peak_flops_per_s: float
    dtypes: tuple[str, ...]


def flops(parts: Iterable[Part]) -> pd.DataFrame:
    """Return a frame of `FLOPS`: the mean FLOPs of a rank in a step, by dtype; no rows where no span has any.

    Dense spans with matrix products count, forward and backward, with the FLOPs that their kernels state; lookups,
    optimizers and compression do not. `recomputed_flops` are the part of `flops` that computes the forward pass again.
    """
    amounts = ["flops", "recomputed_flops"]
    found: dict[str, npt.NDArray[np.float64]] = {}
    steps = 0
    for part in parts:
        spans = part.own_spans()
        inside = spans[(spans["step"] >= 0).to_numpy(bool)]
        steps += int(inside.loc[(inside["kind"] == STEP).to_numpy(bool), "rank_count"].sum())
        model = inside[
            inside["kernel"].isin([*_ARITHMETIC, "module"]).to_numpy(bool) & (inside["flops"] > 0).to_numpy(bool)
        ]
        model = model[np.equal(whats(model), DENSE).astype(bool)]
        summed = model[amounts].mul(model["rank_count"], axis=0).groupby(model["dtype"]).sum()
        for dtype, *of_dtype in summed.itertuples(name=None):
            found[str(dtype)] = found.get(str(dtype), np.zeros(len(amounts))) + of_dtype
    known = sorted(found)
    by_dtype = np.array([found[name] for name in known], float).reshape(-1, len(amounts)) / max(steps, 1)
    return frame_of_columns({"dtype": known, **dict(zip(amounts, by_dtype.T, strict=True))}, FLOPS)


def utilisation(done: pd.DataFrame, step_ns: float, scenario: Mapping[str, Any]) -> Utilisation | None:
    """Return the utilisation of the scenario's GPU by these FLOPs of a step; None where no FLOPs are known.

    Args:
        done: a frame of `FLOPS`.
        step_ns: the step time.
        scenario: the run's scenario, which states the GPU's peaks.
    """
    executed = done["flops"].to_numpy(float)
    of_model = executed - done["recomputed_flops"].to_numpy(float)
    if not of_model.sum() > 0 or not step_ns > 0:
        return None
    # Times at the peak are added up, not rates: each dtype has a peak of its own.
    peaks = np.array([_peak(scenario, dtype) for dtype in done["dtype"]], float)
    least_s, busy_s = float((of_model / peaks).sum()), float((executed / peaks).sum())
    return Utilisation(
        flops_per_s=float(of_model.sum()) * 1e9 / step_ns,
        hardware_flops_per_s=float(executed.sum()) * 1e9 / step_ns,
        mfu=least_s * 1e9 / step_ns,
        hfu=busy_s * 1e9 / step_ns,
        peak_flops_per_s=float(of_model.sum()) / least_s,
        dtypes=tuple(done["dtype"]),
    )


def _peak(scenario: Mapping[str, Any], dtype: str) -> float:
    """Return the profile's peak FLOP/s of a dtype, nan if unknown; TF32 falls back to the peak of float32."""
    found: Any = scenario
    for key in ("cluster", "host", "gpu", "flops_per_s"):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return np.nan
    rate = found.get(dtype, found.get("float32") if dtype == "tf32" else None)
    return float(rate) if isinstance(rate, int | float) and rate > 0 else np.nan
