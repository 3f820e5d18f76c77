"""Checks across the keys of the features and ids in `model.tables` of a scenario file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scenarios.config.scenario.recommender import FileIds, MeanIds, ZipfIds
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.tree import KeyPath
from scenarios.workloads.dlrm.ids.file import read_bags


def check_ids(model: Any, look: Look) -> None:
    """Add what is wrong with the ids of the model's tables or their features."""
    usual, tables = model.ids_per_sample, model.tables or []
    if _is_mean(usual) and usual.mean is None:
        look.need(("model", "ids_per_sample"), usual, "mean")
    for index, table in enumerate(tables):
        path: KeyPath = ("model", "tables", index)
        if table.features is None:
            _check_ids(table, table.rows, usual, path, look)
        else:
            _check_features(table, usual, path, look)
    _check_feature_names(tables, look.mistakes)


def _check_features(table: Any, usual: Any, path: KeyPath, look: Look) -> None:
    look.refuse(path, table, ("ids_per_sample", "ids"), "with features, each of which has its own")
    if not table.features:
        look.mistakes.add((*path, "features"), "at least one feature")
    for index, feature in enumerate(table.features):
        place = (*path, "features", index)
        look.need(place, feature, "name")
        _check_ids(feature, table.rows, usual, place, look)


def _check_feature_names(tables: Sequence[Any], mistakes: Mistakes) -> None:
    """Add mistakes for features of equal names: a sample has one bag per name. A table alone is a feature."""
    first: dict[str, KeyPath] = {}
    for index, table in enumerate(tables):
        if table.features is None and table.name is not None:
            first.setdefault(table.name, ("model", "tables", index))
    features = (
        (("model", "tables", index, "features", number), feature.name)
        for index, table in enumerate(tables)
        for number, feature in enumerate(table.features or [])
    )
    check_names(features, first, mistakes)


def check_names(named: Iterable[tuple[KeyPath, str | None]], first: dict[str, KeyPath], mistakes: Mistakes) -> None:
    """Add a mistake for each repeated name; `first` maps each name to its first path, and is extended."""
    for path, name in named:
        if name is not None and first.setdefault(name, path) != path:
            mistakes.add((*path, "name"), f"a name of its own, but {mistakes.name_of(first[name])} has it already")


def _check_ids(section: Any, rows: int | None, usual: Any, path: KeyPath, look: Look) -> None:
    """Add what is wrong with the ids of a table or a feature, of which there are `usual` where it says no number."""
    mistakes, law, count = look.mistakes, section.ids, section.ids_per_sample
    kind = getattr(law, "declared_by", None)
    if _is_mean(count) and count.mean is None:
        look.need((*path, "ids_per_sample"), count, "mean")
    if kind is ZipfIds and law.zipf is None and not _names_file(mistakes, (*path, "ids")):
        look.need((*path, "ids"), law, "zipf")
    if kind is ZipfIds and law.bags == "by_first" and _is_mean(usual if count is None else count):
        place = ("model",) if count is None else path
        mistakes.add((*place, "ids_per_sample"), "a number with ids.bags = 'by_first'")
    if kind is not FileIds:
        if count is None and usual is None and mistakes.sound((*path, "ids"), ("model", "ids_per_sample")):
            look.need(path, section, "ids_per_sample")
        return
    if section.ids_per_sample is not None:
        mistakes.add((*path, "ids_per_sample"), "no ids_per_sample, because the file says it")
    if section.ids.file is not None:
        key = (*path, "ids", "file")
        try:
            read_bags(named_file(mistakes, key, section.ids.file), rows)
        except ValueError as error:
            mistakes.add(key, str(error))


def _is_mean(count: Any) -> bool:
    """Return whether a number of ids is the mean of a random one."""
    return getattr(count, "declared_by", None) is MeanIds


def _names_file(mistakes: Mistakes, path: KeyPath) -> bool:
    """Return whether the ids have a `file` that was left out of the document because it is wrong."""
    ids = mistakes.tree.at(path)
    return isinstance(ids, dict) and "file" in ids
