"""The option `--set KEY=VALUE` of commands that take a scenario."""

from __future__ import annotations

import tomllib
from argparse import ArgumentParser, _ArgumentGroup
from collections.abc import Iterable

from scenarios.config.overrides.keys import path_of
from scenarios.seam.errors import ScenarioError

_SUCH_AS = "cluster.hosts=8 or model.tables[3].rows=1000"


def add_set(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Add `--set`, which may be given again and again; `parse_values` reads its values."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="KEY=VALUE",
        help="set any key of the scenario, such as cluster.hosts=8, cluster.nic.rate='200 Gbit/s' or"
        " 'model.tables[3].sharding=[\"row_wise\"]'. VALUE is TOML; anything else is text. Can be repeated.",
    )


def parse_values(sets: Iterable[str], option: str = "--set", such_as: str = _SUCH_AS) -> dict[str, object]:
    """Return the values given with `--set`, by key; the last value of a key counts.

    Raises:
        ScenarioError: with a sentence for each text that is no KEY=VALUE.
    """
    given: dict[str, object] = {}
    wrong = []
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or path_of(key.strip()) is None:
            wrong.append(f"{option} {text!r}: expected KEY=VALUE, such as {such_as}")
            continue
        given.pop(key.strip(), None)  # keys stay in the order of their last values, which is the order of application
        given[key.strip()] = value_of(value)
    if wrong:
        raise ScenarioError(wrong)
    return given


def value_of(text: str) -> object:
    """Parse a TOML value; return the text itself if it is none, since a shell removes quotes."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return read["value"] if len(read) == 1 else text.strip()
