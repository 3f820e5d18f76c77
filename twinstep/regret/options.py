"""Parses and checks the options of `python -m real regret` before anything runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from real.launch.placement import place
from scenarios.config.overrides.option import given_by
from scenarios.seam.errors import ScenarioError
from twinstep.options import add_emulate, add_jobs, add_outputs, add_overrides, add_rounds, impossible

_ROUNDS = 3


def parse(arguments: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse the options, unchecked."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict and measure all points of a study (docs/study.md): how much slower than the measured best"
        " is the predicted best? The same command again goes on where it stopped.",
    )
    parser.add_argument("study", type=Path, help="a study file in TOML")
    add_outputs(parser, "the folder; default: runs/NAME-regret", json="all of it as JSON")
    parser.add_argument("--again", action="store_true", help="play and measure points again that ended early")
    add_jobs(parser, "how many processes predict; default: one for each core")
    measured = parser.add_argument_group("measuring")
    add_emulate(measured, "each point's own")
    add_rounds(
        measured,
        of="point",
        rounds=_ROUNDS,
        default=_ROUNDS,
        precision="a point is known when half the way between its rounds is at most this",
    )
    parser.add_argument(
        "--draws", type=int, metavar="N", help="predictions of a point beside the mean one; default: the study's, or 0"
    )
    add_overrides(parser.add_argument_group("instead of the study's"), ("profile",))
    return parser.parse_args(arguments)


def check(options: argparse.Namespace) -> None:
    """Raise ScenarioError, with one sentence for each impossible value."""
    if sentences := list(_wrong(options)):
        raise ScenarioError(sentences)


def values_of(options: argparse.Namespace) -> dict[str, object]:
    """Return the values of `--set` and `--profile` by key, which replace the study's; a file's path becomes
    absolute.
    """
    given = given_by(options.sets)
    if options.profile is not None:
        is_file = os.path.isfile(options.profile)
        given["cluster.profile"] = os.path.abspath(options.profile) if is_file else options.profile
    return given


def _wrong(options: argparse.Namespace) -> Iterator[str]:
    yield from impossible(options, "the study")
    if (here := place()) is not None:
        yield f"regret under {here.by}: expected without it, as the command starts the ranks itself"
