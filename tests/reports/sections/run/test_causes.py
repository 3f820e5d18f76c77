"""A step that waits for its data: what reports say of it, for a prediction of program dlrm."""

from __future__ import annotations

from typing import Any

import pytest

from reports.analysis.step_breakdown import parts_of_step, steady_kept
from reports.run import Run
from reports.sections.run.causes import dominant
from reports.sections.run.operations import layers
from reports.sections.run.subject import RunView
from scenarios.config.scenario import Data, Pipeline
from tests.sim.test_dlrm_host_memory import play_ready, time

LASTS_NS = 10_000_000


@pytest.fixture(scope="module", params=[1, 3], ids="{} ahead".format)
def run(request: pytest.FixtureRequest) -> Run:
    data = Data(copies=True, samples_per_s=64 / LASTS_NS * 1e9, prefetch=request.param)
    made = time(("fused",), batch_size=64, data=data, pipeline=Pipeline(kind="sparse_dist"))
    return Run.of(play_ready(made.with_run(steps=6)))


def test_the_loader_dominates(run: Run) -> None:
    step = steady_kept(run)[-1]
    sentences = dominant(run, step)
    assert sentences[0].startswith("data_loader: ")
    assert "data.load" in sentences[0]
    assert len(sentences) == 1


def test_a_recommender_has_the_layers_of_its_dense_part(run: Run) -> None:
    found = layers(RunView.of(run)).set_index("layer")
    assert {"queries", "score"} <= set(found.index)
    assert (found.loc[["queries", "score"], ["forward_ns", "backward_ns"]] > 0).to_numpy().all()
    own = run.operations_of(steady_kept(run))
    passes = own["label"].str.match(r"dense\.(forward|backward)").to_numpy(bool)
    both = found[["both_ns", "launch_ns"]].to_numpy().sum()
    assert both == pytest.approx(own.loc[passes, "mean_ns"].sum())


def test_a_loader_and_copies_are_no_compute_of_the_rank(run: Run) -> None:
    parts: Any = parts_of_step(run, steady_kept(run)).set_index("part")
    assert parts.loc["idle", "share"] > 0.8
    assert parts.loc["compute", "share"] < 0.2
    assert parts.loc["hidden communication", "mean_ns"] <= parts.loc["compute", "mean_ns"]


def test_steps_and_samples_are_as_many_as_the_loader_delivers(run: Run) -> None:
    steady = run.steps[run.steps["steady"].to_numpy(bool)]
    assert len(steady) == 6
    assert steady["step_ns"].median() == pytest.approx(LASTS_NS, rel=0.01)
    assert steady["samples_per_s"].median() == pytest.approx(4 * 64 / LASTS_NS * 1e9, rel=0.01)
