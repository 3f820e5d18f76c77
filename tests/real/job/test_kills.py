"""Kills are what a user wrote, or drawn from failures; a mistake is one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from real.job.kills import Kill, draw_kills, parse_kill
from scenarios.config.scenario.job import FailureKind, Failures
from scenarios.seam.errors import ScenarioError
from tests.contract.worlds import scenario

NAMES = ("GPU", "power", "upgrade")
CLUSTER = scenario(2, 2, name="killed").cluster


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12s:rank3", Kill(what="rank", number=3, at_s=12.0)),
        ("1.5 min : host 1", Kill(what="host", number=1, at_s=90.0)),
        ("step40:host0", Kill(what="host", number=0, step=40)),
    ],
)
def test_a_kill_is_a_moment_and_a_process(text: str, expected: Kill) -> None:
    assert parse_kill(text, CLUSTER, 50) == replace(expected, given=text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("soon:rank1", "expected a moment and a process such as '12s:rank3' or 'step40:host1'"),
        ("12:rank1", "expected a moment and a process such as '12s:rank3' or 'step40:host1'"),
        ("12s:gpu1", "expected a moment and a process such as '12s:rank3' or 'step40:host1'"),
        ("12s:rank4", "expected rank 0 to 3"),
        ("step3:host2", "expected host 0 to 1"),
        ("step50:rank0", "expected step 0 to 49, as the job ends after 50 steps"),
    ],
)
def test_a_mistake_in_a_kill_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        parse_kill(text, CLUSTER, 50)
    assert str(raised.value) == f"--kill = '{text}': {sentence}"


def test_drawn_kills_follow_the_rates_and_the_seed() -> None:
    kinds = (
        FailureKind(name="GPU", per_gpu_day=86_400 / 100),
        FailureKind(name="power", per_host_day=86_400 / 100, loses_host=True),
        FailureKind(name="upgrade", per_day=86_400.0, planned=True),
    )
    drawn = [draw_kills(Failures(kinds=kinds), CLUSTER, seed, 100.0) for seed in range(200)]
    of = {name: [kill for kills in drawn for kill in kills if kill.name == name] for name in NAMES}
    assert len(of["GPU"]) / 200 == pytest.approx(4, rel=0.1)
    assert len(of["power"]) / 200 == pytest.approx(2, rel=0.1)
    assert not of["upgrade"]
    assert {kill.number for kill in of["GPU"]} == set(range(4))
    assert {(kill.what, kill.number) for kill in of["power"]} == {("host", 0), ("host", 1)}
    assert drawn[3] == draw_kills(Failures(kinds=kinds), CLUSTER, 3, 100.0)
    assert all([kill.at_s for kill in kills] == sorted(kill.at_s or 0.0 for kill in kills) for kills in drawn)
