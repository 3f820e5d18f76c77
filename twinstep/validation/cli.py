"""`python -m real validate`: predicts scenarios, measures them until the median is precise, compares, stores, shows."""

from __future__ import annotations

import argparse
import platform
import shlex
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from real.emulate import netns
from real.emulate.cli import hosts_for, running_hosts, say, say_once
from real.emulate.fabric import fabric_of
from real.launch.launcher import Hosts, RunEnded, job_of, launch
from real.launch.placement import Place, check_world_size, place
from real.machine import cores, cpu_name
from reports.analysis.repeats import Play, Plays
from reports.errors import NoStepError, ReportError
from reports.run import Run
from reports.sections.validation import VALIDATION, ValidationView
from reports.store import run_folder as store
from reports.terminal.present import check_free, output, print_json, print_report
from reports.validation import folder as validation_folder
from reports.validation.validation import Validation
from reports.writer import write
from scenarios.config.scenario import Scenario
from scenarios.config.warnings import notes, notes_of_measuring
from scenarios.interruption import code_of
from scenarios.progress_line import ProgressLine, print_notes
from scenarios.seam.errors import ProgramError, ScenarioError
from scenarios.versions import versions
from twinstep.validation import options as command_line

# Steps of one process resemble each other: one round, however steady, does not show how rounds differ.
_LEAST_ROUNDS = 2
_LAST = "measured"


def validate(arguments: Sequence[str], prog: str = "python -m real validate") -> int:
    """Validate; return 0, 1 for an error past --max-error or an early end, 2 for a mistake, or 128 + n for signal n."""
    options = command_line.parse(arguments, prog)
    command = f"{prog} {shlex.join(arguments)}"
    here: Place | None = None
    try:
        here = place()
        command_line.check(options, here)
        scenarios = command_line.load_all(options)
        return _validate(scenarios, options, command, here)
    except (ScenarioError, ReportError) as error:
        if here is None or here.rank == 0:
            print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption)


def _validate(scenarios: Sequence[Scenario], options: argparse.Namespace, command: str, here: Place | None) -> int:
    is_first = here is None or here.rank == 0
    folder = options.out or store.fresh_folder("runs", "validate")
    if is_first:
        check_free(folder)
    _check_programs(scenarios)
    session = _Session(options, command, folder)
    if here is not None:
        # torchrun or srun has started this process as one rank: it serves the only round.
        (scenario,) = scenarios
        from real.launch.worker import RankWorker

        check_world_size(scenario, here)
        measured = RankWorker(job_of(scenario, session.folder_of(scenario) / _LAST, check="never"), here).serve()
        if measured is None:
            return 0
        warnings.simplefilter("default")
        session.play(scenario, lambda heard: (path for path in [measured]), is_last=True)
        return session.end()
    places = _places(scenarios, options.emulate)
    for number, (scenario, hosts) in enumerate(zip(scenarios, places, strict=True), 1):
        print_notes(notes(scenario))
        print_notes(notes_of_measuring(scenario, 0 if options.quiet or options.json else cores(), cpu_name()))
        if not session.play(
            scenario, _launches(scenario, session.folder_of(scenario), hosts), is_last=number == len(scenarios)
        ):
            break
    return session.end()


def _check_programs(scenarios: Iterable[Scenario]) -> None:
    """Build every program, so that a program that does not fit its cluster is refused before anything runs."""
    from scenarios.workloads.build import build

    for scenario in scenarios:
        build(scenario)


def _places(scenarios: Sequence[Scenario], name: str | None) -> list[AbstractContextManager[Hosts]]:
    """Return for each scenario a context that yields the hosts to measure it on: this machine, or emulated hosts.

    Raises:
        ScenarioError: a scenario's hosts cannot be emulated.
    """
    if name is not None:
        netns.check_able()
        fabrics = [fabric_of(scenario) for scenario in scenarios]
        if name:
            return [nullcontext(running_hosts(name, fabric)) for fabric in fabrics]
    tell = say_once()
    return [hosts_for(scenario, name, tell) for scenario in scenarios]


Heard = Callable[[int, int], None]
# Yields the run folder of each round.
Rounds = Callable[[Heard], Generator[Path]]


def _launches(scenario: Scenario, folder: Path, place: AbstractContextManager[Hosts]) -> Rounds:
    """Return a function that launches one round after the other; each replaces the run folder `folder`/measured.

    Measurements of a round that ended early lie in `folder`/round-N.
    """

    def play(heard: Heard) -> Generator[Path]:
        with place as hosts:
            for number in count(1):
                out, last = folder / f"round-{number}", folder / _LAST
                launch(job_of(scenario, out, check="never"), hosts=hosts, heard=partial(heard, number))
                # The latest whole round is kept as the measured run.
                shutil.rmtree(last, ignore_errors=True)
                yield out.rename(last)

    return play


