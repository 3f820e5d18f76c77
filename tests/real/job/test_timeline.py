"""A job's journal says where its time went; nothing is counted twice, and nothing is left out."""

from __future__ import annotations

import pytest

from real.job.journal import Event
from real.job.timeline import JobTimes, times_of

STEP_S, SAVE_S = 1.0, 0.25


class Story:
    """Events of two ranks on two hosts, written down at given times."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def at(self, seconds: float, by: str, what: str, **more: object) -> None:
        self.events.append({"ns": round(1e9 * seconds), "by": by, "what": what, **more})

    def start(self, seconds: float, attempt: int, first: int) -> None:
        """Start both ranks 0.5 s after their hosts have met; the second one is 0.1 s later each time."""
        for rank in (0, 1):
            late = 0.1 * rank
            self.at(seconds + 0.5 + late, f"rank-{rank}", "started", attempt=attempt, pid=1)
            self.at(seconds + 0.8 + late, f"rank-{rank}", "joined")
            self.at(seconds + 0.9 + late, f"rank-{rank}", "restored", step=first)

    def train(self, seconds: float, steps: range, saved_after: set[int]) -> float:
        """Run steps from that time on; return when they have ended."""
        for step in steps:
            for rank in (0, 1):
                began = round(1e9 * seconds)
                self.at(seconds + STEP_S, f"rank-{rank}", "step", step=step, began_ns=began)
            seconds += STEP_S
            if step + 1 in saved_after:
                for rank in (0, 1):
                    self.at(seconds + SAVE_S, f"rank-{rank}", "saved", step=step + 1, began_ns=round(1e9 * seconds))
                seconds += SAVE_S
        return seconds


def told(target: str) -> JobTimes:
    """Return the times of six steps with a checkpoint every two, of which the fourth is interrupted half-way."""
    story = Story()
    story.start(10.0, 0, 0)  # steps can begin at 11.0
    ends = story.train(11.0, range(3), {2})  # 14.25
    story.at(ends + 0.5, "launcher", "kill", target=target, kind=target[:-1], kill="x")
    story.at(ends + 0.7, "host-0", "noticed")
    story.at(ends + 0.9, "host-1", "noticed")
    story.at(ends + 2.9, "host-0", "formed", attempt=1)
    story.start(ends + 2.9, 1, 2)  # steps can begin at ends + 3.9
    story.train(ends + 3.9, range(2, 6), {4, 6})
    return times_of(sorted(story.events, key=lambda event: event["ns"]), 2)


@pytest.mark.parametrize(("target", "replacement"), [("rank1", 0.0), ("host1", 2.0)])
def test_lost_time_is_told_by_cause(target: str, replacement: float) -> None:
    times = told(target)
    assert times.lost_s == pytest.approx(
        {
            "checkpoint": 3 * SAVE_S,
            "rework": STEP_S + 0.5,
            "detection": 0.4,
            "replacement": replacement,
            "restart": 2.9 - replacement,
            "restore": 0.1,
        }
    )
    assert times.seconds == pytest.approx(sum(times.lost_s.values()) + 6 * STEP_S)
    assert times.step_s == pytest.approx([STEP_S] * 6)
    assert times.again == 1
    (kill,), (parts,) = times.kills, times.parts
    assert (kill.at_s, kill.loses_host) == (pytest.approx(3.75), target == "host1")
    assert parts == pytest.approx({"detection": 0.4, "formed": 2.0, "start": 0.6, "setup": 0.3, "restore": 0.1})


def test_a_kill_while_others_recover_begins_the_recovery_anew() -> None:
    story = Story()
    story.start(10.0, 0, 0)
    story.train(11.0, range(1), set())
    for at in (12.5, 13.5):  # the second one before anybody has started again
        story.at(at, "launcher", "kill", target="rank0", kind="rank", kill="x")
        story.at(at + 0.25, "host-0", "noticed")
    story.at(15.0, "host-0", "formed", attempt=1)
    story.start(15.0, 1, 0)
    story.train(16.0, range(2), {2})
    times = times_of(sorted(story.events, key=lambda event: event["ns"]), 2)
    assert times.lost_s["detection"] == pytest.approx(0.5)
    assert times.seconds == pytest.approx(sum(times.lost_s.values()) + 2 * STEP_S)
    assert len(times.kills) == len(times.parts) == 2
