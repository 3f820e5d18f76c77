"""NCCL's constants: what was published shows in the results, and a change of any of them does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sim.nccl.model import tables as nccl_tables
from tests.sim.nccl import published_rows as nccl_published
from tests.sim.nccl.model import golden as nccl_golden

# NCCL has these caps and never reaches them. LL's over several nodes are those of the processors, in Volta's row and
# Ampere's; a tree's LL128 stays below them, for it is a share of what caps all trees.
IDLE = {("LL_GB_PER_S", row, column) for row in ("Hopper", "Blackwell") for column in (1, 2)} | {
    ("TREE_LL128_CHANNEL_GB_PER_S", *place)
    for place in [("Volta", 1), ("Volta", 2), ("Ampere", 0), ("Ampere", 2), ("Hopper", 0), ("Blackwell", 0)]
}
TABLES = [name for name in vars(nccl_tables) if name.isupper()]


def test_on_links_without_limit_every_published_cap_and_correction_shows() -> None:
    for what, ours, published in nccl_published.compare():
        assert ours == pytest.approx(published, rel=1e-12), what


@pytest.mark.parametrize("name", TABLES)
def test_a_change_of_any_constant_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = getattr(nccl_tables, name)
    for place in numbers(table):
        monkeypatch.setattr(nccl_tables, name, change(table, place))
        assert deviates() is ((name, *place) not in IDLE), place


def deviates() -> bool:
    published = (abs(ours - theirs) > nccl_golden.RELATIVE * theirs for _, ours, theirs in nccl_published.compare())
    return any(published) or any(next(nccl_golden.deviations(config), "") for config in nccl_golden.CONFIGS)


def numbers(table: Any) -> Iterator[tuple[Any, ...]]:
    """The way to each."""
    if isinstance(table, dict):
        places = list(table)
    elif isinstance(table, tuple):
        places = list(range(len(table)))
    else:
        yield from [()] if isinstance(table, (int, float)) else []
        return
    for place in places:
        yield from ((place, *rest) for rest in numbers(table[place]))


def change(table: Any, place: tuple[Any, ...]) -> Any:
    """The table with one number a tenth larger, or 1 for 0."""
    if not place:
        return table * 1.1 or 1.0
    first, *rest = place
    inner = change(table[first], tuple(rest))
    if isinstance(table, dict):
        return {**table, first: inner}
    return (*table[:first], inner, *table[first + 1 :])
