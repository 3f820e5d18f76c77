from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports.page.study.payload import group_titles, in_order, payload
from reports.study.frame import study_frame
from reports.study.measures import SHOWN
from reports.study.rows import about_of
from tests.reports.page.study.synthetic import write_study

COUNT = 60
FACTORS = {"step_ns": 1e6, "exposed_share": 0.01, "memory_spare_bytes": 2.0**30, "samples_per_s": 1.0}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("studies") / "wide", COUNT)


def test_columns_hold_what_the_frame_holds(study: Path) -> None:
    frame, about = study_frame(study), about_of(study)
    found = json.loads(json.dumps(payload(frame, about, study), allow_nan=False))
    assert found["index"] == list(range(COUNT + 1))
    assert [key["name"] for key in found["keys"]] == about["keys"]
    for key in found["keys"]:
        labels = [key["labels"][code] for code in key["codes"]]
        expected = frame[key["name"]].astype(object).where(frame[key["name"]].notna(), "-").astype(str).tolist()
        assert labels == [str(about["as_it_is"].get(key["name"], "-")), *expected[1:]]
    measures = {measure["name"]: measure for measure in found["measures"]}
    assert set(measures) == {name for name in SHOWN if frame[name].notna().any()}
    for name, factor in FACTORS.items():
        values = pd.Series(measures[name]["values"], dtype="float64") * factor
        np.testing.assert_allclose(values, frame[name], rtol=1e-9)
    assert measures["step_ns"]["title"] == "step, ms"
    assert (measures["samples_per_s"]["most"], measures["step_ns"]["most"], measures["steps"]["most"]) == (
        True,
        False,
        None,
    )
    status = [found["texts"]["status"]["labels"][code] for code in found["texts"]["status"]["codes"]]
    assert status == frame["status"].tolist()
    assert found["out"] == np.flatnonzero(frame["status"] == "done").tolist()


def test_links_lead_to_what_is_there(study: Path) -> None:
    frame, about = study_frame(study), about_of(study)
    assert payload(frame, about, study)["runs"][:5] == [*(f"runs/{at:016x}-flows/" for at in range(4)), ""]
    (study / "runs" / f"{2:016x}-flows" / "reports" / "report.html").write_text("page")
    assert payload(frame, about, study, "../wide/")["runs"][2] == f"../wide/runs/{2:016x}-flows/reports/report.html"


def test_the_front_of_one_goal_is_against_what_it_is_bought_with(study: Path) -> None:
    frame, about = study_frame(study), about_of(study)
    assert payload(frame, about, study)["front"] == ["usd_per_1e9_samples", "samples_per_s"]
    one = {**about, "goals": {"step_ns": "least"}}
    assert payload(frame, one, study)["front"] == ["world_size", "step_ns"]
    assert payload(frame.assign(world_size=8.0), one, study)["front"] == ["exposed_share", "step_ns"]
    assert "knee" not in payload(frame, one, study)["named"]


def test_values_are_in_their_order_and_many_of_them_are_together() -> None:
    assert in_order(["100 Gbit/s", "-", "25 Gbit/s"]) == ["-", "25 Gbit/s", "100 Gbit/s"]
    assert in_order(["16", "2", "1e1"]) == ["2", "1e1", "16"]
    assert in_order(["1 GiB", "100 MiB", "none"]) == ["1 GiB", "100 MiB", "none"]  # as they come
    few = group_titles(["a", "b"])
    assert (few["groups"], few["group"]) == (["a", "b"], [0, 1])
    many = group_titles([str(number) for number in range(100)])
    assert len(many["groups"]) == 15
    assert (many["groups"][0], many["groups"][-1], many["group"][-1]) == ("0 to 6", "98 to 99", 14)
