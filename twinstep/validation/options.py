"""Parses and checks the options and scenarios of `python -m real validate` before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from real.launch.placement import Place
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError
from twinstep.options import add_emulate, add_outputs, add_overrides, add_rounds, impossible, overrides_of

# 27 after the warm-up: their median's standard error is a quarter of their deviation, 1.253 / sqrt(27) if normal.
_LEAST_STEPS = 30
_ROUNDS = 3
_OVERRIDES = ("steps", "seed", "library", "fidelity", "profile", "timeout")


def parse(arguments: Sequence[str], prog: str = "python -m real validate") -> argparse.Namespace:
    """Parse the options, unchecked."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict the step times of scenarios, measure them on real processes, and compare both.",
    )
    parser.add_argument(
        "scenarios", type=Path, nargs="+", metavar="SCENARIO", help="scenario file, or name of a ready scenario"
    )
    add_outputs(parser, "new folder (default: runs/validate-TIME)", json="print all results as JSON")
    parser.add_argument(
        "--max-error",
        type=float,
        metavar="SHARE",
        help="exit with code 1 if an error is larger, such as 0.15 (default: no limit)",
    )
    predicted = parser.add_argument_group("predictions")
    predicted.add_argument(
        "--draws", type=int, default=20, metavar="N", help="randomized runs besides the mean one (default: 20)"
    )
    measured = parser.add_argument_group("measurements")
    add_emulate(measured, "hosts as each scenario describes")
    add_rounds(
        measured,
        of="scenario",
        rounds=_ROUNDS,
        precision="stop when the half-width of the median's confidence interval is at most this share of the median",
    )
    steps = f"steps of each launch (default: the scenario's, at least {_LEAST_STEPS})"
    add_overrides(parser.add_argument_group("overrides (default: each scenario's values)"), _OVERRIDES, steps=steps)
    return parser.parse_args(arguments)


def check(options: argparse.Namespace, here: Place | None) -> None:
    """Set the default of --rounds; raise ScenarioError for impossible values."""
    of_here = _wrong_at(options, here) if here is not None else ()
    sentences = [*impossible(options, "scenarios"), *_wrong_error(options), *of_here]
    if sentences:
        raise ScenarioError(sentences)
    if options.rounds is None:
        options.rounds = _ROUNDS if here is None else 1


def load_all(options: argparse.Namespace) -> list[Scenario]:
    """Load the scenarios, with at least 30 steps unless --steps is given.

    Raises:
        ScenarioError: with the sentences of all files.
    """
    overrides = overrides_of(options, _OVERRIDES)
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
    if "steps" not in overrides and "run.steps" not in overrides and scenario.run.steps < _LEAST_STEPS:
        scenario = load(path, {**overrides, "steps": _LEAST_STEPS})
    return scenario


def _wrong_error(options: argparse.Namespace) -> Iterator[str]:
    if options.max_error is not None and not options.max_error >= 0:
        yield f"--max-error = {options.max_error:g}: expected a share of at least 0, such as 0.15"


def _wrong_at(options: argparse.Namespace, here: Place) -> Iterator[str]:
    if options.emulate is not None:
        yield "--emulate: expected without torchrun or srun, as it starts the ranks itself"
    if len(options.scenarios) > 1:
        yield f"{len(options.scenarios)} scenarios: expected 1 under {here.by}, which starts the ranks once"
    if options.rounds not in (None, 1):
        yield f"--rounds = {options.rounds}: expected 1 under {here.by}, which starts the ranks once"
