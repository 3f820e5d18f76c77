"""Times of computations in measured runs, which a prediction can use in place of its rooflines.

A computation is identified by its label and its count among the calls of that label by its rank on that stream in the
step; `scenarios.config.compute_times` reads the file and defines how a prediction finds its times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.analysis.frames import COMPUTE, ints
from reports.analysis.intervals import union
from reports.errors import ReportError
from reports.kineto.recording import PLAYED_ON
from reports.run import Run
from reports.store.columns import frame_of_columns
from reports.terminal import text

# Columns of the rows of `measure`, one row per label and call, in the order in which a step begins them.
TIMES = {"label": "str", "call": "int", "time_us": "float", "spread": "float", "samples": "int"}
OPERATORS = {"operations": "str", "time_us": "float", "calls": "int"}
_CALL = ["label", "call"]
_ONE = ["rank", "step", *_CALL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A frame of `TIMES` with its origin: `about` is its summary, `notes` state what was left out or is unusual.

    `time_us` is a call's mean over ranks, steps and runs, `spread` the distance from the 10th to the 90th percentile as
    a share of the median (nan where that is 0), `samples` the number of calls. `operators` is a frame of `OPERATORS`:
    the mean of `calls` calls of each described operator that was a computation by itself. `others_us` is the time of
    all other computations, by label. `devices` are the devices that computed, `date` the start of the latest run.
    """

    rows: pd.DataFrame
    operators: pd.DataFrame
    others_us: Mapping[str, float]
    devices: tuple[str, ...]
    date: str
    about: str
    notes: tuple[str, ...]


def measure(runs: Sequence[tuple[str, Run]], skip: int | None = None, *, any_runs: bool = False) -> Times:
    """Return the times of all computations inside steps.

    Args:
        runs: pairs of the run's name in sentences, and the run.
        skip: the number of first steps to leave out of each run, as warm-up; by default those that the run's frames
            mark, and at least 1 where there are several.
        any_runs: allow predictions, and runs of different scenarios.

    Raises:
        ReportError: a run is a prediction, or of another scenario than the first, which `any_runs` allows; or none of
            its steps or computations remain.
    """
    notes = [note for name, run in runs for note in _notes_of_run(name, run, any_runs=any_runs)]
    notes += _notes_of_scenarios(runs, any_runs=any_runs)
    each, steps = [], 0
    for name, run in runs:
        kept = _steps(name, run, skip, notes)
        steps += len(kept)
        each.append(_calls(name, run, kept, notes))
    calls = pd.concat(each, ignore_index=True)
    rows = _rows(calls)
    labels = text.count_words(rows["label"].nunique(), "label")
    about = f"{text.count_words(len(rows), 'computation')} of {labels} in {text.count_words(steps, 'step')}"
    is_alone = (calls["operations"] != "").to_numpy(bool)
    others = calls[~is_alone]
    return Times(
        rows=rows,
        operators=_operators(calls[is_alone]),
        others_us={str(label): float(_us(own).sum()) for label, own in others.groupby("label")},
        devices=tuple(dict.fromkeys(device for _, run in runs for device in run.info.devices)),
        date=max(run.info.started for _, run in runs),
        about=about,
        notes=tuple(notes),
    )


def _notes_of_run(name: str, run: Run, *, any_runs: bool) -> list[str]:
    notes = []
    if run.info.world == "sim":
        if not any_runs:
            said = "is a prediction, whose times are the model's"
            raise ReportError(f"{name}: {said}; expected a measured run, or --any")
        notes.append(f"{name}: is a prediction: these times are the model's, not measured")
    if not run.info.complete:
        notes.append(f"{name}: ended early: {run.info.error or 'for an unknown reason'}")
    return notes


def _notes_of_scenarios(runs: Sequence[tuple[str, Run]], *, any_runs: bool) -> list[str]:
    first, one = runs[0]
    others = [name for name, run in runs if run.info.digest != one.info.digest]
    if others and not any_runs:
        raise ReportError(
            f"{others[0]}: of another scenario than {first}; expected one file of times for each, or --any"
        )
    return [f"{name}: of another scenario than {first}" for name in others]


def _steps(name: str, run: Run, skip: int | None, notes: list[str]) -> list[int]:
    """Return the numbers of the steps that count."""
    steps: list[int] = ints(run.steps, "step").tolist()
    warm_up = sum(step <= max(run.warm_up) for step in steps) if run.warm_up else 0
    left_out = max(min(1, len(steps) - 1), warm_up) if skip is None else skip
    if left_out >= len(steps):
        known = text.count_words(len(steps), "step")
        raise ReportError(f"{name}: has {known}; expected more than the {left_out} that --skip leaves out")
    if left_out:
        notes.append(f"{name}: {text.steps(steps[:left_out])} left out to warm up (--skip {left_out})")
    return steps[left_out:]


