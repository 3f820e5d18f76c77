"""Converts quantities as users write them ("400 Gbit/s") to plain numbers, and formats numbers for people.

All other code uses bytes, bytes/s, ns, flop and flop/s. There is no unit `b`, so that bits must be spelt out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod

_NUMBER = (
    r"[+-]?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"  # bounded, so that no text is expensive to parse
)
_UNIT = r"[A-Za-zµμ]+(?:\s*/\s*[A-Za-zµμ]+)?"
_WRITTEN = re.compile(rf"\s*({_NUMBER})\s*({_UNIT})\s*")

# Factors of prefixes, and of units relative to a dimension's own.
_PREFIXES = {
    **dict.fromkeys(("nano", "n"), Fraction(1, 10**9)),
    **dict.fromkeys(("micro", "u", "µ", "μ"), Fraction(1, 10**6)),
    **dict.fromkeys(("milli", "m"), Fraction(1, 10**3)),
    **dict.fromkeys(("kilo", "k"), Fraction(10**3)),
    **dict.fromkeys(("mega", "M"), Fraction(10**6)),
    **dict.fromkeys(("giga", "G"), Fraction(10**9)),
    **dict.fromkeys(("tera", "T"), Fraction(10**12)),
    **dict.fromkeys(("peta", "P"), Fraction(10**15)),
    **dict.fromkeys(("exa", "E"), Fraction(10**18)),
    **dict.fromkeys(("kibi", "Ki"), Fraction(2**10)),
    **dict.fromkeys(("mebi", "Mi"), Fraction(2**20)),
    **dict.fromkeys(("gibi", "Gi"), Fraction(2**30)),
    **dict.fromkeys(("tebi", "Ti"), Fraction(2**40)),
    **dict.fromkeys(("pebi", "Pi"), Fraction(2**50)),
}
_UNITS = {
    **dict.fromkeys(("byte", "bytes", "B"), ("byte", Fraction(1))),
    **dict.fromkeys(("bit", "bits"), ("byte", Fraction(1, 8))),
    **dict.fromkeys(("second", "seconds", "s"), ("second", Fraction(1))),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), ("second", Fraction(60))),
    **dict.fromkeys(("hour", "hours", "h"), ("second", Fraction(3600))),
    **dict.fromkeys(("flop", "flops", "FLOP", "FLOPs"), ("flop", Fraction(1))),
}
_NAME = re.compile(f"({'|'.join(_PREFIXES)})?({'|'.join(_UNITS)})")


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


@lru_cache(maxsize=256)
def _factor(unit: str, target: str) -> Fraction | None:
    """Return how many `target` one `unit` is; None for an unknown unit or another dimension."""
    given, wanted = _measure(unit), _measure(target)
    return given[1] / wanted[1] if given and wanted and given[0] == wanted[0] else None


def _measure(unit: str) -> tuple[tuple[str, ...], Fraction] | None:
    """Return the dimensions of a unit such as Gbit/s, over and under the slash, and its factor; None if unknown."""
    names = [_NAME.fullmatch(name.strip()) for name in unit.split("/")]
    found = [(_PREFIXES.get(name[1], 1), *_UNITS[name[2]]) for name in names if name]
    if len(found) < len(names):
        return None
    over, *under = [prefix * factor for prefix, _, factor in found]
    return tuple(dimension for _, dimension, _ in found), over / prod(under)


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
