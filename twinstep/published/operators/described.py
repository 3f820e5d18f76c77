"""Descriptions of the operators in measured rows: for the laws, and how the row was measured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.operations.operation import Operation

_DTYPES = {
    **{"fp64": "float64", "fp32": "float32", "tf32": "tf32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"},
    **{"fp8": "float8_e4m3fn"},
    **{name: name for name in ("float64", "float32", "bfloat16", "float16")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A measured operator: its successive calls, and the seconds that the row includes besides them.

    `family` is the group in tables of errors. `is_cold`: caches were flushed before.
    """

    family: str
    operations: tuple[Operation, ...]
    beside_s: float
    is_cold: bool = False


class NotDescribedError(ValueError):
    """An error of a row that no law covers; its text is a reason for the reader."""


def dtype_of(word: str) -> str:
    """Return torch's name of a dtype, or "tf32"; a note in brackets after the word is ignored.

    Raises:
        NotDescribedError: the word is no dtype.
    """
    found = _DTYPES.get(word.split("[", maxsplit=1)[0].strip().lower())
    if found is None:
        raise NotDescribedError(f"dtype '{word}': expected one of {', '.join(_DTYPES)}")
    return found


def is_dtype(word: str) -> bool:
    """Return whether a word is a dtype's name."""
    return word.lower() in _DTYPES


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element in memory; TF32 is a way to multiply float32."""
    return ELEMENT_BYTES.get(dtype, 1 if dtype.startswith("float8") else 4)


def whole(text: str, name: str) -> int:
    """Return a number of at least 1.

    Raises:
        NotDescribedError: the text is no such number.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 1e15 or value != int(value):
        raise NotDescribedError(f"{name} = '{text}': expected a whole number from 1 on")
    return int(value)


def sizes(words: list[str], names: str) -> list[int]:
    """Return one number for each of `names`, in their order.

    Raises:
        NotDescribedError: there are more or fewer words, or one is no number of at least 1.
    """
    expected = names.split()
    if len(words) != len(expected):
        raise NotDescribedError(f"desc '{' '.join(words)}': expected {names}")
    return [whole(word, name) for word, name in zip(words, expected, strict=True)]


def first_number(pattern: str, text: str) -> int | None:
    """Return the number that the first group of a pattern finds in a text, without its separators; None if none."""
    found = re.search(pattern, text)
    digits = found[1].replace(",", "") if found is not None else ""
    return int(digits) if digits else None
