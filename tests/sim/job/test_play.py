"""A played job accounts for all of its time, whatever happens in it."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.job.cycles import Cycles
from sim.job.model import CheckpointTimes, Interruption, JobModel, JobStep
from sim.job.play import EndlessJobError, Played, play
from sim.job.sample import sample

HOUR = 3600.0
DAY = 24 * HOUR
ASYNC = CheckpointTimes(blocks_s=(5.0,), background_s=(40.0,), restore_s=(30.0,))
# A whole checkpoint, then three of what has changed since.
INCREMENTAL = CheckpointTimes(
    blocks_s=(20.0, 2.0, 3.0, 4.0), background_s=(60.0, 5.0, 6.0, 7.0), restore_s=(30.0, 31.0, 32.0, 33.0)
)


def steps_by_hosts(hosts: int, least: int = 0) -> Mapping[int, JobStep]:
    """Return steps of one second, for fewer hosts as long with fewer samples; 1.2 s beside a checkpoint."""
    return {
        count: JobStep(step_s=1.0, share=count / hosts, writing_s=1.2)
        for count in range(min(least or hosts, hosts), hosts + 1)
    }


def job(**changes: Any) -> JobModel:
    """Return 30 days of four hosts, a failure each five hours."""
    base = JobModel(
        horizon_s=30 * DAY,
        by_hosts=steps_by_hosts(4),
        interval_steps=900,
        writing=CheckpointTimes.blocking(20.0, 60.0),
        interruptions=(failure(),),
        hosts=4,
        restart_s=100.0,
        replacement_s=50.0,
    )
    return dataclasses.replace(base, **changes)


def failure(hours: float = 5.0, **changes: Any) -> Interruption:
    one = Interruption(name="failure", per_s=1 / (hours * HOUR), detection_s=120.0)
    return dataclasses.replace(one, **changes)


LOST_HOST = failure(name="host", loses_host=True, repair_s=6 * HOUR)
PLANNED = failure(20.0, name="planned", planned=True, detection_s=0.0)
SLOW = failure(name="slow", slow_for_s=HOUR, slow_factor=2.0)


def accounts(model: JobModel, played: Played) -> None:
    """Check that steps and losses fill the job's time, and that its phases follow each other."""
    assert played.steps * model.step_s + math.fsum(played.lost_s.values()) == pytest.approx(played.seconds, rel=1e-9)
    assert min(played.lost_s.values()) >= -1e-6
    ends = [0.0, *(phase.end_s for phase in played.phases)]
    assert [phase.begin_s for phase in played.phases] == pytest.approx(ends[:-1], rel=1e-12)
    assert ends[-1] == pytest.approx(played.seconds, rel=1e-12)


def goodput(model: JobModel, draws: int = 4) -> float:
    played = [play(model, 3, draw) for draw in range(draws)]
    return sum(one.steps for one in played) * model.step_s / sum(one.seconds for one in played)


@given(
    kinds=st.lists(st.sampled_from((failure(0.5), LOST_HOST, PLANNED, SLOW)), unique=True),
    writing=st.sampled_from(
        (CheckpointTimes.blocking(20.0, 60.0), CheckpointTimes.blocking(0.0, 0.0), ASYNC, INCREMENTAL)
    ),
    interval=st.sampled_from((1, 10, 1000, 10**7)),
    least=st.integers(0, 4),
    spares=st.integers(0, 2),
    end=st.sampled_from(({"horizon_s": 3 * DAY}, {"steps": 20_000, "horizon_s": math.inf}, {"steps": 7.0})),
    stall=st.sampled_from((0.0, 0.3)),
    seed=st.integers(0, 2**31),
)
def test_steps_and_losses_fill_the_time(kinds, writing, interval, least, spares, end, stall, seed) -> None:  # type: ignore[no-untyped-def]
    if interval == 10**7 and kinds:
        end = {"horizon_s": 3 * DAY}  # hardly any checkpoint is written, so that steps may have no end
    model = job(
        by_hosts=steps_by_hosts(4, least), shrinks=least > 0, spares=spares, interval_steps=interval, writing=writing,
        interruptions=tuple(kinds), input_stall=stall, evaluation=stall / 3, **end,
    )  # fmt: skip
    played = play(model, seed, keep=True)
    accounts(model, played)
    if math.isinf(model.horizon_s):
        assert model.steps - 1e-6 <= played.steps < model.steps + 1
    else:
        assert played.seconds <= model.horizon_s * (1 + 1e-12)
    assert play(model, seed, keep=True) == played


