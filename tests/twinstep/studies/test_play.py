"""One point, as a worker plays it."""

from __future__ import annotations

import dataclasses
import io
import math
import tarfile
from pathlib import Path

import pandas as pd
import pytest

import twinstep
from reports.run import Run
from scenarios.config.hardware import Cost
from scenarios.config.scenario import Scenario
from scenarios.workloads.build import build
from scenarios.workloads.dlrm.ids.id_cache import DRAWN, ArrayCache
from sim.run import simulate
from tests.scenarios.workloads.own import NO_STEP, stepless, write_scenario
from twinstep.studies.play import play_point
from twinstep.studies.task import Result, Task


@pytest.fixture(scope="module")
def small() -> Scenario:
    return twinstep.scenario("criteo_small_2x2", steps=3)


def play(scenario: Scenario, *, fidelity: str = "flows", timeout_s: float = math.inf, keep: str = "rows") -> Result:
    return play_point(Task(scenario=scenario, fidelity=fidelity, timeout_s=timeout_s, keep=keep))  # type: ignore[arg-type]


def known_values(result: Result) -> dict[str, float]:
    """Return the measures that are numbers."""
    numbers = {name: value for name, value in result.measures.items() if isinstance(value, float)}
    return {name: value for name, value in numbers.items() if not math.isnan(value)}


def test_a_points_numbers_are_those_of_a_prediction(small: Scenario) -> None:
    result = play(small)
    assert (result.status, result.sentence, result.folder) == ("done", "", b"")
    run = twinstep.predict(small)
    steady = run.steps[run.steps["steady"]]
    assert result.measures["step_ns"] == steady["step_ns"].median()
    assert result.measures["samples_per_s"] == steady["samples_per_s"].median()
    assert result.measures["memory_spare_bytes"] == run.rank_memory["free_bytes"].min()
    assert 0 < result.seconds < 60


def test_a_point_that_compresses_after_its_last_step_says_so(small: Scenario) -> None:
    late = dataclasses.replace(small.workload.compression, start_powerSGD_iter=small.run.steps)
    result = play(small.with_workload(compression=late))
    assert result.status == "done"
    assert (
        "nothing is compressed in 3 steps; to see compression, use more than 3 steps or the value 2" in result.sentence
    )


def test_a_points_step_is_the_median_of_all_its_draws() -> None:
    """On gloo between two hosts, where wake-ups vary, so that no two draws are alike."""
    scenario = twinstep.scenario("all_reduce_4x1_200mbit", steps=4)
    task = Task(scenario=scenario, fidelity="flows", timeout_s=math.inf, keep="rows")
    one, several = play_point(task).measures, play_point(dataclasses.replace(task, draws=2)).measures
    runs = [Run.of(simulate(scenario, build(scenario), draw)) for draw in range(3)]
    steps = pd.concat([run.steps.loc[run.steps["steady"], "step_ns"] for run in runs])
    assert len(steps) == 3 * len(runs[0].steps[runs[0].steps["steady"]])
    assert several["step_ns"] == steps.median() != one["step_ns"]
    assert {name for name in one if several[name] != one[name] and one[name] == one[name]} == {"step_ns"}


def test_ids_that_are_kept_are_those_that_would_be_drawn(small: Scenario) -> None:
    first = play(small)
    assert play(small).measures == pytest.approx(first.measures, rel=0, abs=0, nan_ok=True)
    DRAWN.__init__()  # type: ignore[misc]
    assert play(small).measures == pytest.approx(first.measures, rel=0, abs=0, nan_ok=True)


def test_kept_ids_are_bounded_and_cannot_be_changed() -> None:
    import numpy as np  # noqa: PLC0415

    kept, made = ArrayCache(), []

    def make(number: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
        made.append(number)
        return (np.full(100, number), np.full(100, 1 << 40))

    for number in (1, 1):
        kept.get(number, lambda number=number: make(number))  # type: ignore[misc]
    assert made == [1, 1]
    with kept.up_to(2000):  # two of 100 + 800 bytes
        for number in (1, 2, 1, 2, 3, 1):
            got, large = kept.get(number, lambda number=number: make(number))  # type: ignore[misc]
            assert (got == number).all()
            assert (large == 1 << 40).all()
            assert not any(each.flags.writeable for each in (got, large))
    assert made == [1, 1, 1, 2, 3, 1]


def test_run_folders_have_the_spans_of_keep(small: Scenario, tmp_path: Path) -> None:
    whole = set(twinstep.predict(small).spans["kind"])
    for keep, kinds in (("runs", {"step"}), ("spans", whole)):
        with tarfile.open(fileobj=io.BytesIO(play(small, keep=keep).folder)) as archive:
            archive.extractall(tmp_path / keep, filter="data")
        run = twinstep.load(tmp_path / keep)
        assert set(run.spans["kind"]) == kinds
        assert run.info.digest == small.digest()
        assert len(run.steps) == 3


def test_errors_have_a_kind_and_a_sentence(small: Scenario) -> None:
    gpu = dataclasses.replace(small.cluster.host.gpu, memory_bytes=1 << 16)
    cluster = dataclasses.replace(small.cluster, host=dataclasses.replace(small.cluster.host, gpu=gpu))
    result = play(dataclasses.replace(small, cluster=cluster))
    assert result.status == "scenario error"
    assert result.sentence
    result = play(small, timeout_s=0.0)
    assert result.status == "timed out"
    assert ": expected to end within 0 s; interrupted after" in result.sentence
    result = play(twinstep.scenario("all_to_all_4x2"), fidelity="estimate")
    assert result.status == "scenario error"
    assert result.sentence.endswith("expected one with tables to place, as an estimate is the planner's")


def test_a_point_without_a_step_is_a_program_error(tmp_path: Path) -> None:
    result = play(twinstep.scenario(write_scenario(tmp_path, stepless())))
    assert (result.status, result.sentence) == ("program error", NO_STEP)


def test_an_estimate_is_the_planners(small: Scenario) -> None:
    result = play(small, fidelity="estimate")
    plan = twinstep.predict(small).plan
    assert result.status == "done"
    assert result.measures["step_ns"] == pytest.approx(plan.groupby("rank")["perf_ms"].sum().max() * 1e6)
    assert (
        not {"usd_per_1e9_samples", "kwh_per_1e9_samples"} & known_values(result).keys()
    )  # nobody asks a price for CPU cores
    priced = dataclasses.replace(small.cluster, cost=Cost(usd_per_gpu_hour=0.5, watts_per_gpu=100))
    measures = known_values(play(dataclasses.replace(small, cluster=priced), fidelity="estimate"))
    gpu_hours = measures["world_size"] * 1e9 / measures["samples_per_s"] / 3600
    assert measures["usd_per_1e9_samples"] == pytest.approx(0.5 * gpu_hours)
    assert measures["kwh_per_1e9_samples"] == pytest.approx(0.1 * gpu_hours)
