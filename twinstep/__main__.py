"""The command `twinstep`: one word for each of the project's commands, whose modules parse the rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from scenarios.interruption import end
from twinstep.measurement import leave


class Command(NamedTuple):
    """A command of a module: `main(words + further arguments, prog)`.

    `prog` lacks the words that the module's parser adds itself.
    """

    module: str
    words: tuple[str, ...]
    prog: str
    about: str


_PREDICTION, _MEASUREMENT, _REPORTING = "twinstep.prediction", "twinstep.measurement", "twinstep.reporting.cli"
_FILES = "twinstep.scenario_files"
COMMANDS = {
    "predict": Command(_PREDICTION, (), " predict", "predict how long the steps of a scenario or script take"),
    "plan": Command(
        "twinstep.plan_choice.cli", (), " plan", "find the fastest plan of a scenario's tables, and say why"
    ),
    "sweep": Command(_PREDICTION, ("sweep",), " sweep", "predict all variations of a scenario that a study describes"),
    "search": Command(_PREDICTION, ("search",), " search", "search a study for its best variations"),
    "curves": Command(_PREDICTION, ("curves",), " curves", "show how a scenario scales and what its step depends on"),
    "run": Command(_MEASUREMENT, (), " run", "run a scenario or script on real processes (also torchrun, srun)"),
    "run-job": Command(
        _MEASUREMENT, ("job",), " run-job", "run a job on real ranks that are killed, and compare lost time"
    ),
    "validate": Command(_MEASUREMENT, ("validate",), " validate", "predict scenarios, measure them, and compare both"),
    "regret": Command(_MEASUREMENT, ("regret",), " regret", "measure how good the choices of a study are"),
    "calibrate": Command(_MEASUREMENT, ("calibrate",), " calibrate", "measure this machine and write its profile"),
    "report": Command(_REPORTING, (), " report", "show tables of run folders and write pages; more: report --help"),
    "compare": Command(_REPORTING, ("compare",), "", "compare a predicted with a measured run"),
    "check": Command(_FILES, ("check",), "", "check scenario files and report all mistakes"),
    "check-ranks": Command(
        _MEASUREMENT, ("check",), " check-ranks", "check that real ranks compute what the simulator computes"
    ),
    "init": Command("twinstep.scenario_init", (), " init", "write a first scenario for a file of tables"),
    "import": Command(
        "twinstep.table_import.cli", (), " import", "write the tables of a TorchRec model as a table file"
    ),
    "planner": Command(_FILES, ("planner",), "", "show where TorchRec's planner places a scenario's tables"),
    "list": Command(_FILES, ("list",), "", "list the ready scenarios"),
    "profiles": Command(_FILES, ("profiles",), "", "list the hardware that a scenario can name"),
    "profile": Command(_FILES, ("profile",), "", "print a profile's file, as a start for one of your own"),
    "schema": Command(_FILES, ("schema",), "", "print the JSON Schema of scenario files, for editors"),
    "keys": Command(_FILES, ("keys",), "", "print every key of scenario files with its meaning"),
    "docs": Command("twinstep.docs.cli", (), " docs", "list the documentation's pages, print one, or search them"),
    "nccl": Command("twinstep.nccl_sweep", (), " nccl", "predict a collective over sizes, in nccl-tests' columns"),
    "completion": Command("twinstep.completion", (), " completion", "print a script for your shell: names by Tab"),
    "emulate": Command(_MEASUREMENT, ("emulate",), " emulate", "make hosts with links of given rates on this machine"),
}


def main(arguments: Sequence[str] | None = None, prog: str = "twinstep") -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        _parser(prog).parse_args(words)  # help, the release, or a mistake
    command = COMMANDS[words[0]]
    code: int = import_module(command.module).main([*command.words, *words[1:]], prog=prog + command.prog)
    return code


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict how long a distributed training step takes, run the same code on real processes, and"
        " compare.",
        epilog=f"'{prog} COMMAND --help' shows the options of a command.",
    )
    parser.add_argument("--version", action=_Release, nargs=0, help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
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
