"""Loads scenario files into checked, frozen `Scenario`s: the only reader of scenario files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.config.catalogue import scenario_file
from scenarios.config.hardware import Cluster
from scenarios.config.overrides.overrides import Overrides
from scenarios.config.overrides.short_names import OVERRIDES
from scenarios.config.provenance import KnownErrors, Measured, come_from
from scenarios.config.scenario import Scenario, Source
from scenarios.config.toml.build import build
from scenarios.config.toml.checks import check, check_profile
from scenarios.config.toml.derive import freeze
from scenarios.config.toml.document import read_document
from scenarios.config.toml.hardware.build import build_cluster
from scenarios.config.toml.hardware.kernel_table import with_kernel_tables
from scenarios.config.toml.hardware.own_figures import BETWEEN_HOSTS, SWITCHES, own_figures
from scenarios.config.toml.include import read_profile_tree, read_tree
from scenarios.config.toml.mistakes import Mistakes, report_mistakes
from scenarios.config.toml.program_spec import ProgramSpec
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath, Tree, leaves
from scenarios.workloads import locate

__all__ = ["OVERRIDES", "load", "load_measured", "load_profile", "report_mistakes"]

_KEYS_NAMED = 4
_TIMES = ("run", "compute_times")
_FILES = (("cluster", "profile"), ("cluster", "gpu", "kernel_table"), _TIMES)
SCRIPT = "script"  # the program that runs a user's script


def load(
    path: str | os.PathLike[str], overrides: Mapping[str, object] | None = None, *, overrides_file: str = ""
) -> Scenario:
    """Read, check and freeze a scenario, given by the path of its file or by the name of a ready one.

    `overrides` are values of [run] and `cluster.profile` from a command line, by the key's name, or of any key by its
    path, such as `cluster.hosts` or `model.tables[3].rows` (`[*]`: of every table); None leaves the file's value.
    Mistakes in them are called `--batch-size = ...` and `--set cluster.hosts = ...`; those in files begin with the path
    as it was given, and so do those in overrides that stand in `overrides_file`.

    Raises:
        ScenarioError: with a sentence for every mistake in the file, what it includes and the overrides.
    """
    file = scenario_file(path)
    mistakes = read_tree(file, Overrides(overrides, overrides_file))
    document, program = read_document(mistakes)
    check(document, program, mistakes)
    mistakes.raise_any()
    made = build(document, have(program), mistakes, Path(file))
    measured = freeze(Measured, document.measured) if document.measured is not None else None
    own = own_figures(document, mistakes.tree)
    rests_on = _rests_on(document, own, made.cluster.profile, measured)
    counting = [path for path in own if path[0] not in BETWEEN_HOSTS or made.cluster.hosts > 1]
    errors = _known_errors(measured, set(counting) - SWITCHES)
    folder, sources = _code(mistakes.tree, have(program))
    cluster = _with_own_prices(made.cluster, mistakes.tree)
    return dataclasses.replace(
        made,
        cluster=cluster,
        rests_on=rests_on,
        measured=measured,
        known_errors=errors,
        sources=sources,
        named_in=folder,
        own_keys=_own_keys(mistakes.tree),
    )


def check_without_code(path: str | os.PathLike[str]) -> Scenario | None:
    """Check a scenario file without importing the user's code that it names.

    Returns:
        The scenario, if running it executes none but this project's code; otherwise None.

    Raises:
        ScenarioError: as `load` does, except for mistakes that only the user's code can find, such as in its options.
    """
    with locate.without_code():
        mistakes = read_tree(scenario_file(path), Overrides(None))
        document, program = read_document(mistakes)
        check(document, program, mistakes)
        mistakes.raise_any()
        if program is None or program.name == SCRIPT or _find_code_beside(mistakes.tree, program) is not None:
            return None
        return load(path)


def _with_own_prices(cluster: Cluster, tree: Tree) -> Cluster:
    """Return the cluster without its profile's price source where the scenario sets a price of its own."""
    own = [str(path[1]) for path in tree.beside_profile if path[0] == "cost" and len(path) > 1]
    if cluster.cost is None or not own:
        return cluster
    return dataclasses.replace(cluster, cost=cluster.cost.without_sources_of(own))


