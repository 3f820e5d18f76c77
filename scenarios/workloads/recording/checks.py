"""Check of a recording that a user hands in. Only a replay shows whether events of several ranks match."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from scenarios.config.toml.tree import too_deep
from scenarios.workloads.recording.events.forms import (
    MOST_RANKS,
    is_below,
    is_count,
    is_flag,
    is_list,
    is_number,
    is_text,
)
from scenarios.workloads.recording.events.table import EVENTS, is_line
from scenarios.workloads.recording.recorded import Recorded

_COUNT = f"a whole number from 1 to {MOST_RANKS:,}"


def mistake(recorded: Recorded) -> str | None:
    """Return a phrase about the first mistake: its place, the value and what was expected; None without one."""
    found = next(_mistakes(recorded), None)
    return None if found is None else f"{found[0]} = {reprlib.repr(found[1])}: expected {found[2]}"


def _are_keys(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, dict) and too_deep(one) is None for one in value.values())


def _mistakes(recorded: Recorded) -> Iterator[tuple[str, Any, str]]:
    """Yield place, value and expected value of each mistake; values are valid only if those before them are."""
    forms = (
        (is_count, _COUNT, ("hosts", "gpus_per_host", "steps")),
        (is_text, "a text", ("script", "sha256", "profile", "program")),
        (lambda value: value in ("cpu", "cuda"), "'cpu' or 'cuda'", ("kind",)),
        (partial(is_list, holds=is_text), "a list of texts", ("args",)),
        (partial(is_list, holds=_is_variable), "a list of names with values", ("env",)),
        (lambda value: is_number(value) and value > 0, "a number above 0", ("flops_per_s",)),
        (_are_keys, "tables of keys", ("keys",)),
        (is_flag, "true or false", ("uses_host_path", "cuda_graphs")),
        (lambda value: isinstance(value, list), "a list", ("lines", "sequences", "compiled")),
    )
    for form, expected, names in forms:
        yield from ((name, value, expected) for name in names if not form(value := getattr(recorded, name)))
    size = recorded.hosts * recorded.gpus_per_host
    if size > MOST_RANKS:
        yield "hosts", recorded.hosts, f"at most {MOST_RANKS:,} ranks"
    for number, line in enumerate(recorded.lines):
        if not is_line(line):
            kind = line[0] if isinstance(line, list) and line and is_text(line[0]) else ""
            yield f"lines[{number}]", line, f"the values of '{kind}'" if kind in EVENTS else "an event of a rank"
    count = len(recorded.lines)
    for name in ("sequences", "compiled"):
        for number, sequence in enumerate(getattr(recorded, name)):
            if not is_list(sequence, partial(is_below, count)):
                yield f"{name}[{number}]", sequence, f"numbers of {count} lines"
    if len(recorded.compiled) != len(recorded.sequences):
        yield "compiled", recorded.compiled, f"a list of {len(recorded.sequences)} steps"
    for name, most in (("ranks", len(recorded.sequences)), ("recorded_by", size)):
        listed = getattr(recorded, name)
        if not (is_list(listed, partial(is_below, most)) and len(listed) == size):
            yield name, listed, f"a list of {size} numbers below {most}"


def _is_variable(value: Any) -> bool:
    return is_list(value, is_text) and len(value) == 2
