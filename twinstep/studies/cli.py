"""Commands `python -m sim sweep` and `search`: read a study, simulate its points, keep their rows, show the best."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from real.machine import cores
from reports.errors import ReportError
from reports.sections.study import STUDY, StudyView
from reports.study.frame import front_of, goals_of, study_frame
from reports.study.measures import MEASURES, SHOWN
from reports.study.rows import about_of, open_rows
from reports.terminal.present import output, print_report
from scenarios.config.load import report_mistakes
from scenarios.config.overrides.option import parse_values
from scenarios.interruption import code_of
from scenarios.seam.errors import ScenarioError
from scenarios.versions import version_of
from twinstep.options import add_jobs, add_outputs, impossible
from twinstep.studies.goals import GOALS
from twinstep.studies.points import BASELINE, as_it_is, check, points_of
from twinstep.studies.progress import SweepBar
from twinstep.studies.study_file import MOST_POINTS, Study, read_study

if TYPE_CHECKING:
    from twinstep.studies.engine import Where


def sweep_command(arguments: Sequence[str], prog: str, *, search: bool = False) -> int:
    """Run the command and return its exit code.

    Exit codes: 0 a varied point has a result, 1 none has, 2 a mistake or a full disk, 128 + n for signal n.
    """
    options = _parser(prog, search=search).parse_args(arguments)
    with report_mistakes():
        study = _study(options.study, search=search, trials=options.trials if search else None)
        if options.keep_spans:
            study = replace(study, keep="spans")
        where = _where(options, study)
    folder = options.out or _folder(study)
    try:
        sweep_into(folder, study, where, quiet=options.quiet or options.json, again=options.again, search=search)
    except KeyboardInterrupt as interruption:
        done = len(study_frame(folder))
        is_asked = search and not _is_small(study)
        total = study.search.most_trials + study.has_baseline if is_asked else sum(1 for _ in points_of(study))
        again = shlex.join([*prog.split(), *arguments])
        return code_of(interruption, f"{folder}: interrupted with {done:,} of {total:,} points; {again} goes on")
    except ScenarioError as error:  # from a scheduler, or from Slurm
        print(error, file=sys.stderr)
        return 2
    with output():
        _show(folder, options)
    frame = study_frame(folder)
    varied = frame[(frame["index"] > BASELINE).to_numpy(bool)]
    if (varied["status"] == "done").any():
        return 0
    why = f"all {len(varied):,} failed" if len(varied) else "skip leaves out all of them"
    print(f"{study.file}: no point has a result: {why}", file=sys.stderr)
    return 1


def _parser(prog: str, *, search: bool) -> argparse.ArgumentParser:
    what = "Search a study for its best variations" if search else "Predict all variations that a study describes"
    parser = argparse.ArgumentParser(
        prog=prog,
        description=f"{what} (twinstep docs studies). After an interruption the same command continues.",
    )
    parser.add_argument("study", type=Path, help="study file in TOML")
    add_outputs(parser, "folder of the study (default: runs/NAME-study)", json="print all points as JSON")
    if search:
        parser.add_argument(
            "--trials", type=int, metavar="N", help="maximal number of points (default: the study's search.trials)"
        )
    parser.add_argument("--keep-spans", action="store_true", help="write complete run folders, as keep = 'spans' does")
    parser.add_argument(
        "--again", action="store_true", help="simulate points again that timed out, failed or lost their workers"
    )
    on = parser.add_argument_group("where points are simulated (default: on this machine, one process per core)")
    add_jobs(on, "number of processes, or of Slurm jobs")
    on.add_argument("--scheduler", metavar="ADDRESS", help="Dask scheduler: tcp://host:port, or its scheduler file")
    on.add_argument(
        "--slurm",
        action="append",
        metavar="KEY=VALUE",
        help="run Slurm jobs with this option of dask_jobqueue.SLURMCluster, such as queue=gpu. Can be repeated.",
    )
    return parser


def _study(path: str | os.PathLike[str], *, search: bool, trials: int | None) -> Study:
    study = read_study(path, most_points=math.inf if search else MOST_POINTS)
    for column in study.constraints:
        if column not in MEASURES:
            raise ScenarioError(f"{path}: constraints.{column}: expected a measure: one of {', '.join(MEASURES)}")
    if trials is not None and trials < 1:
        raise ScenarioError(f"--trials = {trials}: expected at least 1")
    check(study)
    return study if trials is None else replace(study, search=replace(study.search, trials=trials))


def _is_small(study: Study) -> bool:
    """Return whether a search simulates all points, because its limit allows it."""
    return study.size <= MOST_POINTS and study.search.plays_all(study.size)


def _where(options: argparse.Namespace, study: Study) -> Where:
    from twinstep.studies.engine import Where

    if wrong := list(impossible(options)):
        raise ScenarioError(wrong)
    slurm = study.slurm
    if options.slurm:
        slurm = {**(slurm or {}), **parse_values(options.slurm, "--slurm", "queue=gpu")}
    if options.scheduler is not None and options.slurm:
        raise ScenarioError("--scheduler: expected without --slurm, which starts a scheduler of its own")
    return Where(jobs=options.jobs or cores(), scheduler=options.scheduler or "", slurm=slurm)


def sweep_study(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    scheduler: str = "",
    again: bool = False,
    search: bool = False,
    trials: int | None = None,
) -> Path:
    """Sweep a study, or search it, without output, and return its folder; for Python.

    Raises:
        ScenarioError: the study or its scenario has a mistake, or there are no such workers.
        ReportError: the folder is no study's, or the disk refuses.
    """
    from twinstep.studies.engine import Where

    study = _study(path, search=search, trials=trials)
    folder = Path(out) if out is not None else _folder(study)
    where = Where(jobs=jobs or cores(), scheduler=scheduler, slurm=None if scheduler else study.slurm)
    sweep_into(folder, study, where, quiet=True, again=again, search=search)
    return folder


def _folder(study: Study) -> Path:
    return Path("runs", f"{study.file.stem}-study")


def sweep_into(
    folder: Path, study: Study, where: Where, *, quiet: bool, again: bool = False, search: bool = False
) -> None:
    """Simulate a study's missing points, or those that a search proposes, and write them into its folder.

    Raises:
        ScenarioError: there are no such workers.
        ReportError: the folder is no study's, or the disk refuses.
    """
    from twinstep.studies.play import play_point
    from twinstep.studies.sweep import Sweep

    about: dict[str, Any] = {
        "study": str(study.file),
        "scenario": study.scenario,
        "keys": list(study.keys),
        "as_it_is": as_it_is(study),
        "set": dict(study.shared),
        "goals": {goal: "most" if GOALS[goal] else "least" for goal in study.goals},
        "constraints": study.constraints,
        "stages": [stage.fidelity for stage in study.stages],
        "version": version_of("twinstep"),
    }
    values = {key: study.values_of(key) for key in study.keys}
    with (
        open_rows(folder, about, study.file.read_bytes(), values, again=again) as rows,
        SweepBar(study.goal, quiet=quiet, constraints=study.constraints) as bar,
    ):
        source = None
        if search and not _is_small(study):
            # Optuna takes long to load, and small searches do not need it.
            from twinstep.studies.search.journal import OptunaSource
            from twinstep.studies.search.proposals import proposals

            source = OptunaSource(study, folder, about["version"], proposals(study))
        whole = Sweep(study, rows, where, bar, play_point, source).run()
        rows.finish(whole)
        _write_front(folder, study, {row["index"]: row["values"] for row in whole})


def _write_front(folder: Path, study: Study, values: Mapping[int, Mapping[str, object]]) -> None:
    """Write a scenario file for each point of the study's front; `values` are all points' values, by index."""
    from twinstep.studies.search.scenario_files import FOLDER, Best, write_scenarios

    about, frame = about_of(folder), study_frame(folder)
    columns = dict.fromkeys(["step_ns", *(goal.column for goal in goals_of(frame, about))])
    points = [
        Best(
            index=row["index"],
            fidelity=row["fidelity"],
            values=values[row["index"]],
            words=", ".join(f"{SHOWN[column][0]} {SHOWN[column][1](row[column])}" for column in columns),
        )
        for row in front_of(frame, about).to_dict("records")
    ]
    try:
        write_scenarios(study, points, folder / FOLDER)
    except OSError as error:
        raise ReportError(f"{folder / FOLDER}: could not be written: {error.strerror or error}") from None


def _show(folder: Path, options: argparse.Namespace) -> None:
    from reports.report import write_study

    about, frame = about_of(folder), study_frame(folder)
    if options.json:
        print_report(STUDY, StudyView(frame, about, str(folder)), as_json=True)
        return
    page = write_study(folder)
    if options.quiet:
        print(folder)
        return
    print_report(STUDY, StudyView(frame, about))
    print(f"study folder: {folder}; its rows: {folder}/rows; its best points as scenarios: {folder}/front")
    print(f"page: {page}")
