"""Predict a distributed recommender training step, run the same program on real ranks, and compare the two.

    import twinstep
    run = twinstep.predict("criteo_small_2x2", batch_size=4096)

A scenario is the path of a file, the name of a ready scenario, a `Scenario`, or the path of a training script
(twinstep docs scripts). Overrides set keys of its table [run] (steps, seed, batch_size, payload, fidelity, ranks,
library, timeout, compute_times), or any key by its path: `predict(path, **{"cluster.hosts": 8})`. `import twinstep` is
quick: the first call that needs torch or pandas loads them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinstep.own_rooms import claim

claim()  # before anything of Twinstep is imported by its name

from reports.errors import ReportError
from scenarios.seam.errors import ProgramError, ScenarioError
from twinstep.signatures import with_overrides

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from reports.job.folder import JobRun
    from reports.run import Run
    from reports.sections.comparison import Comparison
    from reports.sections.plans import PlansView
    from reports.side_by_side.frames import SideBySide
    from scenarios.config.scenario import Scenario

    __version__: str
    Given = Scenario | str | os.PathLike[str]

__all__ = [
    "ProgramError",
    "ReportError",
    "ScenarioError",
    "__version__",
    "compare",
    "curves",
    "front",
    "job",
    "load",
    "measure",
    "plan",
    "predict",
    "profiles",
    "report",
    "scenario",
    "scenarios",
    "search",
    "step",
    "study",
    "sweep",
    "what_if",
]


@with_overrides
def predict(path_or_scenario: Given, **overrides: Any) -> Run:
    """Predict a scenario's steps with the simulator, as `twinstep predict` does; the run is in memory only.

    Raises:
        ScenarioError: mistakes in the scenario or the overrides, one sentence each.
        ProgramError: ranks whose calls do not match; a script that makes no steps.
    """
    made = _scenario(path_or_scenario, overrides)
    from reports.run import Run
    from sim.run import simulate
    from twinstep.plan_choice import build_planned

    return Run.of(simulate(*build_planned(made)))


@with_overrides
def measure(path_or_scenario: Given, **overrides: Any) -> Run:
    """Run a scenario on processes of this machine, one per rank, as `twinstep run` does; the run is in memory only.

    Raises:
        ScenarioError: mistakes in the scenario or the overrides, one sentence each.
        ProgramError: the run ended early, such as by a lost rank; or this process is a rank of torchrun or srun.
    """
    from twinstep.measurement import measured_run

    return measured_run(_scenario(path_or_scenario, overrides))


def load(folder: str | os.PathLike[str]) -> Run:
    """Open a run folder of `twinstep predict`, `run` or `report kineto`; the folder must stay.

    Raises:
        ReportError: it is missing, damaged, or written by a newer release.
    """
    from reports.store import run_folder

    return run_folder.load(os.fspath(folder))


def compare(first: Run, second: Run) -> Comparison | SideBySide:
    """Compare two runs. Print the result to see its tables; its frames are attributes.

    A predicted and a measured run of one scenario, in either order, give the `Comparison` of `twinstep compare`:
    signed errors by operation, step and size. Two predicted or two measured runs, also of different scenarios, give
    the `SideBySide` of `twinstep report RUN RUN`: differences relative to the first run.

    Raises:
        ReportError: the predicted and the measured run are of different scenarios.
    """
    if first.info.world != second.info.world:
        from reports.compare.comparison import compare as comparison_of

        return comparison_of(first, second)
    from reports.sections.side_by_side import printed_pair

    return printed_pair(first, second)


@with_overrides
def plan(
    path: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    seconds: float = 60.0,
    **overrides: Any,
) -> PlansView:
    """Find the fastest plan of a scenario's tables by simulation, as `twinstep plan` does (twinstep docs planner).

    Print the result to see the verdict and its tables. `best.run` is the prediction with the best plan, `best_json`
    that plan as TorchRec's JSON; `plans` has all compared plans, and `moves` the tables that the best plan moves.

    Args:
        path: the scenario's file, the name of a ready one, or a script of TorchRec.
        against: your plan: JSON as sharding.plan takes it; by default the scenario's or the script's own.
        out: a new file for the best plan.
        seconds: the time for all simulations; the best plan found by then is taken.
        overrides: values in place of the scenario's, and for a script the arguments of `scenario`.

    Raises:
        ScenarioError: mistakes in the scenario or the overrides; its program has no tables to place.
        ProgramError: a script fails.
        ReportError: `out` exists already, or the disk refuses.
    """
    from reports.store import replace
    from scenarios.progress_line import ProgressLine
    from scenarios.workloads.script.command import load_named
    from twinstep.plan_choice.cli import PlanRequest

    file = Path("plan.json") if out is None else Path(out)
    if out is not None:
        replace.check_free(file)
    request = PlanRequest(Path(path), overrides, load_named(path, overrides), against)
    found = request.compare(seconds, ProgressLine(quiet=True), file)
    if out is not None:
        replace.write_text(found.best_json, file)
    return found


@with_overrides
def what_if(path: str | os.PathLike[str], *, replan: bool = False, seconds: float = 120.0, **overrides: Any) -> Run:
    """Predict a scenario with one change at a time, as `twinstep predict --what-if` does (twinstep docs studies).

    The result is the unchanged prediction, in memory. Its frame `what_if` has each change's step and speed.

    Args:
        path: the scenario's file, the name of a ready one, or a training script, which also takes `hosts` and
            `gpus_per_host`.
        replan: whether tables are planned anew for each change, instead of keeping their plan.
        seconds: the time for all changes, the quickest to simulate first; changes not reached have status "not tried".
        overrides: values in place of the scenario's.

    Raises:
        ScenarioError: mistakes in the scenario or the overrides, one sentence each.
        ProgramError: ranks whose calls do not match.
    """
    from twinstep.prediction import changed_run

    return changed_run(path, overrides, replan=replan, seconds=seconds)


@with_overrides
def job(
    path: str | os.PathLike[str],
    *,
    samples: float | None = None,
    days: float | None = None,
    budget_usd: float | None = None,
    **overrides: Any,
) -> JobRun:
    """Predict a training job of days with checkpoints and failures, as `twinstep predict --days` (twinstep docs jobs).

    Print the result to see the job's first screen; `goodput`, `lost` and `head` have its numbers.

    Args:
        path: the scenario's file, or the name of a ready one.
        samples: samples to train on; one of this, `days` and `budget_usd`, instead of the goal in [job].
        days: days of the job.
        budget_usd: the price of all GPU hours in dollars.
        overrides: values in place of the scenario's.

    Raises:
        ScenarioError: mistakes in the scenario or the overrides, or there is no goal.
        ProgramError: ranks whose calls do not match.
    """
    from twinstep.jobs.job_prediction import job_of_scenario

    goal = {"samples": samples, "days": days, "budget_usd": budget_usd}
    return job_of_scenario(lambda values: scenario(path, **overrides, **values), **goal)


def report(run: Run | str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the page and the tables of a run, or of a run folder, and return the page's path.

    The files go to `out`, by default runs/NAME-report for a run in memory and reports/ in a run folder. They replace an
    earlier report there.

    Raises:
        ReportError: the disk refuses, or there is no such run folder.
    """
    from reports import report as reporting
    from reports.store.run_folder import folder_name

    if isinstance(run, str | os.PathLike):
        folder = reporting.folder_of(Path(run)) if out is None else Path(out)
        return reporting.write(load(run), folder)
    return reporting.write(run, Path("runs", f"{folder_name(run.info.name)}-report") if out is None else Path(out))


