"""Scenario files that real ranks play in a moment."""

from __future__ import annotations

from pathlib import Path


def scenario_file(folder: Path, name: str) -> Path:
    """Two ranks of this machine exchange 64 KiB each."""
    path = folder / f"{name}.toml"
    path.write_text(
        f"""
name = "{name}"
program = "all_to_all"
[run]
steps = 4
timeout = "60 s"
[cluster]
profile = "cpu_local"
hosts = 1
gpus_per_host = 2
[exchange]
size = "64 KiB"
"""
    )
    return path
