"""Tables of prediction errors against published measurements, for terminals and scripts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Group, RenderableType

from reports.analysis import statistics
from reports.sections.run.operations import DIFFERS
from reports.store.columns import fixed
from reports.terminal import text
from reports.terminal.rows import cells, records

# Bandwidth decides from this size on, not latency.
LARGE_BYTES = 16 * 2**20
ALL, LARGE = "all", "16 MiB+"

# Errors of the rows of one group: `signed_median` keeps the sign, `mean` and `p95` are of the errors' sizes, as is
# `formula_mean`, the error of NCCL's own formula over the rows for which it has one.
GROUP_ERRORS = {
    **{"group": "str", "sizes": "str", "rows": "int"},
    **dict.fromkeys(["signed_median", "mean", "p95", "worst", "formula_mean"], "float"),
}
# The efficiency that would centre the large rows of a profile; `left` is the signed median that remains.
CENTRED = {"profile": "str", "rows": "int", "present": "float", "nccl_efficiency": "float", "left": "float"}
_LEAST_ROWS = 3
_CLASSES = (
    (2**32, "4 GiB and more"),
    (2**28, "256 MiB to 4 GiB"),
    (LARGE_BYTES, "16 to 256 MiB"),
    (2**20, "1 to 16 MiB"),
    (2**16, "64 KiB to 1 MiB"),
    (0, "below 64 KiB"),
)
_WORST = 10
_FORMULA = "formula"
_TITLES = {
    "in_all": ("Overall", "of"),
    "by_source": ("By source", "source"),
    "by_operation": ("By operation", "operation"),
    "by_size": ("By size", "size"),
    "by_scale": ("By scale: nodes x GPUs of each", "scale"),
}


def tables(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `GROUP_ERRORS` of all predicted rows and by source, operation, size class and scale.

    `joined` is the result of `collectives.join`. Every group has two rows, of all sizes and of 16 MiB and more; size
    classes have one. Sources and operations are in order of appearance, sizes and scales ascend.
    """
    known = joined[joined["predicted_us"].notna()]
    classes = [_size_class(size) for size in known["size_bytes"]]
    scales = list(zip(known["nodes"].tolist(), known["gpus_per_node"].tolist(), strict=True))
    by_size = _errors_by(known, [name for _, name in classes], order=[least for least, _ in classes])
    return {
        "in_all": _errors_by(known, ["all sources"] * len(known)),
        "by_source": _errors_by(known, known["source"].tolist()),
        "by_operation": _errors_by(known, known["op"].tolist()),
        "by_size": by_size[by_size["sizes"] == ALL].reset_index(drop=True),
        "by_scale": _errors_by(
            known,
            [f"{nodes}x{gpus}" for nodes, gpus in scales],
            order=[(nodes * gpus, nodes) for nodes, gpus in scales],
        ),
    }


def nccl_profiles(joined: pd.DataFrame) -> list[str]:
    """Return the profiles whose predicted rows are all NCCL's, at least three of them of 16 MiB and more."""
    known = joined[joined["predicted_us"].notna()]
    return [
        str(profile)
        for profile, rows in known.groupby("profile", sort=False)
        if (rows["library"] == "nccl").all() and (rows["size_bytes"] >= LARGE_BYTES).sum() >= _LEAST_ROWS
    ]


def centred(joined: pd.DataFrame, present: Mapping[str, float]) -> pd.DataFrame:
    """Return `CENTRED` of each profile in `present`, which maps it to its own `nccl_efficiency`.

    Large rows are assumed to take the time of their bytes, which is inversely proportional to the efficiency: a
    prediction that is too slow needs a higher efficiency, at most 1.
    """
    large = joined[joined["predicted_us"].notna() & (joined["size_bytes"] >= LARGE_BYTES)]
    found = []
    for profile, own in present.items():
        rows = large[large["profile"] == profile]
        wanted = own * float((rows["predicted_us"] / rows["time_us"]).median())
        at_most = min(wanted, 1.0)
        found.append((profile, len(rows), own, at_most, wanted / at_most - 1))
    return fixed({name: [row[at] for row in found] for at, name in enumerate(CENTRED)}, CENTRED)


def summarize(joined: pd.DataFrame, present: Mapping[str, float] | None = None) -> RenderableType:
    """Return the error tables, the worst rows, the rows not predicted, and efficiencies for profiles in `present`.

    The output is 80 columns wide.
    """
    known = joined[joined["predicted_us"].notna()]
    parts = [text.paragraph(_headline(joined, len(known)))]
    if len(known):
        parts += [_shown(name, frame) for name, frame in tables(joined).items()]
        parts.append(_worst(known))
    reasons = list(missed(joined))
    if reasons:
        parts.append(text.paragraph(f"Not predicted: {text.counted(len(joined) - len(known), 'row')}", style="bold"))
        parts.append(text.paragraph("\n".join(reasons)))
    parts += [text.paragraph(_centring(row)) for row in records(centred(joined, present or {}))]
    return Group(*parts)


