"""The reports of predictions against published times of collectives, single operators and whole steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.published import errors
from reports.published.outcome import tell_missed, tell_missed_by_count
from reports.published.steps import configurations, name_of, pairs
from reports.sections.model import Block, Column, Columns, Report, ReportSection, ReportTable, Words, table_of
from reports.sections.run.operations import DIFFERS
from reports.terminal import text
from reports.terminal.rows import ratio, records

_WORST = 10
_FORMULA = "formula"
# Columns of sizes of operators, for rows without a text that describes them, and the family that mixes several kinds.
_SIZES = ("T", "E", "D", "B", "L", "M", "N", "K", "H")
_MIXED = "elementwise"
# The title of each table of errors, and of its first column.
_TITLES = {
    "in_all": ("Overall", "of"),
    "by_source": ("By source", "source"),
    "by_operation": ("By operation", "operation"),
    "by_size": ("By size", "size"),
    "by_scale": ("By scale: nodes x GPUs of each", "scale"),
    "by_family": ("By family of operators", "family"),
    "by_gpu": ("By GPU: its profile", "GPU"),
    "by_family_and_gpu": ("By family and GPU", "family"),
    "by_round": ("By round", "round"),
}
_COLUMNS = {"gpu": "GPU", "p95": "95th", "formula_mean": _FORMULA, "law_mean": "law"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedView:
    """Published rows joined with their predictions; `files` and `profile` are the user's arguments.

    `present` maps profiles of NCCL to their `nccl_efficiency`.
    """

    joined: pd.DataFrame
    files: Sequence[Path] = ()
    profile: str | None = None
    present: Mapping[str, float] = field(default_factory=dict)

    @property
    def predicted_rows(self) -> pd.DataFrame:
        """The rows that have a prediction."""
        return errors.predicted_rows(self.joined)

    def worst(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the predicted rows with the greatest errors, each after the place of its line."""
        known = self.predicted_rows
        order = np.argsort(-np.abs(known["error"].to_numpy(float)), kind="stable")[:_WORST]
        several = known["file"].nunique() > 1
        for row in records(known.iloc[order]):
            yield f"{Path(row['file']).stem}:{row['line']}" if several else str(row["line"]), row


# Says what was measured, and how to read the errors.
Head = Callable[[PublishedView], tuple[str, str]]


def _report(
    head: Head,
    tables: Callable[[pd.DataFrame], dict[str, pd.DataFrame]],
    *sections: ReportSection,
    titles: Mapping[str, tuple[str, str]] = _TITLES,
) -> Report:
    """Return the report that begins with errors by groups, in `tables`."""

    def show(view: PublishedView) -> Iterator[Block]:
        (measured, how), count = head(view), len(view.predicted_rows)
        read = f" An error is predicted / measured - 1: positive is too slow a prediction. {how}" if count else ""
        yield Words(f"{measured}, {count:,} of them predicted.{read}")
        for name, frame in tables(view.joined).items() if count else ():
            if name != "by_family_and_gpu" or frame[["group", "gpu"]].nunique().min() > 1:
                yield _errors(*titles[name], frame)

    return Report(
        lines=lambda view: [],
        data=lambda view: {"files": [str(file) for file in view.files], "profile": view.profile},
        sections=[ReportSection("errors", "Errors", [show], data=lambda view: tables(view.joined)), *sections],
    )


def _missing_section(reasons: Callable[[pd.DataFrame], Iterator[str]] = tell_missed) -> ReportSection:
    def show(view: PublishedView) -> Iterator[Words]:
        if said := list(reasons(view.joined)):
            yield Words(
                f"Not predicted: {text.count_words(len(view.joined) - len(view.predicted_rows), 'row')}", strong=True
            )
            yield Words("\n".join(said))

    return ReportSection("missed", "Not predicted", [show], data=lambda view: {"measurements": view.joined})


def _errors(title: str, first: str, frame: pd.DataFrame) -> ReportTable:
    """Return a table of errors; the columns "sizes" and "gpu" are shown only if they differ between rows."""
    if "sizes" in frame:
        frame = frame.assign(group=frame["group"].where((frame["sizes"] == errors.ALL).to_numpy(bool), ""))
    names = [name for name in map(str, frame) if name not in ("sizes", "gpu") or frame[name].nunique() > 1]
    signed = "signed" if "median" in frame else "median"
    columns = {name: {**_COLUMNS, "group": first, "signed_median": signed}.get(name, name) for name in names}
    return table_of(title, frame, columns, left=names.index("rows"))


def _collectives(view: PublishedView) -> tuple[str, str]:
    measured = text.count_words(len(view.joined), "measurement")
    return f"{measured} of {text.count_words(view.joined['source'].nunique(), 'source')}", (
        "median: signed; mean, 95th (percentile): of absolute errors; worst: with its sign; formula: the mean for"
        " NCCL's own formula, of the rows for which it has one."
    )


