"""The lanes of tests, and the option of `tests/vectors`, which pytest takes from the top of the tests only."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import settings

from real.launch import forker
from tests.commands import command
from tests.lanes import EMULATED, REAL, WHOLE, why_no_fbgemm
from tests.real import warm_forkers

# Their assertions show values, as those of test modules do.
pytest.register_assert_rewrite("tests.vectors.formats")
settings.load_profile("suite")
forker.start_process = warm_forkers.start_process  # type: ignore[assignment]
os.environ.pop("COLUMNS", None)  # what is printed is as wide as it says
# Commands that tests start heed what a terminal sends, also where the tests run behind nohup or in the background.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


ROOT = Path(__file__).parent
LIBRARY = ROOT.parent / "scenarios" / "library"
LibraryRun = Callable[[str], tuple[Path, CompletedProcess[str]]]


@pytest.fixture(scope="session")
def library_run(tmp_path_factory: pytest.TempPathFactory) -> LibraryRun:
    """The run folder of a ready scenario's prediction, and what its command printed; predicted once a session."""
    folder = tmp_path_factory.mktemp("library")

    @cache
    def predict(name: str) -> tuple[Path, CompletedProcess[str]]:
        return folder / name, command("sim", LIBRARY / f"{name}.toml", "--out", folder / name)

    return predict


@pytest.fixture(scope="session")
def fbgemm() -> None:
    """Skip tests that run fbgemm's operators where it is missing, or does not load with this torch."""
    if why := why_no_fbgemm():
        pytest.skip(why)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what a test's folder, fixtures or parameters say; what they don't is marked where it stands."""
    for item in items:
        place = item.path.relative_to(ROOT).as_posix()
        given = getattr(item, "callspec", None)
        if place.startswith(REAL) or (given is not None and "real" in given.params.values()):
            item.add_marker("real")
        if place.startswith(EMULATED):
            item.add_marker("emulated")
        if place.startswith(WHOLE):
            item.add_marker("whole")
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        metavar="DIR",
        help="replay the recorded vectors in this directory and below (default: the project's own)",
    )


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--vectors")
    if given is None:
        return
    # As seen from where pytest was called, which need not be the project.
    directory = Path(config.invocation_params.dir, given)
    if not directory.is_dir():
        raise pytest.UsageError(f"--vectors {given}: expected a directory")
    files = (name.lower() for _, _, names in os.walk(directory, followlinks=True) for name in names)
    if not any(name.endswith((".json", ".npz")) for name in files):
        raise pytest.UsageError(f"--vectors {given}: expected a directory with *.json files")
