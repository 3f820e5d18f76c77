"""Estimate the error range of a predicted step time, from published steps that resemble it or from a calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reports.analysis import critical_path, statistics
from reports.analysis.by_role import HOST
from reports.analysis.frames import COMPUTE
from reports.analysis.prediction.measured_steps import (
    BETWEEN,
    HOSTS,
    LAWS,
    MEASURED,
    RECURRENCES,
    ROOFLINES,
    TABLES,
    WITHIN,
    MeasuredStep,
    grounds,
    measured_steps,
)
from reports.analysis.step_breakdown import steady_steps, typical_step
from reports.run import Run
from reports.terminal import text

_KERNELS = " kernels"  # suffix of the names of a calibration's groups of kernels
_EAGER_HOST = "host of eager programs"  # the group of a calibrated GPU's host, which is no kernel and no link
# Fewer similar steps do not show how far errors spread.
_LEAST_STEPS = 2
# Root mean squares of relative errors by how a share of a step is priced (docs/accuracy/index.md has their sources).
ERRORS = {
    **{MEASURED: 0.02, TABLES: 0.05, LAWS: 0.075, ROOFLINES: 0.10, RECURRENCES: 0.25},
    **{HOSTS: 0.15, WITHIN: 0.10, BETWEEN: 0.10},
}
# A further error that no price accounts for: software of another age, overlaps, memory's allocator, clocks.
_NOT_MODELLED = 0.05
# A further error on GPUs without a measured step: MLPerf's steps on such GPUs were predicted 12 to 17 % too fast.
_OTHER_GPU = 0.12
# Half width of the interval that holds nine of ten errors of a normal distribution, in root mean squares.
WIDTH = 1.645
# The share of similar measured steps that a prediction's range must hold.
_INSIDE = 0.8
_WORDS = {
    MEASURED: "kernels measured one by one",
    TABLES: "kernels priced by a measured table",
    LAWS: "kernels priced by a law",
    ROOFLINES: "kernels priced by a roofline",
    RECURRENCES: "recurrent layers' steps",
    HOSTS: "the host's work",
    WITHIN: "transfers within a host",
    BETWEEN: "transfers between hosts",
}
# The share of a step from which kernels measured one by one on its GPU are better evidence than other steps.
_BY_MEASURED = 0.5
# The largest share of the critical path that may lack a probe of the calibration.
_UNPROBED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A reason why a prediction may be off, and the resulting error as a share of the step; nan: unknown."""

    share: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """A half width of a step time's error range, as a share of it: independent contributions added in quadrature.

    The share is nan if a contribution is unknown. `grounds` are the shares of a step on GPUs by how they were priced.
    """

    contributions: tuple[Contribution, ...]
    grounds: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The half width of all contributions together, as a share of the step time."""
        return math.sqrt(sum(one.share**2 for one in self.contributions))


def uncertainty(run: Run) -> Uncertainty | None:
    """Return the uncertainty of a prediction; None for measurements, runs without steps, and runs of old releases."""
    known, steps_ns = run.info.scenario.get("known_errors"), steady_steps(run.steps)["step_ns"].to_numpy(float)
    if run.info.world != "sim" or not isinstance(known, Mapping) or not len(steps_ns):
        return None
    by = grounds(run) or {} if on_gpus(run) else {}
    return Uncertainty(contributions=(_of_hardware(run, known, by), *_of_steps(steps_ns.tolist())), grounds=by)


def _of_hardware(run: Run, known: Mapping[str, Any], by: Mapping[str, float]) -> Contribution:
    """Return the error by similar measured steps, else by a calibration's residuals, else the reason why it is unknown.

    Residuals cover kernels and links only, not an eager step on GPUs, whose host may be the slower part.
    """
    is_eager = on_gpus(run) and not (run.info.scenario.get("launching") or {}).get("cuda_graphs")
    residuals = {} if is_eager else known.get("typical_errors") or {}
    typical = {name: error for name, error in residuals.items() if name != _EAGER_HOST}
    # Prices of transfers hold for links of any rate; those of kernels and of the host with the profile's figures only.
    if known.get("sets_figures") and (typical or (by and known.get("sets_prices", True))):
        return _not_known("the scenario sets its own hardware figures")
    if typical:
        return _of_residuals(run, typical)
    if by:
        return _of_grounds(by, str(_of_gpu(run, "name")))
    if on_gpus(run):
        return _not_known("the run kept no spans or no kernels that show how its time was priced")
    return _not_known("the hardware is neither calibrated nor compared with measured steps")


def half_width(by: Mapping[str, float], gpu: str, steps: Sequence[MeasuredStep]) -> float:
    """Return the expected error (plus or minus) of a predicted step on that GPU, as a share of the step.

    The errors of several kinds of price ("grounds") are independent, those of one kind are equal. The result is at
    least the error that four of five similar measured steps had.

    Args:
        by: shares of the step by each of `GROUNDS`.
        gpu: the GPU's name; a GPU without a measured step has a further error.
        steps: measured steps, of which the similar ones are used.
    """
    width = _in_quadrature(by, *([] if gpu in {one.gpu for one in steps} else [_OTHER_GPU]))
    needed = [one.away for one in steps if one.is_like(by)]
    return max(width, float(np.quantile(needed, _INSIDE))) if needed else width


def _in_quadrature(by: Mapping[str, float], *more: float) -> float:
    """Return half the range from the prices' errors, the error that is not modelled, and `more` errors."""
    parts = [share * ERRORS[ground] for ground, share in by.items()]
    return WIDTH * math.sqrt(sum(part**2 for part in [*parts, *more, _NOT_MODELLED]))


