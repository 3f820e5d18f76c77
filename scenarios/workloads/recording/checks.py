"""Check of a recording that a user hands in. Only a replay shows whether requests of several ranks match."""

from __future__ import annotations

from functools import partial

from scenarios.workloads.recording.events.forms import (
    MOST_RANKS,
    is_below,
    is_count,
    is_flag,
    is_list,
    is_number,
    is_text,
)
from scenarios.workloads.recording.events.table import is_line
from scenarios.workloads.recording.recorded import Recorded


def mistake(recorded: Recorded) -> str | None:
    """Return a phrase about the first mistake and its place; None if the recording is valid."""
    size = recorded.hosts * recorded.gpus_per_host if is_count(recorded.hosts, recorded.gpus_per_host) else 0
    sound = {
        "hosts": is_count(recorded.hosts) and 0 < size <= MOST_RANKS,
        "gpus_per_host": is_count(recorded.gpus_per_host),
        "steps": is_count(recorded.steps),
        "script": is_text(recorded.script),
        "sha256": is_text(recorded.sha256),
        "profile": is_text(recorded.profile),
        "kind": recorded.kind in ("cpu", "cuda"),
        "args": is_list(recorded.args, is_text),
        "env": is_list(recorded.env, lambda one: is_list(one, is_text) and len(one) == 2),
        "flops_per_s": is_number(recorded.flops_per_s) and recorded.flops_per_s > 0,
        "program": is_text(recorded.program),
        "uses_host_path": is_flag(recorded.uses_host_path),
        "cuda_graphs": is_flag(recorded.cuda_graphs),
        "lines": isinstance(recorded.lines, list),
        "sequences": isinstance(recorded.sequences, list),
        "compiled": isinstance(recorded.compiled, list),
    }
    for name, is_sound in sound.items():
        if not is_sound:
            return f"{name} is not what it should be"
    for number, line in enumerate(recorded.lines):
        if not is_line(line):
            return f"lines[{number}] is no request of a rank"
    for name in ("sequences", "compiled"):
        for number, sequence in enumerate(getattr(recorded, name)):
            if not is_list(sequence, partial(is_below, len(recorded.lines))):
                return f"{name}[{number}] is no list of lines"
    if len(recorded.compiled) != len(recorded.sequences):
        return f"compiled is no list of {len(recorded.sequences)} steps"
    of_ranks = (("ranks", len(recorded.sequences)), ("recorded_by", size))
    for name, most in of_ranks:
        listed = getattr(recorded, name)
        if not (is_list(listed, partial(is_below, most)) and len(listed) == size):
            return f"{name} is no list of {size} numbers below {most}"
    return None
