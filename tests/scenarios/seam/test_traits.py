from __future__ import annotations

import pytest

from scenarios.seam.collectives import COLLECTIVES
from scenarios.seam.traits import TRAITS


def test_every_collective_is_known_by_its_verb() -> None:
    assert set(TRAITS) == set(COLLECTIVES)
    assert {verb for verb, known in TRAITS.items() if known.has_splits} == {
        verb for verb, collective in COLLECTIVES.items() if collective.has_splits
    }


def test_letters_that_are_in_those_of_another_verb_come_behind_them() -> None:
    spelt = [letters for known in TRAITS.values() for letters in known.letters]
    assert len(set(spelt)) == len(spelt)
    assert [(one, later) for at, one in enumerate(spelt) for later in spelt[at + 1 :] if one in later] == []


@pytest.mark.parametrize(
    ("verb", "factor"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter_tensor", 0.75), ("all_to_all", 0.75), ("reduce", 1.0)],
)
def test_the_bus_carries_as_many_bytes_as_nccl_tests_says(verb: str, factor: float) -> None:
    assert TRAITS[verb].bus_factor(4) == factor
