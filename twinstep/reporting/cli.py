"""The entry point of `python -m reports`: reports, comparisons, exports, published predictions, profiles, traces.

Commands are loaded only after the words are parsed, so that help is quick and Ctrl-C is quiet while pandas loads.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from reports.errors import ReportError
from scenarios.interruption import code_of
from scenarios.seam.traits import TESTED

# The functions of `twinstep.reporting.commands`, and of `published` beside it.
_COMMANDS = {
    **{name: name for name in ("show", "compare", "export", "chakra", "kineto", "times", "recover")},
    "report": "report_runs",
}
_PUBLISHED = {"published": "predict_published", "calibrate": "calibrate"}
_MOST = 10**6  # nodes, and GPUs of one

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None, prog: str = "python -m reports") -> int:
    """Run one command and return its exit code.

    Exit codes: 0 done, 2 mistakes, each a sentence on stderr, 128 + n for signal n.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] not in (*_COMMANDS, *_PUBLISHED, "-h", "--help"):
        words.insert(0, "report")
    options = _parser(prog).parse_args(words, argparse.Namespace(typed=f"{prog} {shlex.join(words)}"))
    try:
        from reports.terminal.present import output

        run = _function(options.command)
        with output():
            run(options)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption)
    return 0


def _function(command: str) -> Any:
    """Return what a command does."""
    if command in _PUBLISHED:
        from twinstep.reporting import published

        return getattr(published, _PUBLISHED[command])
    from twinstep.reporting import commands

    return getattr(commands, _COMMANDS[command])


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Read the runs of sim and real.")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_readers(commands)
    _add_exports(commands)
    _add_published(commands)
    _add_measured(commands)
    return parser


def _add_readers(commands: _Commands) -> None:
    """Add the commands that show runs."""
    report = commands.add_parser("report", help="tables and a page of runs (also without the word report)")
    report.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="a run folder, or a study's; the first is the base"
    )
    _add_step_and_json(report)
    _add_out(report)
    show = commands.add_parser("show", help="the summary of one run, and nothing is written")
    show.add_argument("run", type=Path, help="a run folder")
    _add_step_and_json(show)
    both = commands.add_parser("compare", help="a predicted against a measured run, or all of a validation")
    both.add_argument("sim", type=Path, help="the folder of a simulated run; alone, that of a validation")
    both.add_argument("real", type=Path, nargs="?", help="the folder of a real run of the same scenario")
    both.add_argument("--any", action="store_true", help="also two runs of the same world")
    both.add_argument("--json", action="store_true", help="all tables as JSON, and nothing is written")
    _add_out(both)


def _add_exports(commands: _Commands) -> None:
    """Add the commands that write a run in other formats."""
    export = commands.add_parser("export", help="every frame of a run as CSV, or the kernels of a prediction alone")
    export.add_argument("run", type=Path, help="a run folder")
    files = export.add_mutually_exclusive_group(required=True)
    files.add_argument("--csv", type=Path, metavar="DIR", help="a new folder for the files")
    files.add_argument("--kernels-csv", type=Path, metavar="FILE.csv", help="a new file for the kernels alone")
    chakra = commands.add_parser("chakra", help="a step of a run as Chakra execution traces, for ASTRA-sim")
    chakra.add_argument("run", type=Path, help="a run folder")
    chakra.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder for a trace of each rank")
    chakra.add_argument("--step", type=int, help="the step that is written (default: a typical one)")


def _add_published(commands: _Commands) -> None:
    """Add the commands that take published times, or those of nccl-tests."""
    published = commands.add_parser(
        "published", help="predictions against published times of operators, collectives or steps"
    )
    _add_rows(published)
    published.add_argument("--json", action="store_true", help="all tables and rows as JSON")
    published.add_argument("--csv", type=Path, metavar="OUT.csv", help="a new file for the rows and their predictions")
    calibrate = commands.add_parser("calibrate", help="a hardware profile with what nccl-tests says of one's own NCCL")
    _add_rows(calibrate)
    calibrate.add_argument("--out", type=Path, required=True, metavar="OUT.toml", help="a new file for the profile")
    calibrate.add_argument("--json", action="store_true", help="what was fitted and all errors as JSON")


def _add_measured(commands: _Commands) -> None:
    """Add the commands that make files of what was measured."""
    kineto = commands.add_parser("kineto", help="a run folder of what torch.profiler exported")
    kineto.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="Chrome trace JSON, also .gz; one a rank")
    kineto.add_argument("--out", type=Path, required=True, metavar="RUN", help="a new run folder")
    kineto.add_argument(
        "--table", type=Path, metavar="FILE.parquet", help="a new file for the operators' times, which --kernels takes"
    )
    kineto.add_argument("--json", action="store_true", help="all tables of kernels as JSON")
    times = commands.add_parser("times", help="what computations took, for predictions to take")
    times.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run folder; several are one sample")
    times.add_argument("--csv", type=Path, metavar="FILE.csv", help="a new file for a scenario's run.compute_times")
    times.add_argument(
        "--table", type=Path, metavar="FILE.parquet", help="a new file for the operators' times, which --kernels takes"
    )
    times.add_argument(
        "--skip", type=_count_or_zero, metavar="N", help="first steps of each run to leave out (default: 1 of several)"
    )
    times.add_argument("--any", action="store_true", help="also predictions, and runs of several scenarios")
    recover = commands.add_parser("recover", help="a run of what the ranks of a killed launcher have left")
    recover.add_argument(
        "run", type=Path, help="the run folder that there is not, or the hidden spool folder beside it"
    )


def _add_step_and_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--step", type=int, help="the step whose critical path is shown (default: a typical one)")
    parser.add_argument("--json", action="store_true", help="all tables as JSON, and nothing is written")


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help="for all that is written (default: inside the runs)")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="CSV, or nccl-tests' output (docs/reports.md)"
    )
    parser.add_argument("--profile", metavar="NAME", help="this hardware profile, not the one that has the rows' GPU")
    header = parser.add_argument_group("nccl-tests' output", "what a header does not say")
    header.add_argument("--op", choices=TESTED, metavar="OP", help=f"one of {', '.join(TESTED)}")
    header.add_argument("--gpu", metavar="NAME", help="such as H100")
    header.add_argument("--nodes", type=_count, metavar="N")
    header.add_argument("--gpus-per-node", type=_count, metavar="N")


def _count(word: str, least: int = 1) -> int:
    if not (word.isascii() and word.isdigit() and least <= int(word) <= _MOST):
        raise argparse.ArgumentTypeError(f"{word!r}: expected a whole number from {least} to {_MOST:,}")
    return int(word)


def _count_or_zero(word: str) -> int:
    return _count(word, 0)