@given(
    first=st.integers(0, 3), cycles=st.integers(1, 9), part=st.floats(0.01, 0.99),
    writing=st.sampled_from((CheckpointTimes.blocking(20.0, 60.0), ASYNC, INCREMENTAL)),
    interval=st.sampled_from((1, 30, 500)),
)  # fmt: skip
def test_a_checkpoint_is_safe_when_it_is_written(first, cycles, part, writing, interval) -> None:  # type: ignore[no-untyped-def]
    cycle = Cycles(job(writing=writing, interval_steps=interval), 4)
    first %= len(writing.blocks_s)
    begins_s, ends_s = cycle.seconds(cycles - 1, first), cycle.seconds(cycles, first)
    assert ends_s > begins_s
    writes_s = writing.background_s[(first + cycles - 1) % len(writing.blocks_s)]
    before = cycle.after(ends_s + writes_s - 1e-6, first)
    safe = cycle.after(ends_s + writes_s + 1e-6, first)
    assert (before.saved, safe.saved) == (cycles - 1, cycles)
    assert safe.saved_s == pytest.approx(ends_s)
    assert before.steps <= safe.steps <= (cycles + 1) * interval
    # Steps that are done at a time take just that time, but for a blocking checkpoint after them.
    at_s = begins_s + part * (ends_s - begins_s)
    done = cycle.after(at_s, first).steps
    last = (first + cycles - 1) % len(writing.blocks_s)
    if done < cycles * interval:
        assert cycle.until(done, first) - writing.blocks_s[last] - writing.background_s[last] == pytest.approx(at_s)
    found, safe_s = cycle.saved_after(ends_s - writes_s - 1e-6, first)
    earlier = writing.background_s[(first + found - 2) % len(writing.blocks_s)]
    assert safe_s >= ends_s - writes_s - 1e-6
    assert found == 1 or cycle.seconds(found - 1, first) + earlier < ends_s - writes_s


def test_without_failures_a_job_is_steps_and_checkpoints() -> None:
    played = play(job(interruptions=(), horizon_s=math.inf, steps=9_000), 0)
    assert played.seconds == 9_000 + 10 * 20
    short = play(job(interruptions=(), horizon_s=math.inf, steps=10, interval_steps=900), 0)
    assert short.seconds == 10 + 20  # an interval longer than the job: one checkpoint, at its end


def stages(model: JobModel, *at: tuple[float, str]) -> list[tuple[str, float, str]]:
    """Return what is lost by interruptions at these times: what, seconds and why."""
    played = play(model, 0, at=at, keep=True)
    accounts(model, played)
    return [
        (phase.what, round(phase.end_s - phase.begin_s, 6), phase.why)
        for phase in played.phases
        if phase.what != "steps"
    ]


