"""Traces that tests write, and one that is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.kineto import recording as kineto
from reports.kineto.recording import Profile
from tests.reports.kineto.events import GPU


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """Writes a trace of events into the current folder, so that sentences name the file alone."""
    monkeypatch.chdir(tmp_path)

    def write(*events: dict[str, Any], name: str = "t.json", **about: Any) -> Path:
        Path(name).write_text(json.dumps({**about, "traceEvents": events}), encoding="utf-8")
        return Path(name)

    return write


@pytest.fixture(scope="session")
def gpus() -> Profile:
    return kineto.read(GPU, "gpus")
