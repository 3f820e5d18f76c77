"""A recording as a file: each rank's events, which can be simulated again without what issued them.

The file is gzipped JSON of the fields of `Recorded`, version `FORMAT`. Lines are those of `events`; loads no torch.
Values are checked one by one; only a replay shows whether events of several ranks match.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

from scenarios import given_file
from scenarios.config.scenario.run_settings import DEFAULT_STEPS
from scenarios.config.toml.look import Look
from scenarios.config.toml.sections import Document, RunSection
from scenarios.config.toml.tree import KeyPath, too_deep
from scenarios.workloads.recording.events.event import EVENTS
from scenarios.workloads.recording.events.forms import (
    MOST_RANKS,
    is_below,
    is_count,
    is_flag,
    is_list,
    is_number,
    is_row,
    is_text,
)
from scenarios.workloads.recording.events.table import is_line
from scenarios.workloads.recording.recorded import FORMAT, SCRIPT, Recorded

NAME = "recording.json.gz"


def recording_in(path: Path) -> Path:
    """Return the recording's file: `path` itself, or the one in the run folder `path`."""
    return path / NAME if os.path.isdir(path) else path


def read(path: Path, of: Literal["script", "program"] = "script") -> Recorded:
    """Return the recording of a script, or of another program, in a file.

    Raises:
        ValueError: as for `read_any`, or the recording is of the other kind.
    """
    recorded = read_any(path, of)
    if (recorded.program == SCRIPT) != (of == "script"):
        key = "script.recording" if recorded.program == SCRIPT else "recording.file"
        raise ValueError(f"a recording of a {of}, but {path} is one of program '{recorded.program}' ({key})")
    return recorded


def read_any(path: Path, of: Literal["script", "program"] = "script") -> Recorded:
    """Return the recording in a file, which messages call one of a script or of a program.

    Raises:
        ValueError: the file holds no valid recording; the message is a phrase about what was expected.
    """
    what = f"a recording of a {of}"
    try:
        content: Any = given_file.read_json(path)
    except FileNotFoundError:
        raise ValueError(f"a run folder of a predicted {of}, or its recording, but there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{what}, but {path} could not be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{what}, but {path} could not be read: {error}") from None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ValueError(f"a recording of this release (format {FORMAT}), but {path} is none")
    if unknown := sorted(content.keys() - {field.name for field in fields(Recorded)}):
        raise ValueError(f"{what}, but {path} is damaged: {unknown[0]!r}: expected no such key")
    if missing := [
        each.name
        for each in fields(Recorded)
        if each.default is each.default_factory is MISSING and each.name not in content
    ]:
        raise ValueError(f"{what}, but {path} is damaged: expected {missing[0]}")
    recorded = Recorded(**content)
    for place, value, expected in _mistakes(recorded):
        raise ValueError(f"{what}, but {path} is damaged: {place} = {reprlib.repr(value)}: expected {expected}")
    return recorded


def _are_keys(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, dict) and too_deep(one) is None for one in value.values())


def _mistakes(recorded: Recorded) -> Iterator[tuple[str, Any, str]]:
    """Yield place, value and expected value of each mistake; values are valid only if those before them are."""
    forms = (
        (is_count, f"a whole number from 1 to {MOST_RANKS:,}", ("hosts", "gpus_per_host", "steps")),
        (is_text, "a text", ("script", "sha256", "profile", "program")),
        (lambda value: value in ("cpu", "cuda"), "'cpu' or 'cuda'", ("kind",)),
        (partial(is_list, holds=is_text), "a list of texts", ("args",)),
        (partial(is_list, holds=lambda one: is_row(one, is_text, is_text)), "a list of names with values", ("env",)),
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


def check_scenario(found: Recorded, path: KeyPath, document: Document, look: Look) -> None:
    """Report hosts, GPUs, steps and values that the recording, which the key at `path` names, does not have."""
    cluster, run = document.cluster, document.run or RunSection()
    if cluster is not None and cluster.hosts not in (None, found.hosts):
        look.mistakes.add(("cluster", "hosts"), f"{found.hosts}, as in the recording")
    if cluster is not None and cluster.gpus_per_host not in (None, found.gpus_per_host):
        look.mistakes.add(("cluster", "gpus_per_host"), f"{found.gpus_per_host}, as in the recording")
    if found.program != SCRIPT and (run.steps or DEFAULT_STEPS) != found.steps:  # steps may reach into each other
        phrase = f"{found.steps}, all that the recording has"
        if document.run is None:
            look.mistakes.missing(("run",), f"steps = {phrase}")
        elif run.steps is None:
            look.mistakes.missing(("run", "steps"), phrase)
        else:
            look.mistakes.add(("run", "steps"), phrase)
    elif (run.steps or 0) > found.steps:
        look.mistakes.add(("run", "steps"), f"at most {found.steps}, which the recording has")
    if run.payload == "values":
        look.mistakes.add(("run", "payload"), "'sizes', because a recording has no values")
    if (kind := document.gpu_kind) not in (None, found.kind):
        what = {"cpu": "CPUs", "cuda": "GPUs"}
        look.mistakes.add(
            path, f"a recording on {what[str(kind)]}, as the cluster has, but it was made on {what[found.kind]}"
        )
