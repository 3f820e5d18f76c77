"""Options that several commands share: how each is written, what it overrides, and which values are possible."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.config.overrides.option import add_set, parse_values

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ArgumentGroup

    from scenarios.config.scenario import Scenario

    Parser = ArgumentParser | _ArgumentGroup

# Options that replace a scenario's own key; `--set` is for all other keys.
_OVERRIDES: dict[str, dict[str, Any]] = {
    "steps": {"type": int, "help": "number of steps"},
    "seed": {"type": int, "help": "seed of ids, splits and initial weights"},
    "batch_size": {"type": int, "help": "samples per rank"},
    "library": {"help": "library of the collectives: gloo or nccl"},
    "payload": {"help": "values: tensors hold numbers; sizes: tensors only have shapes"},
    "fidelity": {"help": "flows: simulate every transfer; links: simulate large groups more coarsely"},
    "ranks": {"help": "each: simulate every rank; alike: simulate one host of each host class"},
    "profile": {"metavar": "NAME", "help": "hardware of the cluster: name or file of a profile"},
    "timeout": {
        "metavar": "TIME",
        "help": "give up when a real rank, or a rank of a script, makes no progress for this long, such as '30 s'",
    },
    "compute_times": {"metavar": "FILE.csv", "help": "measured times of computations (twinstep docs scenario)"},
    "kernels": {
        "metavar": "FILE",
        "help": "operators measured on the GPU, which take precedence over the profile's table: a table (.parquet) or a"
        " trace of torch.profiler (twinstep docs kernels)",
    },
}
OVERRIDES: Sequence[str] = tuple(_OVERRIDES)

# The least value of options that are numbers.
_LEAST = {"jobs": 1, "draws": 0, "rounds": 1}


def add_overrides(parser: Parser, names: Sequence[str], **helps: str) -> None:
    """Add the options of these keys, and `--set`; `helps` replace their help texts."""
    for name in names:
        about = {"help": helps[name]} if name in helps else {}
        parser.add_argument(f"--{name.replace('_', '-')}", **{**_OVERRIDES[name], **about})
    add_set(parser)


def overrides_of(options: argparse.Namespace, names: Sequence[str]) -> dict[str, object]:
    """Return the values that the options put in place of a scenario's, by key.

    Raises:
        ScenarioError: a sentence for each `--set` that is no KEY=VALUE.
    """
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return given | parse_values(options.sets)


def add_full(parser: Parser) -> None:
    """Add `--full`, for commands that show a run."""
    parser.add_argument("--full", action="store_true", help="print all tables of the run, not only its summary")


def add_outputs(
    parser: ArgumentParser, out: str, *, json: str, quiet: str = "print only the folder's path", metavar: str = "DIR"
) -> None:
    """Add `--out`, `--json` and `--quiet`, with these help texts."""
    parser.add_argument("--out", type=Path, metavar=metavar, help=out)
    parser.add_argument("--json", action="store_true", help=json)
    parser.add_argument("--quiet", action="store_true", help=quiet)


def add_jobs(parser: Parser, what: str = "number of processes (default: one per core)") -> None:
    """Add `--jobs` with this help text."""
    parser.add_argument("--jobs", type=int, metavar="N", help=what)


def add_emulate(parser: Parser, whose: str) -> None:
    """Add `--emulate`, which means `whose` hosts if it is given without a name."""
    about = f"run on emulated hosts: those called NAME, or without NAME {whose} (twinstep docs real_runs)"
    parser.add_argument("--emulate", nargs="?", const="", metavar="NAME", help=about)


def add_rounds(parser: Parser, *, of: str, rounds: int, precision: str, default: int | None = None) -> None:
    """Add `--rounds`, the maximal number of launches of each `of`, and `--precision`, at which launches stop."""
    about = f"maximal number of launches of each {of} (default: {rounds})"
    parser.add_argument("--rounds", type=int, default=default, help=about)
    parser.add_argument("--precision", type=float, default=0.02, metavar="SHARE", help=f"{precision} (default: 0.02)")


def add_what_if(parser: Parser) -> None:
    """Add `--what-if`, `--seconds` and `--replan`."""
    gains = "also simulate changes of hardware and program, one at a time, and report what each gains"
    parser.add_argument("--what-if", action="store_true", help=gains)
    about = "with --what-if: time for all changes, the quickest to simulate first (default: 120)"
    parser.add_argument("--seconds", type=float, metavar="S", help=about)
    anew = "with --what-if: plan the tables anew for each change, instead of keeping the scenario's plan"
    parser.add_argument("--replan", action="store_true", help=anew)


def check_what_if(options: argparse.Namespace, scenario: Scenario) -> None:
    """Check that `--seconds` and `--replan`, if given, have changes, whose tables can be planned for `--replan`.

    Raises:
        ScenarioError: there are none.
    """
    from scenarios.seam.errors import ScenarioError

    if options.seconds is not None and not options.what_if:
        raise ScenarioError("--seconds: expected with --what-if, whose changes it limits")
    if options.seconds is not None and not options.seconds > 0:
        raise ScenarioError(f"--seconds = {options.seconds:g}: expected more than 0")
    if options.replan and not options.what_if:
        raise ScenarioError("--replan: expected with --what-if, whose changes it plans anew")
    if options.replan and (not scenario.workload.plans or scenario.workload.plan_file is not None):
        raise ScenarioError(f"--replan: expected a scenario whose tables are planned, but {scenario.path} plans none")


def scenario_given(
    options: argparse.Namespace, overrides: Mapping[str, object], of_script: Sequence[str] | None
) -> Scenario:
    """Load the scenario, or the script with its own arguments, that a command line names.

    Raises:
        ScenarioError: as `load` does.
    """
    from scenarios.workloads.script.command import load_given

    return load_given(
        options.scenario,
        overrides,
        args=of_script,
        hosts=options.hosts,
        gpus_per_host=options.gpus_per_host,
        play=getattr(options, "play", None),
        step_every=options.step_every,
        traceback=options.traceback,
        module=options.module or "",
    )


def impossible(options: argparse.Namespace, named: str = "") -> Iterator[str]:
    """Yield a sentence for each impossible number, and for a file in place of the emulated hosts' name.

    `named` is the argument before `--emulate`, such as "scenarios".
    """
    for name, least in _LEAST.items():
        number = getattr(options, name, None)
        if number is not None and number < least:
            yield f"--{name} = {number}: expected at least {least}"
    precision = getattr(options, "precision", None)
    if precision is not None and not 0 < precision < 1:
        yield f"--precision = {precision:g}: expected a share between 0 and 1, such as 0.02"
    emulate = getattr(options, "emulate", None)
    if named and emulate is not None and emulate.endswith(".toml"):
        yield f"--emulate = '{emulate}': expected emulated hosts' name; name {named} before --emulate"


def write_new(file: str, text: str) -> None:
    """Write a new file, that of `--out`.

    Raises:
        ScenarioError: the file exists already, or cannot be written.
    """
    from scenarios.seam.errors import ScenarioError

    try:
        with open(file, "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ScenarioError(
            [f"--out = {file}: exists already; nothing is ever overwritten, give another file"]
        ) from None
    except OSError as error:
        raise ScenarioError([f"--out = {file}: expected a file that can be written: {error.strerror}"]) from None