def _of_grounds(by: Mapping[str, float], gpu: str) -> Contribution:
    """Return the range by how a step is priced, if at least `_LEAST_STEPS` similar steps were measured."""
    if by[MEASURED] >= _BY_MEASURED:
        words = f"because {text.percent(by[MEASURED])} of the step is {_WORDS[MEASURED]}"
        return Contribution(share=_in_quadrature(by), words=words)
    # counted as priced by laws, which are at least as uncertain
    by = {**by, MEASURED: 0.0, LAWS: by[LAWS] + by[MEASURED]}
    steps = measured_steps()
    alike = [one for one in steps if one.is_like(by)]
    most = max(by, key=lambda ground: by[ground])
    what = f"{text.percent(by[most])} of"
    if len(alike) < _LEAST_STEPS:
        which = "no measured step resembles" if not alike else f"only one measured step ({_of_one(alike[0])}) resembles"
        return _not_known(f"{which} this one, {what} which is {_WORDS[most]}")
    mean = text.percent(float(np.mean([abs(one.error) for one in alike])))
    worst = _of_one(max(alike, key=lambda one: abs(one.error)))
    words = (
        f"because {what} the step is {_WORDS[most]}; predictions of {len(alike)} similar measured steps were {mean} off"
    )
    return Contribution(share=half_width(by, gpu, steps), words=f"{words} on average, worst {worst}")


def _of_one(step: MeasuredStep) -> str:
    return f"{step.step} on {step.gpu}: {text.signed_percent(step.error)}"


def _not_known(why: str) -> Contribution:
    return Contribution(share=math.nan, words=f"unknown: {why}")


def on_gpus(run: Run) -> bool:
    """Return whether a run's ranks compute on GPUs; a run's scenario may be damaged."""
    return _of_gpu(run, "kind") not in (None, "cpu")


def _of_gpu(run: Run, key: str) -> Any:
    """Return a value of a run's GPU from its scenario; None if absent."""
    found: Any = run.info.scenario
    for name in ("cluster", "host", "gpu", key):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _of_residuals(run: Run, typical: Mapping[str, float]) -> Contribution:
    """Return the groups' typical errors, weighed by their shares of the critical path; a group errs as a whole."""
    step = typical_step(run)
    if step is None:
        words = "from the largest typical error of the calibration's groups, as no spans are left to weigh them by"
        return Contribution(share=max(typical.values()), words=words)
    by_group: dict[str, float] = {}
    unprobed = 0.0
    for row in critical_path.dominant(run.critical_path_of(step)).to_dict("records"):
        if row["part"] == HOST:
            continue
        group = _group_of(row, typical)
        if group is None:
            unprobed += row["share"]
        else:
            by_group[group] = by_group.get(group, 0.0) + row["share"]
    if unprobed > _UNPROBED:
        words = f"unknown: the calibration has no probes of operations that take {text.percent(unprobed)} of the step"
        return Contribution(share=math.nan, words=words)
    errors = [share * typical[group] for group, share in by_group.items()]
    words = "from the calibration's residuals, weighed by their shares of the critical path"
    return Contribution(share=float(np.sqrt(np.sum(np.square(errors)))), words=words)


def _group_of(row: Mapping[Any, Any], typical: Mapping[str, float]) -> str | None:
    """Return the calibration's group of an operation: by a kernel's dtype or kind, else the worst of communication."""
    if row["part"] == COMPUTE:
        names = (f"{row['kernel']} {row['dtype']}{_KERNELS}", f"{row['kernel']}{_KERNELS}")
        return next((name for name in names if name in typical), None)
    others = [name for name in typical if not name.endswith(_KERNELS)]
    return max(others, key=lambda name: typical[name], default=None)


def _of_steps(steps_ns: list[float]) -> list[Contribution]:
    """Return the uncertainty of the median over this run's steps; nothing for a single step."""
    if len(steps_ns) < 2:
        return []
    sample = statistics.sample(steps_ns)
    if not math.isnan(sample.uncertainty):
        return [
            Contribution(
                share=sample.uncertainty, words=f"from the 95 % interval of the median of {sample.count} steps"
            )
        ]
    half = (max(steps_ns) - min(steps_ns)) / 2 / sample.median if sample.median else 0.0
    return [Contribution(share=half, words=f"from half the range of {sample.count} steps")]
