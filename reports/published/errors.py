"""Errors of predictions against published measurements, by groups of rows; pure functions of joined frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.store.columns import frame_of_rows
from reports.terminal.rows import records

# Bandwidth decides from this size on, not latency.
LARGE_BYTES = 16 * 2**20
ALL, LARGE = "all", "16 MiB+"

# Columns of the tables of collectives, single operators and steps. `signed_median` and `worst` keep the sign, other
# errors are sizes. `formula_mean` is the error of NCCL's own formula over the rows for which it has one, `law_mean`
# that of the laws alone, without the profiles' tables of measured operators.
COLLECTIVE_ERRORS = {
    **{"group": "str", "sizes": "str", "rows": "int"},
    **dict.fromkeys(["signed_median", "mean", "p95", "worst", "formula_mean"], "float"),
}
OPERATOR_ERRORS = {
    **{"group": "str", "gpu": "str", "rows": "int"},
    **dict.fromkeys(["mean", "median", "p95", "signed_median", "worst", "law_mean"], "float"),
}
STEP_ERRORS = {"group": "str", "rows": "int", **dict.fromkeys(["signed_median", "mean", "worst"], "float")}
# The efficiency that would centre the large rows of a profile; `left` is the signed median that remains.
CENTRED = {"profile": "str", "rows": "int", "present": "float", "nccl_efficiency": "float", "left": "float"}
_LEAST_ROWS = 3
# Configurations with a smaller difference in time do not test the predicted order.
DIFFERS = 0.10
_SIZES = (
    (2**32, "4 GiB and more"),
    (2**28, "256 MiB to 4 GiB"),
    (LARGE_BYTES, "16 to 256 MiB"),
    (2**20, "1 to 16 MiB"),
    (2**16, "64 KiB to 1 MiB"),
    (0, "below 64 KiB"),
)
# Classes of measured times by their lower end, us.
_TIMES = (
    (1e4, "10 ms and more"),
    (1e3, "1 to 10 ms"),
    (100.0, "100 us to 1 ms"),
    (20.0, "20 to 100 us"),
    (5.0, "5 to 20 us"),
    (0.0, "below 5 us"),
)


def predicted_rows(joined: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a prediction."""
    known: pd.DataFrame = joined[joined["reason"].eq("").to_numpy(bool)]
    return known


