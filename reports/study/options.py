"""Write the command that predicts a single point of a study: `--set` for each of its values."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from scenarios.toml_writer import toml_value

_PLAYED = ("links", "flows")


def command(about: Mapping[str, Any], fidelity: str) -> str:
    """Return the part of the command that all points share: scenario, values that the study sets, and fidelity.

    An estimate is the planner's alone, so its command simulates the point with the scenario's fidelity.
    """
    given = dict(about.get("set", {}))
    if any(about["stages"]) and fidelity in _PLAYED:
        given["run.fidelity"] = fidelity
    return " ".join(["twinstep predict", shlex.quote(about["scenario"]), *(option(*one) for one in given.items())])


def option(key: str, value: object) -> str:
    """Return a key's value as `--set` takes it, quoted for a shell; arrays and tables may be JSON."""
    return f"--set {shlex.quote(f'{key}={_toml(value)}')}"


def _toml(value: object) -> str:
    """Return a value as TOML, but text unchanged where `--set` reads it as text."""
    if isinstance(value, str):
        try:
            return toml_value(json.loads(value)) if value[:1] in ("[", "{") else value
        except ValueError:
            return value
    return toml_value(value)