def _worst_collectives(view: PublishedView) -> Iterator[ReportTable]:
    rows = []
    for place, row in view.worst():
        on, by = f"{row['nodes']}x{row['gpus_per_node']} {row['gpu']}".rstrip(), (row["algorithm"], row["protocol"])
        known = [place, row["op"], on, "/".join(filter(None, by)) or row["library"], text.size(row["size_bytes"])]
        times = [text.duration(1e3 * row[name]) for name in ("time_us", "predicted_us")]
        rows.append([*known, *times, text.signed_percent(row["error"])])
        if abs(row["formula_us"] / row["predicted_us"] - 1) > DIFFERS:  # False for nan
            by_formula = [text.duration(1e3 * row["formula_us"]), text.signed_percent(row["formula_error"])]
            rows.append(["", "", "", _FORMULA, "", "", *by_formula])
    columns = ["line", "operation", "on", "by", "size", "measured", "predicted", "error"]
    title = f"The worst rows ({_FORMULA}: NCCL's own, where it differs by more than 5 %)"
    if rows:
        yield ReportTable(title, columns, rows, left=4)


def _centring(view: PublishedView) -> Iterator[Words]:
    for row in records(errors.center(view.joined, view.present)):
        count = f"the {text.count_words(row['rows'], 'row')} of 16 MiB and more"
        if row["left"] > 0:
            left = text.signed_percent(row["left"])
            said = f"{row['profile']}: no nccl_efficiency would centre {count}: at 1 their median error is still {left}"
        else:
            value, now = f"{row['nccl_efficiency']:.3g}", f"{row['profile']} has {row['present']:.3g}"
            said = f"nccl_efficiency = {value} in a profile of your own would centre {count} ({now})"
        yield Words(said)


def _operators(view: PublishedView) -> tuple[str, str]:
    return text.count_words(len(view.joined), "measured operator"), (
        "mean, median, 95th (percentile): of absolute errors; signed: the median with its sign; worst: with its"
        " sign; law: the mean for the laws alone, without the tables of measured operators that profiles name."
    )


def _worst_operators(view: PublishedView) -> Iterator[ReportTable]:
    rows = []
    for place, row in view.worst():
        times = [text.duration(1e3 * row[name]) for name in ("measured_us", "predicted_us")]
        rows.append([place, row["family"], _sizes_of(row), *times, text.signed_percent(row["error"])])
    columns: Columns = ["line", Column("family", kept=18), Column("sizes", kept=24), "measured", "predicted", "error"]
    if rows:
        yield ReportTable("The worst rows", columns, rows, left=3)


def _sizes_of(row: dict[str, Any]) -> str:
    named = next((row[name] for name in ("desc", "shape") if row.get(name)), None)
    sizes = named or " ".join(f"{name}{row[name]}" for name in _SIZES if row.get(name))
    return f"{row['kind']} {sizes}" if row["family"] == _MIXED and row.get("kind") else str(sizes)


def _steps(view: PublishedView) -> tuple[str, str]:
    right, far = errors.right_order(pairs(configurations(view.joined)))
    order = f" Of {far:,} pairs of configurations more than 10 % apart, {right:,} are in the right order."
    return text.count_words(len(view.joined), "step time"), (
        f"median: signed; mean: of absolute errors; worst: with its sign.{order if far else ''}"
    )


def _configurations(view: PublishedView) -> Iterator[ReportTable]:
    """Yield a table for each model: its configurations, with their times as multiples of the first one's."""
    columns = ["configuration", "rows", "measured", "predicted", "error", "ratio", "predicted"]
    for model, same in configurations(view.joined).groupby("model", sort=False):
        first, rows = same.iloc[0], []
        for row in records(same):
            times = [text.duration(1e6 * row[name]) for name in ("step_ms", "predicted_ms")]
            ratios = [ratio(row[name] / first[name]) for name in ("step_ms", "predicted_ms")]
            rows.append([name_of(row), str(row["rows"]), *times, text.signed_percent(row["error"]), *ratios])
        title = (
            f"{model}: medians of each configuration (nodes x GPUs, profile, batch,"
            " round; ratio: to the first, measured and then predicted)"
        )
        yield ReportTable(title, columns, rows)


def _configuration_data(view: PublishedView) -> dict[str, Any]:
    found = configurations(view.joined)
    return {"configurations": found, "pairs": pairs(found)}


def _centring_data(view: PublishedView) -> dict[str, Any]:
    return {"centred": errors.center(view.joined, view.present)}


COLLECTIVES = _report(
    _collectives,
    errors.collective_errors,
    ReportSection("worst", "The worst rows", [_worst_collectives]),
    _missing_section(),
    ReportSection("centring", "Efficiencies", [_centring], data=_centring_data),
)
OPERATORS = _report(
    _operators,
    errors.operator_errors,
    ReportSection("worst", "The worst rows", [_worst_operators]),
    _missing_section(tell_missed_by_count),
    titles=_TITLES | {"by_size": ("By size: the measured time", "size")},
)
STEPS = _report(
    _steps,
    errors.step_errors,
    ReportSection("configurations", "Configurations", [_configurations], data=_configuration_data),
    _missing_section(),
)
