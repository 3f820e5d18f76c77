"""Progress of a prediction: none if it is short; else a bar with its steps and the time left."""

from __future__ import annotations

import io
import signal
import sys

import pytest

from sim.run import RunProgress
from twinstep.progress import Interrupt, Phases, ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def at(whole_steps: int, share: float) -> RunProgress:
    return RunProgress(whole_steps, 10, share, 1_500_000)


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the test itself: between a fixture and its test pytest sets stderr anew."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def never() -> RunProgress:
    raise AssertionError("nobody is to look")


def test_a_short_run_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, time = on_terminal(monkeypatch), Time()
    with ProgressBar(now_s=time) as bar:
        time.s += 0.9
        bar.show(never)
    assert stderr.getvalue() == ""


@pytest.mark.parametrize("quiet", [True, False])
def test_a_pipe_and_who_is_quiet_see_nothing(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr: io.StringIO = on_terminal(monkeypatch)
    if not quiet:
        stderr = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stderr)
    time = Time()
    with ProgressBar(quiet=quiet, now_s=time) as bar:
        time.s += 60
        bar.show(never)
    assert stderr.getvalue() == ""


def test_a_long_run_shows_steps_and_both_times_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, time = on_terminal(monkeypatch), Time()
    with ProgressBar(now_s=time) as bar:
        time.s += 60
        bar.show(lambda: at(2, 0.25))
        assert "2 of 10 steps, simulated time 1.500 ms" in stderr.getvalue()
        assert "1:00, 3:00 left" in stderr.getvalue()
        time.s += 0.1
        bar.show(never)  # not so often
        time.s += 9.9
        bar.show(lambda: at(2, 0.25))  # no rank has ended a step since: it counts down
        assert "1:10, 2:50 left" in stderr.getvalue()
    assert stderr.getvalue().endswith("\x1b[2K")  # gone


def test_a_long_run_also_says_what_comes_after_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, time = on_terminal(monkeypatch), Time()
    with ProgressBar(now_s=time) as bar:
        bar.say("writing at once")
        time.s += 60
        bar.show(lambda: at(10, 1.0))
        bar.say("writing the run folder")
    assert "writing the run folder" in stderr.getvalue()
    assert "at once" not in stderr.getvalue()


def test_a_programs_phase_is_shown_in_place_of_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, time = on_terminal(monkeypatch), Time()
    with ProgressBar(now_s=time) as bar:
        bar.does("setting up", "at once")
        time.s += 3
        bar.does("setting up", "setting up the script")
        time.s += 0.1
        bar.does("steps", "step 1 of 3")  # not so often
        time.s += 62
        bar.show(lambda: at(2, 0.25))
        bar.does("simulating", "")
        time.s += 1
        bar.show(lambda: at(3, 0.3))
    shown = stderr.getvalue()
    places = [shown.index(each) for each in ("setting up the script", "0:03", "step 1 of 3", "1:05", "3 of 10 steps")]
    assert places == sorted(places)
    assert "at once" not in shown
    assert "2 of 10 steps" not in shown
    assert bar.phases.sentence() == "predicted in 66.1 s, the longest part: steps, 62.0 s"


def test_the_time_left_is_unknown_before_the_first_step_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, time = on_terminal(monkeypatch), Time()
    with ProgressBar(now_s=time) as bar:
        time.s += 3700
        bar.show(lambda: at(0, 0.0))
    assert "1:01:40, ? left" in stderr.getvalue()


def test_draws_count(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, time = on_terminal(monkeypatch), Time()
    with ProgressBar(plays=4, now_s=time) as bar:
        bar.next_play()
        bar.next_play()
        time.s += 60
        bar.show(lambda: at(0, 0.0))
    assert "draw 2 of 3, 0 of 10 steps" in stderr.getvalue()
    assert "1:00, 1:00 left" in stderr.getvalue()


def test_the_first_interrupt_is_kept_and_the_second_is_not() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert not interrupt.requested
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
        assert not interrupt.requested
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


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
