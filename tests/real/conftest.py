"""The fixture of tests on a GPU that is not there."""

from __future__ import annotations

import pytest

from tests.real.rank.fake_cuda import Device, install


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Return a device in imagined time, in the place of `torch.cuda`'s."""
    return install(monkeypatch, Device())
