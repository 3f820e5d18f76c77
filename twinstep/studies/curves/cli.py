"""Command `python -m sim curves`: simulates the studies that make a scenario's curves, and shows the curves."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from real.machine import cores
from reports.sections.curves import CURVES, CurvesView
from reports.study.curves import NAMES, batches_between, curves_of, overlap
from reports.study.frame import study_frame
from reports.study.rows import about_of, open_rows
from reports.terminal.present import output, print_report
from scenarios.config.load import report_mistakes
from scenarios.config.overrides.option import add_set, parse_values
from scenarios.interruption import code_of
from scenarios.seam.errors import ScenarioError
from scenarios.versions import version_of
from twinstep.options import add_jobs, add_outputs
from twinstep.studies.curves import studies
from twinstep.studies.curves.parameters import parameters
from twinstep.studies.curves.studies import BATCH, MOST_HOSTS, CurvesStart, start
from twinstep.studies.goals import GOALS
from twinstep.studies.points import as_it_is
from twinstep.studies.progress import SweepBar

if TYPE_CHECKING:
    from twinstep.studies.engine import Where
    from twinstep.studies.study_file import Study
    from twinstep.studies.sweep import Crew

_CHANGE, _THRESHOLD = 0.1, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A choice of curves, and of their extent.

    Attributes:
        folder: of the curves.
        hosts: most hosts of the scaling curve.
        change: parameters are multiplied and divided by 1 + `change`.
        threshold: communication is hidden if at most this share of a step is exposed.
        batches: batches of a rank; None: around the scenario's.
    """

    folder: Path
    names: Sequence[str] = NAMES
    hosts: int = MOST_HOSTS
    change: float = _CHANGE
    threshold: float = _THRESHOLD
    batches: Sequence[int] | None = None


def curves_command(arguments: Sequence[str], prog: str) -> int:
    """Run the command; return 0, 1 if no point has a result, 2 for a mistake, or 128 + n for signal n."""
    options = _parser(prog).parse_args(arguments)
    with report_mistakes():
        of = start(options.scenario, parse_values(options.sets), options.batch_key)
        folder = options.out or Path("runs", f"{of.scenario.name}-curves")
        wanted = _choose_curves(options, folder)
    try:
        play_curves(of, wanted, options.jobs, quiet=options.quiet or options.json)
    except KeyboardInterrupt as interruption:
        return code_of(interruption, f"{folder}: interrupted; {shlex.join([*prog.split(), *arguments])} goes on")
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    with output():
        _show(folder, options)
    frames = [study_frame(folder / name) for name in wanted.names if (folder / name).is_dir()]
    if any((frame["status"] == "done").any() for frame in frames):
        return 0
    print(f"{options.scenario}: no point of a curve has a result", file=sys.stderr)
    return 1


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Simulate how a scenario scales, how sensitive its step time is to each hardware figure, and at"
        " which batch size communication is hidden (twinstep docs studies). After an interruption the same command"
        " continues.",
    )
    parser.add_argument("scenario", help="scenario file, or name of a ready scenario")
    parser.add_argument(
        "--only", action="append", choices=NAMES, help="simulate only this curve (default: all). Can be repeated."
    )
    parser.add_argument(
        "--hosts",
        type=int,
        default=MOST_HOSTS,
        metavar="N",
        help=f"scaling: simulate 1, 2, 4 ... up to N hosts (default: {MOST_HOSTS})",
    )
    parser.add_argument(
        "--change",
        type=float,
        default=_CHANGE,
        metavar="SHARE",
        help=f"sensitivity: multiply and divide each figure by 1 + SHARE (default: {_CHANGE})",
    )
    parser.add_argument(
        "--batches",
        type=int,
        nargs=2,
        metavar=("LEAST", "MOST"),
        help="overlap: batch sizes per rank, doubled from LEAST to MOST (default: around the scenario's)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=_THRESHOLD,
        metavar="SHARE",
        help="overlap: count communication as hidden if at most this share of the step is exposed"
        f" (default: {_THRESHOLD})",
    )
    parser.add_argument(
        "--batch-key", default=BATCH, metavar="KEY", help=f"key of the batch size per rank (default: {BATCH})"
    )
    add_set(parser)
    add_jobs(parser)
    add_outputs(parser, "folder of the curves (default: runs/NAME-curves)", json="print the curves as JSON")
    return parser


