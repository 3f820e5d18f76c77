"""Draws: as many as are asked for where something varies, one where nothing does; and what the command says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.run import Run
from reports.store import run_folder as store
from scenarios.config.scenario import Exchange, Scenario
from scenarios.workloads.build import build
from sim.draws import Digest, draws, further_draws
from sim.run import play, simulate
from tests.scenarios.workloads.own import NO_STEP, stepless, write_scenario
from tests.small import CORE, TCP, cluster, scenario
from twinstep.prediction import main

FILE = Path(__file__).parents[2] / "tests" / "data" / "real_world.toml"


def exchange(*, over_tcp: bool) -> Scenario:
    on = cluster(hosts=2, gpus=1, gpu=CORE, tcp=TCP if over_tcp else None)
    return scenario(on, program="all_to_all", exchange=Exchange(size_bytes=1 << 12), payload="sizes", steps=3)


def test_the_first_draw_is_the_plain_prediction_and_others_vary() -> None:
    given = exchange(over_tcp=True)
    found = list(draws(given, build(given), 2))
    assert len(found) == 3
    assert found[0].spans == simulate(given, build(given)).spans
    assert found[1].spans == simulate(given, build(given), 1).spans
    assert len({tuple(one.spans) for one in found}) == 3


def test_a_scenario_without_variation_has_one_draw() -> None:
    given = exchange(over_tcp=False)
    assert len(list(draws(given, build(given), 5))) == 1
    assert len(list(draws(given, build(given), 0))) == 1


def first_digest(given: Scenario) -> Digest:
    digest = Digest()
    play(given, build(given), digest.add)
    return digest


def test_further_draws_have_the_steps_of_whole_ones() -> None:
    given = exchange(over_tcp=True)
    found = list(further_draws(given, build(given), 2, first_digest(given), look=lambda _: None))
    assert len(found) == 2
    for draw, recording in enumerate(found, 1):
        whole = simulate(given, build(given), draw)
        assert {span.kind for span in recording.spans} == {"step"}
        assert Run.of(recording).steps.equals(Run.of(whole).steps)


def test_a_scenario_without_variation_has_no_further_draw() -> None:
    given = exchange(over_tcp=False)
    assert list(further_draws(given, build(given), 5, first_digest(given), look=lambda _: None)) == []


def test_ctrl_c_in_a_draw_leaves_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.draws.steps_of_draw", interrupt)
    assert main([str(FILE), "--draws", "3", "--out", str(tmp_path / "run")]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{tmp_path / 'run'}: interrupted in draw 1 of 3; the run itself is whole\n"
    assert store.load(tmp_path / "run").info.complete


def test_the_command_prints_the_spread_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(FILE), "--draws", "2", "--full", "--out"]
    assert main([*words, str(tmp_path / "shown")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("median ") and "10th to 90th percentile" in line for line in lines)
    assert main([*words, str(tmp_path / "json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    low, high = found["interval_ns"]
    assert low <= found["interval_median_ns"] <= high
    assert found["draws"] == 1
    assert store.load(tmp_path / "json").steps["step_ns"].median() == found["interval_median_ns"]


@pytest.mark.parametrize("word", ["--draws=2", "--what-if"])
def test_a_program_without_steps_is_refused_where_their_times_are_needed(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_scenario(tmp_path, stepless())
    assert main([str(file), word, "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr() == ("", f"{NO_STEP}\n")


def test_without_draws_the_command_prints_no_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FILE), "--out", str(tmp_path / "run"), "--json"]) == 0
    assert "interval_ns" not in json.loads(capsys.readouterr().out)


def test_fewer_than_no_draws_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(FILE), "--draws", "-1", "--out", str(tmp_path / "run")])
    assert capsys.readouterr().err == "--draws = -1: expected at least 0\n"
    assert not (tmp_path / "run").exists()
