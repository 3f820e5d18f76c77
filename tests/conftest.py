"""The option of `tests/vectors`, which pytest takes from the top of the tests only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Their assertions show values, as those of test modules do.
pytest.register_assert_rewrite("tests.vectors.formats")


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
