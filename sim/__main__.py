"""A hallway: a scenario file in, a predicted run out: loaded, simulated, stored, shown."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Runs the command. 0: done; 1: the program went wrong; 2: the user's mistake; 130: interrupted."""
    try:
        options = _parser(prog).parse_args(arguments)
        from reports.errors import ReportError
        from scenarios.seam.errors import ProgramError

        try:
            return _predict(options)
        except (ProgramError, ReportError) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, ProgramError) else 2
    except KeyboardInterrupt as interruption:
        if str(interruption):
            print(interruption, file=sys.stderr)
        return 130


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Predict how long a scenario's steps take.")
    parser.add_argument("scenario", type=Path, help="a scenario file (docs/scenario.md), or the name of a ready one")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder; default: a new one in runs/")
    parser.add_argument("--json", action="store_true", help="print all tables as JSON")
    parser.add_argument(
        "--draws", type=int, default=0, metavar="N", help="also say how steps spread over N runs that vary as real ones"
    )
    parser.add_argument("--quiet", action="store_true", help="print the run folder's path only")
    keep = parser.add_argument_group(
        "fewer spans of a large run", "such as 0,8,16-23 or every:64 or none; default: all"
    )
    keep.add_argument("--keep-ranks", metavar="RANKS", default="all", help="ranks whose operations are kept")
    keep.add_argument("--keep-steps", metavar="STEPS", default="all", help="steps in which they are")
    overrides = parser.add_argument_group("in place of what the scenario says")
    overrides.add_argument("--steps", type=int)
    overrides.add_argument("--seed", type=int)
    overrides.add_argument("--batch-size", type=int, help="samples a rank")
    overrides.add_argument("--library", help="gloo or nccl")
    overrides.add_argument("--payload", help="values or sizes")
    overrides.add_argument("--fidelity", help="flows or links")
    overrides.add_argument("--ranks", help="each or alike")
    overrides.add_argument("--compute-times", metavar="FILE.csv", help="measured times of computations")
    return parser


_OVERRIDES = ("steps", "seed", "batch_size", "library", "payload", "fidelity", "ranks", "compute_times")


def _predict(options: argparse.Namespace) -> int:
    from scenarios.config.load import load, report_mistakes
    from scenarios.config.warnings import print_notes
    from scenarios.seam.errors import ScenarioError

    given = {name: getattr(options, name) for name in _OVERRIDES if getattr(options, name) is not None}
    with report_mistakes():
        if options.draws < 0:
            raise ScenarioError(f"--draws = {options.draws}: expected at least 0")
        scenario = load(options.scenario, given)
        # Only now, so that a bad file is reported at once: these load torch.
        from scenarios.workloads.build import build
        from sim.progress import Bar

        keeping = _keeping(options, scenario)
        program = build(scenario)
        if (classes := program.host_classes) is not None:
            keeping = _keeping_played(keeping, options.keep_ranks, classes)
    from reports.store import run_folder as store
    from reports.terminal.present import output, present

    folder = options.out or store.fresh_folder("runs", f"{scenario.name}-sim")
    store.check_free(folder)  # now, not when all is done
    print_notes(scenario, classes)
    with Bar(1 + options.draws, quiet=options.json or options.quiet) as bar:
        asked = _Asked(scenario, program, keeping, options.draws, folder, bar)
        digest = _record(asked)
        run = store.load(folder)
        spread = _draw(asked, digest, run) if options.draws else None
    with output():
        present(folder, as_json=options.json, quiet=options.quiet, run=run, spread=spread)
    return 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be played, and how."""

    scenario: Scenario
    program: Program
    keeping: Keeping
    draws: int
    folder: Path
    bar: Bar


def _keeping(options: argparse.Namespace, scenario: Scenario) -> Keeping:
    from scenarios.seam.errors import ScenarioError
    from sim.span_filter import Keeping, chosen

    found = []
    counts = {"--keep-ranks": scenario.cluster.world_size, "--keep-steps": scenario.steps}
    for (option, count), words in zip(counts.items(), (options.keep_ranks, options.keep_steps), strict=True):
        try:
            found.append(chosen(words, count))
        except ValueError as error:
            raise ScenarioError(f"{option} = {words!r}: expected {error}") from None
    return Keeping(*found)


def _keeping_played(keeping: Keeping, words: str, classes: HostClasses) -> Keeping:
    """Of the chosen ranks those that are played."""
    from scenarios.seam.errors import ScenarioError

    kept = keeping.among(classes.ranks)
    if keeping.has_ranks and not kept.has_ranks:
        shown = ", ".join(map(str, classes.ranks[:8]))
        raise ScenarioError(
            f"--keep-ranks = {words!r}: expected some of the {len(classes.ranks)} ranks that are played with"
            f" run.ranks = 'alike', such as {shown}"
        )
    return kept


def _record(asked: _Asked) -> Digest:
    """Play it and write its folder, span by span; also of a play that Ctrl-C ended."""
    from reports.writer import writing
    from scenarios.config.warnings import NotesAfter, print_notes_after
    from sim.draws import Digest
    from sim.interrupt import Interrupt
    from sim.run import Position, play

    notes, digest, keeping = NotesAfter(asked.scenario), Digest(), asked.keeping
    with writing(asked.folder) as written:

        def take(spans: list[Span]) -> None:
            notes.add(spans)
            if asked.draws:
                digest.add(spans)
            written.add(keeping.of(spans))

        with Interrupt() as interrupt:

            def stop(where: Callable[[], Position]) -> bool:
                asked.bar.show(where)
                return interrupt.asked

            recording = play(asked.scenario, asked.program, take, stop=stop)
        info = dataclasses.replace(recording.info, thinned=keeping.thinned)
        asked.bar.say("writing the run folder")
        written.finish(dataclasses.replace(recording, info=info))
    if not info.complete:
        raise KeyboardInterrupt(f"{asked.folder}: {info.error}; what had ended by then is in it")
    print_notes_after(notes)
    return digest


def _draw(asked: _Asked, first: Digest, run: Run) -> Plays:
    """The run beside further draws of it."""
    from reports.analysis.repeats import Play, Plays
    from reports.run import Run
    from sim.draws import further_draws

    plays = [Play.of(run)]
    asked.bar.next_play()
    try:
        for recording in further_draws(asked.scenario, asked.program, asked.draws, first, look=asked.bar.show):
            plays.append(Play.of(Run.of(recording)))
            asked.bar.next_play()
    except KeyboardInterrupt:
        interrupted = f"interrupted in draw {len(plays)} of {asked.draws}; the run itself is whole"
        raise KeyboardInterrupt(f"{asked.folder}: {interrupted}") from None
    return Plays(plays)


if __name__ == "__main__":
    sys.exit(main())
