"""Finds the table of measured operators that a profile names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scenarios.config.catalogue import kernel_tables
from scenarios.config.hardware import Cluster
from scenarios.config.toml.look import named_file
from scenarios.config.toml.mistakes import Mistakes

_KEY = ("cluster", "gpu", "kernel_table")
_SUFFIX = ".parquet"


def check_kernel_table(name: str, mistakes: Mistakes) -> None:
    """Add a mistake unless the table is a ready one, or a file."""
    ready = [file.stem for file in kernel_tables()]
    if name.endswith(_SUFFIX):
        file = named_file(mistakes, _KEY, name)
        if not file.is_file():
            mistakes.add(_KEY, f"{file} to be a file")
    elif name not in ready:
        mistakes.add(_KEY, f"one of the ready tables, {', '.join(ready)}, or a path that ends in {_SUFFIX}")


def with_kernel_table(cluster: Cluster, mistakes: Mistakes) -> Cluster:
    """Return the cluster with the path of its table, which is relative to the file that names it, made absolute."""
    name = cluster.host.gpu.kernel_table
    if name is None or not name.endswith(_SUFFIX):
        return cluster
    gpu = replace(cluster.host.gpu, kernel_table=str(Path(named_file(mistakes, _KEY, name)).absolute()))
    return replace(cluster, host=replace(cluster.host, gpu=gpu))
