from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any, NoReturn

import pytest

from reports.errors import ReportError
from reports.terminal import present
from tests.commands import command, unfolded

FILE = Path(__file__).parents[2] / "data" / "real_world.toml"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setattr(present, "_QUIET_S", -1.0)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_shows_what_is_done_and_forgets_it(late, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    with present.progress_line() as tell:
        tell("page of run", 1, 3)
        tell("steps of run", 2, 3)
    shown = stream.getvalue()
    places = [shown.index(each) for each in ("page of run", "1 of 3, 0 s", "steps of run", "2 of 3, 0 s")]
    assert places == sorted(places)
    assert shown.endswith("\x1b[2K")


def test_into_a_pipe_nothing_is_written(late, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    with present.progress_line() as tell:
        tell("page of run", 1, 3)
    assert stream.getvalue() == ""


def test_quick_work_draws_no_progress_line(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    with present.progress_line() as tell:
        tell("page of run", 1, 3)
    assert stream.getvalue() == ""


def stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["sim", FILE], "twinstep.prediction_job.plan_job"),
        (["real", FILE], "twinstep.measurement._run"),
        (["real", "validate", FILE], "twinstep.validation.cli._check_programs"),
        (["reports", "kineto", "trace.json"], "reports.kineto.recording.read_traces"),
    ],
    ids=["sim", "real", "validate", "kineto"],
)
def test_whatever_writes_a_run_names_what_killed_commands_have_left(
    words: list[Any], begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it begins with the work itself."""
    monkeypatch.setattr(begins, stop)
    left = tmp_path / ".other.partial"
    left.mkdir()
    done = command(*words, "--out", tmp_path / "run")
    assert f"note: {left}: left by a command that was killed; removed\n" in unfolded(done.stderr)
    assert (done.returncode, left.exists()) == (130, False)


ROOT = Path(present.__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "more"),
    [
        (
            ROOT / "scenarios/profiles/none.toml",
            ": expected a file of package 'scenarios', which is not installed whole",
        ),
        (Path("/none.toml"), ""),
    ],
)
def test_a_missing_file_is_named_and_is_not_stdout(file: Path, more: str) -> None:
    with pytest.raises(ReportError) as caught, present.output():
        file.read_text()
    assert str(caught.value) == f"{file}: No such file or directory{more}"


def test_an_output_that_cannot_be_written_is_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(present, "_silence", lambda: None)
    with pytest.raises(ReportError, match=r"^stdout: No space left on device$"), present.output():
        raise OSError(errno.ENOSPC, "No space left on device")
