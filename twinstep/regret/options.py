"""Parses and checks the options of `python -m real regret` before anything runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from real.launch.placement import place
from scenarios.config.overrides.option import add_set, given_by
from scenarios.seam.errors import ScenarioError

_ROUNDS = 3


def parse(arguments: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse the options, unchecked."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict and measure all points of a study (docs/study.md): how much slower than the measured best"
        " is the predicted best? The same command again goes on where it stopped.",
    )
    parser.add_argument("study", type=Path, help="a study file in TOML")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder; default: runs/NAME-regret")
    parser.add_argument("--again", action="store_true", help="play and measure points again that ended early")
    parser.add_argument("--json", action="store_true", help="all of it as JSON")
    parser.add_argument("--quiet", action="store_true", help="print the folder's path only")
    parser.add_argument("--jobs", type=int, metavar="N", help="how many processes predict; default: one for each core")
    measured = parser.add_argument_group("measuring")
    measured.add_argument(
        "--emulate",
        nargs="?",
        const="",
        metavar="NAME",
        help="on emulated hosts: each point's own, or those of that name (see 'emulate --help')",
    )
    measured.add_argument(
        "--rounds", type=int, default=_ROUNDS, help=f"how often to launch a point at most (default: {_ROUNDS})"
    )
    measured.add_argument(
        "--precision",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="a point is known when half the way between its rounds is at most this (default: 0.02)",
    )
    parser.add_argument(
        "--draws", type=int, metavar="N", help="predictions of a point beside the mean one; default: the study's, or 0"
    )
    both = parser.add_argument_group("instead of the study's")
    both.add_argument("--profile", metavar="NAME", help="of the clusters' hardware: a ready one's name, or a file")
    add_set(both)
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
    for name, least in (("jobs", 1), ("rounds", 1), ("draws", 0)):
        if (number := getattr(options, name)) is not None and number < least:
            yield f"--{name} = {number}: expected at least {least}"
    if not 0 < options.precision < 1:
        yield f"--precision = {options.precision:g}: expected a share between 0 and 1, such as 0.02"
    if options.emulate is not None and options.emulate.endswith(".toml"):
        yield f"--emulate = '{options.emulate}': expected emulated hosts' name; name the study before --emulate"
    if (here := place()) is not None:
        yield f"regret under {here.by}: expected without it, as the command starts the ranks itself"