def _code(tree: Tree, program: ProgramSpec) -> tuple[Path, tuple[Source, ...]]:
    """Return the folder to which the user's code is relative, and its sources."""
    named = _find_code_beside(tree, program)
    if named is not None:
        folder = Path(tree.origin(program.names)).parent
        return folder, locate.sources(named, named, folder)
    folder = Path(tree.origin(("program",))).parent
    return folder, locate.sources(program.name, program.factory, folder)


def _find_code_beside(tree: Tree, program: ProgramSpec) -> str | None:
    """Return the user's code (`module:attribute` or a path) that a scenario of a built-in program names, or None."""
    try:
        named = tree.at(program.names) if program.names else None
    except LookupError:
        return None
    return named if isinstance(named, str) else None


def _own_keys(tree: Tree) -> dict[str, dict[str, Any]]:
    """Return the keys of [run], and those of [cluster] beside its profile, for recordings; files as absolute paths."""
    own = [*tree.beside_profile, *tree.within_profile] if tree.profile else leaves(tree.values["cluster"])
    found: dict[Any, Any] = {"cluster": {}, "run": {}}
    for path in [("run", key) for key in tree.values.get("run", ())] + [("cluster", *path) for path in own]:
        table, value = found, dict[Any, Any](tree.values)
        for key in path[:-1]:
            table, value = table.setdefault(key, {}), value[key]
        table[path[-1]] = _absolute(tree, path, value[path[-1]]) if path in _FILES else value[path[-1]]
    return found


def _absolute(tree: Tree, path: KeyPath, names: Any) -> Any:
    """Return ready names as they are, and files' paths, which are relative to the file that has them, as absolute."""
    if isinstance(names, list):
        return [_absolute(tree, (*path, index), name) for index, name in enumerate(names)]
    file = os.path.join(os.path.dirname(tree.origin(path)), names)
    is_file = os.path.isfile(file) and (path == _TIMES or "." in names)
    return os.path.abspath(file) if is_file else names


def _known_errors(measured: Measured | None, own: Collection[KeyPath]) -> KnownErrors:
    return KnownErrors(
        typical_errors={group.name: group.typical_error for group in measured.groups} if measured else {},
        sets_figures=bool(own),
        sets_prices=any(path[0] not in {*BETWEEN_HOSTS, "inside"} for path in own),
    )


def _rests_on(document: Document, own: Sequence[KeyPath], profile: str, measured: Measured | None) -> str:
    """Return where the figures of a scenario's hardware come from, in a sentence without a full stop."""
    if not have(document.cluster).profile:
        return "the scenario's own hardware figures, not calibrated"
    named = [".".join(map(str, path)) for path in own[:_KEYS_NAMED]]
    set_here = f"; set by the scenario: {', '.join(named)}" if own else ""
    set_here += f" and {len(own) - _KEYS_NAMED} more" if len(own) > _KEYS_NAMED else ""
    return f"profile {profile}: {come_from(measured)}{set_here}"


def load_profile(name: str) -> Cluster:
    """Load one host of a ready profile, or of a profile file ending in .toml; by default with one GPU.

    Raises:
        ScenarioError: as `load` does.
    """
    document, mistakes = _read_profile(name)
    return with_kernel_tables(build_cluster(have(document.cluster)), mistakes)


def load_measured(name: str) -> Measured | None:
    """Return where a profile's figures come from; None if it was not measured. ScenarioError as in `load_profile`."""
    measured = _read_profile(name)[0].measured
    return freeze(Measured, measured) if measured is not None else None


def _read_profile(name: str) -> tuple[Document, Mistakes]:
    mistakes = read_profile_tree(name)
    mistakes.tree.lay_under({"cluster": {"profile": name, "hosts": 1, "gpus_per_host": 1}}, name)
    document, _ = read_document(mistakes)
    check_profile(document, mistakes)
    mistakes.raise_any()
    return document, mistakes
