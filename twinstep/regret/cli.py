"""Command `python -m real regret`: predicts a study's points, measures them all, and reports how well predictions
choose.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from real.emulate import netns
from real.emulate.cli import hosts_for, say, say_once
from real.emulate.fabric import EmulatedFabric, fabric_of
from real.launch.launcher import Hosts, RunEnded, job_of, launch
from real.launch.placement import place
from real.machine import cores, cpu_name
from reports.analysis.statistics import disagreement
from reports.errors import NoStepError, ReportError
from reports.json_document import document
from reports.sections.regret import REGRET, RegretView
from reports.sections.study import headline
from reports.store import run_folder
from reports.store.replace import replace_file
from reports.study.frame import came_out, goals_of, study_frame
from reports.study.measures import measures_of
from reports.study.regret import judged_points
from reports.study.rows import StudyRows, open_rows, stored_rows
from reports.terminal import text
from reports.terminal.present import output, print_report
from scenarios.config.overrides.option import parse_values
from scenarios.config.scenario import Scenario
from scenarios.config.warnings import notes_of_measuring
from scenarios.interruption import code_of
from scenarios.progress_line import ProgressLine, print_notes
from scenarios.seam.errors import ProgramError, ScenarioError
from scenarios.versions import version_of
from twinstep.options import add_emulate, add_jobs, add_outputs, add_overrides, add_rounds, impossible
from twinstep.regret.rounds import MeasurablePoint, MeasuredPoint, order
from twinstep.studies.cli import sweep_into
from twinstep.studies.engine import Where
from twinstep.studies.goals import GOALS, Goal
from twinstep.studies.points import check, points_of, resolve
from twinstep.studies.study_file import Study, StudyStage, read_study

PREDICTED, MEASURED, REGRET_FILE = "predicted", "measured", "regret.json"
_GOALS: tuple[Goal, ...] = ("samples_per_s", "step_ns")
_ROUNDS = 3


def regret(arguments: Sequence[str], prog: str = "python -m real regret") -> int:
    """Run the command; return 0, 1 if no point came out, 2 for a mistake or a full disk, or 128 + n for signal n."""
    options = _parser(prog).parse_args(arguments)
    folder: Path | None = None
    try:
        _check(options)
        study = _study(options)
        points = _points(study, emulate=options.emulate is not None)
        folder = options.out or Path("runs", f"{study.file.stem}-regret")
        predicted = _predict(folder, study, options)
        code = _measure(folder, study, [one for at, one in points.items() if at in predicted], options)
        if not code:
            return _show(folder, study, {at: one.digest for at, one in points.items()}, options)
    except (ScenarioError, ReportError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        code = code_of(interruption)
    if folder is not None:
        print(f"{folder}: interrupted; {shlex.join([*prog.split(), *arguments])} goes on", file=sys.stderr)
    return code


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict and measure all points of a study (twinstep docs studies), and report how much slower the"
        " point predicted best is than the point measured best. After an interruption the same command continues.",
    )
    parser.add_argument("study", type=Path, help="study file in TOML")
    add_outputs(parser, "folder of the results (default: runs/NAME-regret)", json="print all results as JSON")
    parser.add_argument(
        "--again", action="store_true", help="repeat points that timed out, failed or lost their workers"
    )
    add_jobs(parser, "number of processes for predictions (default: one per core)")
    measured = parser.add_argument_group("measurements")
    add_emulate(measured, "hosts as each point describes")
    add_rounds(
        measured,
        of="point",
        rounds=_ROUNDS,
        default=_ROUNDS,
        precision="stop when half the range of the launches' median step times is at most this share of the median",
    )
    parser.add_argument(
        "--draws",
        type=int,
        metavar="N",
        help="randomized runs of each prediction besides the mean one (default: the study's, or 0)",
    )
    add_overrides(parser.add_argument_group("overrides (default: the study's values)"), ("profile",))
    return parser


def _check(options: argparse.Namespace) -> None:
    sentences = list(impossible(options, "the study"))
    if (here := place()) is not None:
        sentences.append(f"regret under {here.by}: expected without it, as the command starts the ranks itself")
    if sentences:
        raise ScenarioError(sentences)


def _values_of(options: argparse.Namespace) -> dict[str, object]:
    """Return the values of `--set` and `--profile` by key, which replace the study's; a file's path becomes
    absolute.
    """
    given = parse_values(options.sets)
    if options.profile is not None:
        is_file = os.path.isfile(options.profile)
        given["cluster.profile"] = os.path.abspath(options.profile) if is_file else options.profile
    return given


def _study(options: argparse.Namespace) -> Study:
    """Return the study with the options' values for all points, and one stage, because all points are measured."""
    study = read_study(options.study)
    goals = tuple(goal for goal in study.goals if goal in _GOALS)
    if not goals:
        raise ScenarioError(
            f"{study.file}: goals = {list(study.goals)}: expected {' or '.join(_GOALS)} among them, as that is what"
            " real ranks are measured by"
        )
    shared = {**study.shared, **_values_of(options)}
    draws = study.draws if options.draws is None else options.draws
    # One stage, so that every point is predicted with the scenario's own fidelity.
    study = replace(study, goals=goals, shared=shared, stages=(StudyStage(),), draws=draws)
    check(study)
    return study


