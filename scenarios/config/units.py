"""Converts quantities as users write them ("400 Gbit/s") to plain numbers, and formats numbers for people.

All other code uses bytes, bytes/s, ns, flop and flop/s. Prefixes and dimensions follow pint's rules, over a vocabulary
without `b`, so that bits must be spelt out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pint import UnitRegistry

_NUMBER = (
    r"[+-]?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"  # bounded, so that no text is expensive to parse
)
_UNIT = r"[A-Za-zµμ]+(?:\s*/\s*[A-Za-zµμ]+)?"
_WRITTEN = re.compile(rf"\s*({_NUMBER})\s*({_UNIT})\s*")

_VOCABULARY = (
    "byte = [information] = B",
    "bit = byte / 8",
    "second = [time] = s",
    "minute = 60 * second = min",
    "hour = 60 * minute = h",
    "flop = [arithmetic] = FLOP",
    *("nano- = 1e-9 = n-", "micro- = 1e-6 = u- = µ- = μ-", "milli- = 1e-3 = m-"),
    *("kilo- = 1e3 = k-", "mega- = 1e6 = M-", "giga- = 1e9 = G-"),
    *("tera- = 1e12 = T-", "peta- = 1e15 = P-", "exa- = 1e18 = E-"),
    *(
        "kibi- = 2**10 = Ki-",
        "mebi- = 2**20 = Mi-",
        "gibi- = 2**30 = Gi-",
        "tebi- = 2**40 = Ti-",
        "pebi- = 2**50 = Pi-",
    ),
)


# The quantities of most files, in the units of the code: looked up without pint, which takes 0.1 s to import.
COMMON = {
    **{
        (f"{prefix}{unit}{per}", f"{base}{per_second}"): factor * 10**power
        for prefix, power in {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()
        for unit, base, factor in (
            ("B", "byte", Fraction(1)),
            ("bit", "byte", Fraction(1, 8)),
            ("FLOP", "flop", Fraction(1)),
        )
        for per, per_second in (("", ""), ("/s", "/second"))
    },
    **{
        (f"{prefix}B", "byte"): Fraction(1024**power)
        for prefix, power in {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}.items()
    },
    **{(unit, "nanosecond"): Fraction(10**power) for unit, power in {"s": 9, "ms": 6, "us": 3, "ns": 0}.items()},
    **{(unit, "nanosecond"): Fraction(seconds * 10**9) for unit, seconds in {"min": 60, "h": 3600}.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A kind of quantity: its noun, an example, the units that users write, and the one in which the code counts."""

    noun: str
    example: str
    units: str
    unit: str

    @property
    def expected_phrase(self) -> str:
        """The phrase for error messages."""
        return f"{self.noun} such as '{self.example}'"


RATE = Quantity(noun="a rate", example="400 Gbit/s", units="B/s, bit/s", unit="byte/second")
SIZE = Quantity(noun="a size", example="80 GiB", units="B, bit", unit="byte")
TIME = Quantity(noun="a time", example="3 us", units="s, min, h", unit="nanosecond")
FLOP_RATE = Quantity(noun="a compute rate", example="67 TFLOP/s", units="FLOP/s", unit="flop/second")
FLOPS = Quantity(noun="an amount of arithmetic", example="250 GFLOP", units="FLOP", unit="flop")


def parse(text: str, kind: Quantity) -> Fraction:
    """Parse `text` into an exact number of `kind.unit`.

    Raises:
        ValueError: no number with a known unit of the right dimension; the message is `kind.expected`.
    """
    match = _WRITTEN.fullmatch(text)
    factor = _factor(match[2], kind.unit) if match else None
    if match is None or factor is None:
        raise ValueError(kind.expected_phrase)
    return Fraction(match[1]) * factor


@lru_cache(maxsize=1024)
def quantity_of(text: str) -> tuple[Fraction, str] | None:
    """Return a quantity of any kind with its unit in the code; None if `text` is no quantity."""
    for kind in (RATE, SIZE, TIME, FLOP_RATE, FLOPS):
        try:
            return parse(text, kind), kind.unit
        except ValueError:
            continue
    return None


def parse_rate(text: str) -> float:
    """Parse "400 Gbit/s" or "25 GB/s" into bytes/s; ValueError as in `parse`."""
    return float(parse(text, RATE))


def parse_size(text: str) -> int:
    """Parse "80 GiB" into bytes, rounded; ValueError as in `parse`."""
    return round(parse(text, SIZE))


def parse_time(text: str) -> int:
    """Parse "3 us" into ns, rounded; ValueError as in `parse`."""
    return round(parse(text, TIME))


def parse_flop_rate(text: str) -> float:
    """Parse "67 TFLOP/s" into floating point operations per second; ValueError as in `parse`."""
    return float(parse(text, FLOP_RATE))


def parse_flops(text: str) -> float:
    """Parse "250 GFLOP" into floating point operations; ValueError as in `parse`."""
    return float(parse(text, FLOPS))


def format_bytes(size_bytes: float) -> str:
    """Format bytes for people, with three digits: 1536 -> "1.5 KiB"."""
    return _scale(size_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def format_rate(bytes_per_s: float) -> str:
    """Format bytes/s for people, with three digits: 5e10 -> "50 GB/s"."""
    return _scale(bytes_per_s, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"))


def format_ns(time_ns: float) -> str:
    """Format ns for people, with three digits: 3210 -> "3.21 us"."""
    return _scale(time_ns, 1000, ("ns", "us", "ms", "s"))


@lru_cache(maxsize=1)
def _registry() -> UnitRegistry[Fraction]:
    from pint import UnitRegistry  # noqa: PLC0415 - takes longer to import than everything else here together

    registry: UnitRegistry[Fraction] = UnitRegistry(None, non_int_type=Fraction)
    for definition in _VOCABULARY:
        registry.define(definition)
    return registry


@lru_cache(maxsize=256)
def _factor(unit: str, target: str) -> Fraction | None:
    """Return how many `target` one `unit` is; None for an unknown unit or another dimension."""
    return COMMON.get((unit, target)) or convert_with_pint(unit, target)


def convert_with_pint(unit: str, target: str) -> Fraction | None:
    """Return how many `target` one `unit` is, by pint; None for an unknown unit or another dimension."""
    from pint.errors import PintError  # noqa: PLC0415 - see _registry

    registry = _registry()
    try:
        return Fraction(registry.convert(Fraction(1), registry.parse_units(unit), registry.parse_units(target)))
    except (PintError, ValueError, OverflowError):  # the latter two for "nan" and "inf", which pint reads as numbers
        return None


def _scale(number: float, base: int, units: tuple[str, ...]) -> str:
    if number < 0:
        return f"-{_scale(-number, base, units)}"
    step = 0
    while step + 1 < len(units) and float(_three_digits(number / base**step)) >= base:
        step += 1
    return f"{_three_digits(number / base**step)} {units[step]}"


def _three_digits(number: float) -> str:
    decimals = next((2 - power for power in (0, 1) if number < 10 ** (power + 1)), 0)
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text
