"""Finds the tables of measured operators that a profile names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from scenarios.config.catalogue import TABLE_FILES, WHOLE_TABLE, kernel_tables, whole_table_names, whole_tables
from scenarios.config.hardware import Cluster
from scenarios.config.toml.look import named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.tree import KeyPath

_KEY = ("cluster", "gpu", "kernel_table")
_EXTRA = "twinstep[tables]"


def check_kernel_tables(names: Sequence[str], mistakes: Mistakes) -> None:
    """Add a mistake for each table that is neither a ready one, nor an installed whole one, nor a file."""
    for path, name in _places(names, mistakes):
        _check(path, name, mistakes)


def with_kernel_tables(cluster: Cluster, mistakes: Mistakes) -> Cluster:
    """Return the cluster with absolute paths of its operator tables; each is relative to the file that names it."""
    names = cluster.host.gpu.kernel_tables
    if not any(name.endswith(TABLE_FILES) for name in names):
        return cluster
    found = tuple(_absolute(path, name, mistakes) for path, name in _places(names, mistakes))
    gpu = replace(cluster.host.gpu, kernel_tables=found)
    return replace(cluster, host=replace(cluster.host, gpu=gpu))


def _places(names: Sequence[str], mistakes: Mistakes) -> Iterator[tuple[KeyPath, str]]:
    """Yield each table's name with the path of its value: the key's path, or that of an array item."""
    is_array = isinstance(mistakes.tree.at(_KEY), list)
    for place, name in enumerate(names):
        yield ((*_KEY, place) if is_array else _KEY), name


def _check(path: KeyPath, name: str, mistakes: Mistakes) -> None:
    if name.endswith(TABLE_FILES):
        file = named_file(mistakes, path, name)
        if not os.path.isfile(file):
            mistakes.add(path, f"{file} to be a file")
        return
    ready = [file.stem for file in kernel_tables()]
    folder = whole_tables()
    whole = () if folder is None else whole_table_names(folder)
    if name in (*ready, *whole):
        return
    if not name.startswith(WHOLE_TABLE):
        ends = f"{', '.join(TABLE_FILES[:-1])} or {TABLE_FILES[-1]}"
        mistakes.add(path, f"one of the ready tables, {', '.join(ready)}, or a path that ends in {ends}")
    elif folder is None:
        mistakes.add(path, f'aiconfigurator-core to be installed: pip install "{_EXTRA}"')
    else:
        mistakes.add(path, f"one of the installed tables, {', '.join(whole)}")


def _absolute(path: KeyPath, name: str, mistakes: Mistakes) -> str:
    return str(Path(named_file(mistakes, path, name)).absolute()) if name.endswith(TABLE_FILES) else name
