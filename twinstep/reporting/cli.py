"""The entry point of `python -m reports`: reports, comparisons, exports, published predictions, profiles, traces.

Commands are loaded only after the words are parsed, so that help is quick and Ctrl-C is quiet while pandas loads.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from reports.errors import ReportError
from scenarios.interruption import code_of
from scenarios.seam.traits import TESTED
from twinstep.options import add_full

# The modules beside this one and their functions, which have the commands' names unless said otherwise.
_COMMANDS = {
    "report": ("commands", "report_runs"),
    **{name: ("commands", name) for name in ("show", "compare", "export", "chakra", "kineto", "times", "recover")},
    "published": ("published", "predict_published"),
    "calibrate": ("published", "calibrate"),
}
_MOST = 10**6  # nodes, and GPUs of one

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None, prog: str = "python -m reports") -> int:
    """Run one command and return its exit code.

    Exit codes: 0 done, 2 mistakes, each a sentence on stderr, 128 + n for signal n.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] not in (*_COMMANDS, "-h", "--help"):
        words.insert(0, "report")
    options = _parser(prog).parse_args(words, argparse.Namespace(typed=f"{prog} {shlex.join(words)}"))
    try:
        from reports.terminal.present import output

        module, function = _COMMANDS[options.command]
        run = getattr(import_module(f"twinstep.reporting.{module}"), function)
        with output():
            run(options)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption)
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Report on run folders, convert them, and compare predictions with published times."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_readers(commands)
    _add_exports(commands)
    _add_published(commands)
    _add_measured(commands)
    return parser


def _add_readers(commands: _Commands) -> None:
    """Add the commands that show runs."""
    report = commands.add_parser("report", help="show tables of runs and write a page (the word report is optional)")
    report.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folder, or folder of a study; several runs are compared with the first",
    )
    _add_step_and_json(report)
    _add_out(report)
    show = commands.add_parser("show", help="show the summary of one run, write nothing")
    show.add_argument("run", type=Path, help="run folder")
    _add_step_and_json(show)
    both = commands.add_parser("compare", help="compare a predicted with a measured run, or all runs of a validation")
    both.add_argument("sim", type=Path, help="folder of the predicted run, or of a validation if given alone")
    both.add_argument("real", type=Path, nargs="?", help="folder of the measured run of the same scenario")
    both.add_argument("--any", action="store_true", help="also compare two predicted or two measured runs")
    both.add_argument("--json", action="store_true", help="print all tables as JSON, write nothing")
    _add_out(both)


def _add_exports(commands: _Commands) -> None:
    """Add the commands that write a run in other formats."""
    export = commands.add_parser("export", help="write all frames of a run as CSV, or only a prediction's kernels")
    export.add_argument("run", type=Path, help="run folder")
    files = export.add_mutually_exclusive_group(required=True)
    files.add_argument("--csv", type=Path, metavar="DIR", help="new folder with one file per frame")
    files.add_argument("--kernels-csv", type=Path, metavar="FILE.csv", help="new file with only the kernels")
    chakra = commands.add_parser("chakra", help="write a step of a run as Chakra execution traces, for ASTRA-sim")
    chakra.add_argument("run", type=Path, help="run folder")
    chakra.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder with one trace per rank")
    chakra.add_argument("--step", type=int, metavar="N", help="step to write (default: the one of median time)")


def _add_published(commands: _Commands) -> None:
    """Add the commands that take published times, or those of nccl-tests."""
    published = commands.add_parser(
        "published", help="compare predictions with published times of operators, collectives or steps"
    )
    _add_rows(published)
    published.add_argument("--json", action="store_true", help="print all tables and rows as JSON")
    published.add_argument("--csv", type=Path, metavar="OUT.csv", help="new file for the rows and their predictions")
    calibrate = commands.add_parser("calibrate", help="fit a profile's NCCL figures to the output of nccl-tests")
    _add_rows(calibrate)
    calibrate.add_argument("--out", type=Path, required=True, metavar="OUT.toml", help="new file for the profile")
    calibrate.add_argument("--json", action="store_true", help="print the fitted figures and all errors as JSON")


def _add_measured(commands: _Commands) -> None:
    """Add the commands that make files of what was measured."""
    kineto = commands.add_parser("kineto", help="write a run folder from traces of torch.profiler")
    kineto.add_argument(
        "traces", type=Path, nargs="+", metavar="TRACE", help="Chrome trace (JSON, also .gz), one per rank"
    )
    kineto.add_argument("--out", type=Path, required=True, metavar="RUN", help="new run folder")
    _add_table(kineto)
    kineto.add_argument("--json", action="store_true", help="print all tables of kernels as JSON")
    times = commands.add_parser("times", help="write the compute times of measured runs, for use in predictions")
    times.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folder; several are pooled")
    times.add_argument("--csv", type=Path, metavar="FILE.csv", help="new file for a scenario's run.compute_times")
    _add_table(times)
    times.add_argument(
        "--skip",
        type=_count_or_zero,
        metavar="N",
        help="leave out the first N steps of each run (default: 1 if the run has several)",
    )
    times.add_argument("--any", action="store_true", help="also accept predictions, and runs of different scenarios")
    recover = commands.add_parser("recover", help="write the run folder of a launcher that was killed")
    recover.add_argument(
        "run", type=Path, help="run folder that the launcher would have written, or the hidden spool folder beside it"
    )


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table", type=Path, metavar="FILE.parquet", help="new file for the operators' times, for option --kernels"
    )


def _add_step_and_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step", type=int, metavar="N", help="step whose critical path is shown (default: the one of median time)"
    )
    add_full(parser)
    parser.add_argument("--json", action="store_true", help="print all tables as JSON, write nothing")


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for all output (default: in the run folders)")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="CSV file, or output of nccl-tests (twinstep docs measurements)",
    )
    parser.add_argument("--profile", metavar="NAME", help="hardware profile (default: the one with the rows' GPU)")
    header = parser.add_argument_group("for output of nccl-tests", "facts that its header may lack")
    header.add_argument("--op", choices=TESTED, metavar="OP", help=f"one of {', '.join(TESTED)}")
    header.add_argument("--gpu", metavar="NAME", help="name of the GPU, such as H100")
    header.add_argument("--nodes", type=_count, metavar="N", help="number of nodes")
    header.add_argument("--gpus-per-node", type=_count, metavar="N", help="number of GPUs per node")


def _count(word: str, least: int = 1) -> int:
    if not (word.isascii() and word.isdigit() and least <= int(word) <= _MOST):
        raise argparse.ArgumentTypeError(f"{word!r}: expected a whole number from {least} to {_MOST:,}")
    return int(word)


def _count_or_zero(word: str) -> int:
    return _count(word, 0)
