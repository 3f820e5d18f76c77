"""Parses and checks the options and scenarios of `python -m real validate` before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from real.launch.placement import Place
from scenarios.config.interconnect import LIBRARIES
from scenarios.config.load import load
from scenarios.config.overrides.option import add_set, given_by
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError

# 27 after the warm-up: their median's standard error is a quarter of their deviation, 1.253 / sqrt(27) if normal.
_LEAST_STEPS = 30
_ROUNDS = 3
_OVERRIDES = ("steps", "seed", "library", "fidelity", "profile", "timeout")


def parse(arguments: Sequence[str], prog: str = "python -m real validate") -> argparse.Namespace:
    """Parse the options, unchecked."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict scenarios' step times, measure them on real processes, and compare both.",
    )
    parser.add_argument(
        "scenarios", type=Path, nargs="+", metavar="SCENARIO", help="scenario files, or names of ready ones"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="a new folder (default: runs/validate-TIME)")
    parser.add_argument("--max-error", type=float, metavar="SHARE", help="exit with 1 past this error, such as 0.15")
    parser.add_argument("--json", action="store_true", help="all of it as JSON")
    parser.add_argument("--quiet", action="store_true", help="print the folder's path only")
    predicted = parser.add_argument_group("predicting")
    predicted.add_argument("--draws", type=int, default=20, help="how many beside the mean one (default: 20)")
    predicted.add_argument("--fidelity", choices=("flows", "links"), help="instead of the scenarios'")
    measured = parser.add_argument_group("measuring")
    measured.add_argument(
        "--emulate",
        nargs="?",
        const="",
        metavar="NAME",
        help="on emulated hosts: the scenarios' own, or those of that name (see 'emulate --help')",
    )
    measured.add_argument(
        "--precision",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="target half-width of the median's confidence interval (default: 0.02)",
    )
    measured.add_argument("--rounds", type=int, help=f"how often to launch a scenario at most (default: {_ROUNDS})")
    both = parser.add_argument_group("instead of the scenarios'")
    both.add_argument("--steps", type=int, help=f"of a round (default: the scenario's, at least {_LEAST_STEPS})")
    both.add_argument("--seed", type=int)
    both.add_argument("--library", choices=LIBRARIES)
    both.add_argument("--profile", metavar="NAME", help="of the clusters' hardware: a ready one's name, or a file")
    both.add_argument("--timeout", metavar="TIME", help="such as '30 s'")
    add_set(both)
    return parser.parse_args(arguments)


def check(options: argparse.Namespace, here: Place | None) -> None:
    """Set the default of --rounds; raise ScenarioError for impossible values."""
    sentences = [*_wrong_numbers(options), *(_wrong_at(options, here) if here is not None else ())]
    if sentences:
        raise ScenarioError(sentences)
    if options.rounds is None:
        options.rounds = _ROUNDS if here is None else 1


def load_all(options: argparse.Namespace) -> list[Scenario]:
    """Load the scenarios, with at least 30 steps unless --steps is given.

    Raises:
        ScenarioError: with the sentences of all files.
    """
    overrides = {name: getattr(options, name) for name in _OVERRIDES} | given_by(options.sets)
    sentences: list[str] = []
    loaded: dict[str, Scenario] = {}
    for path in options.scenarios:
        try:
            scenario = _load(path, overrides)
        except ScenarioError as error:
            sentences += error.sentences
            continue
        other = loaded.setdefault(scenario.name, scenario)
        if other is not scenario:
            sentences.append(
                f"{path}: name = '{scenario.name}': expected another name than that of {other.path},"
                " as each scenario has a folder and a row of its own"
            )
    if sentences:
        raise ScenarioError(sentences)
    return list(loaded.values())


def _load(path: Path, overrides: Mapping[str, object]) -> Scenario:
    scenario = load(path, overrides)
    if overrides["steps"] is None and "run.steps" not in overrides and scenario.steps < _LEAST_STEPS:
        scenario = load(path, {**overrides, "steps": _LEAST_STEPS})
    return scenario


def _wrong_numbers(options: argparse.Namespace) -> Iterator[str]:
    if options.draws < 0:
        yield f"--draws = {options.draws}: expected at least 0"
    if options.rounds is not None and options.rounds < 1:
        yield f"--rounds = {options.rounds}: expected at least 1"
    if not 0 < options.precision < 1:
        yield f"--precision = {options.precision:g}: expected a share between 0 and 1, such as 0.02"
    if options.emulate is not None and options.emulate.endswith(".toml"):
        yield f"--emulate = '{options.emulate}': expected emulated hosts' name; name scenarios before --emulate"
    if options.max_error is not None and not options.max_error >= 0:
        yield f"--max-error = {options.max_error:g}: expected a share of at least 0, such as 0.15"


def _wrong_at(options: argparse.Namespace, here: Place) -> Iterator[str]:
    if options.emulate is not None:
        yield "--emulate: expected without torchrun or srun, as it starts the ranks itself"
    if len(options.scenarios) > 1:
        yield f"{len(options.scenarios)} scenarios: expected 1 under {here.by}, which starts the ranks once"
    if options.rounds not in (None, 1):
        yield f"--rounds = {options.rounds}: expected 1 under {here.by}, which starts the ranks once"