def scenarios() -> pd.DataFrame:
    """Return the ready scenarios by name: program, cluster, description and file, as `twinstep list` prints them."""
    from twinstep.catalogue import scenarios_frame

    return scenarios_frame()


def profiles() -> pd.DataFrame:
    """Return the ready hardware profiles by name, with a host's GPUs and links; rates in B/s, memory in bytes."""
    from twinstep.catalogue import profiles_frame

    return profiles_frame()


def step() -> None:
    """Mark the end of a training step in a script that `twinstep predict` or `run` runs; do nothing elsewhere.

    A script that imports twinstep marks its steps by this call alone, unless `--step-every` is given. Every rank calls
    it at the end of each of its steps; work before the first call and after the last one belongs to no step.
    """
    marks = sys.modules.get("scenarios.workloads.script.process.marks")
    if marks is not None:
        marks.step()


def sweep(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    scheduler: str = "",
    again: bool = False,
) -> pd.DataFrame:
    """Simulate the points of a study that have no result yet, as `twinstep sweep` does (twinstep docs studies).

    A script that calls this function needs `if __name__ == "__main__":`, because its worker processes load the script,
    too. The returned frame is that of `study`.

    Args:
        path: the study file.
        out: the study's folder, by default runs/NAME-study.
        jobs: the number of worker processes, by default one per core.
        scheduler: the address of a Dask scheduler, whose workers are used instead.
        again: simulate points again that ended by chance, such as by a timeout.

    Raises:
        ScenarioError: mistakes in the study or its scenario, or there is no such scheduler.
        ReportError: the folder is something else, or the disk refuses.
    """
    from twinstep.studies.cli import sweep_study

    return study(sweep_study(path, out, jobs=jobs, scheduler=scheduler, again=again))


