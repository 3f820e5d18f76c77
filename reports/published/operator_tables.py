"""Tables of prediction errors against published times of single operators, for terminals and scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType

from reports.analysis import statistics
from reports.store.columns import fixed
from reports.terminal import text
from reports.terminal.rows import cells, records

# Errors of the rows of one group: `signed_median` and `worst` keep the sign, the others are of the errors' sizes;
# `law_mean` is of the laws alone, without the profiles' tables of measured operators.
GROUP_ERRORS = {
    **{"group": "str", "gpu": "str", "rows": "int"},
    **dict.fromkeys(["mean", "median", "p95", "signed_median", "worst", "law_mean"], "float"),
}
# Classes of measured times by their lower end, us.
_CLASSES = (
    (1e4, "10 ms and more"),
    (1e3, "1 to 10 ms"),
    (100.0, "100 us to 1 ms"),
    (20.0, "20 to 100 us"),
    (5.0, "5 to 20 us"),
    (0.0, "below 5 us"),
)
_TITLES = {
    "in_all": ("Overall", "of"),
    "by_family": ("By family of operators", "family"),
    "by_gpu": ("By GPU: its profile", "GPU"),
    "by_size": ("By size: the measured time", "size"),
    "by_family_and_gpu": ("By family and GPU", "family"),
}
_WORST, _LINES = 10, 60
# Columns of sizes, for rows without a text that describes them, and the family that mixes several kinds.
_SIZES = ("T", "E", "D", "B", "L", "M", "N", "K", "H")
_MIXED = "elementwise"


def tables(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `GROUP_ERRORS` of all predicted rows and by family, GPU, size, and family and GPU.

    `joined` is the result of `kernels.join`. Sizes ascend, other groups are in alphabetical order; `gpu` is "" except
    in the last table.
    """
    known = joined[joined["predicted_us"].notna()]
    families, gpus = known["family"].tolist(), known["profile"].tolist()
    sizes = [next(each for each in _CLASSES if us >= each[0]) for us in known["measured_us"]]
    return {
        "in_all": _errors_by(known, [("all rows", "")] * len(known)),
        "by_family": _errors_by(known, [(family, "") for family in families]),
        "by_gpu": _errors_by(known, [(gpu, "") for gpu in gpus]),
        "by_size": _errors_by(known, [(name, "") for _, name in sizes], [least for least, _ in sizes]),
        "by_family_and_gpu": _errors_by(known, list(zip(families, gpus, strict=True))),
    }


def summarize(joined: pd.DataFrame) -> RenderableType:
    """Return the error tables, the worst rows, and the number of rows not predicted and why; 80 columns wide."""
    known = joined[joined["predicted_us"].notna()]
    parts = [text.paragraph(_headline(joined, len(known)))]
    if len(known):
        parts += [_shown(name, frame) for name, frame in tables(joined).items() if _is_shown(name, known)]
        parts.append(_worst(known))
    reasons = list(missed(joined))
    if reasons:
        parts.append(text.paragraph(f"Not predicted: {text.counted(len(joined) - len(known), 'row')}", style="bold"))
        parts.append(text.paragraph("\n".join(reasons)))
    return Group(*parts)


@text.json_ready
def as_json(joined: pd.DataFrame, files: Sequence[Path], profile: str | None) -> dict[str, Any]:
    """Return all tables and rows as JSON-ready values; `files` and `profile` are the user's arguments."""
    return {
        "files": [str(file) for file in files],
        "profile": profile,
        **{name: records(frame) for name, frame in tables(joined).items()},
        "measurements": records(joined),
    }


def missed(joined: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each file and reason why rows have no prediction: the number of rows, and their lines."""
    groups: dict[tuple[str, str], list[int]] = {}
    for row in records(joined.loc[joined["reason"].ne(""), ["file", "line", "reason"]]):
        groups.setdefault((row["file"], row["reason"]), []).append(row["line"])
    for (file, reason), lines in sorted(groups.items(), key=lambda group: -len(group[1])):
        places = text.shortened(text.ranges(list(dict.fromkeys(lines))), _LINES)
        yield f"{file}: {text.counted(len(lines), 'row')} (line {places}): {reason}"


def _errors_by(known: pd.DataFrame, labels: Sequence[tuple[str, str]], order: Sequence[Any] = ()) -> pd.DataFrame:
    """Return the errors of each label's rows; labels by their rows' `order`, else alphabetically."""
    errors, laws = known["error"].to_numpy(float), known["law_error"].to_numpy(float)
    groups: dict[tuple[str, str], list[int]] = {}
    for place in sorted(range(len(labels)), key=order.__getitem__ if order else labels.__getitem__):
        groups.setdefault(labels[place], []).append(place)
    rows = []
    for (label, gpu), members in groups.items():
        signed, law_mean = errors[members], float(np.abs(laws[members]).mean())
        short = statistics.errors(signed.tolist())
        mean = float(np.abs(signed).mean())
        rows.append(
            (label, gpu, len(members), mean, short.median, short.p95, short.signed_median, short.worst, law_mean)
        )
    return fixed({name: [row[at] for row in rows] for at, name in enumerate(GROUP_ERRORS)}, GROUP_ERRORS)


def _is_shown(name: str, known: pd.DataFrame) -> bool:
    """Return whether a table adds to the one before: families by GPU only where there are several of both."""
    return name != "by_family_and_gpu" or (known["profile"].nunique() > 1 and known["family"].nunique() > 1)


def _headline(joined: pd.DataFrame, predicted: int) -> str:
    found = f"{text.counted(len(joined), 'measured operator')}, {predicted:,} of them predicted."
    if not predicted:
        return found
    return (
        f"{found} An error is predicted / measured - 1: positive is too slow a prediction. mean, median, 95th"
        " (percentile): of the errors' sizes; signed: the median with its sign; worst: with its sign; law: the mean for"
        " the laws alone, without the tables of measured operators that profiles name."
    )


def _shown(name: str, frame: pd.DataFrame) -> RenderableType:
    title, first = _TITLES[name]
    with_gpu = name == "by_family_and_gpu"
    shown = [column for column in GROUP_ERRORS if with_gpu or column != "gpu"]
    columns = [first, *(["GPU"] if with_gpu else []), "rows", "mean", "median", "95th", "signed", "worst", "law"]
    return text.table(title, columns, cells(frame, shown), left=2 if with_gpu else 1)


def _worst(known: pd.DataFrame) -> RenderableType:
    order = np.argsort(-np.abs(known["error"].to_numpy(float)), kind="stable")[:_WORST]
    several = known["file"].nunique() > 1
    rows = []
    for row in records(known.iloc[order]):
        times = [text.duration(1e3 * row[name]) for name in ("measured_us", "predicted_us")]
        line = f"{Path(row['file']).stem}:{row['line']}" if several else str(row["line"])
        rows.append([line, row["family"], _said(row), *times, text.signed_percent(row["error"])])
    return text.table(
        "The worst rows", ["line", "family", "sizes", "measured", "predicted", "error"], rows, left=3, kept=(0, 18, 24)
    )


def _said(row: dict[str, Any]) -> str:
    named = next((row[name] for name in ("desc", "shape") if row.get(name)), None)
    sizes = named or " ".join(f"{name}{row[name]}" for name in _SIZES if row.get(name))
    return f"{row['kind']} {sizes}" if row["family"] == _MIXED and row.get("kind") else str(sizes)