@text.json_ready
def as_json(
    joined: pd.DataFrame, files: Sequence[Path], profile: str | None, present: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return all tables and rows as JSON-ready values; `files` and `profile` are the user's arguments."""
    return {
        "files": [str(file) for file in files],
        "profile": profile,
        **{name: records(frame) for name, frame in tables(joined).items()},
        "centred": records(centred(joined, present or {})),
        "measurements": records(joined),
    }


def _size_class(size_bytes: int) -> tuple[int, str]:
    return next((least, name) for least, name in _CLASSES if size_bytes >= least)


def _errors_by(known: pd.DataFrame, labels: Sequence[str], order: Sequence[Any] = ()) -> pd.DataFrame:
    """Return the errors of each label's rows; labels by their rows' `order`, else in order of appearance."""
    places = sorted(range(len(labels)), key=order.__getitem__) if order else range(len(labels))
    groups: dict[Hashable, list[int]] = {}
    for place in places:
        groups.setdefault(labels[place], []).append(place)
    errors, sizes = known[["error", "formula_error"]].to_numpy(float), known["size_bytes"].to_numpy(np.int64)
    rows = []
    for label, members in groups.items():
        rows.append(_errors_of(label, ALL, *errors[members].T))
        rows.append(_errors_of(label, LARGE, *errors[members][sizes[members] >= LARGE_BYTES].T))
    return fixed({name: [row[name] for row in rows] for name in GROUP_ERRORS}, GROUP_ERRORS)


def _errors_of(
    label: Hashable, sizes: str, signed: NDArray[np.float64], formula: NDArray[np.float64]
) -> dict[str, Any]:
    short = statistics.errors(signed.tolist())
    formulas = np.abs(formula[~np.isnan(formula)])
    return {
        "group": label,
        "sizes": sizes,
        "rows": len(signed),
        "signed_median": short.signed_median,
        "mean": float(np.abs(signed).mean()) if len(signed) else float("nan"),
        "p95": short.p95,
        "worst": short.worst,
        "formula_mean": float(formulas.mean()) if len(formulas) else float("nan"),
    }


def _headline(joined: pd.DataFrame, predicted: int) -> str:
    sources = text.counted(joined["source"].nunique(), "source")
    found = f"{text.counted(len(joined), 'measurement')} of {sources}, {predicted:,} of them predicted."
    if not predicted:
        return found
    return (
        f"{found} An error is predicted / measured - 1: positive is too slow a prediction."
        " median: signed; mean, 95th (percentile): of the errors' sizes; worst: with its sign; formula: the mean for"
        " NCCL's own formula, of the rows for which it has one."
    )


def _shown(name: str, frame: pd.DataFrame) -> RenderableType:
    title, first = _TITLES[name]
    by_size = name == "by_size"
    groups = frame["group"].where((frame["sizes"] == ALL).to_numpy(bool), "")
    shown = [column for column in GROUP_ERRORS if not (by_size and column == "sizes")]
    columns = [first, *([] if by_size else ["sizes"]), "rows", "median", "mean", "95th", "worst", "formula"]
    return text.table(title, columns, cells(frame.assign(group=groups), shown), left=1 if by_size else 2)


def _worst(known: pd.DataFrame) -> RenderableType:
    order = np.argsort(-np.abs(known["error"].to_numpy(float)), kind="stable")[:_WORST]
    several = known["file"].nunique() > 1
    rows = []
    for row in records(known.iloc[order]):
        rows.append(
            [
                f"{Path(row['file']).stem}:{row['line']}" if several else str(row["line"]),
                row["op"],
                f"{row['nodes']}x{row['gpus_per_node']} {row['gpu']}".rstrip(),
                "/".join(filter(None, (row["algorithm"], row["protocol"]))) or row["library"],
                text.size(row["size_bytes"]),
                text.duration(1e3 * row["time_us"]),
                *_times(row["predicted_us"], row["error"]),
            ]
        )
        if abs(row["formula_us"] / row["predicted_us"] - 1) > DIFFERS:  # False for nan
            rows.append(["", "", "", _FORMULA, "", "", *_times(row["formula_us"], row["formula_error"])])
    columns = ["line", "operation", "on", "by", "size", "measured", "predicted", "error"]
    return text.table(
        f"The worst rows ({_FORMULA}: NCCL's own, where it differs by more than 5 %)", columns, rows, left=4
    )


def _times(predicted_us: float, error: float) -> list[str]:
    return [text.duration(1e3 * predicted_us), text.signed_percent(error)]


def missed(joined: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each file and reason why rows have no prediction, with their lines."""
    groups: dict[tuple[str, str], list[int]] = {}
    for row in records(joined[joined["reason"].ne("")]):
        groups.setdefault((row["file"], row["reason"]), []).append(row["line"])
    for (file, reason), lines in groups.items():
        yield f"{file}: {'line' if len(lines) == 1 else 'lines'} {text.ranges(lines)}: {reason}"


def _centring(row: dict[str, Any]) -> str:
    count = f"the {text.counted(row['rows'], 'row')} of 16 MiB and more"
    if row["left"] > 0:
        left = text.signed_percent(row["left"])
        return f"{row['profile']}: no nccl_efficiency would centre {count}: at 1 their median error is still {left}"
    value = f"{row['nccl_efficiency']:.3g}"
    now = f"{row['profile']} has {row['present']:.3g}"
    return f"nccl_efficiency = {value} in a profile of your own would centre {count} ({now})"
