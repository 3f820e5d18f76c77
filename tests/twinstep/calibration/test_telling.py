"""What calibrations print of what they measured."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from real.calibration.network.fit import Residual
from twinstep.calibration.cli import _view
from twinstep.calibration.telling import tell

PING = Residual(probe="ping", size_bytes=4, measured_s=1e-4, low_s=9e-5, high_s=1.3e-4, predicted_s=1.1e-4)
OUT = Path("mine.toml")


def test_residuals_are_a_table_with_the_profiles_path_below(capsys: pytest.CaptureFixture[str]) -> None:
    tell(_view([PING]), Namespace(json=False, quiet=False, out=OUT))
    said = capsys.readouterr().out
    assert said.startswith("Calibration residuals\n")
    assert "ping    4 B    100 us  90.0 us to 130 us  110 us  +10.0 %" in said
    assert said.endswith("\nmine.toml\n")


def test_quietly_only_the_path_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    tell(_view([PING]), Namespace(json=False, quiet=True, out=OUT))
    assert capsys.readouterr().out == "mine.toml\n"


def test_json_has_the_times_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    tell(_view([PING]), Namespace(json=True, quiet=True, out=OUT))
    found = json.loads(capsys.readouterr().out)
    assert found["profile"] == "mine.toml"
    (probe,) = found["probes"]
    assert probe.pop("error") == pytest.approx(0.1)
    assert probe == {name: getattr(PING, name) for name in Residual.__slots__}
