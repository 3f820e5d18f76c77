"""`twinstep init`: write a first scenario for a file of tables, by options or by questions on a terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.interruption import NOTHING, code_of
from scenarios.progress_line import fold_paragraph
from scenarios.seam.errors import ScenarioError

if TYPE_CHECKING:
    from scenarios.config.hardware import Cluster
    from scenarios.config.scenario import Scenario
    from twinstep.scenario_draft import ScenarioDraft

PROFILE, HOSTS, BATCH_SIZE, OUT = "dgx_h100", 2, 2048, "job.toml"


def main(arguments: Sequence[str] | None = None, prog: str = "twinstep init") -> int:
    """Run the command and return its exit code: 0 done, 2 for a mistake."""
    from scenarios.config.toml.mistakes import report_mistakes

    options = _parser(prog).parse_args(arguments)
    try:
        with report_mistakes():
            is_asked = not any(value is not None for value in vars(options).values())
            if is_asked and sys.stdin is not None and sys.stdin.isatty():
                _ask_all(options)
            write_scenario(_draft(options))
    except KeyboardInterrupt as interruption:
        return code_of(interruption, NOTHING)
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Write a first scenario for a file of tables, with a comment on each key. Without options, on a"
        " terminal, the command asks for them.",
    )
    about = "CSV or Parquet file with a line per table (twinstep docs scenario)"
    parser.add_argument("--tables", metavar="FILE", help=about)
    parser.add_argument("--profile", metavar="NAME", help=f"name or file of the hardware (default: {PROFILE})")
    parser.add_argument("--hosts", type=int, metavar="N", help=f"number of hosts (default: {HOSTS})")
    parser.add_argument("--gpus-per-host", type=int, metavar="N", help="GPUs of each host (default: the profile's)")
    parser.add_argument("--batch-size", type=int, metavar="N", help=f"samples per GPU (default: {BATCH_SIZE})")
    parser.add_argument("--out", metavar="FILE", help=f"scenario file to be written (default: {OUT})")
    return parser


def write_scenario(draft: ScenarioDraft) -> None:
    """Write the scenario, unless it has mistakes, and print what it is and what to look at.

    Raises:
        ScenarioError: the file exists, cannot be written, or would have mistakes, such as those of the table file.
    """
    from scenarios.config.load import load
    from scenarios.config.units import format_bytes
    from twinstep.options import write_new
    from twinstep.scenario_draft import CHECK

    text, out = draft.text(), str(draft.out)
    write_new(out, text)
    try:
        scenario = load(out)
    except BaseException:
        draft.out.unlink()
        raise
    lines = text.splitlines()
    # A comment on a line of its own is about the next line.
    marked = [n + line.startswith("#") for n, line in enumerate(lines) if f"# {CHECK}:" in line]
    size = format_bytes(draft.table_bytes)
    tables = f"{draft.count:,} table{'s' * (draft.count != 1)} ({size} in float32)"
    print(f"{out}: {tables} on {draft.hosts} x {draft.gpus_per_host} {draft.gpu}")
    first = ", ".join(f"{lines[n].partition(' =')[0]} (line {n + 1})" for n in marked)
    print(fold_paragraph(first, "check first: ", ""))
    if advice := _too_large(scenario):
        print(fold_paragraph(advice, "note: "))
    print(f"next: twinstep predict {out}")
    print(f"then: twinstep plan {out}, which looks for a faster plan of the tables")


def _too_large(scenario: Scenario) -> str:
    """Return what to do if the rows in GPU memory do not fit there all together; "" if they may."""
    from scenarios.config.scenario import Recommender
    from scenarios.config.units import format_bytes

    workload, cluster = Recommender.of(scenario.workload), scenario.cluster
    on_gpus = [table for table in workload.model.tables if not scenario.kernel_of(table).is_in_host]
    size = sum(table.rows * (4 * table.dim + workload.model.optimizer.state_bytes(table.dim)) for table in on_gpus)
    room = cluster.host.gpu.memory_bytes * cluster.host.gpus * (1 - workload.planner.reserved_share)
    if size <= room * cluster.hosts:
        return ""
    return (
        f"{format_bytes(size)} of rows and their optimizer's state do not fit into the"
        f" {format_bytes(int(room * cluster.hosts))} that the GPUs leave them: at least {ceil(size / room)} hosts are"
        " needed, or a column kernel with fused_uvm_caching for large tables"
    )


def _draft(options: argparse.Namespace) -> ScenarioDraft:
    """Return what the options describe.

    Raises:
        ScenarioError: with a sentence for each option that is not what is expected.
    """
    from scenarios.config.interconnect import default_library
    from twinstep.scenario_draft import ScenarioDraft

    out = options.out or OUT
    wrong: list[str] = []
    found: dict[str, Any] = {}
    asked: tuple[tuple[str, Callable[[Any], Any], Any], ...] = (
        ("tables", _tables, options.tables),
        ("profile", _profile, options.profile or PROFILE),
        ("hosts", _whole, HOSTS if options.hosts is None else options.hosts),
        ("gpus_per_host", _whole, options.gpus_per_host),
        ("batch_size", _whole, BATCH_SIZE if options.batch_size is None else options.batch_size),
        ("out", _new, out),
    )
    for name, read, given in asked:
        try:
            found[name] = read(given)
        except ScenarioError as error:
            wrong += error.sentences  # of the file itself
        except ValueError as error:
            value = "" if given is None else f" = {given}"
            wrong.append(f"--{name.replace('_', '-')}{value}: {error}")
    if wrong:
        raise ScenarioError(wrong)
    host = found["profile"].host
    return ScenarioDraft(
        table_file=options.tables,
        tables=found["tables"],
        profile=options.profile or PROFILE,
        gpu=host.gpu.name,
        library=default_library(host.gpu.kind),
        hosts=found["hosts"],
        gpus_per_host=found["gpus_per_host"] or host.gpus,
        batch_size=found["batch_size"],
        out=Path(out),
    )


def _tables(file: str | None) -> list[dict[str, Any]]:
    """Return the values of a table file's lines.

    Raises:
        ValueError: it is no such file; the message is the sentence's rest.
        ScenarioError: it has mistakes.
    """
    from scenarios.config.toml.table_file.read import read_tables

    if file is None:
        raise ValueError("missing; expected a CSV or Parquet file with the columns name, rows, dim and ids_per_sample")
    try:
        read = read_tables(Path(file))
    except ValueError as error:
        raise ValueError(f"expected {error}") from None
    if read.mistakes:
        raise ScenarioError(read.mistakes)
    return [values for _, values in read.tables]


def _profile(name: str) -> Cluster:
    """Return a host of a profile, given by name or path.

    Raises:
        ValueError: no profile has this name; the message is the sentence's rest.
        ScenarioError: the profile's file has mistakes.
    """
    from scenarios.config.catalogue import TEMPLATE, expected_profile, profile_names
    from scenarios.config.load import load_profile

    names = [known for known in profile_names() if known != TEMPLATE]
    if not name.endswith(".toml") and name not in names:
        raise ValueError(f"expected {expected_profile(name, names)}")
    return load_profile(name)


def _whole(number: int | None) -> int | None:
    if number is not None and number < 1:
        raise ValueError("expected a whole number of at least 1")
    return number


def _new(file: str) -> str:
    if not file.endswith(".toml"):
        raise ValueError("expected a path that ends in .toml")
    if os.path.lexists(file):
        raise ValueError("exists already; nothing is ever overwritten, give another file")
    return file


def _ask_all(options: argparse.Namespace) -> None:
    """Put the answers to the five questions into the options."""
    print("Five questions; Enter takes the value in brackets.", flush=True)
    tables = next((str(file) for file in sorted(Path().glob("*.csv"))), "tables.csv")
    options.tables = _ask("file of the tables (name, rows, dim, ids_per_sample; .csv or .parquet)", tables, _tables)
    options.profile = _ask("hardware of a host (`twinstep profiles` lists all)", PROFILE, _profile)
    options.hosts = int(_ask("number of hosts", str(HOSTS), _whole_text))
    options.batch_size = int(_ask("samples per GPU and step", str(BATCH_SIZE), _whole_text))
    options.out = _ask("scenario file to write", OUT, _new)


def _ask(question: str, usual: str, read: Callable[[str], object]) -> str:
    """Return the first answer that can be read; mistakes are printed, and asked again.

    Raises:
        ScenarioError: there are no further answers.
    """
    while True:
        try:
            answer = input(f"{question} [{usual}]: ").strip() or usual
        except EOFError:
            raise ScenarioError(f"{question}: expected an answer") from None
        try:
            read(answer)
        except ScenarioError as error:
            print(*error.sentences, sep="\n")
        except ValueError as error:
            print(f"{answer}: {error}")
        else:
            return answer


def _whole_text(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    _whole(number)
    return number
