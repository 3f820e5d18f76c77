"""A real operation never suspends; a program that does is told so."""

from __future__ import annotations

import asyncio

import pytest

from real.rank.drive import play
from scenarios.seam.errors import ProgramError


async def gives(value: int) -> int:
    return value


async def sleeps() -> None:
    await asyncio.sleep(0)


def test_a_coroutine_is_played_to_its_result() -> None:
    assert play(gives(5), 0) == 5


def test_awaiting_something_foreign_is_one_sentence() -> None:
    with pytest.raises(ProgramError) as caught:
        play(sleeps(), 3)
    assert str(caught.value) == (
        "rank 3: sleeps awaited something that yielded NoneType; a program awaits only what the verbs of Rank return"
    )
