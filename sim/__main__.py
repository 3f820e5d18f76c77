"""The command `predict`: loads a scenario file, simulates it, stores the run and shows it.

What takes long to load is imported inside functions, so that Ctrl-C is quiet while it loads, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.interruption import code_of, end

if TYPE_CHECKING:
    from reports.analysis.repeats import Plays
    from reports.run import Run
    from scenarios.config.host_classes import HostClasses
    from scenarios.config.scenario import Scenario
    from scenarios.seam.program import Program
    from scenarios.seam.trace import Span
    from sim.draws import Digest
    from sim.progress import Bar
    from sim.span_filter import Keeping


def main(arguments: Sequence[str] | None = None, prog: str = "python -m sim") -> int:
    """Runs the command. 0: done; 1: the program went wrong; 2: the user's mistake; 128 + n: ended by signal n."""
    try:
        from scenarios.workloads.script.command import split_at_script

        words = sys.argv[1:] if arguments is None else arguments
        given, of_script = split_at_script(words)
        command = words[0] if words[:1] and words[0] in _COMMANDS else ""
        options = None if command else _parser(prog).parse_args(given)
        from reports.errors import ReportError
        from scenarios.seam.errors import ProgramError, show_notes

        show_notes()
        try:
            return _study(command, words[1:], prog) if options is None else _predict(options, of_script)
        except (ProgramError, ReportError) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, ProgramError) else 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption)


_COMMANDS = ("sweep", "search", "curves")  # a scenario of such a name is ./sweep


def _study(command: str, words: Sequence[str], prog: str) -> int:
    prog = prog if prog.endswith(f" {command}") else f"{prog} {command}"
    if command == "curves":
        from sim.study.curves.cli import curves_command

        return curves_command(words, prog)
    from sim.study.cli import sweep_command

    return sweep_command(words, prog, search=command == "search")


def _parser(prog: str) -> argparse.ArgumentParser:
    from scenarios.config.overrides.option import add_set
    from scenarios.workloads.script.command import add_options

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict how long a scenario's steps take; '%(prog)s sweep STUDY' plays many variations of one,"
        " '%(prog)s search STUDY' looks for the best of very many.",
    )
    parser.add_argument(
        "scenario",
        type=Path,
        help="a scenario file (docs/scenario.md), or the name of a ready one; or a training script (.py), whose own"
        " arguments follow it (docs/scripts.md)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder; default: a new one in runs/")
    parser.add_argument("--json", action="store_true", help="print all tables as JSON")
    parser.add_argument(
        "--draws", type=int, default=0, metavar="N", help="also say how steps spread over N runs that vary as real ones"
    )
    parser.add_argument(
        "--what-if", action="store_true", help="also change one thing at a time, simulate each, and say what it gains"
    )
    parser.add_argument("--quiet", action="store_true", help="print the run folder's path only")
    keep = parser.add_argument_group(
        "fewer spans of a large run", "such as 0,8,16-23 or every:64 or none; default: all"
    )
    keep.add_argument("--keep-ranks", metavar="RANKS", default="all", help="ranks whose operations are kept")
    keep.add_argument("--keep-steps", metavar="STEPS", default="all", help="steps in which they are")
    overrides = parser.add_argument_group("in place of what the scenario says")
    for name, of in _OVERRIDES.items():
        overrides.add_argument(f"--{name.replace('_', '-')}", **of)
    add_set(overrides)
    add_options(parser, plays=True)
    return parser


_OVERRIDES: dict[str, dict[str, Any]] = {
    "steps": {"type": int},
    "seed": {"type": int},
    "batch_size": {"type": int, "help": "samples per rank"},
    "library": {"help": "gloo or nccl"},
    "payload": {"help": "values or sizes"},
    "fidelity": {"help": "flows or links"},
    "ranks": {"help": "each or alike"},
    "profile": {"metavar": "NAME", "help": "the cluster's hardware: a ready profile's name, or a file"},
    "timeout": {"metavar": "TIME", "help": "how long a script may make no call, such as '30 s'"},
    "compute_times": {"metavar": "FILE.csv", "help": "measured times of computations"},
}


