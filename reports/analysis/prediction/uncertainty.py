"""States how far off a prediction's step time may be, where steps like it were published or its machine calibrated."""

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
# Fewer configurations like a run's say nothing of how far errors spread.
_LEAST_CONFIGURATIONS = 2
# Ten plain training scripts on one H200, 2026-11-26 (docs/accuracy.md).
_EAGER = "ten eager steps on one H200, to which the host's times are fitted, are 5 % off in the mean, 11 % at most"
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
    """Return the error by published steps of this run's kind, else by a calibration's residuals, else why it is not
    known.

    Residuals are of kernels and links: they say nothing of an eager step on GPUs, whose host may be the slower one.
    """
    kind, published = _kind_of(run), known.get("published") or {}
    alike = [one for one in published.get("configurations") or () if kind == {name: one.get(name) for name in kind}]
    errors = [float(one["error"]) for one in alike if not one.get("fitted")]
    is_eager_gpu = on_gpus(run) and kind["launching"] == "eager"
    typical = {} if is_eager_gpu else known.get("typical_errors") or {}
    if known.get("sets_figures") and (alike or typical):
        return _not_known("the scenario sets figures of its hardware itself")
    if len(errors) >= _LEAST_CONFIGURATIONS:
        words = f"mean error on {len(errors)} published configurations of {published['of']} with this program,"
        words += f" launching and scale, worst {text.signed_percent(max(errors, key=abs))}"
        return Contribution(share=float(np.mean(np.abs(errors))), words=words)
    if typical:
        return _of_residuals(run, typical)
    if errors:
        why = f"a single published step resembles this one, predicted {text.signed_percent(errors[0])} off"
    elif alike:
        why = "the one published step that resembles this one is that to which the profile was fitted"
    elif on_gpus(run):
        why = f"no published step resembles this one{f'; {_EAGER}' if is_eager_gpu else ''}"
    else:
        why = "neither calibrated nor held against published steps"
    return _not_known(why)


def _not_known(why: str) -> Contribution:
    return Contribution(share=math.nan, words=f"not known: {why}")


def _kind_of(run: Run) -> dict[str, Any]:
    """Return what published steps must share with a run to say something of it, as a profile's [published] names it."""
    scenario = run.info.scenario
    cluster, launching = scenario.get("cluster") or {}, scenario.get("launching") or {}
    return {
        "program": scenario.get("program"),
        "launching": "cuda_graphs" if launching.get("cuda_graphs") else "eager",
        "hosts": cluster.get("hosts"),
        "gpus_per_host": (cluster.get("host") or {}).get("gpus"),
    }


def on_gpus(run: Run) -> bool:
    """Return whether a run's ranks compute on GPUs; a run's scenario may be damaged."""
    found: Any = run.info.scenario
    for key in ("cluster", "host", "gpu", "kind"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found not in (None, "cpu")


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
