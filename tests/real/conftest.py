"""The fixture of tests on a simulated GPU."""

from __future__ import annotations

import pytest

from tests.real.rank.fake_cuda import Device, install


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Return a simulated device with a clock of its own, which replaces `torch.cuda`'s."""
    return install(monkeypatch, Device())
