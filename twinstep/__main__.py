"""The command `twinstep`: one word for each of the project's commands, whose modules parse the rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from scenarios.interruption import end
from twinstep.measurement import leave


class _Command(NamedTuple):
    """A command of a module: `main(words + further arguments, prog)`.

    `prog` lacks the words that the module's parser adds itself.
    """

    module: str
    words: tuple[str, ...]
    prog: str
    about: str


_PREDICTION, _MEASUREMENT, _REPORTING = "twinstep.prediction", "twinstep.measurement", "twinstep.reporting.cli"
_FILES = "twinstep.scenario_files"
_COMMANDS = {
    "predict": _Command(_PREDICTION, (), " predict", "predict how long a scenario's steps take"),
    "sweep": _Command(_PREDICTION, ("sweep",), " sweep", "predict many variations of a scenario: a study"),
    "search": _Command(_PREDICTION, ("search",), " search", "search a study's variations for the best ones"),
    "curves": _Command(_PREDICTION, ("curves",), " curves", "how a scenario scales, and on what its step depends"),
    "run": _Command(_MEASUREMENT, (), " run", "run a scenario on real processes, also under torchrun and srun"),
    "validate": _Command(_MEASUREMENT, ("validate",), " validate", "predict scenarios, measure them, compare both"),
    "regret": _Command(_MEASUREMENT, ("regret",), " regret", "predict and measure a study: is the best the best?"),
    "calibrate": _Command(_MEASUREMENT, ("calibrate",), " calibrate", "measure this machine: a hardware profile"),
    "report": _Command(_REPORTING, (), " report", "tables and a page of run folders, and other readers of runs"),
    "compare": _Command(_REPORTING, ("compare",), "", "a predicted beside a measured run"),
    "check": _Command(_FILES, ("check",), "", "check scenario files: all mistakes in one go"),
    "check-ranks": _Command(
        _MEASUREMENT, ("check",), " check-ranks", "do these ranks compute what the simulator does? (real check)"
    ),
    "list": _Command(_FILES, ("list",), "", "the ready scenarios, which go by their names"),
}


def main(arguments: Sequence[str] | None = None, prog: str = "twinstep") -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in _COMMANDS:
        _parser(prog).parse_args(words)  # help, the release, or a mistake
    command = _COMMANDS[words[0]]
    code: int = import_module(command.module).main([*command.words, *words[1:]], prog=prog + command.prog)
    return code


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict how long a distributed training step takes, run the same code, and compare.",
        epilog=f"'{prog} COMMAND --help' says more.",
    )
    parser.add_argument("--version", action=_Release, nargs=0, help="print the release")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        commands.add_parser(name, help=command.about)
    return parser


class _Release(argparse.Action):
    """An option that looks up the release only when it is given."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from twinstep import __version__

        print(f"twinstep {__version__}")
        parser.exit()


def script(prog: str = "twinstep") -> NoReturn:
    """Run the command line, and exit with its code."""
    end(lambda: main(sys.argv[1:], prog), leave)


if __name__ == "__main__":
    script("python -m twinstep")
