"""The catalogue of mistakes keeps fitting the sources that it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mistake_still_changes_its_file(mutation: Mutation) -> None:
    text = (ROOT / mutation.path).read_text()
    assert mutation.applied_to(text) != text


def test_names_are_distinct_and_all_five_rooms_have_mistakes() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 20
    rooms = {mutation.name.split(":")[0] for mutation in MUTATIONS}
    assert rooms >= {"partitioner", "bucketize", "shuffle", "recat", "powersgd"}