def collective_errors(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `COLLECTIVE_ERRORS` of all predicted rows and by source, operation, size class and scale.

    `joined` is the result of `collectives.join`. Every group has two rows, of all sizes and of 16 MiB and more; size
    classes have one. Sources and operations are in order of appearance, sizes and scales ascend.
    """
    known = predicted_rows(joined)
    by = partial(_errors_by, known, COLLECTIVE_ERRORS, other="formula")
    scales = list(zip(known["nodes"].tolist(), known["gpus_per_node"].tolist(), strict=True))
    named = [f"{nodes}x{gpus}" for nodes, gpus in scales]
    return {
        "in_all": by("all sources", sizes=(ALL, LARGE)),
        "by_source": by(known["source"], sizes=(ALL, LARGE)),
        "by_operation": by(known["op"], sizes=(ALL, LARGE)),
        "by_size": by(*_classes(known["size_bytes"], _SIZES)),
        "by_scale": by(named, [(nodes * gpus, nodes) for nodes, gpus in scales], sizes=(ALL, LARGE)),
    }


def operator_errors(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `OPERATOR_ERRORS` of all predicted rows and by family, GPU, size, and family and GPU.

    `joined` is the result of `kernels.join`. Sizes ascend, other groups are in alphabetical order; `gpu` is "" except
    in the last table.
    """
    known = predicted_rows(joined)
    by = partial(_errors_by, known, OPERATOR_ERRORS, other="law")
    families, gpus = known["family"].tolist(), known["profile"].tolist()
    return {
        "in_all": by("all rows"),
        "by_family": by(families, families),
        "by_gpu": by(gpus, gpus),
        "by_size": by(*_classes(known["measured_us"], _TIMES)),
        "by_family_and_gpu": by(families, list(zip(families, gpus, strict=True)), gpu=gpus),
    }


def step_errors(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `STEP_ERRORS` of all predicted rows and by GPU, scale, and model and round; `joined`: of `steps.join`."""
    known = predicted_rows(joined)
    by = partial(_errors_by, known, STEP_ERRORS)
    return {
        "in_all": by("all rows"),
        "by_gpu": by(known["profile"]),
        "by_scale": by([f"{row['nodes']}x{row['gpus'] // row['nodes']}" for row in records(known)]),
        "by_round": by([f"{row['model']} {row['round']}".rstrip() for row in records(known)]),
    }


def right_order(compared: pd.DataFrame) -> tuple[int, int]:
    """Return how many pairs that differ by more than `DIFFERS` are predicted in the right order, and their number."""
    far = compared[np.abs(np.log(compared["measured"].to_numpy(float))) > np.log1p(DIFFERS)]
    return int(far["agrees"].sum()), len(far)


def nccl_profiles(joined: pd.DataFrame) -> list[str]:
    """Return the profiles whose predicted rows are all NCCL's, at least three of them of 16 MiB and more."""
    return [
        str(profile)
        for profile, rows in predicted_rows(joined).groupby("profile", sort=False)
        if (rows["library"] == "nccl").all() and (rows["size_bytes"] >= LARGE_BYTES).sum() >= _LEAST_ROWS
    ]


def center(joined: pd.DataFrame, present: Mapping[str, float]) -> pd.DataFrame:
    """Return `CENTRED` of each profile in `present`, which maps it to its own `nccl_efficiency`.

    Large rows are assumed to take the time of their bytes, which is inversely proportional to the efficiency: a
    prediction that is too slow needs a higher efficiency, at most 1.
    """
    known = predicted_rows(joined)
    large = known[known["size_bytes"] >= LARGE_BYTES]
    found = []
    for profile, own in present.items():
        rows = large[large["profile"] == profile]
        wanted = own * float((rows["predicted_us"] / rows["time_us"]).median())
        at_most = min(wanted, 1.0)
        found.append((profile, len(rows), own, at_most, wanted / at_most - 1))
    return frame_of_rows(found, CENTRED)


def _classes(values: pd.Series, classes: Sequence[tuple[float, str]]) -> tuple[list[str], list[float]]:
    """Return the class of each value: its name, and its lower end."""
    found = [next(one for one in classes if value >= one[0]) for value in values]
    return [name for _, name in found], [least for least, _ in found]


def _errors_by(
    known: pd.DataFrame,
    columns: Mapping[str, str],
    group: Any,
    order: Sequence[Any] = (),
    *,
    gpu: Any = "",
    sizes: Sequence[str] = (ALL,),
    other: str = "",
) -> pd.DataFrame:
    """Return a row of errors for each group and GPU, and for each of `sizes`.

    Args:
        known: the rows, with their `error`.
        columns: the columns of the result.
        group: the label of each row, or of all.
        order: what groups are sorted by; without it they are in order of appearance.
        gpu: the GPU of each row, or of all.
        sizes: `ALL`, `LARGE`.
        other: the name of further errors, of which there is a mean.
    """
    places = sorted(range(len(known)), key=order.__getitem__) if len(order) else range(len(known))
    frame, rows = known.assign(group=group, gpu=gpu).iloc[list(places)], []
    for (name, device), every in frame.groupby(["group", "gpu"], sort=False):
        for size in sizes:
            own = every if size == ALL else every[every["size_bytes"] >= LARGE_BYTES]
            found = dataclasses.asdict(statistics.errors(own["error"].tolist()))
            means = {f"{one}mean": _mean_size(own[f"{one}error"]) for one in ("", f"{other}_" if other else "")}
            rows.append({"group": name, "gpu": device, "sizes": size, "rows": len(own), **found, **means})
    return frame_of_rows(rows, columns)


def _mean_size(signed: pd.Series) -> float:
    """Return the mean of the known errors' sizes; nan without any."""
    return float(signed.dropna().abs().mean())