def _predict(options: argparse.Namespace, of_script: Sequence[str] | None) -> int:
    from scenarios.config.load import report_mistakes
    from scenarios.config.overrides.option import given_by
    from scenarios.config.warnings import print_notes
    from scenarios.seam.errors import ScenarioError

    given = {name: getattr(options, name) for name in _OVERRIDES if getattr(options, name) is not None}
    with report_mistakes():
        given |= given_by(options.sets)
        if options.draws < 0:
            raise ScenarioError(f"--draws = {options.draws}: expected at least 0")
        asked = _Asked(options, given, of_script)
        scenario = asked.load({})
        # Only now, so that a bad file is reported at once: these load torch.
        from scenarios.workloads.build import build_simulation, effort_of
        from sim.plan_choice import with_simulated_plan
        from sim.progress import Bar
        from sim.span_filter import Keeping

        keeping = Keeping(
            _chosen("--keep-ranks", options.keep_ranks, scenario.cluster.world_size),
            _chosen("--keep-steps", options.keep_steps, scenario.steps),
        )
        with Bar(1, quiet=options.json or options.quiet) as bar, with_simulated_plan(scenario, bar.say) as found:
            scenario = found.scenario
            program = build_simulation(scenario)
        program.plan_notes = (*program.plan_notes, *found.notes)
        if (classes := program.host_classes) is not None:
            keeping = _keeping_simulated(keeping, options.keep_ranks, classes)
    from reports.store import run_folder as store
    from reports.terminal.present import output, present

    folder = options.out or store.fresh_folder("runs", f"{scenario.name}-sim")
    store.check_free(folder)  # now, not when all is done
    print_notes(scenario, classes, effort_of(scenario, program))
    with Bar(1 + options.draws, quiet=options.json or options.quiet) as bar:
        job = _Job(scenario, program, keeping, options.draws, folder, bar)
        digest = _record(job)
        run = store.load(folder)
        spread = _draw(job, digest, run) if options.draws else None
        if options.what_if:
            run = _change(job, asked, run)
    with output():
        present(folder, as_json=options.json, quiet=options.quiet, run=run, spread=spread)
    return 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """What to predict, as the command line has it: `given` in place of what the scenario says."""

    options: argparse.Namespace
    given: Mapping[str, object]
    of_script: Sequence[str] | None

    def load(self, values: Mapping[str, object]) -> Scenario:
        """The scenario, with these values besides."""
        from scenarios.workloads.script.command import load_given

        options = self.options
        return load_given(
            options.scenario,
            {**self.given, **values},
            args=self.of_script,
            hosts=options.hosts,
            gpus_per_host=options.gpus_per_host,
            play=options.play,
            step_every=options.step_every,
            traceback=options.traceback,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """What to simulate, and how."""

    scenario: Scenario
    program: Program
    keeping: Keeping
    draws: int
    folder: Path
    bar: Bar


def _chosen(option: str, words: str, count: int) -> frozenset[int] | None:
    from scenarios.seam.errors import ScenarioError
    from sim.span_filter import chosen

    try:
        return chosen(words, count)
    except ValueError as error:
        raise ScenarioError(f"{option} = {words!r}: expected {error}") from None


def _keeping_simulated(keeping: Keeping, words: str, classes: HostClasses) -> Keeping:
    """Keep those of the chosen ranks that are simulated."""
    from scenarios.seam.errors import ScenarioError

    kept = keeping.among(classes.ranks)
    if keeping.has_ranks and not kept.has_ranks:
        shown = ", ".join(map(str, classes.ranks[:8]))
        raise ScenarioError(
            f"--keep-ranks = {words!r}: expected some of the {len(classes.ranks)} ranks that are simulated with"
            f" run.ranks = 'alike', such as {shown}"
        )
    return kept


def _record(job: _Job) -> Digest:
    """Simulate and write the run folder, span by span, also where Ctrl-C ends it early."""
    from reports.writer import writing
    from scenarios.config.warnings import NotesAfter, print_notes_after
    from sim.draws import Digest
    from sim.progress import Interrupt
    from sim.run import Position, play

    notes, digest, keeping = NotesAfter(job.scenario), Digest(), job.keeping
    with writing(job.folder, job.bar.say) as written:

        def take(spans: list[Span]) -> None:
            notes.add(spans)
            if job.draws:
                digest.add(spans)
            written.add(keeping.of(spans))

        with Interrupt() as interrupt:

            def stop(where: Callable[[], Position]) -> bool:
                job.bar.show(where)
                return interrupt.requested

            recording = play(
                job.scenario, job.program, take, stop=stop, ended=partial(job.bar.say, "writing the run folder")
            )
        if recording.info.complete:
            job.program.judge()
        info = dataclasses.replace(recording.info, thinned=keeping.thinned)
        written.finish(dataclasses.replace(recording, info=info))
    if not info.complete:
        raise KeyboardInterrupt(f"{job.folder}: {info.error}; what had ended by then is in it")
    print_notes_after(notes)
    return digest


def _draw(job: _Job, first: Digest, run: Run) -> Plays:
    """Repeat the run with further draws."""
    from reports.analysis.repeats import Play, Plays
    from reports.run import Run
    from sim.draws import further_draws

    plays = [Play.of(run)]
    job.bar.next_play()
    try:
        for recording in further_draws(job.scenario, job.program, job.draws, first, look=job.bar.show):
            plays.append(Play.of(Run.of(recording)))
            job.bar.next_play()
    except KeyboardInterrupt:
        interrupted = f"interrupted in draw {len(plays)} of {job.draws}; the run itself is whole"
        raise KeyboardInterrupt(f"{job.folder}: {interrupted}") from None
    return Plays(plays)


def _change(job: _Job, asked: _Asked, run: Run) -> Run:
    """Play the scenario with one thing changed at a time, and put what comes of it into the run's folder."""
    from reports.store import run_folder as store
    from reports.study.measures import measures_of
    from scenarios.seam.trace import ChangeRow
    from scenarios.workloads.script.command import tree_given
    from sim.study.what_if import changes_of

    scenario = asked.load({})  # as it was before it had a plan
    tree = tree_given(asked.options.scenario, asked.given, scenario)
    rows: list[ChangeRow] = []
    for name, play in changes_of(scenario, tree, measures_of(run), asked.load):
        job.bar.say(f"{name} ({len(rows) + 1})")
        try:
            rows.append(play())
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{job.folder}: interrupted at '{name}'; the run itself is whole") from None
    store.add_changes(job.folder, rows)
    return store.load(job.folder)


if __name__ == "__main__":
    end(main)