def test_the_stages_of_given_interruptions() -> None:
    model = job(interruptions=(failure(), LOST_HOST, PLANNED), spares=1, horizon_s=DAY)
    again = [("restart", 100, "failure"), ("restore", 60, "failure")]
    joins = [("detection", 120, "host"), ("replacement", 50, "host"), ("restart", 100, "host"), ("restore", 60, "host")]
    assert stages(model, (1000, "failure")) == [("rework", 80, "failure"), ("detection", 120, "failure"), *again]
    assert stages(model, (1000, "host")) == [("rework", 80, "host"), *joins]
    # A failure in a recovery begins it anew; a host that had not joined then has still to join.
    assert stages(model, (1000, "host"), (1100, "failure")) == [
        *[("rework", 80, "host"), ("detection", 100, "host"), ("detection", 120, "failure")],
        *[("replacement", 50, "failure"), *again],
    ]
    # A planned interruption writes a checkpoint and has nothing to detect; in a recovery there is nothing to write.
    planned = [("restart", 100, "planned"), ("restore", 60, "planned")]
    assert stages(model, (1000, "planned")) == [("checkpoint", 20, "planned"), *planned]
    assert stages(model, (1000, "failure"), (1100, "planned"))[2:] == planned
    assert stages(model, (1000, "planned"), (1005, "failure")) == [
        *[("checkpoint", 5, "planned"), ("detection", 120, "failure"), *again]
    ]
    # The second lost host is waited for: there is one spare. Its repair begins when its loss is noticed.
    both = stages(model, (1000, "host"), (3000, "host"))
    assert both[7] == ("replacement", 6 * HOUR - 2000 + 50, "host")


def test_a_job_that_ends_with_its_time_keeps_its_last_steps() -> None:
    """Sums of waits may end just before the horizon."""
    for draw in range(300):
        played = play(job(horizon_s=1e5 / 3 + draw / 7), 0, draw, keep=True)
        assert not [phase for phase in played.phases if phase.what == "rework" and not phase.why]


def test_a_host_that_comes_back_at_a_checkpoint_loses_no_steps() -> None:
    """Cycles of 917.3 s are sums that are rounded."""
    writing = CheckpointTimes.blocking(17.3, 60.0)
    for number in range(40):
        one = dataclasses.replace(LOST_HOST, repair_s=HOUR + 7.7 * number)
        model = job(
            interruptions=(one,), by_hosts=steps_by_hosts(4, 1), shrinks=True, horizon_s=DAY / 2, writing=writing
        )
        lost = stages(model, (1000 / 3 + 71.3 * number, "host"))
        assert [(what, why) for what, _, why in lost if what in ("rework", "restart")] == [
            *[("rework", "host"), ("restart", "host"), ("restart", "host back")]
        ]


def test_a_failure_before_the_first_checkpoint_loads_none() -> None:
    played = play(job(interruptions=(failure(0.2),), interval_steps=10**6, horizon_s=DAY), 0)
    assert (played.lost_s["restore"], played.lost_s["checkpoint"]) == (0, 0)
    assert played.lost_s["rework"] > 0.5 * DAY


def test_nothing_to_detect_costs_nothing() -> None:
    assert play(job(interruptions=(failure(detection_s=0.0),)), 0).lost_s["detection"] == 0


def test_a_planned_interruption_loses_no_work_but_writes_its_checkpoint_to_the_end() -> None:
    played = play(job(interruptions=(PLANNED,), writing=ASYNC, interval_steps=10**6, horizon_s=100 * DAY), 1)
    assert played.counts["planned"] > 50
    assert played.lost_s["rework"] == played.lost_s["detection"] == 0
    assert played.lost_s["checkpoint"] == pytest.approx(45 * played.counts["planned"], rel=0.02)


def test_spares_are_never_worse_and_without_any_the_repair_is_waited_for() -> None:
    model = job(interruptions=(LOST_HOST,))
    by_spares = [goodput(dataclasses.replace(model, spares=spares)) for spares in (0, 1, 2, 4, 9)]
    assert by_spares == sorted(by_spares)
    assert by_spares[-1] == pytest.approx(goodput(job(interruptions=(failure(detection_s=170.0),))), abs=0.01)
    played = play(model, 0)
    assert played.lost_s["replacement"] > 5 * HOUR * played.counts["host"] / 2
    # A software failure while a host is repaired does not bring it back.
    both = job(interruptions=(LOST_HOST, failure(0.5, name="software")), hosts=1, by_hosts=steps_by_hosts(1))
    waited = play(both, 0)
    without = play(job(interruptions=(LOST_HOST,), hosts=1, by_hosts=steps_by_hosts(1)), 0)
    per_host = [one.lost_s["replacement"] / one.counts["host"] for one in (waited, without)]
    assert per_host[0] > 0.5 * per_host[1]


