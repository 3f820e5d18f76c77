"""Rates beside times: arithmetic of the model against the GPU's peak, and the bandwidth of collectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reports.analysis.by_what import is_model
from reports.analysis.frames import STEP, ints, is_collective
from reports.analysis.intervals import Floats, Ints
from reports.store.columns import fixed
from reports.store.parts import Part

FLOP_COLUMNS = ["kind", "kernel", "label", "step", "rank_count", "flops", "dtype"]
FLOPS = {"dtype": "str", "flops": "float"}

# By kind of collective, as nccl-tests has it: what counts as its size, and the share of it that crosses each rank's
# bus, times n / (n - 1) of n ranks; others have no bandwidth.
_SIZES = {
    "all_reduce": ("bytes_in", 2.0),
    **dict.fromkeys(["reduce_scatter", "reduce_scatter_tensor"], ("bytes_in", 1.0)),
    **dict.fromkeys(["all_gather", "all_gather_into_tensor"], ("bytes_out", 1.0)),
    **dict.fromkeys(["all_to_all", "all_to_all_single"], ("bytes_in", 1.0)),
}
_WHOLE = {"broadcast": ("bytes_in", "bytes_out")}  # what crosses is the size, which one member gives and others get


class Utilisation(NamedTuple):
    """The model's arithmetic in a step of a GPU: FLOP/s, and their share of what it could do at its peak (MFU).

    `peak_flops_per_s` is that of the dtypes used, `dtypes` names them. nan: not known.
    """

    flops_per_s: float
    mfu: float
    peak_flops_per_s: float
    dtypes: tuple[str, ...]


def flops(parts: Iterable[Part]) -> pd.DataFrame:
    """A frame of `FLOPS`: those of the model that a rank does in a step, in the mean, by dtype; nothing where none are.

    Counted are the spans that are dense and have products in them, forward and backward, as their kernels state them:
    no look-ups, no optimizers, no compression.
    """
    found: dict[str, float] = {}
    steps = 0
    for part in parts:
        spans = part.owned()
        inside = spans[(spans["step"] >= 0).to_numpy(bool)]
        steps += int(inside.loc[(inside["kind"] == STEP).to_numpy(bool), "rank_count"].sum())
        model = inside[is_model(inside) & (inside["flops"] > 0).to_numpy(bool)]
        summed = (model["flops"] * model["rank_count"]).groupby(model["dtype"]).sum()
        for dtype, amount in summed.items():
            found[str(dtype)] = found.get(str(dtype), 0.0) + float(amount)
    known = sorted(found)
    return fixed({"dtype": known, "flops": np.array([found[name] for name in known], float) / max(steps, 1)}, FLOPS)


def utilisation(done: pd.DataFrame, step_ns: float, scenario: Mapping[str, Any]) -> Utilisation | None:
    """What `flops` are of a step, on the GPU that a scenario has; None where nothing is known to be computed."""
    total = float(done["flops"].sum())
    if not total or not step_ns > 0:
        return None
    peaks = [_peak(scenario, dtype) for dtype in done["dtype"]]
    least_s = float((done["flops"] / np.array(peaks, float)).sum(skipna=False))
    return Utilisation(total * 1e9 / step_ns, least_s * 1e9 / step_ns, total / least_s, tuple(done["dtype"]))


def _peak(scenario: Mapping[str, Any], dtype: str) -> float:
    """FLOP/s of the profile; products in TF32 run at float32's where it has no other."""
    found: Any = scenario
    for key in ("cluster", "host", "gpu", "flops_per_s"):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return np.nan
    rate = found.get(dtype, found.get("float32") if dtype == "tf32" else None)
    return float(rate) if isinstance(rate, int | float) and rate > 0 else np.nan


def bus_bytes(spans: pd.DataFrame) -> tuple[Floats, Floats, Ints]:
    """For each span the size that algbw and busbw are of, in bytes, and how many members its collective has.

    0 where nccl-tests has none, or the collective has one member. Members on one host are counted, for others a
    representative counts as often as the ranks that it represents.
    """
    sizes, bus = np.zeros(len(spans)), np.zeros(len(spans))
    members = _members(spans)
    for kind in spans["kind"].unique():
        own = (spans["kind"] == kind).to_numpy(bool) & (members > 1)
        if kind in _SIZES:
            column, factor = _SIZES[kind]
            sizes[own] = ints(spans, column)[own]
            bus[own] = sizes[own] * factor * (members[own] - 1) / members[own]
        elif kind in _WHOLE:
            sizes[own] = bus[own] = np.max([ints(spans, name)[own] for name in _WHOLE[kind]], axis=0)
    return sizes, bus, members


def _members(spans: pd.DataFrame) -> Ints:
    counts = np.zeros(len(spans), np.int64)
    of_groups = is_collective(spans)
    own = spans[of_groups]
    grouped = own.groupby(["group", "call", "step"], sort=False)
    inside = (grouped["host"].transform("nunique") == 1).to_numpy(bool)
    alike = grouped["rank_count"].transform("sum").to_numpy(np.int64)
    counts[of_groups] = np.where(inside, grouped["rank"].transform("size").to_numpy(np.int64), alike)
    return counts
