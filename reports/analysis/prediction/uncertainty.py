"""How far off a prediction's step time may be, by what its run says is known: of its hardware, and of its own steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.analysis import critical_path, statistics
from reports.analysis.by_what import HOST
from reports.analysis.frames import COMPUTE
from reports.analysis.step_breakdown import steady_steps, typical_step
from reports.run import Run
from reports.terminal import text

_KERNELS = " kernels"  # how the names of a calibration's groups of kernels end
# A smaller share of the critical path may be of what no probe has measured.
_UNPROBED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One reason why a prediction may be off, and by which share of the step; nan: nobody knows."""

    share: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """To either side of a step's time, as a share of it: independent contributions, in quadrature.

    nan where one of them is not known.
    """

    contributions: tuple[Contribution, ...]

    @property
    def share(self) -> float:
        """All contributions together."""
        return math.sqrt(sum(one.share**2 for one in self.contributions))


def uncertainty(run: Run) -> Uncertainty | None:
    """That of a prediction; None of a measurement, without steps, and of a release that kept nothing of it."""
    known, steps_ns = run.info.scenario.get("known_errors"), steady_steps(run.steps)["step_ns"].to_numpy(float)
    if run.info.world != "sim" or not isinstance(known, Mapping) or not len(steps_ns):
        return None
    return Uncertainty(contributions=(_of_hardware(run, known), *_of_steps(steps_ns.tolist())))


def _of_hardware(run: Run, known: Mapping[str, Any]) -> Contribution:
    """By published steps, else by a calibration's residuals."""
    published, typical = known.get("published"), known.get("typical_errors") or {}
    if known.get("sets_figures"):
        return Contribution(share=math.nan, words="not known: the scenario sets figures of its hardware itself")
    if published:
        words = (
            f"mean error on {text.counted(published['steps'], 'published step')} of {published['of']} on this profile"
        )
        words += f", worst {text.signed_percent(published['worst_error'])}"
        words += "" if run.info.scenario.get("program") == "dlrm" else ", which is not this program"
        return Contribution(share=published["mean_error"], words=words)
    if typical:
        return _of_residuals(run, typical)
    return Contribution(share=math.nan, words="not known: neither calibrated nor held against published steps")


def _of_residuals(run: Run, typical: Mapping[str, float]) -> Contribution:
    """Each group's typical error, weighed by its share of the critical path, as if all of a group erred alike."""
    step = typical_step(run)
    if step is None:
        words = "largest typical error of the calibration's groups, as no spans are left to weigh them by"
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
        words = f"not known: the calibration has no probes of what takes {text.percent(unprobed)} of the step"
        return Contribution(share=math.nan, words=words)
    errors = [share * typical[group] for group, share in by_group.items()]
    words = "the calibration's residuals, each by its share of the critical path"
    return Contribution(share=float(np.sqrt(np.sum(np.square(errors)))), words=words)


def _group_of(row: Mapping[Any, Any], typical: Mapping[str, float]) -> str | None:
    """The calibration's group of an operation: a kernel's by its dtype or kind, else the worst of communication."""
    if row["part"] == COMPUTE:
        names = (f"{row['kernel']} {row['dtype']}{_KERNELS}", f"{row['kernel']}{_KERNELS}")
        return next((name for name in names if name in typical), None)
    others = [name for name in typical if not name.endswith(_KERNELS)]
    return max(others, key=lambda name: typical[name], default=None)


def _of_steps(steps_ns: list[float]) -> list[Contribution]:
    """How surely the steps of this run know their median; a single one says nothing of that."""
    if len(steps_ns) < 2:
        return []
    sample = statistics.sample(steps_ns)
    if not math.isnan(sample.uncertainty):
        return [Contribution(share=sample.uncertainty, words=f"95 % interval of the median of {sample.count} steps")]
    half = (max(steps_ns) - min(steps_ns)) / 2 / sample.median if sample.median else 0.0
    return [Contribution(share=half, words=f"half the range of {sample.count} steps")]