def search(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    trials: int | None = None,
    jobs: int | None = None,
    scheduler: str = "",
    again: bool = False,
) -> pd.DataFrame:
    """Search a study's space for its best points, as `twinstep search` does; return the points tried.

    `trials` replaces the study's number of trials; other arguments and errors are those of `sweep`.
    """
    from twinstep.studies.cli import sweep_study

    return study(sweep_study(path, out, jobs=jobs, scheduler=scheduler, again=again, search=True, trials=trials))


def front(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the Pareto front of a study's points by its goals, sorted by the first goal; for one goal the best point.

    Points that violate the study's constraints are not on the front.

    Raises:
        ReportError: the folder is not a study's, or damaged.
    """
    from reports.study.frame import front_of, study_frame
    from reports.study.rows import about_of

    return front_of(study_frame(Path(folder)), about_of(Path(folder)))


def study(folder: str | os.PathLike[str], *, stages: bool = False) -> pd.DataFrame:
    """Return a study's points, one row each, also while it is running; with `stages` a row for each stage of a point.

    Raises:
        ReportError: the folder is not a study's, or damaged.
    """
    from reports.study.frame import study_frame

    return study_frame(Path(folder), stages=stages)


@with_overrides
def curves(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    only: Sequence[str] = ("scaling", "sensitivity", "overlap"),
    **overrides: Any,
) -> dict[str, pd.DataFrame]:
    """Simulate how a scenario scales and on what its step depends, as `twinstep curves` does (twinstep docs studies).

    Args:
        path: the scenario.
        out: the curves' folder, by default runs/NAME-curves.
        jobs: the number of worker processes, as in `sweep`.
        only: the curves to simulate.
        overrides: values in place of the scenario's.

    Returns:
        A frame for each curve in the folder, and with `overlap` also `hiding`: the batches between which communication
            begins or stops to be hidden.

    Raises:
        ScenarioError: mistakes in the scenario or the overrides, one sentence each.
        ReportError: the folder is something else, or the disk refuses.
    """
    from reports.study.curves import curves_of
    from twinstep.studies.curves.cli import curves_into

    return curves_of(curves_into(path, overrides, out, jobs=jobs, only=only))


@with_overrides
def scenario(path: str | os.PathLike[str], **overrides: Any) -> Scenario:
    """Read and check a scenario file or a ready scenario.

    Its `with_run(steps=5)` and `with_workload(...)`, and `dataclasses.replace`, return changed copies of it.
    A training script (.py) also takes `args` (the script's own), `hosts`, `gpus_per_host`, `profile`, `play`,
    `step_every` and `traceback` (twinstep docs scripts). The run folder of a predicted script gives the script as
    recorded.

    Raises:
        ScenarioError: a sentence for every mistake in the file and the overrides.
    """
    from scenarios.workloads.script.command import load_named

    return load_named(path, overrides)


def _scenario(given: Given, overrides: dict[str, Any]) -> Scenario:
    if isinstance(given, str | os.PathLike):
        return scenario(given, **overrides)
    if overrides:
        given_overrides = ", ".join(f"{key}={value!r}" for key, value in overrides.items())
        raise ScenarioError(
            f"{given_overrides}: expected with a scenario's path or name; change a Scenario by dataclasses.replace"
        )
    return given


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from scenarios.versions import version_of

        return version_of("twinstep")
    # With its name and module Python adds "Did you mean".
    raise AttributeError(f"module 'twinstep' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
