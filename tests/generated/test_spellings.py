"""A quantity is what it says, in whatever unit: 400 Gbit/s is 50 GB/s, to the byte of the prediction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest

from scenarios.config import units
from scenarios.config.catalogue import library_files
from scenarios.config.load import load
from scenarios.config.units import Quantity
from tests.generated.mutants import whole
from tests.generated.toml import paths, put, toml_file

SPELLINGS: dict[Quantity, tuple[tuple[str, Fraction], ...]] = {
    units.RATE: (("B/s", Fraction(1)), ("kbit/s", Fraction(125)), ("GB / s", Fraction(10**9))),
    units.SIZE: (("B", Fraction(1)), ("bit", Fraction(1, 8)), ("KiB", Fraction(1024))),
    units.TIME: (("ns", Fraction(1)), ("us", Fraction(1000)), ("s", Fraction(10**9))),
    units.FLOP_RATE: (("FLOP/s", Fraction(1)), ("GFLOP/s", Fraction(10**9))),
    units.FLOPS: (("FLOP", Fraction(1)), ("MFLOP", Fraction(10**6))),
}


@pytest.mark.parametrize("file", library_files(), ids=lambda file: file.stem)
def test_a_scenario_in_other_units_is_the_same(file: Path, tmp_path: Path) -> None:
    tree = whole(file)
    places = [(where, value) for where, value in paths(tree) if isinstance(value, str) and "measured" not in where]
    plain = tmp_path / f"{file.stem}.toml"
    plain.write_text(toml_file(tree))
    expected, found = load(plain), 0
    for turn in range(3):
        for where, value in places:
            spelt = list(spellings(value))
            found += len(spelt)
            if spelt:
                put(tree, where, spelt[turn % len(spelt)])
        plain.write_text(toml_file(tree))
        assert load(plain) == expected
    assert found > 10


def spellings(text: str) -> Iterator[str]:
    """The same quantity in other units; none of what is no quantity."""
    for kind, others in SPELLINGS.items():
        with suppress(ValueError):
            number = units.parse(text, kind)
            for unit, factor in others:
                decimal = f"{float(number / factor):.15f}".rstrip("0").rstrip(".")
                if Fraction(decimal) * factor == number:
                    yield f"{decimal} {unit}"
