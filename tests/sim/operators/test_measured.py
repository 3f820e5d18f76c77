"""Kernels of one H200 that have no row among the published ones (those: `tests/twinstep/published/operators`)."""

from __future__ import annotations

import pytest

from scenarios.seam.operations.as_json import operations_of
from sim.operators.laws import seconds
from sim.operators.measuring import EVENTS_S, GAP_S
from tests.sim.operators.rows import DATA, H200, mean_error, rows

# torch 2.11 and fbgemm_gpu 1.6.0, 2026-11-26: kernels in steps of GPT-2, DLRMs and linear layers as the profiler has
# them (0 kernels between events), and single operators of several kernels between CUDA events.
ROWS = rows(DATA / "kernels" / "h200_kernels.csv")
BARS = {
    "elementwise": 0.10,
    "cat": 0.08,
    "softmax": 0.10,
    "layer_norm": 0.08,
    "nll_loss": 0.05,
    "foreach": 0.08,
    "sum": 0.10,
    "index": 0.08,
    "index_put": 0.04,
    "embedding": 0.08,
    "gather": 0.12,
    "scan": 0.08,
    "permute": 0.12,
    "bucketize": 0.12,
    "pooled": 0.08,
    "lookup": 0.08,
    "update": 0.08,
}


def test_every_measured_family_has_a_bar() -> None:
    assert {row["family"] for row in ROWS} == set(BARS)


@pytest.mark.parametrize("family", BARS)
def test_kernels_of_an_h200_are_within_the_bar_of_their_family(family: str) -> None:
    pairs = []
    for row in ROWS:
        if row["family"] == family:
            kernels = int(row["kernels_between_events"])
            beside_s = EVENTS_S + (kernels - 1) * GAP_S if kernels else 0.0
            law_s = sum(seconds(each, H200) for each in operations_of(row["operations"]))
            pairs.append((law_s + beside_s, 1e-6 * float(row["us"])))
    assert mean_error(pairs) < BARS[family]
