"""Classes of sizes, a factor of 16 wide, and sizes in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def classes(calls: pd.DataFrame) -> pd.DataFrame:
    """Return `call_errors` with sizes in classes a factor of 16 wide; 0 bytes are a class of their own."""
    start = calls["size_from_bytes"].to_numpy(float)
    exponent = (np.log2(np.maximum(start, 1)) // 4 * 4).astype(np.int64)
    none = start == 0
    return calls.assign(
        size_from_bytes=np.where(none, 0, 1 << exponent), size_until_bytes=np.where(none, 1, 1 << (exponent + 4))
    )


def size_ranges(frame: pd.DataFrame) -> list[str]:
    """Return each row's range of sizes."""
    return list(map(size_range, frame["size_from_bytes"].tolist(), frame["size_until_bytes"].tolist()))


def size_range(from_bytes: int, until_bytes: int) -> str:
    """Return a range of sizes without its upper end: "4-64 KiB", "256 B-4 KiB", "0 B"."""
    if not from_bytes:
        return "0 B"
    (first, unit), (last, last_unit) = (_power_of_two(value) for value in (from_bytes, until_bytes))
    return f"{first}-{last} {unit}" if unit == last_unit else f"{first} {unit}-{last} {last_unit}"


def size_of_power(size_bytes: int) -> str:
    """Return "4 KiB" for 4,096, a power of two."""
    return " ".join(map(str, _power_of_two(size_bytes)))


def _power_of_two(size_bytes: int) -> tuple[int, str]:
    place = min((size_bytes.bit_length() - 1) // 10, len(_UNITS) - 1)
    return size_bytes >> (10 * place), _UNITS[place]
