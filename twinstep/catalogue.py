"""The ready scenarios and hardware profiles as frames, for `import twinstep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.config.catalogue import library_files, profile_files
from scenarios.config.load import load, load_profile
from scenarios.config.toml.tree import read_toml


def scenarios_frame() -> pd.DataFrame:
    """Return one row per ready scenario, by name: its program, cluster, description and file."""
    return _by_name([_scenario(path) for path in library_files()])


def profiles_frame() -> pd.DataFrame:
    """Return one row per ready hardware profile, by name: a host's GPUs and links, description and file.

    `memory_bytes` is that of one GPU; `inside_bytes_per_s` is what a GPU sends to others of its host, and
    `nic_bytes_per_s` what one of the host's `nics` sends, each in one direction.
    """
    return _by_name([_profile(path) for path in profile_files()])


def _by_name(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).set_index("name")


def _scenario(path: Path) -> dict[str, Any]:
    scenario = load(path)
    cluster = scenario.cluster
    return {
        "name": path.stem,
        "program": scenario.program,
        "hosts": cluster.hosts,
        "gpus_per_host": cluster.host.gpus,
        "gpu": cluster.host.gpu.name,
        "description": describe(path),
        "file": str(path),
    }


def _profile(path: Path) -> dict[str, Any]:
    host = load_profile(path.stem).host
    return {
        "name": path.stem,
        "gpus": host.gpus,
        "gpu": host.gpu.name,
        "memory_bytes": host.gpu.memory_bytes,
        "inside": host.inside.kind,
        "inside_bytes_per_s": host.inside.gpu_bytes_per_s(host.gpus),
        "nics": host.nics.count,
        "nic_bytes_per_s": host.nics.link.bytes_per_s,
        "description": describe(path),
        "file": str(path),
    }


def describe(path: Path | str) -> str:
    """Return the description in a scenario's or profile's file; "" without one."""
    return str(read_toml(str(path)).get("description", ""))
