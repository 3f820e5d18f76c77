"""Steps of plain scripts as one H200 took them: of small kernels, where the host counts, and of large ones."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.eager_steps import MEASURED, SCRIPT
from benchmarks.measured_steps import FACTORS, host_prices_ns
from scenarios.config.host_costs import Eager
from scenarios.seam.host_work import HostWork, total
from scenarios.seam.trace import Recording
from tests.sim.test_gpu_script import play_script, recorded_steps, steps_ns


@pytest.mark.parametrize(("name", "error"), [("mlp_small", 0.1), ("mlp_tf32", 0.05)])
def test_an_eager_step_meets_its_time_on_an_h200(name: str, error: float) -> None:
    """The host's times are fitted to the first of these and five others; memory is not fitted."""
    recording = play_script(SCRIPT, name, profile="hgx_h200", ranks=(1, 1), steps=3)
    measured = pd.read_csv(MEASURED).set_index("name").loc[name]
    assert steps_ns(recording)[-1] / 1e6 == pytest.approx(measured["step_ms"], rel=error)
    row, _ = recording.memory
    assert row.size_bytes == pytest.approx(measured["peak_bytes"], rel=0.02)


def test_default_prices_of_the_host_are_those_of_one_factor() -> None:
    """`python -m benchmarks.measured_steps --fit` prints the factor and the prices."""
    shipped = Eager()
    assert {key: getattr(shipped, key) for key in host_prices_ns(1.0)} in [host_prices_ns(each) for each in FACTORS]


def works(recording: Recording) -> list[HostWork]:
    """Return what the host did before the first step, in each step, and behind the last."""
    return [total([HostWork(*line[1]) for line in step if line[0] == "host"]) for step in recorded_steps(recording)]


def test_host_work_is_recorded_per_step() -> None:
    """Sixteen layers with their activations: steps do the same, and each parameter's gradient is one node."""
    recording = play_script(SCRIPT, "mlp_small", profile="hgx_h200", ranks=(1, 1), steps=3)
    # What is measured besides is as noisy as the machine.
    second, third = (each._replace(turns=0) for each in works(recording)[2:4])
    assert second == third
    assert (second.gradients, second.products, second.passes) == (32, 16 + 31, 1)
    assert second.calls > second.dispatches > second.nodes > second.gradients


FREED = """
import torch
import twinstep

x = torch.rand(8, device="cuda")
for count in (1, 1, 1, 41):
    for _ in range(count):
        x + 1
    twinstep.step()
"""


def test_tensors_that_are_freed_call_no_function_of_the_scripts(tmp_path: Path) -> None:
    """Python calls a finalizer for each, which a GPU that is there would not have."""
    script = tmp_path / "freed.py"
    script.write_text(FREED)
    few, many = works(play_script(script, profile="hgx_h200", ranks=(1, 1), steps=3))[2:4]
    assert many.operators - few.operators == 40
    assert many.calls == few.calls
