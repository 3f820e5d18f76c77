"""`python -m scenarios`: check scenario files, list ready ones, and print the schema for editors; nothing is run.

Imports are inside the commands, so that help is quick and Ctrl-C is quiet while pydantic loads, too.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from scenarios.interruption import code_of
from scenarios.progress_line import fold_paragraph, print_notes

if TYPE_CHECKING:
    from scenarios.config.gpu import Gpu
    from scenarios.config.provenance import Measured
    from scenarios.config.scenario import Scenario
    from scenarios.planner.placed import Plan

_INDENT = "    "
_CLASSES_LATER = "the number of simulated hosts, and the memory that they need, are known only after the script has run"


def main(arguments: Sequence[str] | None = None, prog: str = "python -m scenarios") -> int:
    """Run the command and return its exit code.

    Exit codes: 0 done, 1 the output cannot be written, 2 a file has mistakes, 128 + n for signal n.
    """
    code = 0
    try:
        with _output():
            code = _run(_parser(prog).parse_args(arguments))
    except KeyboardInterrupt as interruption:
        return code_of(interruption)
    except OSError as error:
        if error.filename is not None:  # the error of a file, not of the output
            raise
        with suppress(OSError):
            print(f"stdout: {error.strerror}; expected room for the output", file=sys.stderr)
        return 1
    return code


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Check scenario files; list scenarios, profiles and keys.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    checked = commands.add_parser("check", help="check scenario files and report all mistakes")
    checked.add_argument("files", nargs="+", metavar="FILE", help="scenario file, or name of a ready scenario")
    checked.add_argument(
        "--no-code",
        action="store_true",
        help="do not run the Python that a file names (program, model.dense); check everything else",
    )
    planned = commands.add_parser(
        "planner", aliases=["plan"], help="show where TorchRec's planner places a scenario's tables, and how balanced"
    )
    planned.add_argument("file", metavar="FILE", help="scenario file, or name of a ready scenario")
    planned.add_argument("--out", metavar="PLAN", help="also write the plan to this new file, as TorchRec's JSON")
    planned.add_argument(
        "--module", metavar="PATH", help="path of the tables' module in that plan (default: as in TorchRec's DLRM)"
    )
    commands.add_parser("list", help="list the ready scenarios")
    profiles = commands.add_parser("profiles", help="list hardware and failure profiles, with their main figures")
    profiles.add_argument(
        "files", nargs="*", metavar="PROFILE", help="profile file, or name of a ready one (default: all ready ones)"
    )
    profile = commands.add_parser("profile", help="print a profile's file, as a start for a profile of your own")
    profile.add_argument("name", metavar="NAME", help="name of a ready profile")
    commands.add_parser("schema", help="print the JSON Schema of scenario files, for completion in editors")
    commands.add_parser("keys", help="print every key of scenario files with its meaning, as Markdown")
    return parser


def _run(options: argparse.Namespace) -> int:
    from scenarios.config.toml.mistakes import report_mistakes

    if options.command == "check":
        return check_files(options.files, runs_code=not options.no_code)
    if options.command in ("planner", "plan"):
        return print_plan(options.file, options.out, options.module)
    printed: dict[str, Callable[[], None]] = {
        "list": list_library,
        "profiles": lambda: list_profiles(options.files),
        "profile": lambda: print_profile(options.name),
        "schema": print_schema,
        "keys": print_keys,
    }
    with report_mistakes():
        printed[options.command]()
    return 0


def check_files(files: Sequence[str], *, runs_code: bool = True) -> int:
    """Print `FILE: ok` for each file, or its mistakes to stderr; return 2 if any file has mistakes.

    If `runs_code` is False, the Python that files name is not run, and values that depend on it are not checked.
    """
    from scenarios.config.load import check_without_code, load
    from scenarios.config.warnings import notes
    from scenarios.seam.errors import ScenarioError
    from scenarios.workloads.build import are_classes_known, build_unprepared, effort_of

    code = 0
    for file in files:
        try:
            scenario = load(file) if runs_code else check_without_code(file)
            program = build_unprepared(scenario) if scenario is not None else None
        except ScenarioError as error:
            code = 2
            with _output():
                print(*error.sentences, sep="\n", file=sys.stderr)
        else:
            with _output():  # one context per file, so that all are checked even if the reader closes the pipe
                if scenario is None or program is None:
                    print(f"{file}: ok, except for the Python that it names, which was not run")
                    continue
                print(f"{file}: ok")
                print_notes(notes(scenario, program.host_classes, effort_of(scenario, program)))
                if not are_classes_known(scenario, program):
                    print_notes([f"{scenario.path}: run.ranks = 'alike': {_CLASSES_LATER}"])
    return code


def print_plan(file: str, out: str | None = None, module: str | None = None) -> int:
    """Print where a scenario's tables are placed, and write it to a file; exit code 2 if no plan fits or is needed."""
    from scenarios.config.load import load, report_mistakes
    from scenarios.planner.plan_file import MODULE, plan_json
    from scenarios.planner.plan_text import format_plan
    from scenarios.seam.errors import ScenarioError
    from scenarios.workloads.registry import built_in
    from twinstep.options import write_new

    with report_mistakes():
        scenario = load(file)
        plan = _plan_of(scenario)
        if plan is None:
            names = " or ".join(f"'{name}'" for name, one in built_in().items() if getattr(one.workload, "plans", ""))
            raise ScenarioError(
                f"{scenario.path}: program = '{scenario.program}': expected {names}, whose tables are planned"
            )
        if scenario.workload.replicas is not None:
            groups = scenario.cluster.world_size // scenario.sharding_ranks
            print(f"for each of {groups} sharding groups: rank n is the group's n-th of {scenario.sharding_ranks}\n")
        print(format_plan(plan))
        if out is not None:
            host = scenario.cluster.host
            write_new(
                out, plan_json(plan, scenario.sharding_host_ranks, host.gpu.kind, MODULE if module is None else module)
            )
            print(f"plan: {out}")
    return 0


