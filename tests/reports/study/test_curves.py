"""Curves of frames made by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from reports.sections.curves import verdict
from reports.study.curves import batches_between, hiding, overlap, sensitivity, total_change

CURVE = {"batch_key": "run.batch_size", "threshold": 0.01}


def parameter(key: str, uncertainty: float, group: str) -> dict[str, object]:
    figures = {"value": "1 us", "more": "1.1 us", "less": "0.9 us", "source": "assumed"}
    return {"key": key, "uncertainty": uncertainty, "group": group, **figures}


def overlaps(shares: dict[int, float], gradients_ns: float = 1e3) -> pd.DataFrame:
    """Batches with what of a step of 1 us is exposed, by gradients and in all."""
    rows = [
        {
            "run.batch_size": batch,
            "step_ns": 1e3,
            "samples_per_s": 1.0,
            "exposed_share": share,
            "gradients_ns": gradients_ns,
            "gradients_exposed_ns": share * gradients_ns,
            "status": "done",
            "sentence": "",
        }
        for batch, share in shares.items()
    ]
    return overlap(pd.DataFrame(rows), {"curve": CURVE})


def test_a_power_law_has_its_exponent_as_elasticity_and_one_group_is_off_together() -> None:
    parameters = [
        parameter("a", 0.1, "one"),
        parameter("b", 0.1, "one"),
        parameter("c", 0.4, "c"),
        parameter("d", 1, "d"),
    ]
    exponents = {"a": -0.5, "b": 1.0, "c": 0.5}
    rows = [{"index": 0, "step_ns": 1e6, "status": "done", "sentence": ""}]
    for key, exponent in exponents.items():
        for value, factor in (("1.1 us", 1.1), ("0.9 us", 1 / 1.1)):
            is_refused = (key, value) == ("c", "1.1 us")
            end = {"status": "scenario error" if is_refused else "done", "sentence": ""}
            step_ns = math.nan if is_refused else 1e6 * factor**exponent
            rows.append({"index": len(rows), key: value, "step_ns": step_ns, **end})
    rows.append({"index": len(rows), "d": "1.1 us", "step_ns": math.nan, "status": "error", "sentence": "lost"})
    found = sensitivity(pd.DataFrame(rows), {"curve": {"change": 0.1, "parameters": parameters}})
    assert found["parameter"].tolist() == ["b", "a", "c", "d"]
    assert found["elasticity"].tolist()[:3] == pytest.approx([1, -0.5, 0.5])
    assert found["step_change"].tolist()[:3] == pytest.approx([0.1, 0.05, 0.2])
    assert found["sentence"].tolist() == ["", "", "", "lost"]
    assert total_change(found) == pytest.approx(math.hypot(0.1 + 0.05, 0.2))


def test_between_neighbours_of_which_one_hides_lies_the_next_batch() -> None:
    found = overlaps({64: 0.5, 16: 0.9, 256: 0.002, 512: 0.001})
    assert hiding(found, 0.01).to_numpy().tolist() == [["gradients", 256, 64], ["communication", 256, 64]]
    assert batches_between(found, 0.01) == [128]
    assert batches_between(overlaps({1000: 0.5, 1019: 0.0}), 0.01) == []  # within 2 %
    assert batches_between(overlaps({3: 0.5, 4: 0.0}), 0.01) == []  # nothing lies between


@pytest.mark.parametrize(
    ("shares", "gradients_ns", "words"),
    [
        ({8: 0.0, 16: 0.01}, 1e3, "hidden at every batch from 8 to 16: at most 1 % of the step exposed"),
        ({8: 0.4, 16: 0.02}, 1e3, "hidden at no batch from 8 to 16: at least 2.0 % of the step exposed"),
        ({8: 0.0, 16: 0.02}, 1e3, "hidden up to a batch of 8, not at 16 (at most 1 % of the step exposed)"),
        ({8: 0.4, 16: 0.0}, 1e3, "hidden from a batch of 16, not at 8 (at most 1 % of the step exposed)"),
        ({8: 0.4}, 0.0, "there is none"),
    ],
)
def test_where_communication_hides_is_said(shares: dict[int, float], gradients_ns: float, words: str) -> None:
    assert verdict(overlaps(shares, gradients_ns), "gradients", 0.01) == words
