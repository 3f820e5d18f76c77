"""Finds the hardware figures that a scenario sets to other values than its profile has."""

from __future__ import annotations

from collections.abc import Iterable

from scenarios.config.hardware import Cluster
from scenarios.config.toml.document import read_document
from scenarios.config.toml.hardware.build import build_cluster
from scenarios.config.toml.hardware.checks import check_cluster
from scenarios.config.toml.include import read_profile_tree
from scenarios.config.toml.look import Look
from scenarios.config.toml.section import Section
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath, Tree

# Keys of [cluster] that no time depends on.
_NOT_FIGURES = frozenset({"profile", "hosts", "gpus_per_host", "faults", "cost"})
# Tables of [cluster] that times within one host do not depend on.
BETWEEN_HOSTS = frozenset({"nic", "network"})
# Keys that are on or off, without a figure.
SWITCHES = frozenset({("network", "sharp")})


def own_figures(document: Document, tree: Tree) -> list[KeyPath]:
    """Return the keys of [cluster] whose values differ from the profile's; '50 GB/s' equals '400 Gbit/s'.

    A scenario without a profile has none. A key that repeats the profile's default is left out.
    """
    asked = [path for path in tree.beside_profile if path[0] not in _NOT_FIGURES]
    if not asked:
        return []
    profile, _ = read_document(read_profile_tree(tree.profile))
    differing = [path for path in asked if _at(document.cluster, path) != _at(profile.cluster, path)]
    counts = [(key,) for key in ("hosts", "gpus_per_host") if key in tree.values["cluster"]]
    plain = _build_cluster(tree, counts)
    return [
        path
        for path in differing
        if _at(profile.cluster, path) is not None or plain is None or _build_cluster(tree, [*counts, path]) != plain
    ]


def _at(section: Section | None, path: KeyPath) -> object:
    """Return the parsed value of a key; None if it is absent."""
    value: object = section
    for key in path:
        value = getattr(value, str(key), None)
    return value


def _build_cluster(tree: Tree, paths: Iterable[KeyPath]) -> Cluster | None:
    """Return the profile's cluster with the tree's values of these keys; None if they are invalid by themselves."""
    mistakes = read_profile_tree(tree.profile)
    for path in paths:
        mistakes.tree.put(("cluster", *path), tree.at(("cluster", *path)), tree.profile)
    document, _ = read_document(mistakes)
    if document.cluster is None:
        return None
    check_cluster(document.cluster, Look(mistakes=mistakes))
    return None if mistakes.sentences() else build_cluster(document.cluster)
