"""Writes a cluster, and the origin of its figures, as a profile in TOML.

Every quantity has a unit and reads back to the same number: decimal points move, nothing is rounded.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, get_args

from real.machine import cpu_name
from scenarios.config import units
from scenarios.config.hardware import Cluster, Nics
from scenarios.config.keys import declared_keys
from scenarios.config.provenance import ErrorGroup, Measured
from scenarios.config.toml.values import Accept
from scenarios.config.units import Quantity
from scenarios.toml_writer import toml_value
from scenarios.versions import versions

_Lines = dict[str, str]  # a table's keys, and their values as TOML

_OTHERS_SAY = ("profile", "hosts")  # keys that a scenario sets
_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")
_TIMES = ("ns", "us", "ms", "s")
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Comments on tables by name, of several lines; the comment on "" is on the whole file.
FREE_PEAKS = {
    "": "Written by a calibration: see [measured] for where, when and how good. Only the products of peaks and\n"
    "efficiencies were measured: the memory rate is such that the best kind of kernel has an efficiency of 1."
}


def profile_text(
    cluster: Cluster, measured: Measured, description: str, remarks: Mapping[str, str] = FREE_PEAKS
) -> str:
    """Write the profile's text without `hosts`, which a scenario sets, and without the name, which is the file's.

    `remarks` are comments on tables by name; on "": on the whole file.
    """
    tables = [*_tables("cluster", cluster), *_tables("measured", measured)]
    blocks = [_comment(remarks.get(name.strip("[]"), "")) + _block(name, lines) for name, lines in tables]
    whole = _comment(remarks.get("", ""))
    return "\n".join([f"description = {toml_value(description)}\n\n{whole}", *blocks])


def _tables(name: str, value: Any, header: str = "[{}]") -> Iterator[tuple[str, _Lines]]:
    """Yield a declared value's own table and its inner tables, by header; keys at their default are left out."""
    own: _Lines = {}
    inner: list[tuple[str, _Lines]] = []
    kind: Any = type(value)
    for one in declared_keys(kind):
        content, place = attrgetter(".".join(one.path))(value), f"{name}.{one.key.name}"
        if one.key.name in _OTHERS_SAY or content is None or (content == one.default and not one.key.always):
            continue
        if isinstance(value, Nics) and value.per == "gpu" and one.key.name == "count":
            continue  # the scenario's GPUs decide
        if one.is_array and one.table is not None:
            inner += [table for each in content for table in _tables(place, each, "[[{}]]")]
        elif one.table is not None:
            inner += _tables(place, content)
        elif one.key.names is not None:
            inner.append((f"[{place}]", {key: _toml(each, one.hint) for key, each in content.items()}))
        else:
            own[one.key.name] = _toml(content if one.key.write is None else one.key.write(content), one.hint)
    yield header.format(name), own
    yield from inner


def _toml(value: Any, hint: object) -> str:
    """Write a value as TOML, in the unit of its declared type."""
    if isinstance(value, str | bool | tuple):
        return toml_value(value)
    quantity = _quantity(hint)
    return repr(value) if quantity is None else _WRITTEN[quantity](value)


def _quantity(hint: object) -> Quantity | None:
    marks = getattr(hint, "__metadata__", ())
    quantity = next((mark.quantity for mark in marks if isinstance(mark, Accept)), None)
    return quantity or next(filter(None, map(_quantity, get_args(hint))), None)


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def _block(header: str, lines: Mapping[str, str]) -> str:
    return "".join([f"{header}\n", *(f"{key} = {value}\n" for key, value in lines.items())])


def _size(size_bytes: int) -> str:
    """Write a size in the largest unit of which it is a whole number."""
    step = 0
    while step + 1 < len(_SIZES) and size_bytes and size_bytes % 1024 == 0:
        size_bytes, step = size_bytes // 1024, step + 1
    return toml_value(f"{size_bytes} {_SIZES[step]}")


def _time(time_ns: int) -> str:
    step = min(max(len(str(time_ns)) - 1, 0) // 3, len(_TIMES) - 1)
    return toml_value(f"{_shift(Decimal(time_ns), step)} {_TIMES[step]}")


def _scale(rate: float, unit: str) -> str:
    # repr is the shortest text that reads back to the same float.
    exact = Decimal(repr(float(rate)))
    step = min(max(exact.adjusted(), 0) // 3, len(_THOUSANDS) - 1)
    return toml_value(f"{_shift(exact, step)} {_THOUSANDS[step]}{unit}")


def _shift(number: Decimal, steps: int) -> str:
    """Return a plain decimal, its point moved left by three places a step, without trailing zeros."""
    text = f"{number.scaleb(-3 * steps):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_WRITTEN: Mapping[Quantity, Callable[[Any], str]] = {
    units.SIZE: _size,
    units.TIME: _time,
    units.RATE: lambda rate: _scale(rate, "B/s"),
    units.FLOP_RATE: lambda rate: _scale(rate, "FLOP/s"),
}


def describe_measurement(command: str, ranks: int, began_s: float, groups: Iterable[ErrorGroup]) -> Measured:
    """Describe a measurement on this machine, from `began_s` of the monotonic clock until now."""
    return Measured(
        machine=platform.node() or "unknown",
        cpu=cpu_name(),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=versions()["torch"],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        ranks=ranks,
        duration_ns=max(1, round((time.monotonic() - began_s) * 1e9)),
        groups=tuple(groups),
    )
