"""The command that predicts a point of a study by itself: `--set` for each value that it has."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from scenarios.toml_writer import toml_value

_PLAYED = ("links", "flows")


def command(about: Mapping[str, Any], fidelity: str) -> str:
    """What is the same for all points: the scenario, what the study sets, and the fidelity of a stage.

    An estimate is the planner's alone, so that the command plays its point as the scenario says.
    """
    given = dict(about.get("set", {}))
    if any(about["stages"]) and fidelity in _PLAYED:
        given["run.fidelity"] = fidelity
    return " ".join(["python -m sim", shlex.quote(about["scenario"]), *(option(*one) for one in given.items())])


def option(key: str, value: object) -> str:
    """A key's value as `--set` takes it, quoted for a shell; arrays and tables may be JSON, as in a study's frame."""
    return f"--set {shlex.quote(f'{key}={_toml(value)}')}"


def _toml(value: object) -> str:
    """Text as it is, where `--set` reads it so: what is no TOML."""
    if isinstance(value, str):
        try:
            return toml_value(json.loads(value)) if value[:1] in ("[", "{") else value
        except ValueError:
            return value
    return toml_value(value)
