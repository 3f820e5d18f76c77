"""`benchmarks.report` measures processes, knows its runs, and says what is above the project's bars."""

from __future__ import annotations

import pytest

from benchmarks import report
from scenarios.config.load import load


@pytest.fixture
def predicted(tmp_path, monkeypatch):
    """What would be predicted."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(report, "run_python", lambda *words: asked.append(words))
    return asked


@pytest.mark.parametrize(("name", "ranks"), [("powersgd", 8), ("criteo", 64), ("131072", 131_072)])
def test_every_run_is_of_a_scenario_and_is_predicted_once(tmp_path, predicted, name, ranks):
    run = report.run_folder(name, tmp_path)
    assert [words[:2] for words in predicted] == [("-m", "sim")]
    made = load(predicted[0][2], {"steps": int(predicted[0][4])})
    assert (made.cluster.world_size, made.run.steps) == (ranks, report.CASES[name].steps)
    run.mkdir()
    assert report.run_folder(name, tmp_path) == run
    assert len(predicted) == 1


def test_the_memory_of_a_process_is_its_own_peak():
    # from a small process, as this one may have loaded anything
    code = "from benchmarks.report import run_python; print(run_python('-c', {!r}).mib)"
    idle, busy = (
        float(report.run_python("-c", code.format(given)).output) for given in ("0", "x = b'x' * (200 << 20); del x")
    )
    assert 200 < busy < 230
    assert idle < 100


def test_output_of_a_process_is_kept_and_its_failure_exits():
    assert report.run_python("-c", "print(7)").output == "7\n"
    with pytest.raises(SystemExit, match=r"-c exit\(3\): ended with 3"):
        report.run_python("-c", "exit(3)")


def test_figures_above_a_bar_are_named():
    line: dict[str, float | str] = {
        "case": "x",
        "spans": 1,
        "seconds": 15.0,
        "MiB": 2048,
        "page MB": 5.0,
        "tables MB": 900.0,
    }
    assert report.find_missed(line) == []
    assert report.find_missed({**line, "seconds": 15.1, "page MB": 5.01}) == ["seconds", "page MB"]
