"""Ready scenarios are predicted to the ns as they were; `python -m tests.fingerprints --write` accepts a change."""

from __future__ import annotations

import json

import pytest

from tests.fingerprints import CASES, FILE, Case, differences, fingerprint


def test_cases_have_fingerprints() -> None:
    assert sorted(json.loads(FILE.read_text())) == sorted(case.key for case in CASES)


def is_slow(case: Case) -> bool:
    """Whether it takes many seconds, and smaller cases go through the same code."""
    if case.fidelity == "links":
        return case.name in ("criteo_dlrm_8x8", "mlperf_dcnv2")
    return case.name.startswith(("criteo_dlrm", "mlperf", "powersgd_16x1"))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * is_slow(case), id=case.key) for case in CASES]
)
def test_a_prediction_is_as_it_was(case: Case) -> None:
    kept = json.loads(FILE.read_text())[case.key]
    assert differences(fingerprint(case.play()), kept) == []