class _Session:
    """A validation: the results so far, and the folder that is rewritten after each scenario."""

    def __init__(self, options: argparse.Namespace, command: str, folder: Path) -> None:
        self._options, self._folder = options, folder
        self._results: list[Validation] = []
        self._code = 0
        self._head: dict[str, Any] = {
            "command": command,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "is_complete": False,
            "emulated": options.emulate is not None,
            "options": {name: getattr(options, name) for name in ("draws", "rounds", "precision", "max_error")},
            "machine": _machine(),
            "versions": versions(),
        }

    def folder_of(self, scenario: Scenario) -> Path:
        """Return the folder of a scenario's predicted and measured runs."""
        return self._folder / store.folder_name(scenario.name)

    def play(self, scenario: Scenario, rounds: Rounds, *, is_last: bool) -> bool:
        """Predict and measure one scenario, and store the result; return whether to go on with other scenarios."""
        self.folder_of(scenario).mkdir(parents=True, exist_ok=True)
        predicted: Plays | None = None
        plays: list[Play] = []
        ended, code = "", 0
        try:
            with ProgressLine(quiet=self._options.quiet, ticks=True) as bar:
                predicted = Plays(list(self._predict(scenario, bar)))
                self._measure(scenario, rounds, plays, bar)
        except RunEnded as error:
            ended, code = str(error), error.code
        except (ProgramError, NoStepError) as error:
            ended, code = str(error), 1
        except KeyboardInterrupt as interruption:
            code = code_of(interruption)
            ended = f"the run was interrupted by {signal.Signals(code - 128).name}"
        measured = Plays(plays) if plays else None
        result = Validation(
            name=scenario.name,
            file=str(scenario.path),
            digest=scenario.digest(),
            library=scenario.run.library,
            world_size=scenario.cluster.world_size,
            steps=scenario.run.steps,
            predicted=predicted,
            measured=measured,
            ended=ended,
            is_too_noisy=measured is not None and not measured.is_known_to(self._options.precision),
        )
        self._add(result, code)
        self._head["is_complete"] = is_last and code <= 1
        # Written after each scenario, so that an interruption loses only the current one.
        validation_folder.write(self._folder, self._head, self._results)
        return code <= 1

    def end(self) -> int:
        """Print the results; return the exit code."""
        options, max_error = self._options, self._options.max_error
        with output():
            if options.quiet:
                print(self._folder)
            elif options.json:
                print_json(validation_folder.content(self._head, self._results))
            else:
                held = validation_folder.as_validated(self._folder, self._head, self._results)
                view = ValidationView(held, self._results, options.precision, max_error)
                print_report(VALIDATION, view)
                print(f"validation folder: {self._folder}")
        past = [one for one in self._results if max_error is not None and one.is_past(max_error)]
        say(f"{one.name}: error {one.error:+.1%}: expected at most --max-error = {max_error:g}" for one in past)
        return self._code or (1 if past else 0)

    def _predict(self, scenario: Scenario, bar: ProgressLine) -> Iterator[Play]:
        from scenarios.workloads.build import build
        from sim.draws import draws

        program, count = build(scenario), self._options.draws
        if not program.needs_values:
            # Without values a prediction is faster and gives the same times.
            scenario = scenario.with_run(payload="sizes")
            program = build(scenario)
        bar.show(f"{scenario.name}: predicting", 0, count + 1)
        for draw, recording in enumerate(draws(scenario, program, count)):
            if draw == 0:
                write(recording, self.folder_of(scenario) / "predicted")
            yield Play.of(Run.of(recording))
            bar.show(f"{scenario.name}: predicting", draw + 1, count + 1)

    def _measure(self, scenario: Scenario, rounds: Rounds, plays: list[Play], bar: ProgressLine) -> None:
        """Append rounds to `plays` until the median is precise enough or --rounds is reached."""

        def hear(number: int, step: int) -> None:
            bar.show(f"{scenario.name}: measuring, round {number}", step, scenario.run.steps)

        with closing(rounds(hear)) as folders:
            for folder in folders:
                plays.append(Play.of(store.load(folder)))
                is_known = len(plays) >= _LEAST_ROUNDS and Plays(plays).is_known_to(self._options.precision)
                if is_known or len(plays) >= self._options.rounds:
                    break

    def _add(self, validation: Validation, code: int) -> None:
        self._results.append(validation)
        self._code = max(self._code, code)
        if validation.ended:
            say([f"{validation.name}: {validation.ended}"])


def _machine() -> dict[str, Any]:
    return {
        "name": platform.node() or "unknown",
        "cpu": cpu_name(),
        "cores": cores(),
        "kernel": f"{platform.system()} {platform.release()}",
    }
