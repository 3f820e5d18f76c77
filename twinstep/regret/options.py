"""Parses and checks the options of `python -m real regret` before anything runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from real.launch.placement import place
from scenarios.config.overrides.option import parse_values
from scenarios.seam.errors import ScenarioError
from twinstep.options import add_emulate, add_jobs, add_outputs, add_overrides, add_rounds, impossible

_ROUNDS = 3


def parse(arguments: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse the options, unchecked."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict and measure all points of a study (twinstep docs studies), and report how much slower the"
        " point predicted best is than the point measured best. After an interruption the same command continues.",
    )
    parser.add_argument("study", type=Path, help="study file in TOML")
    add_outputs(parser, "folder of the results (default: runs/NAME-regret)", json="print all results as JSON")
    parser.add_argument(
        "--again", action="store_true", help="repeat points that timed out, failed or lost their workers"
    )
    add_jobs(parser, "number of processes for predictions (default: one per core)")
    measured = parser.add_argument_group("measurements")
    add_emulate(measured, "hosts as each point describes")
    add_rounds(
        measured,
        of="point",
        rounds=_ROUNDS,
        default=_ROUNDS,
        precision="stop when half the range of the launches' median step times is at most this share of the median",
    )
    parser.add_argument(
        "--draws",
        type=int,
        metavar="N",
        help="randomized runs of each prediction besides the mean one (default: the study's, or 0)",
    )
    add_overrides(parser.add_argument_group("overrides (default: the study's values)"), ("profile",))
    return parser.parse_args(arguments)


def check(options: argparse.Namespace) -> None:
    """Raise ScenarioError, with one sentence for each impossible value."""
    if sentences := list(_wrong(options)):
        raise ScenarioError(sentences)


def values_of(options: argparse.Namespace) -> dict[str, object]:
    """Return the values of `--set` and `--profile` by key, which replace the study's; a file's path becomes
    absolute.
    """
    given = parse_values(options.sets)
    if options.profile is not None:
        is_file = os.path.isfile(options.profile)
        given["cluster.profile"] = os.path.abspath(options.profile) if is_file else options.profile
    return given


def _wrong(options: argparse.Namespace) -> Iterator[str]:
    yield from impossible(options, "the study")
    if (here := place()) is not None:
        yield f"regret under {here.by}: expected without it, as the command starts the ranks itself"
