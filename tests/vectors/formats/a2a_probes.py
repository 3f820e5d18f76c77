"""Odd and bad calls by name, with what torch 2.13 did on each rank; what ours do is left to the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Rank
from tests.contract.worlds import WORLDS
from tests.vectors.fields import TEXT, WHOLE, Fields, Is, VectorError, one_of
from tests.vectors.files import Check, File, Format
from tests.vectors.formats.probe import Probe, Refusal
from tests.vectors.formats.probe_lists import LISTS
from tests.vectors.formats.probe_singles import OTHERS, SINGLES
from tests.vectors.plays import Batch, Outcome

PROBES: dict[str, Probe] = LISTS | SINGLES | OTHERS

# Of a call that is known to hang.
HANGS_S = 1.0

VALUE = Fields({"ok": one_of(True), "value": Is("a value", lambda _: True)})
ERROR = Fields({"ok": one_of(False), "type": TEXT, "msg": TEXT})
CRASH = Fields({"ok": one_of(False), "type": one_of("CRASH"), "exitcode": WHOLE})


def check_recorded(outcome: Any, where: str) -> None:
    is_crash = isinstance(outcome, dict) and outcome.get("type") == "CRASH"
    is_value = isinstance(outcome, dict) and outcome.get("ok") is True
    (CRASH if is_crash else VALUE if is_value else ERROR).check(outcome, where)


async def call(rank: Rank, name: str) -> Any:
    """The value, or the refusal, that a rank gets."""
    try:
        return await PROBES[name].body(rank)
    except (TypeError, ValueError, ProgramError) as error:
        return Refusal(type(error).__name__, str(error))


def check(probe: Probe, recorded: list[dict[str, Any]], outcome: Callable[[], Outcome]) -> None:
    assert [outcome.get("type", "value") for outcome in recorded] == list(probe.theirs)
    if probe.ends_with:
        assert re.fullmatch(probe.ends_with, end_of(outcome))
        return
    assert outcome().returned == [probe.expected(rank, outcome) for rank, outcome in enumerate(recorded)]


def end_of(outcome: Callable[[], Outcome]) -> str:
    """The one sentence that ends a run."""
    try:
        return f"all ranks came back, with {outcome().returned}"
    except ProgramError as error:
        return str(error)


def replays(file: File, where: str, recorded: Any) -> Iterator[tuple[str, Check]]:
    name = where.removeprefix(f"{file.name}: ")
    if name not in PROBES:
        raise VectorError(f"{where}: an unknown probe; expected one of {', '.join(PROBES)}")
    probe = PROBES[name]
    if not isinstance(recorded, list) or len(recorded) != len(probe.theirs):
        raise VectorError(f"{where}: expected the outcomes of {len(probe.theirs)} ranks")
    for rank, outcome in enumerate(recorded):
        check_recorded(outcome, f"{where}[{rank}]")
    for world in WORLDS:
        ranks = world, 1, len(recorded)
        batch = Batch(*ranks, timeout_s=HANGS_S) if probe.ends_with else file.batch(*ranks)
        yield world, partial(check, probe, recorded, batch.add(call, name))


FORMAT = Format(
    name="a2a_probes",
    cases="probes",
    signature=frozenset({"ok"}),
    head={"torch": TEXT, "backend": one_of("gloo")},
    replays=replays,
)
