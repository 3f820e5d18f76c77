"""Write a profile's file with fitted figures in place of the old ones: all other comments and sources stay.

Only the text is edited, and the result is parsed again and compared.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from reports.errors import ReportError
from reports.nccl import fit_tables as tables
from reports.nccl.fit import Fit
from reports.terminal.text import printable
from scenarios.toml_writer import toml_value

Block: TypeAlias = list[str]  # a table's lines, beginning with its header

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMALS = 4
_HEADER = re.compile(r"\s*\[\[?[^],[]*\]\]?\s*(#.*)?$")  # a table's header; rows of an array have commas
_CLUSTER = r"\s*\[\s*cluster\s*\]"
_STALE = r"\s*\[\[?\s*(measured|published)\b"  # tables about other figures
_GROUP = r"\s*\[\[\s*measured\s*\.\s*groups\s*\]\]"
_TIMES = ("nccl_start",)
_COMMAND = "python -m reports calibrate"  # marks a profile that was written here


def calibrated_profile(base: str, name: str, fit: Fit, *, command: str, date: str) -> str:
    """Return the text of a profile with the fitted figures in [cluster] and with [measured].

    Results of another kind of calibration stay.

    Args:
        base: the profile's present text.
        name: the profile's name, for the first lines and for errors.
        fit: the fitted figures and errors.
        command: the command line, which the text records.
        date: the date, which the text records.

    Raises:
        ReportError: the profile is not written so that lines of it can be replaced.
    """
    before = tomllib.loads(base)
    if "include" in before:
        raise ReportError(f"{name}: include: expected a profile without, as paths would lead elsewhere from the copy")
    rows = [one.row for one in fit.held_out] + [row for one in fit.fitted for row in one.rows]
    shapes = dict.fromkeys(f"{tables.scale_of(row)} {row.gpu}".rstrip() for row in rows)
    ranks = max(row.nodes * row.gpus_per_node for row in rows)
    found = {"machine": ", ".join(shapes), "date": date, "command": command, "ranks": ranks}
    first, *blocks = _blocks(base)
    plain = [block for block in blocks if not _begins(block, _STALE)]
    figures = {one.key: _figure(one.key, one.value) for one in fit.fitted}
    for one in fit.fitted:
        source = printable(f"from {tables.rows_of(one.rows)}, {date}")
        for block in [block for block in plain if _begins(block, _CLUSTER)]:
            _put(block, one.key, f"{one.key} = {toml_value(figures[one.key])} # {source}")
    groups = tables.groups(fit)
    kept = [block for block in blocks if _begins(block, _GROUP) and not _is_own(_parse(block)["groups"][0])]
    text = _join([_head(name, found, fit), first, *plain, _measured_block(before, found), *kept, *map(_group, groups)])
    others = [group for group in before.get("measured", {}).get("groups", ()) if not _is_own(group)]
    expected = {key: value for key, value in before.items() if key not in ("measured", "published")}
    expected["cluster"] = {**before["cluster"], **figures}
    if _read_back(text) != (expected, len(others) + len(groups)):
        raise ReportError(f"{name}: expected [cluster] and [measured] as tables with a line for each key")
    return text


def _figure(key: str, value: float) -> str | float:
    return tables.value_text(key, value) if key in _TIMES else value


def _blocks(text: str) -> list[Block]:
    """Return the lines before the first table, then each table's."""
    blocks: list[Block] = [[]]
    for line in text.split("\n"):
        if _HEADER.match(line):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _begins(block: Block, header: str) -> bool:
    return re.match(header, block[0]) is not None


def _is_own(group: Mapping[str, Any]) -> bool:
    """Return whether an earlier calibration of NCCL wrote the group, whose errors are of other figures."""
    return str(group.get("name", "")).startswith(tables.NAMED)


def _parse(block: Block) -> dict[str, Any]:
    """Return the content of a block of [measured]."""
    said: dict[str, Any] = tomllib.loads("\n".join(block))["measured"]
    return said


def _put(block: Block, key: str, line: str) -> None:
    """Put the line in place of the key's own line, else below the last key."""
    places = [at for at, known in enumerate(block) if re.match(rf"\s*{key}\s*=", known)]
    if places:
        block[places[0]] = line
        return
    keys = [at for at, known in enumerate(block) if re.match(r"\s*[\w-]+\s*=", known)]
    block.insert(max(keys, default=0) + 1, line)


def _head(name: str, found: Mapping[str, Any], fit: Fit) -> Block:
    lines = [
        f"{name}, with what measured rows say of NCCL, {found['date']}, by",
        f"  {found['command']}",
        "Half of the sizes set the figures; [measured] says how far the others are off. All else is as it was.",
        *(f"Not told: {note}" for note in fit.notes),
        *([f"Warning: {worse}"] if (worse := tables.worse(fit)) else []),
    ]
    return [f"# {printable(line)}" for line in lines]


def _measured_block(before: Mapping[str, Any], found: Mapping[str, Any]) -> Block:
    """Return [measured] of this calibration, or of another kind that measured the rest, without its groups."""
    others = {key: value for key, value in before.get("measured", {}).items() if key != "groups"}
    if not others or str(others.get("command", "")).startswith(_COMMAND):
        others = dict(found)
    return ["[measured]", *(f"{key} = {toml_value(value)}" for key, value in others.items())]


def _group(group: Mapping[str, Any]) -> Block:
    shares = {key: round(value, _DECIMALS) + 0.0 for key, value in group.items() if isinstance(value, float)}
    said = {"name": group["name"], **shares, "least": _size(group["least"]), "most": _size(group["most"])}
    return ["[[measured.groups]]", *(f"{key} = {toml_value(value)}" for key, value in said.items())]


def _join(blocks: Sequence[Block]) -> str:
    return "\n".join("\n".join(block).strip("\n") + "\n" for block in blocks if any(map(str.strip, block)))


def _read_back(text: str) -> tuple[dict[str, Any], int]:
    """Return all but [measured], and the number of its groups; nothing if the text is not TOML."""
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        after = {}
    measured = after.pop("measured", {})
    return after, len(measured.get("groups", ()))


def _size(size_bytes: int) -> str:
    """Return the size in the largest unit of which it is a whole number."""
    step = 0
    while step + 1 < len(_SIZES) and size_bytes % 1024 == 0:
        size_bytes, step = size_bytes // 1024, step + 1
    return f"{size_bytes} {_SIZES[step]}"
