"""Messages of errors in a user's code, and which source files belong to this project, whose lines they leave out."""

from __future__ import annotations

from pathlib import Path

from scenarios.seam.errors import is_installed, is_ours, tell_error
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.process.errors import error_message

ROOT = Path(__file__).parents[3]


def test_files_of_a_linked_checkout_are_ours(tmp_path: Path) -> None:
    (link := tmp_path / "checkout").symlink_to(ROOT)
    for base in (ROOT, link):
        assert is_ours(str(base / "sim" / "run.py"))
        assert is_installed(str(base / "sim" / "run.py"))
        assert not is_ours(str(base / "examples" / "scripts" / "ddp.py"))


def test_an_error_whose_own_message_fails_is_told_by_its_type(tmp_path: Path) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no message")

    assert tell_error(MuteError()) == "MuteError: <exception str() failed>"
    script = Script(path=tmp_path / "train.py", sha256="")
    assert error_message(script, MuteError()) == f"{script.path}: MuteError: <exception str() failed>"
