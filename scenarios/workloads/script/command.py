"""A training script on a command line as a scenario; loads no torch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError

# Whose hardware a script is predicted on where nobody says it: this machine's CPU.
PROFILE = "cpu_local"


def scenario_of(
    script: Path, args: Sequence[str], overrides: Mapping[str, object], hosts: int | None, gpus_per_host: int | None
) -> Scenario:
    """The scenario of a script on so many hosts; `overrides` as in `load`.

    Raises:
        ScenarioError: as `load` does.
    """
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
