"""What a command says of the time that it took itself."""

from __future__ import annotations

from twinstep.progress import Phases


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_the_longest_phase_is_named_with_all_its_parts() -> None:
    time = Time()
    phases = Phases("loading", time)
    for phase, takes_s in (("loading", 4.0), ("starting", 3.0), ("loading", 2.0), ("starting", 2.5), ("tables", 0.25)):
        phases.begin(phase)
        time.s += takes_s
    assert phases.sentence() == "predicted in 11.8 s, the longest part: loading, 6.0 s"
    assert phases.sentence() == "predicted in 11.8 s, the longest part: loading, 6.0 s"


def test_a_short_command_says_nothing_of_its_time() -> None:
    time = Time()
    phases = Phases("loading", time)
    time.s += 1.9
    assert phases.sentence() == ""
