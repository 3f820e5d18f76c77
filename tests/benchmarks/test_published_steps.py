"""What docs/explanation/kernels.md says of steps that others have measured: the bars that hold."""

from __future__ import annotations

import pytest

from benchmarks import published_steps


@pytest.mark.slow
def test_steps_that_others_measured() -> None:
    table = published_steps.compare()
    errors = dict(zip(table["measurement"], table["error"], strict=True))
    for gpus in (4, 6):
        assert abs(errors[f"pytorch issue 74148, PowerSGD, {gpus} V100"]) < 0.15