def _calls(name: str, run: Run, steps: Sequence[int], notes: list[str]) -> pd.DataFrame:
    """Return one row per computation of the steps: `label`, `call`, `time_ns`, `at_ns`, `rank_count`, `operations`.

    `at_ns` is measured from the start of the rank's first computation in the step.
    """
    computations = run.spans[((run.spans["kind"] == COMPUTE) & run.spans["step"].isin(steps)).to_numpy(bool)]
    calls = _calls_of_trace if run.info.played_on == PLAYED_ON else _calls_of_run
    found = calls(name, computations, notes)
    if found.empty:
        raise ReportError(f"{name}: no computation with a label in {text.steps(steps)}; expected at least one")
    first = found.groupby(["rank", "step"])["start_ns"].transform("min")
    return found.assign(at_ns=found["start_ns"] - first)


def _calls_of_run(name: str, spans: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Return the calls of a run of ours, in which each span is one computation."""
    spans = spans.sort_values(["rank", "stream", "sequence"])
    call = spans.groupby(["rank", "stream", "step", "label"]).cumcount() + 1
    spans = spans.assign(call=call, time_ns=spans["end_ns"] - spans["start_ns"])
    idle = (spans[["flops", "bytes_read", "bytes_written"]] == 0).all(axis=1).to_numpy(bool)
    if idle.any():
        count = int(spans.loc[idle, "rank_count"].sum())
        notes.append(f"{name}: {text.count_words(count, 'computation')} left out that had nothing to do")
    return spans[~idle]


def _calls_of_trace(name: str, spans: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Return a trace's calls: the time in which any kernel launched in one opening of its label ran."""
    known = (spans["call"] >= 0).to_numpy(bool)
    took = (spans["end_ns"] - spans["start_ns"]).to_numpy(float)
    if not known.all():
        share = text.percent(float(took[~known].sum() / max(took.sum(), 1)))
        kernels = text.count_words(int((~known).sum()), "kernel")
        notes.append(
            f"{name}: {kernels} left out that no annotation or operator was around, {share} of all kernels' time"
        )
    rows = [(*key, int(own["start_ns"].min()), _busy_ns(own)) for key, own in spans[known].groupby(_ONE, sort=True)]
    found = pd.DataFrame(rows, columns=[*_ONE, "start_ns", "time_ns"])
    return found.assign(call=found["call"] + 1, rank_count=1, operations="")


def _busy_ns(spans: pd.DataFrame) -> int:
    busy = union(ints(spans, "start_ns"), ints(spans, "end_ns"))
    return int((busy.ends - busy.starts).sum())


def _rows(calls: pd.DataFrame) -> pd.DataFrame:
    """Return one row per label and call; a representative rank is weighted by `rank_count`."""
    weight = calls["rank_count"]
    calls = calls.assign(weighed_time_ns=calls["time_ns"] * weight, weighed_at_ns=calls["at_ns"] * weight)
    grouped = calls.groupby(_CALL, sort=True)
    samples = [statistics.sample(np.repeat(own["time_ns"], own["rank_count"]).tolist()) for _, own in grouped]
    names = grouped.size().reset_index()[_CALL]
    sums = grouped[["weighed_time_ns", "weighed_at_ns", "rank_count"]].sum()
    rows = {
        **{key: names[key] for key in _CALL},
        "time_us": np.round((sums["weighed_time_ns"] / sums["rank_count"]).to_numpy()) / 1000,
        "spread": [round(one.spread, 3) for one in samples],
        "samples": [one.count for one in samples],
    }
    begin = (sums["weighed_at_ns"] / sums["rank_count"]).to_numpy()
    return frame_of_columns(rows, TIMES).iloc[np.argsort(begin, kind="stable")].reset_index(drop=True)


def _us(calls: pd.DataFrame) -> pd.Series:
    return calls["time_ns"] * calls["rank_count"] / 1000


def _operators(calls: pd.DataFrame) -> pd.DataFrame:
    """Return one row per operator, in the order of their descriptions."""
    sums = calls.assign(time_us=_us(calls)).groupby("operations", sort=True)[["time_us", "rank_count"]].sum()
    time_us = (sums["time_us"] / sums["rank_count"]).to_numpy()
    return frame_of_columns(
        {"operations": sums.index, "time_us": time_us, "calls": sums["rank_count"].to_numpy()}, OPERATORS
    )
