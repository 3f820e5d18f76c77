"""What is written reads back, whatever letters it has."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from scenarios.toml_writer import toml_value

TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.just("\x7f \U0001f600")
VALUES = st.recursive(
    TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(value=VALUES)
def test_a_value_reads_back_as_it_was(value: object) -> None:
    assert tomllib.loads(f"key = {toml_value(value)}") == {"key": value}
