"""Lists the figures of a scenario's hardware, each also increased and decreased, with their uncertainty."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.config import units
from scenarios.config.provenance import Measured
from scenarios.config.toml.tree import Tree

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(\S.*?)\s*")
_TABLES = ("cluster", "launching")
# Sizes that bound what fits, not times; and figures of money and energy.
_NO_TIME = frozenset({"memory", "host_memory", "context", "fragmentation", "cost"})
_KERNELS = re.compile(r"cluster\.gpu\.(?:efficiency|launches|ramps)\.(\w+)")
_PEAKS = re.compile(r"cluster\.gpu\.(?:flops\.\w+|memory_rate)")
_TRANSPORT = re.compile(r"cluster\.(?:nic|network|tcp)\.")
_TCP_GROUP = "gloo over TCP"

ASSUMED = 0.10
OF_EFFICIENCY = "in efficiency"  # of kernels: the uncertainty of the product of peak and efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A figure by its key; `more` and `less` are its value times and over 1 + the change.

    `uncertainty` is relative, with its origin in `source`; parameters of one `group` share their errors.
    """

    key: str
    value: object
    more: object
    less: object
    uncertainty: float
    source: str
    group: str


def parameters(tree: Tree, measured: Measured | None, change: float) -> list[Parameter]:
    """Return all figures above 0 in the file's order: rates, times, shares, and sizes of caches and buffers."""
    errors = {group.name: group.typical_error for group in measured.groups} if measured is not None else {}
    figures = []
    for name in _TABLES:
        for key, value in _figures(tree.values.get(name), name):
            if (more := scale_quantity(value, 1 + change)) is not None:
                uncertainty, source, group = _uncertainty(key, tree, errors)
                less = scale_quantity(value, 1 / (1 + change))
                figures.append(
                    Parameter(
                        key=key, value=value, more=more, less=less, uncertainty=uncertainty, source=source, group=group
                    )
                )
    return figures


def _figures(table: Any, above: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items() if isinstance(table, dict) else ():
        if name in _NO_TIME:
            continue
        if isinstance(value, dict):
            yield from _figures(value, f"{above}.{name}")
        else:
            yield f"{above}.{name}", value


def scale_quantity(value: object, factor: float) -> object:
    """Return a quantity or a share times a factor, with its unit; None for values that are no figure above 0, such as
    counts.
    """
    if isinstance(value, float):
        # Twelve digits, so that the value and its digest do not depend on the last bit of a product.
        return float(f"{value * factor:.12g}") if value > 0 else None
    parts = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if parts is None or not float(parts[1]) or units.quantity_of(parts[0]) is None:
        return None
    return f"{float(parts[1]) * factor:.12g} {parts[2]}"


def _uncertainty(key: str, tree: Tree, errors: Mapping[str, float]) -> tuple[float, str, str]:
    """Return a figure's uncertainty, its origin, and the group of figures that share it."""
    kind = _KERNELS.fullmatch(key)
    group = f"{kind[1]} kernels" if kind is not None else _TCP_GROUP if _TRANSPORT.match(key) else ""
    if group in errors:
        return errors[group], "calibrated", group
    if _PEAKS.fullmatch(key) and _has_efficiency(tree):
        return 0.0, OF_EFFICIENCY, key
    return ASSUMED, "assumed", key


def _has_efficiency(tree: Tree) -> bool:
    try:
        return bool(tree.at(("cluster", "gpu", "efficiency")))
    except (LookupError, TypeError):
        return False