def _plan_of(scenario: Scenario) -> Plan | None:
    """Return the plan of the tables of the scenario's program; None for a program without planned tables."""
    from scenarios.workloads.locate import import_named

    planner = scenario.workload.plans
    plan: Plan | None = import_named(planner, scenario.program_folder)(scenario) if planner else None
    return plan


def list_library() -> None:
    """Print each ready scenario: its name, cluster and description; and where all files are."""
    from scenarios.config.catalogue import library_files
    from scenarios.config.load import load
    from twinstep.catalogue import describe

    for path in library_files():
        scenario = load(path)
        cluster = scenario.cluster
        size = f"{cluster.hosts} x {cluster.host.gpus} {cluster.host.gpu.name}"
        print(path.stem, fold_paragraph(f"{scenario.program} on {size}: {describe(path)}", _INDENT), sep="\n")
    print(f"files: {path.with_name('NAME.toml')}")


def list_profiles(files: Sequence[str] = ()) -> None:
    """Print each ready profile, or each given one: its name, main figures, description and how it was measured."""
    from scenarios.config.catalogue import profile_file, profile_files
    from scenarios.config.load import load_measured, load_profile
    from scenarios.config.units import format_bytes, format_rate
    from twinstep.catalogue import describe

    given = [(profile_file(file) or file, file) for file in files]
    for path, name in given or [(str(path), path.stem) for path in profile_files()]:
        host = load_profile(name).host
        nic = f"{host.nics.count} x {format_rate(host.nics.link.bytes_per_s)} to the network"
        gpu = f"{host.gpus} x {host.gpu.name} with {format_bytes(host.gpu.memory_bytes)}"
        inside = f"{format_rate(host.inside.gpu_bytes_per_s(host.gpus))} {host.inside.kind}"
        print(name, fold_paragraph(f"{describe(path)}\n{gpu}, {inside}, {nic}", _INDENT), sep="\n")
        if (measured := load_measured(name)) is not None:
            _print_measured(measured)
        for table in host.gpu.kernel_tables:
            _print_kernel_table(table, host.gpu)
    if not files:
        _print_failure_profiles()


