"""Reads a table's ids from a file: a sample a line, ids separated by spaces, an empty line for an empty bag."""

from __future__ import annotations

from pathlib import Path


def read_bags(path: Path, rows: int | None = None) -> list[list[int]]:
    """The bags of `path` in order, each id in [0, rows); with rows None, any id of at least 0.

    Raises:
        ValueError: what was expected instead, as a phrase: of a file that is not there, a line that is no list of ids,
            an id outside, or a file without any id.
    """
    try:
        lines = path.read_bytes().decode().splitlines()
    except OSError:
        raise ValueError(f"{path} to be a file") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} to be UTF-8 text") from None
    wanted = "ids of at least 0" if rows is None else f"ids from 0 to {rows - 1}"
    bags = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        wrong = next((word for word in words if not _is_id(word, rows)), None)
        if wrong is not None:
            raise ValueError(f"{wanted}, separated by spaces, but line {number} has '{wrong}'")
        bags.append([int(word) for word in words])
    if not any(bags):
        raise ValueError("at least one id")
    return bags


def _is_id(word: str, rows: int | None) -> bool:
    if not (word.isascii() and word.isdigit() and len(word) < 20):
        return False
    return rows is None or int(word) < rows