def _choose_curves(options: argparse.Namespace, folder: Path) -> Curves:
    """Return the curves that the options select.

    Raises:
        ScenarioError: with a sentence for each impossible value.
    """
    least, most = options.batches or (1, 1)
    wrong = [
        f"{option}: expected {expected}"
        for option, expected, holds in (
            (f"--hosts = {options.hosts}", "at least 1", options.hosts >= 1),
            (f"--jobs = {options.jobs}", "at least 1", options.jobs is None or options.jobs >= 1),
            (f"--change = {options.change}", "a share above 0 and below 1", 0 < options.change < 1),
            (f"--threshold = {options.threshold}", "a share above 0 and below 1", 0 < options.threshold < 1),
            (f"--batches {least} {most}", "at least 1, and the larger one last", 1 <= least <= most),
        )
        if not holds
    ]
    if wrong:
        raise ScenarioError(wrong)
    batches = [least << power for power in range((most // least).bit_length())] if options.batches else None
    return Curves(
        folder=folder,
        names=[name for name in NAMES if name in (options.only or NAMES)],
        hosts=options.hosts,
        change=options.change,
        threshold=options.threshold,
        batches=batches,
    )


def play_curves(of: CurvesStart, wanted: Curves, jobs: int | None, *, quiet: bool) -> None:
    """Simulate the curves' missing points; each curve is a study in a folder of its own.

    Raises:
        ReportError: a folder is no study's, or the disk refuses.
    """
    from twinstep.studies.engine import Where
    from twinstep.studies.sweep import crew

    where = Where(jobs=jobs or cores())
    with ExitStack() as stack:
        playing = _Playing(of, wanted, where, stack.enter_context(crew(where)), quiet)
        for name in wanted.names:
            playing.curve(name)


@dataclass(frozen=True, slots=True)
class _Playing:
    """A run of curves, on workers that all curves share."""

    of: CurvesStart
    wanted: Curves
    where: Where
    crew: Crew
    quiet: bool

    def curve(self, name: str) -> None:
        """Simulate the studies of one curve."""
        plays: Mapping[str, Callable[[], None]] = {
            "scaling": self._scaling,
            "sensitivity": self._sensitivity,
            "overlap": self._overlap,
        }
        plays[name]()

    def _scaling(self) -> None:
        study, left_out = studies.scaling(self.of, self.wanted.hosts)
        cluster = self.of.scenario.cluster
        self._sweep(
            "scaling",
            study,
            hosts=cluster.hosts,
            gpus_per_host=cluster.host.gpus,
            batch=self.of.batch,
            batch_key=self.of.batch_key,
            left_out=left_out,
            without_batch=self.of.without_batch,
            plans=self.of.plans,
        )

    def _sensitivity(self) -> None:
        figures = parameters(self.of.tree, self.of.scenario.measured, self.wanted.change)
        study = studies.sensitivity(self.of, figures, self.wanted.folder)
        self._sweep("sensitivity", study, change=self.wanted.change, parameters=[asdict(one) for one in figures])

    def _overlap(self) -> None:
        if self.of.batch is None:
            print(f"overlap is left out: {self.of.without_batch}", file=sys.stderr)
            return
        batches = list(self.wanted.batches or studies.batches_around(self.of.batch))
        more = batches
        # The crossing of the threshold is bracketed ever closer, until no batch between is left.
        while more:
            study = studies.overlap(self.of, batches)
            self._sweep("overlap", study, batch_key=self.of.batch_key, threshold=self.wanted.threshold)
            folder = self.wanted.folder / "overlap"
            more = batches_between(overlap(study_frame(folder), about_of(folder)), self.wanted.threshold)
            batches += more

    def _sweep(self, name: str, study: Study, **curve: object) -> None:
        from twinstep.studies.play import play_point
        from twinstep.studies.sweep import Sweep

        about = {
            "scenario": study.scenario,
            "keys": list(study.keys),
            "as_it_is": as_it_is(study),
            "goals": {goal: "most" if GOALS[goal] else "least" for goal in study.goals},
            "stages": [stage.fidelity for stage in study.stages],
            "version": version_of("twinstep"),
            "curve": curve,
        }
        values = {key: study.values_of(key) for key in study.keys}
        with (
            open_rows(self.wanted.folder / name, about, None, values) as rows,
            SweepBar(study.goal, quiet=self.quiet) as bar,
        ):
            rows.finish(Sweep(study, rows, self.where, bar, play_point, crew=self.crew).run())


def curves_into(
    path: str | os.PathLike[str],
    overrides: Mapping[str, object],
    out: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    only: Sequence[str] = NAMES,
) -> Path:
    """Simulate a scenario's curves without output, and return their folder; for Python.

    Raises:
        ScenarioError: the scenario has a mistake.
        ReportError: the folder is no study's, or the disk refuses.
    """
    if not only or not set(only) <= set(NAMES):
        raise ScenarioError(f"only = {list(only)}: expected some of {', '.join(NAMES)}")
    of = start(path, overrides)
    folder = Path(out) if out is not None else Path("runs", f"{of.scenario.name}-curves")
    play_curves(of, Curves(folder=folder, names=only), jobs, quiet=True)
    return folder


def _show(folder: Path, options: argparse.Namespace) -> None:
    if options.quiet:
        print(folder)
        return
    frames = {name: frame for name, frame in curves_of(folder).items() if _is_wanted(name, options.only)}
    abouts = {name: about_of(folder / name) for name in frames if name in NAMES}
    print_report(CURVES, CurvesView(frames, abouts, str(folder)), as_json=options.json)
    if not options.json:
        print(f"curves: {folder}")


def _is_wanted(name: str, only: Sequence[str] | None) -> bool:
    return not only or name in only or (name == "hiding" and "overlap" in only)
