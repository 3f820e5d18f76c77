"""The scenarios of `benchmarks.steps` can be read, and its table says which choice is the quicker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.accuracy import RATES
from benchmarks.steps import choices, pairs, show
from scenarios.config.load import load


def test_every_choice_is_a_scenario(tmp_path: Path) -> None:
    for choice in choices(RATES):
        path = tmp_path / f"{choice.name}.toml"
        path.write_text(choice.text().replace(f'"{choice.rate}.toml"', '"emulated_200mbit"'))
        made = load(path, {})
        hosts, ranks = map(int, choice.world.split("x"))
        assert (made.program, made.cluster.hosts, made.cluster.world_size) == (choice.program, hosts, hosts * ranks)
        assert (made.workload.compression.kind != "none") == ("powersgd-" in choice.what)


def test_a_pair_differs_in_one_thing() -> None:
    names = ["step-dlrm-row_wise-200mbit-2x2", "step-dlrm-row_wise-200mbit-4x1", "step-powersgd-none-200mbit-2x2"]
    names += ["step-dlrm-table_row_wise-200mbit-4x1", "step-dlrm-row_wise-1gbit-2x2"]
    assert {frozenset(pair) for pair in pairs(names)} == {
        frozenset({"step-dlrm-row_wise-200mbit-2x2", "step-dlrm-row_wise-200mbit-4x1"}),
        frozenset({"step-dlrm-row_wise-200mbit-4x1", "step-dlrm-table_row_wise-200mbit-4x1"}),
    }


def test_decisions_are_right_or_wrong_or_too_close(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Predicted 1 : 2 : 1 and measured 1 : 3 : 1.05: two are decisive; then one of them the other way round."""
    for factor, expected in ((3.0, "2 differ by more than 10 % as measured, of which 2 are"), (0.5, "of which 0 are")):
        times = {"none": (1.0, 1.0), "batched_powersgd-1": (2.0, factor), "batched_powersgd-2": (1.0, 1.05)}
        rows = [
            {
                "name": f"step-powersgd-{what}-100mbit-2x1",
                "predicted": {"median_ns": predicted * 1e9},
                "measured": {"median_ns": measured * 1e9},
            }
            for what, (predicted, measured) in times.items()
        ]
        (tmp_path / "validation.json").write_text(json.dumps({"scenarios": rows}))
        show([tmp_path])
        said = capsys.readouterr().out
        assert expected in said
        assert "| powersgd-none-100mbit-2x1 | 1000.0 ms | 1000.0 ms | +0.0 % |" in said
