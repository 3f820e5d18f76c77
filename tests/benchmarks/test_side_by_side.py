from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import scenarios
from benchmarks import side_by_side
from benchmarks.baselines import alpha_beta, simgrid_flows
from benchmarks.baselines.cases import Case
from scenarios.config.load import load_profile
from scenarios.seam.errors import ScenarioError

PROFILE = Path(scenarios.__file__).parent / "profiles" / "cpu_local.toml"
RATE = 2e9  # of its NIC
CASE = {"op": "all_reduce", "size_bytes": 4000, "hosts": 2, "ranks_per_host": 1, "nic_bytes_per_s": RATE}


def write(folder: Path, **values: Any) -> Path:
    """Three cases, of which ours are 10 % too slow, 20 % too quick and right, and messages of alpha and beta."""
    cases = [
        CASE | {"measured_s": 1.0, "ours_s": 1.1},
        CASE | {"measured_s": 1.0, "ours_s": 0.8},
        CASE | {"op": "barrier", "size_bytes": 0, "measured_s": 2e-3, "ours_s": 2e-3},
    ]
    messages = [[size, 1e-3 + size * 1e-6] for size in (1000, 2000, 8000)]
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": cases, "messages": {"2e9": messages}, "profiles": {"2e9": "p.toml"}} | values))
    shutil.copy(PROFILE, folder / "p.toml")
    return path


def no_simgrid(*_: object) -> list[float]:
    raise simgrid_flows.AbsentError("none here")


def ten_ms(asked: Sequence[object]) -> list[float]:
    return [0.01] * len(asked)


def lines(text: str) -> list[list[str]]:
    """Cells of what is a row of a markdown table."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]


def test_the_variant_with_the_smallest_median_error_stands_for_a_baseline() -> None:
    predictions = {"far": [2.0, 1.0, 2.0], "near": [1.1, 1.1, 9.0]}
    assert side_by_side.best(predictions, [1.0, 1.0, 1.0]) == "near"


def test_models_stand_side_by_side_by_op_and_over_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simgrid_flows, "predict_all", ten_ms)
    side_by_side.compare(write(tmp_path), markdown=True)
    rows = lines(capsys.readouterr().out)
    assert ["all_reduce", "ours", "2", "-5.0 %", "15.0 %", "19.5 %", "20.0 %"] in rows
    assert ["barrier", "ours", "1", "+0.0 %", "0.0 %", "0.0 %", "0.0 %"] in rows
    assert ["all", "ours", "3", "+0.0 %", "10.0 %", "19.0 %", "20.0 %"] in rows
    # 2 (alpha + 2000 beta) = 6 ms of 1 s; a round of alpha is 1 ms of 2 ms.
    assert ["all_reduce", "alpha-beta", "2", "-99.4 %", "99.4 %", "99.4 %", "99.4 %"] in rows
    assert ["barrier", "alpha-beta", "1", "-50.0 %", "50.0 %", "50.0 %", "50.0 %"] in rows
    assert ["barrier", "SimGrid, LV08", "1", "+400.0 %", "400.0 %", "400.0 %", "400.0 %"] in rows
    assert {row[1] for row in rows if row[0] == "all"} == {"ours", *side_by_side.ALPHA_BETA, *side_by_side.SIMGRID}


def test_an_all_to_all_s_prediction_is_the_median_over_its_steps() -> None:
    splits = [[[0, size], [0, 0]] for size in (1000, 9000, 2000)]
    values = CASE | {"op": "all_to_all", "size_bytes": 9000, "splits": splits, "measured_s": 1, "ours_s": 1}
    messages = [(1000.0, 2e-3), (2000.0, 3e-3)]  # alpha is 1 ms, beta 1 us
    found = side_by_side.predict_alpha_beta([Case.model_validate(values)], {RATE: messages})
    assert found == {name: pytest.approx([3e-3]) for name in side_by_side.ALPHA_BETA}


def test_simgrid_s_variants_are_asked_for_every_case_and_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def predict_all(them: Sequence[object]) -> list[float]:
        asked.extend(them)
        return ten_ms(them)

    monkeypatch.setattr(simgrid_flows, "predict_all", predict_all)
    given = side_by_side.read(write(tmp_path))
    profile = load_profile(str(tmp_path / "p.toml"))
    model = alpha_beta.AlphaBeta(alpha_s=1e-3, beta_s_per_byte=1e-6)
    found = side_by_side.predict_simgrid(given.cases, {RATE: profile}, {RATE: model})
    assert found == {name: [0.01] * 3 for name in side_by_side.SIMGRID}
    by_variant = {variant: cluster for cluster, _, variant in asked}
    assert by_variant["LV08"].host.nics.link.latency_ns == profile.host.nics.link.latency_ns
    assert by_variant["fitted, alpha / 2"].host.nics.link.latency_ns == 250_000
    assert by_variant["fitted, alpha"].host.nics.link.latency_ns == 500_000
    assert [members[0].op for _, members, variant in asked if variant == "LV08"] == ["all_reduce"] * 2 + ["barrier"]


def test_without_simgrid_the_others_are_shown_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simgrid_flows, "predict_all", no_simgrid)
    side_by_side.compare(write(tmp_path), markdown=False)
    shown = capsys.readouterr()
    assert shown.err == "without SimGrid: none here\n"
    assert "alpha-beta" in shown.out
    assert "SimGrid" not in shown.out


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"messages": {}}, "messages: expected an entry for nic_bytes_per_s = 2e+09"),
        ({"profiles": {"1e9": "p.toml"}}, "profiles: expected an entry for nic_bytes_per_s = 2e+09"),
        ({"cases": [CASE | {"measured_s": 1.0}]}, "cases.json: cases.0.ours_s: Field required"),
        ({"case": []}, "cases.json: case: Extra inputs are not permitted"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(tmp_path: Path, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        side_by_side.read(write(tmp_path, **values))
    assert sentence in str(caught.value)


def test_a_profile_of_another_rate_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    profile = PROFILE.read_text()
    before, nic, after = profile.partition("[cluster.nic]")
    (tmp_path / "p.toml").write_text(before + nic + after.replace('"2 GB/s"', '"1 GB/s"'))
    with pytest.raises(ScenarioError, match=r"p\.toml: the NIC's rate is 1e\+09 B/s: expected 2e\+09"):
        side_by_side.compare(path, markdown=False)
