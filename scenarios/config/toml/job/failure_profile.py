"""Lays the failure profile that `job.failures.profile` names under a scenario's own failures and recovery."""

from __future__ import annotations

import os
from typing import Any

from scenarios.config.catalogue import expected_profile, failure_profiles, profile_file
from scenarios.config.gpu import Gpu
from scenarios.config.toml.look import named_file
from scenarios.config.toml.mistakes import Mistakes, key_text, path_text, toml_text
from scenarios.config.toml.tree import KeyPath, read_toml

PATH: KeyPath = ("job", "failures", "profile")
_KEYS = ("description", "failures", "recovery")
_HOPPER = 90  # compute capability, in tenths


def with_known_failures(job: Any, gpu: Gpu, mistakes: Mistakes) -> Any:
    """Return the [job] table with the failures of a known cluster of such GPUs, unless it has failures of its own.

    No failures of clusters of processors are known.
    """
    if job.failures is not None or not gpu.device.is_launched:
        return job
    mistakes.tree.put(PATH, "llama3_h100" if gpu.compute_capability >= _HOPPER else "rsc1_a100", mistakes.tree.root)
    lay_failures_under(mistakes)
    return type(job).model_validate(mistakes.tree.values["job"])


def lay_failures_under(mistakes: Mistakes) -> None:
    """Lay the named failure profile under [job]; a name without a file, and unknown tables, are mistakes."""
    try:
        name = mistakes.tree.at(PATH)
    except (LookupError, TypeError):
        return
    if not isinstance(name, str) or not name.strip():
        return  # `document` reports it
    if name.endswith(".toml"):
        file = str(named_file(mistakes, PATH, name))
    else:
        file = profile_file(name, failure_profiles) or ""
    if not os.path.isfile(file):
        expected = expected_profile(name, [path.stem for path in failure_profiles()])
        mistakes.add(PATH, f"{path_text(file)} to be a file" if name.endswith(".toml") else expected)
        return
    try:
        values = read_toml(file)
    except ValueError as error:
        mistakes.unusable(str(error), lost=("job",))
        return
    shown = file if name.endswith(".toml") else f"{name}.toml"
    for key in [key for key in values if key not in _KEYS]:
        text, known = toml_text(values.pop(key)), ", ".join(_KEYS)
        mistakes.unusable(f"{shown}: {key_text((key,))} = {text}: unknown key; expected one of {known}", lost=("job",))
    values.pop("description", None)  # describes the profile, not the scenario
    mistakes.tree.lay_under({"job": values}, shown)
