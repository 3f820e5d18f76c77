"""A training script on a command line as a scenario. What takes long to load is imported inside functions."""

from __future__ import annotations

import json
import os
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.config.scenario import Scenario

# Whose hardware a script is predicted on where nobody says it: this machine's CPU.
PROFILE = "cpu_local"


def split_at_script(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Arguments up to the first one that names a script, and those of the script; None: there is none."""
    for place, argument in enumerate(arguments):
        if argument.endswith(".py"):
            return arguments[: place + 1], arguments[place + 1 :]
    return arguments, None


def add_options(parser: ArgumentParser) -> None:
    """Those that only a script has, which says nothing of hosts."""
    of_script = parser.add_argument_group("of a script, before it")
    of_script.add_argument("--hosts", type=int, metavar="N", help="how many there are; default: 1")
    of_script.add_argument("--gpus-per-host", type=int, metavar="M", help="ranks of a host; default: the profile's")


def load_named(options: Namespace, of_script: Sequence[str] | None, overrides: Mapping[str, object]) -> Scenario:
    """What `options.scenario` names, a scenario file or with arguments `of_script` a script; `overrides` as in `load`.

    Raises:
        ScenarioError: as `load` does.
    """
    from scenarios.config.load import load  # noqa: PLC0415
    from scenarios.seam.errors import ScenarioError  # noqa: PLC0415

    if of_script is not None:
        return scenario_of(options.scenario, of_script, overrides, options.hosts, options.gpus_per_host)
    for name in ("hosts", "gpus_per_host"):
        if getattr(options, name) is not None:
            raise ScenarioError(f"--{name.replace('_', '-')}: expected a script, which says nothing of it")
    return load(options.scenario, overrides)


def scenario_of(
    script: Path, args: Sequence[str], overrides: Mapping[str, object], hosts: int | None, gpus_per_host: int | None
) -> Scenario:
    """The scenario of a script on so many hosts; `overrides` as in `load`.

    Raises:
        ScenarioError: as `load` does.
    """
    from scenarios.config.load import load  # noqa: PLC0415
    from scenarios.seam.errors import ScenarioError  # noqa: PLC0415

    lines = ['program = "script"', "[cluster]", f"profile = {json.dumps(overrides.get('profile') or PROFILE)}"]
    lines.append(f"hosts = {1 if hosts is None else hosts}")
    if gpus_per_host is not None:
        lines.append(f"gpus_per_host = {gpus_per_host}")
    lines += ["[script]", f"path = {json.dumps(os.path.abspath(script))}", f"args = {json.dumps(list(args))}"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{script.stem}.toml")
        file.write_text("\n".join(lines) + "\n")
        try:
            made = load(file, {name: value for name, value in overrides.items() if name != "profile"})
        except ScenarioError as error:
            raise ScenarioError([line.replace(f"{file}: ", f"{script}: ") for line in error.sentences]) from None
    return replace(made, path=script)