def _print_failure_profiles() -> None:
    """Print each ready failure profile: its name, description, mean time between failures and source."""
    from scenarios.config.catalogue import failure_profiles
    from scenarios.config.toml.tree import read_toml

    print("\nfailure profiles, for job.failures.profile:")
    for path in failure_profiles():
        values = read_toml(str(path))
        failures: Any = values["failures"]
        # The three rates of each kind, on 128 hosts of 8 GPUs.
        sizes = {"per_gpu_day": 1024, "per_host_day": 128, "per_day": 1}
        kinds = [kind for kind in failures["kinds"] if not kind.get("planned")]
        a_day = sum(kind.get(rate, 0.0) * count for kind in kinds for rate, count in sizes.items())
        often = f"1,024 GPUs on 128 hosts fail every {24 / a_day:.3g} h"
        grade = {"read": "read there", "memory": "from memory"}[failures["grade"]]
        source = f"source: {failures['source']}, {failures['date']}, {grade}"
        print(path.stem, fold_paragraph(f"{values['description']}\n{often}\n{source}", _INDENT), sep="\n")


def print_profile(name: str) -> None:
    """Print the file of a ready hardware or failure profile, as a template for a profile file."""
    from scenarios.config.catalogue import failure_profiles, profile_file
    from scenarios.config.load import load_profile

    path = profile_file(name, failure_profiles)
    if not path:
        load_profile(name)  # reports mistakes in the name
        path = profile_file(name) or name
    with open(path, encoding="utf-8") as stream:
        print(stream.read(), end="")


def _print_kernel_table(name: str, gpu: Gpu) -> None:
    """Print the number of operators in a profile's table, who measured them, and the errors of predictions."""
    from sim.operators.tables.read import about_table

    table = about_table(name, gpu)
    counted = f"{table.rows:,} measured operators of {'; '.join(table.machines)}: {'; '.join(table.sources)}"
    print(fold_paragraph(counted, _INDENT))
    for each in table.quality:
        place = "with each shape left out in turn" if each.is_whole else "between the table's shapes"
        errors = f"{each.law_error:.1%} by the law alone, {each.table_error:.1%} {place}"
        print(fold_paragraph(f"{each.operator}, {each.measured:,} shapes: mean error {errors}", 2 * _INDENT))


def _print_measured(measured: Measured) -> None:
    from scenarios.config.units import format_bytes

    cpu = f" ({measured.cpu})" if measured.cpu else ""
    print(fold_paragraph(f"measured on {measured.machine}{cpu}, {measured.date}, by {measured.command}", _INDENT))
    for group in measured.groups:
        sizes = f"{format_bytes(group.least_bytes)} to {format_bytes(group.most_bytes)}"
        errors = f"typical error {group.typical_error:.0%}, {group.median_error:+.0%} in the median"
        spread = "" if group.spread is None else f", spread {group.spread:.0%}"
        print(
            fold_paragraph(f"{group.name}, {sizes}: {errors}, {group.worst_error:+.0%} at worst{spread}", 2 * _INDENT)
        )


def print_schema() -> None:
    """Print the JSON Schema of a scenario file."""
    from scenarios.config.toml.schema import json_schema

    print(json.dumps(json_schema(), indent=2))


def print_keys() -> None:
    """Print the reference of all keys."""
    from scenarios.config.toml.schema import reference

    print(reference(), end="")


@contextmanager
def _output() -> Iterator[None]:
    """Wrap all printing: letters that the terminal lacks become "?", and a closed pipe is no error."""
    # None if it was closed before the process started
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal's encoding may lack the letters of tables, which must not end a command.
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            yield
        finally:
            for stream in streams:
                stream.flush()
    except OSError as error:
        for stream in streams:
            _forget_unwritten(stream)
        if not isinstance(error, BrokenPipeError):
            raise


def _forget_unwritten(stream: TextIO) -> None:
    """Redirect a broken stream to null, so that Python does not report a second error at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