def _points(study: Study, *, emulate: bool) -> dict[int, MeasurablePoint]:
    """Return the measurable points by index, one object for equal scenarios; others fail as predictions."""
    if emulate:
        netns.check_able()
    measurable: dict[int, MeasurablePoint] = {}
    known: dict[str, MeasurablePoint] = {}
    sentences: dict[str, None] = {}
    for point in points_of(study):
        resolved = resolve(replace(study, draws=0), point)  # the number of draws does not change a measurement
        if resolved.scenario is not None:
            one = MeasurablePoint(point.index, point.values, resolved.digest, resolved.scenario)
            measurable[point.index] = known.setdefault(resolved.digest, one)
            sentences.update(dict.fromkeys(_refusals(resolved.scenario, emulate=emulate)))
    if sentences:
        raise ScenarioError(list(sentences))
    return measurable


def _refusals(scenario: Scenario, *, emulate: bool) -> Iterable[str]:
    """Return why a point's measurement would differ from what was predicted."""
    if emulate:
        try:
            fabric_of(scenario)
        except ScenarioError as error:
            return error.sentences
    if scenario.cluster.host.gpu.device.is_launched:
        profile = scenario.cluster.profile
        return [f"{scenario.path}: cluster.profile = '{profile}': expected a CPU's, as points are measured on CPUs"]
    return []


def _predict(folder: Path, study: Study, options: argparse.Namespace) -> set[int]:
    """Predict points without a prediction; return the indices of successful points."""
    where = Where(jobs=options.jobs or cores())
    sweep_into(folder / PREDICTED, study, where, quiet=options.quiet or options.json, again=options.again)
    return set(came_out(study_frame(folder / PREDICTED))["index"].tolist())


def _measure(folder: Path, study: Study, points: Sequence[MeasurablePoint], options: argparse.Namespace) -> int:
    """Measure points without a measurement, and keep a row for each round; return the exit code of an interruption."""
    # Points of equal scenarios are measured once.
    points = list({point.digest: point for point in points}.values())
    if points and not (options.quiet or options.json):
        print_notes(notes_of_measuring(points[0].scenario, cores(), cpu_name()))
    about = {
        "study": str(study.file),
        "scenario": study.scenario,
        "keys": list(study.keys),
        "goals": {goal: "most" if GOALS[goal] else "least" for goal in study.goals},
        "stages": [],
        "version": version_of("twinstep"),
    }
    values = {key: study.values_of(key) for key in study.keys}
    with (
        open_rows(folder / MEASURED, about, study.file.read_bytes(), values, again=options.again) as rows,
        _hosts_of(options.emulate) as hosts_of,
        ProgressLine(quiet=options.quiet, ticks=True) as bar,
    ):
        return _Measuring(folder / MEASURED, points, rows, hosts_of, bar, options).run()


@contextmanager
def _hosts_of(name: str | None) -> Iterator[Callable[[Scenario], Hosts]]:
    """Yield a function that returns a scenario's hosts: scenarios with equal links share emulated hosts."""
    tell, made = say_once(), dict[EmulatedFabric | None, Hosts]()
    with ExitStack() as stack:

        def of(scenario: Scenario) -> Hosts:
            fabric = None if name is None else fabric_of(scenario)
            if fabric not in made:
                # Network namespaces take long to create: one set serves all points with the same links.
                made[fabric] = stack.enter_context(hosts_for(scenario, name, tell))
            return made[fabric]

        yield of


