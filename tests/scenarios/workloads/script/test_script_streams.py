"""What a script computes for, by its name."""

from __future__ import annotations

import pytest

from scenarios.seam.roles import IDS, OPTIMIZER
from scenarios.workloads.script.script_streams import role_of


@pytest.mark.parametrize(
    ("label", "role"),
    [
        ("Adam.step", OPTIMIZER),
        ("_OwnAdam.step", OPTIMIZER),
        ("step", ""),
        ("decoder.step", ""),
        ("decoder.step.backward", ""),
        ("model.sparse_arch._input_dists.0", IDS),
    ],
)
def test_an_optimizers_step_is_no_module_of_that_name(label: str, role: str) -> None:
    assert role_of(label) == role
