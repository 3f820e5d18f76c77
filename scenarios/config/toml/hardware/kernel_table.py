"""Finds the table of measured operators that a profile names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scenarios.config.catalogue import WHOLE_TABLE, kernel_tables, whole_table_names, whole_tables
from scenarios.config.hardware import Cluster
from scenarios.config.toml.look import named_file
from scenarios.config.toml.mistakes import Mistakes

_KEY = ("cluster", "gpu", "kernel_table")
_SUFFIX = ".parquet"
_EXTRA = "twinstep[tables]"


def check_kernel_table(name: str, mistakes: Mistakes) -> None:
    """Add a mistake unless the table is a ready one, a whole one that is installed, or a file."""
    if name.endswith(_SUFFIX):
        file = named_file(mistakes, _KEY, name)
        if not file.is_file():
            mistakes.add(_KEY, f"{file} to be a file")
        return
    ready = [file.stem for file in kernel_tables()]
    folder = whole_tables()
    whole = () if folder is None else whole_table_names(folder)
    if name in (*ready, *whole):
        return
    if not name.startswith(WHOLE_TABLE):
        mistakes.add(_KEY, f"one of the ready tables, {', '.join(ready)}, or a path that ends in {_SUFFIX}")
    elif folder is None:
        mistakes.add(_KEY, f'aiconfigurator-core to be installed: pip install "{_EXTRA}"')
    else:
        mistakes.add(_KEY, f"one of the installed tables, {', '.join(whole)}")


def with_kernel_table(cluster: Cluster, mistakes: Mistakes) -> Cluster:
    """Return the cluster with the path of its table, which is relative to the file that names it, made absolute."""
    name = cluster.host.gpu.kernel_table
    if name is None or not name.endswith(_SUFFIX):
        return cluster
    gpu = replace(cluster.host.gpu, kernel_table=str(Path(named_file(mistakes, _KEY, name)).absolute()))
    return replace(cluster, host=replace(cluster.host, gpu=gpu))