class _Measuring:
    """A command's rounds, and the rows that they become."""

    def __init__(
        self,
        folder: Path,
        points: Sequence[MeasurablePoint],
        rows: StudyRows,
        hosts_of: Callable[[Scenario], Hosts],
        bar: ProgressLine,
        options: argparse.Namespace,
    ) -> None:
        self._folder, self._points, self._rows = folder, points, rows
        self._hosts_of, self._bar, self._options = hosts_of, bar, options
        self._measured: dict[str, MeasuredPoint] = defaultdict(MeasuredPoint)
        self._kept: list[dict[str, Any]] = []

    def run(self) -> int:
        """Measure all points; return 0, or the exit code of the signal that ended the command."""
        for point in self._points:
            self._know(point)
        for number, point in order(self._points, self._measured, rounds=self._options.rounds, is_known=self._is_known):
            row, code = self._round(number, point)
            if code > 1:
                return code
            self._rows.add(row)
            self._take(row)
        self._rows.finish(self._kept)
        return 0

    def _is_known(self, medians_ns: Sequence[float]) -> bool:
        return bool(disagreement(medians_ns) <= self._options.precision)

    def _know(self, point: MeasurablePoint) -> None:
        """Read the rounds of a point that earlier commands have measured."""
        number = 1
        while (row := self._rows.find_row(point.digest, _round_name(number))) is not None:
            self._take({**row, "index": point.index, "values": point.values})
            number += 1

    def _take(self, row: dict[str, Any]) -> None:
        self._kept.append(row)
        of_point = self._measured[row["digest"]]
        if row["status"] == "done":
            of_point.medians_ns.append(row["step_ns"])
        else:
            of_point.failed = True

    def _round(self, number: int, point: MeasurablePoint) -> tuple[dict[str, Any], int]:
        """Launch a point once; return its row, and the launch's exit code."""
        began_s = time.monotonic()
        name = f"runs/{point.digest[:16]}"
        status, sentence, code, measures = "done", "", 0, {}
        with_known = sum(len(one.medians_ns) > 0 for one in self._measured.values())
        words = f"round {number}: {with_known} of {len(self._points)} points measured"
        draft = self._folder / f"{name}-{_round_name(number).replace(' ', '-')}"
        shutil.rmtree(draft, ignore_errors=True)  # left by a command that was killed
        draft.parent.mkdir(parents=True, exist_ok=True)
        try:
            job = job_of(point.scenario, draft, check="never")
            steps = point.scenario.run.steps
            launch(job, hosts=self._hosts_of(point.scenario), heard=lambda step: self._bar.show(words, step, steps))
            measures = measures_of(run_folder.load(draft))
            # The draft replaces the run of an earlier round only when it is whole.
            shutil.rmtree(self._folder / name, ignore_errors=True)
            draft.rename(self._folder / name)
        except (RunEnded, ProgramError, NoStepError) as error:
            status, sentence, code = "error", str(error), getattr(error, "code", 1)
        row = {
            **{"index": point.index, "digest": point.digest, "fidelity": _round_name(number), "status": status},
            **{"sentence": sentence, "seconds": time.monotonic() - began_s, "worker": "", "played": True},
            **{"run": "" if sentence else name, "version": version_of("twinstep"), "values": point.values},
        }
        return {**row, **measures}, code


def _round_name(number: int) -> str:
    """Return the fidelity of a measured row."""
    return f"round {number}"


def _show(folder: Path, study: Study, digests: Mapping[int, str], options: argparse.Namespace) -> int:
    frame = study_frame(folder / PREDICTED)
    frame["digest"] = [digests.get(index, "") for index in frame["index"]]  # measurements are stored by digest
    rounds = {(row["digest"], row["fidelity"]): row for row in stored_rows(folder / MEASURED)}
    goal = goals_of(frame, {"goals": {study.goal: ""}})[0].column
    points = judged_points(frame, rounds.values(), study.keys, goal)
    failed = {
        row["digest"]: row["sentence"] for row in rounds.values() if row["status"] != "done" and row["index"] >= 0
    }
    failures = (
        [f"{text.count_words(len(failed), 'point')} ended early, such as: {next(iter(failed.values()))}"]
        if failed
        else []
    )
    if not len(points):
        say([f"{folder}: no point came out: {headline(frame)}", *failures])
        return 1
    view = RegretView(points, study.keys, goal)
    with replace_file(folder / REGRET_FILE) as draft:
        draft.write_text(json.dumps(document(REGRET, view), indent=1, allow_nan=False) + "\n")
    with output():
        if options.quiet:
            print(folder)
        else:
            print_report(REGRET, view, as_json=options.json)
            if not options.json:
                print(f"folder: {folder}")
    say(failures)
    return 0