def test_a_shrunk_job_makes_progress_while_a_host_is_repaired() -> None:
    waits = job(interruptions=(LOST_HOST,))
    shrinks = dataclasses.replace(waits, by_hosts=steps_by_hosts(4, 1), shrinks=True)
    to_three = dataclasses.replace(waits, by_hosts=steps_by_hosts(4, 3), shrinks=True)
    assert goodput(waits) < goodput(to_three) < goodput(shrinks)
    played = play(shrinks, 0, keep=True)
    assert played.lost_s["shrunk"] > 0
    assert {phase.hosts for phase in played.phases} == {1, 2, 3, 4}
    assert play(to_three, 0).lost_s["replacement"] > 0


def test_a_host_back_costs_no_saved_work() -> None:
    one = dataclasses.replace(LOST_HOST, per_s=1 / (20 * DAY), repair_s=DAY)
    model = job(
        interruptions=(one,), by_hosts=steps_by_hosts(4, 1), shrinks=True, writing=INCREMENTAL, horizon_s=300 * DAY
    )
    played = play(model, 2, keep=True)
    assert sum(phase.why == "host back" and phase.what == "restart" for phase in played.phases) > 5
    # Beside what each failure loses, a host that comes back loses the steps beside the write of one checkpoint.
    assert played.lost_s["rework"] < played.counts["host"] * 1300 + 60 * 4


def test_a_slow_part_delays_steps_before_its_failure() -> None:
    rare = dataclasses.replace(SLOW, per_s=1 / (50 * HOUR))
    played = play(job(interruptions=(rare,), horizon_s=400 * DAY), 0)
    assert played.lost_s["slow part"] == pytest.approx(played.counts["slow"] * HOUR / 2, rel=0.02)
    steady = play(job(interruptions=(dataclasses.replace(rare, slow_for_s=0.0),), horizon_s=400 * DAY), 0)
    assert played.steps < steady.steps


def test_a_job_that_saves_nothing_ends_with_its_time_or_is_refused() -> None:
    hopeless = job(interruptions=(failure(0.01),), interval_steps=10**4, horizon_s=DAY)
    assert play(hopeless, 0).steps < 200
    with pytest.raises(EndlessJobError, match=r"after 10,000 interruptions goodput is below 0\.1%$"):
        play(hopeless.until(steps=10**6), 0)
    with pytest.raises(ValueError, match="a job without an end: expected steps or horizon_s"):
        play(job(horizon_s=math.inf), 0)


def test_a_job_that_loses_every_host_waits_for_repairs() -> None:
    fatal = job(
        interruptions=(failure(1.0, name="host", loses_host=True, repair_s=100 * HOUR),), hosts=2, spares=1,
        by_hosts=steps_by_hosts(2, 1), shrinks=True,
    )  # fmt: skip
    played = play(fatal, 0, keep=True)
    accounts(fatal, played)
    assert min(phase.hosts for phase in played.phases) == 1
    assert played.lost_s["replacement"] > played.seconds / 2


def test_failures_follow_the_seed_and_the_draw_on_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = job(interruptions=(failure(0.5), LOST_HOST), interval_steps=100, horizon_s=DAY)
    alone = sample(model, 6, 1)
    assert alone == [play(model, 1, draw) for draw in range(6)]
    assert len({one.steps for one in alone}) == 6
    assert sample(model, 2, 2) != alone[:2]
    monkeypatch.setattr("sim.job.sample._WORTH_A_PROCESS", 1)
    (tmp_path / "main.py").write_text("raise SystemExit('workers ran the script again')")
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "main.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    done: list[int] = []
    assert sample(model, 6, 1, workers=2, tell=done.append) == alone
    assert done == [1, 2, 3, 4, 5, 6]
