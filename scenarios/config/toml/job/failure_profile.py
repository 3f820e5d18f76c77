"""Lays the failure profile that `job.failures.profile` names under a scenario's own failures and recovery."""

from __future__ import annotations

import os
from difflib import get_close_matches

from scenarios.config.catalogue import failure_profile_file, failure_profiles
from scenarios.config.gpu import Gpu
from scenarios.config.toml.mistakes import Mistakes, key_text, path_text, toml_text
from scenarios.config.toml.tree import KeyPath, read_toml

PATH: KeyPath = ("job", "failures", "profile")
PROFILE_KEY = ".".join(map(str, PATH))
_KEYS = ("description", "failures", "recovery")


_HOPPER = 90  # compute capability, in tenths


def known_failures(gpu: Gpu) -> str | None:
    """Return the failure profile of a known cluster of such GPUs, for a job without failures; None for processors."""
    if not gpu.device.is_launched:
        return None
    is_recent = gpu.compute_capability is not None and gpu.compute_capability >= _HOPPER
    return "llama3_h100" if is_recent else "rsc1_a100"


def lay_failures_under(mistakes: Mistakes) -> None:
    """Lay the named failure profile under [job]; a name without a file, and unknown tables, are mistakes."""
    try:
        name = mistakes.tree.at(PATH)
    except (LookupError, TypeError):
        return
    if not isinstance(name, str) or not name.strip():
        return  # `document` reports it
    file = _file_of(mistakes, name)
    if not os.path.isfile(file):
        mistakes.add(PATH, f"{path_text(file)} to be a file" if name.endswith(".toml") else _expected(name))
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


def _file_of(mistakes: Mistakes, name: str) -> str:
    if name.endswith(".toml"):
        return os.path.normpath(os.path.join(os.path.dirname(mistakes.tree.origin(PATH)), name))
    return failure_profile_file(name)


def _expected(name: str) -> str:
    names = [path.stem for path in failure_profiles()]
    near = get_close_matches(name, names)
    known = f"a profile such as {', '.join(near)}" if near else f"one of {', '.join(names)}"
    return f"{known}, or a path that ends in .toml"
