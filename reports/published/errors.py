"""Errors of predictions against published measurements, by groups of rows; pure functions of joined frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.store.columns import frame_of_columns
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
    sizes = known["size_bytes"].tolist()

    def by(labels: Sequence[str], order: Sequence[Any] = (), parts: Sequence[str] = (ALL, LARGE)) -> pd.DataFrame:
        groups = [
            ({"group": label, "sizes": part}, [at for at in rows if part == ALL or sizes[at] >= LARGE_BYTES])
            for label, rows in _places_by_label(labels, order).items()
            for part in parts
        ]
        return _errors_of(known, groups, COLLECTIVE_ERRORS, "formula")

    classes = [next(one for one in _SIZES if size >= one[0]) for size in sizes]
    scales = list(zip(known["nodes"].tolist(), known["gpus_per_node"].tolist(), strict=True))
    return {
        "in_all": by(["all sources"] * len(known)),
        "by_source": by(known["source"].tolist()),
        "by_operation": by(known["op"].tolist()),
        "by_size": by([name for _, name in classes], [least for least, _ in classes], [ALL]),
        "by_scale": by(
            [f"{nodes}x{gpus}" for nodes, gpus in scales], [(nodes * gpus, nodes) for nodes, gpus in scales]
        ),
    }


def operator_errors(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `OPERATOR_ERRORS` of all predicted rows and by family, GPU, size, and family and GPU.

    `joined` is the result of `kernels.join`. Sizes ascend, other groups are in alphabetical order; `gpu` is "" except
    in the last table.
    """
    known = predicted_rows(joined)

    def by(labels: Sequence[Any], order: Sequence[Any] = ()) -> pd.DataFrame:
        named = [label if isinstance(label, tuple) else (label, "") for label in labels]
        groups = [
            ({"group": name, "gpu": gpu}, rows) for (name, gpu), rows in _places_by_label(named, order or named).items()
        ]
        return _errors_of(known, groups, OPERATOR_ERRORS, "law")

    families, gpus = known["family"].tolist(), known["profile"].tolist()
    sizes = [next(one for one in _TIMES if us >= one[0]) for us in known["measured_us"]]
    return {
        "in_all": by(["all rows"] * len(known)),
        "by_family": by(families),
        "by_gpu": by(gpus),
        "by_size": by([name for _, name in sizes], [least for least, _ in sizes]),
        "by_family_and_gpu": by(list(zip(families, gpus, strict=True))),
    }


def step_errors(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `STEP_ERRORS` of all predicted rows and by GPU, scale, and model and round; `joined`: of `steps.join`."""
    known = predicted_rows(joined)

    def by(labels: Sequence[str]) -> pd.DataFrame:
        return _errors_of(
            known, [({"group": name}, rows) for name, rows in _places_by_label(labels).items()], STEP_ERRORS
        )

    scales = list(zip(known["nodes"].tolist(), known["gpus"].tolist(), strict=True))
    return {
        "in_all": by(["all rows"] * len(known)),
        "by_gpu": by(known["profile"].tolist()),
        "by_scale": by([f"{nodes}x{gpus // nodes}" for nodes, gpus in scales]),
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
    return frame_of_columns({name: [row[at] for row in found] for at, name in enumerate(CENTRED)}, CENTRED)


def _places_by_label(labels: Sequence[Any], order: Sequence[Any] = ()) -> dict[Any, list[int]]:
    """Return the places of each label; labels by their rows' `order`, else in order of appearance."""
    groups: dict[Any, list[int]] = {}
    for place in sorted(range(len(labels)), key=order.__getitem__) if order else range(len(labels)):
        groups.setdefault(labels[place], []).append(place)
    return groups


def _errors_of(
    known: pd.DataFrame, groups: Iterable[tuple[dict[str, str], list[int]]], columns: dict[str, str], other: str = ""
) -> pd.DataFrame:
    """Return a row of errors for each group: its names, and the places of its rows.

    `other` names further errors, of which there is a mean.
    """
    signed = known["error"].to_numpy(float)
    others = known[f"{other}_error"].to_numpy(float) if other else signed
    rows = [
        {
            **names,
            "rows": len(places),
            **dataclasses.asdict(statistics.errors(signed[places].tolist())),
            "mean": _mean_size(signed[places]),
            f"{other}_mean": _mean_size(others[places]),
        }
        for names, places in groups
    ]
    return frame_of_columns({name: [row[name] for row in rows] for name in columns}, columns)


def _mean_size(signed: Any) -> float:
    """Return the mean of the known errors' sizes; nan without any."""
    sizes = np.abs(signed[~np.isnan(signed)])
    return float(sizes.mean()) if len(sizes) else float("nan")
