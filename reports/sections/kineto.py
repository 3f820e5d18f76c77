"""The reports of a profiler's traces: what their kernels took, and what computations took in measured runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from reports.analysis.frames import STEP
from reports.kineto import tables
from reports.kineto.compute_times import Times
from reports.kineto.recording import Profile
from reports.sections.model import Most, Report, ReportSection, ReportTable, table_of
from reports.terminal import text

_KERNELS, _COMPUTATIONS = Most(16, 16), Most(24, 24)
_OF_STEP = {"median_ns": "a step", "calls_per_step": "calls", "share": "share"}
_OF_PHASES = {"forward_ns": "forward", "backward_ns": "backward", "optimizer_ns": "optimizer"}
_OF_PHASES |= {"calls_per_step": "calls", "share": "share"}
_TOP = {"name": "kernel", "kernel": "kind", "total_ns": "total", "median_ns": "median", "calls": "calls"}
_TIMES = {"label": "label", "call": "call in the step", "time_ns": "mean", "spread": "spread", "samples": "samples"}


@dataclass(frozen=True)
class KernelsView:
    """The kernels of traces; `run` is the written run folder, `table` says which operators were written where."""

    profile: Profile
    run: str = ""
    table: Mapping[str, Any] | None = None

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """A row for each kernel inside a step."""
        return tables.kernels(self.profile)

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables by name."""
        return tables.tables(self.profile, self.kernels)


def _lines(view: KernelsView) -> list[str]:
    info, spans = view.profile.recording.info, view.profile.recording.spans
    steps = sorted({span.step for span in spans if span.kind == STEP})
    count, unknown = len(view.kernels), tables.without_operator(view.kernels)["share_of_time"]
    bare, outside = tables.without_annotation(view.kernels)["share_of_time"], len(view.profile.pieces) - count
    lines = [
        f"{info.name}: {text.count_words(info.world_size, 'rank')}, {text.steps(steps)}",
        f"{text.count_words(count, 'kernel')}; of their time {text.percent(unknown)} without operator,"
        f" {text.percent(bare)} without annotation or module",
    ]
    return lines + ([f"{text.count_words(outside, 'kernel')} outside any step, not in these tables"] if outside else [])


def _by(key: str, of: str, columns: Mapping[str, str], unknown: str = "") -> ReportSection:
    """Return the section of times by a key; with a word for `unknown` ones it is there only where some are known."""
    title, name = f"Time by {of} of a rank's step", f"by_{key}"

    def show(view: KernelsView) -> Iterator[ReportTable]:
        frame = view.tables[name]
        if key == "kind":  # the kernel's own kind says more than that of its span
            frame = frame.assign(kind=frame["kernel"].where((frame["kernel"] != "").to_numpy(bool), frame["kind"]))
        if unknown:
            frame = frame.assign(**{key: frame[key].replace({"": f"({unknown})"})})
        if not unknown or (view.tables[name][key] != "").any():
            yield table_of(title, frame, {key: key, **columns}, most=_KERNELS)

    return ReportSection(name, title, [show], data=lambda view: {name: view.tables[name]})


def _top(view: KernelsView) -> Iterator[ReportTable]:
    frame = view.tables["top_kernels"]
    shown = frame.assign(kernel=frame["kernel"].replace({"": "communication"}))
    yield table_of("Top kernels", shown, {**_TOP, "share": "share"}, left=2, most=_KERNELS)


def _data(view: KernelsView) -> dict[str, Any]:
    return {
        "run": view.run,
        "notes": list(view.profile.notes),
        "annotation": tables.without_annotation(view.kernels),
        "attribution": tables.without_operator(view.kernels),
        **({} if view.table is None else {"table": view.table}),
    }


KERNELS = Report(
    lines=_lines,
    data=_data,
    sections=[
        _by("kind", "kind, the median", _OF_STEP),
        _by("label", "label, the median", _OF_STEP),
        _by("operator", "operator, the mean", _OF_PHASES, "no operator"),
        _by("module", "annotation and module, the mean", _OF_PHASES, "no annotation or module"),
        ReportSection("top", "Top kernels", [_top], data=lambda view: {"top_kernels": view.tables["top_kernels"]}),
    ],
)


def _longest(times: Times) -> Iterator[ReportTable]:
    longest = times.rows.sort_values(["time_us", "label", "call"], ascending=[False, True, True])
    shown = longest.assign(time_ns=1000 * longest["time_us"])
    yield table_of(times.about, shown, _TIMES, most=_COMPUTATIONS, others="shorter ones")


COMPUTATIONS = Report(lines=lambda times: [], sections=[ReportSection("times", "Times of computations", [_longest])])
