"""Checks a recording that a user hands in. Whether its requests fit each other is found only by replaying it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from scenarios.config.interconnect import LIBRARIES
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.as_json import is_operation
from scenarios.workloads.script.recording.recorded import Recorded

_MOST = 1 << 62  # of whole numbers, so that sums of them stay numbers of 64 bits
_MOST_RANKS = 1 << 20
_DEEPEST = 8  # kernels of kernels
_KERNEL = {field.name: field.type for field in fields(Kernel)}


def mistake(recorded: Recorded) -> str | None:
    """Return the first thing that is wrong, as a phrase with its place; None if all fits."""
    size = recorded.hosts * recorded.gpus_per_host if _is_count(recorded.hosts, recorded.gpus_per_host) else 0
    sound = {
        "hosts": _is_count(recorded.hosts) and 0 < size <= _MOST_RANKS,
        "gpus_per_host": _is_count(recorded.gpus_per_host),
        "steps": _is_count(recorded.steps),
        "script": _is_text(recorded.script),
        "sha256": _is_text(recorded.sha256),
        "profile": _is_text(recorded.profile),
        "kind": recorded.kind in ("cpu", "cuda"),
        "args": _is_list(recorded.args, _is_text),
        "env": _is_list(recorded.env, lambda one: _is_list(one, _is_text) and len(one) == 2),
        "flops_per_s": _is_number(recorded.flops_per_s) and recorded.flops_per_s > 0,
        "lines": isinstance(recorded.lines, list),
        "sequences": isinstance(recorded.sequences, list),
        "compiled": isinstance(recorded.compiled, list),
    }
    for name, is_sound in sound.items():
        if not is_sound:
            return f"{name} is not what it should be"
    for number, line in enumerate(recorded.lines):
        if not _is_line(line):
            return f"lines[{number}] is no request of a rank"
    for name in ("sequences", "compiled"):
        for number, sequence in enumerate(getattr(recorded, name)):
            if not _is_list(sequence, partial(_is_below, len(recorded.lines))):
                return f"{name}[{number}] is no list of lines"
    if len(recorded.compiled) != len(recorded.sequences):
        return f"compiled is no list of {len(recorded.sequences)} steps"
    of_ranks = (("ranks", len(recorded.sequences)), ("recorded_by", size))
    for name, most in of_ranks:
        listed = getattr(recorded, name)
        if not (_is_list(listed, partial(_is_below, most)) and len(listed) == size):
            return f"{name} is no list of {size} numbers below {most}"
    return None


def _is_line(line: Any) -> bool:
    if not (isinstance(line, list) and line and _is_text(line[0])):
        return False
    kind, *rest = line
    forms = _FORMS.get(kind)
    if forms is None:
        return len(rest) <= 1
    return len(rest) == len(forms) and all(form(one) for form, one in zip(forms, rest, strict=True))


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_below(most: int, value: Any) -> bool:
    return type(value) is int and 0 <= value < most


def _is_count(*values: Any) -> bool:
    return all(type(value) is int and 0 < value <= _MOST_RANKS for value in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(holds, value))


def _is_tensor(value: Any) -> bool:
    shape = isinstance(value, list) and len(value) == 3
    return shape and _is_list(value[0], _is_whole) and _is_text(value[1]) and type(value[2]) is bool


def _is_kernel(value: Any, depth: int = 0) -> bool:
    if not isinstance(value, dict) or not set(value) <= set(_KERNEL) or "kind" not in value or depth > _DEEPEST:
        return False
    for name, figure in value.items():
        if name == "parts":
            if not _is_list(figure, lambda one: _is_kernel(one, depth + 1)):
                return False
        elif name == "operations":
            if not _is_list(figure, is_operation):
                return False
        elif _KERNEL[name] == "str":
            if not _is_text(figure):
                return False
        elif not (_is_whole(figure) if _KERNEL[name] == "int" else _is_number(figure) and figure >= 0):
            return False
    return True


def _is_tensors(value: Any) -> bool:
    return _is_list(value, _is_tensor)


def _is_verb(value: Any) -> bool:
    return _is_text(value) and value.isidentifier() and not value.startswith("_")


def _is_group(value: Any) -> bool:
    return _is_list(value, _is_whole) and len(value) == len(set(value)) > 0


def _is_host_work(value: Any) -> bool:
    return _is_list(value, _is_whole) and len(value) == len(HostWork._fields)


def _is_computed(value: Any) -> bool:
    is_told = isinstance(value, list) and len(value) == 3
    return is_told and _is_list(value[:2], _is_text) and _is_host_work(value[2])


def _is_loaded(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 5 and _is_list(value[:4], _is_whole) and _is_text(value[4])):
        return False
    _, workers, prefetch, *_ = value
    return bool(0 < workers * prefetch <= _MOST_RANKS)


# What stands behind a line's kind, of those with a form (see lines.py).
_FORMS: dict[str, tuple[Callable[[Any], bool], ...]] = {
    "cpu": (_is_whole, _is_text),
    "host": (_is_host_work,),
    "on_cpu": (lambda one: _is_list(one, _is_computed),),
    "loaded": (_is_loaded,),
    "kernel": (_is_whole, _is_kernel, _is_text),
    "event": (_is_whole,),
    "after": (_is_whole, _is_whole),
    "gradient": (_is_whole, lambda one: _is_list(one, _is_whole) and len(one) == 2),
    "issue": (
        *(_is_verb, _is_whole, _is_text, _is_whole, _is_tensors, _is_tensors),
        lambda one: isinstance(one, dict),
        lambda one: type(one) is bool,
        lambda one: one == "" or one in LIBRARIES,
    ),
    "wait": (_is_whole, _is_whole),
    "synchronize_event": (_is_whole,),
    "synchronize_call": (_is_whole,),
    "query": (lambda one: one in ("event", "stream", "call"), lambda one: type(one) is int),
    "new_group": (_is_group,),
    "memory": (_is_whole,),
    "sleep": (_is_whole,),
    "reserved": (_is_whole,),
    "step": (),
    "record": (lambda one: isinstance(one, list) and len(one) == 2 and _is_text(one[0]),),
}
