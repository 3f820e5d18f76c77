"""torch.cuda on simulated GPUs: every public name is in the table, and does what the table says."""

from __future__ import annotations

import csv
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from scenarios.workloads.script.gpu.cuda.names import CONSTANTS, MODULES, PARENTS, REFUSED
from tests.sim.test_gpu_script import ROOT, SCRIPTS, play_script

# The public names of torch 2.11.0, as its own modules list them.
OF_2_11 = json.loads((ROOT / "tests" / "data" / "cuda_names_2_11.json").read_text())
# Names that work as on a GPU, by the profile and the prediction.
AS_ON_A_GPU = json.loads((ROOT / "tests" / "data" / "cuda_names_as_on_a_gpu.json").read_text())
TABLES: tuple[Any, ...] = (AS_ON_A_GPU, CONSTANTS, REFUSED)
DOCS = ROOT / "docs" / "reference" / "data" / "torch_cuda.csv"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_table(module: str) -> None:
    public = {*import_module(module).__all__, *OF_2_11.get(module, ())}
    assert public - {name for table in TABLES for name in table.get(PARENTS.get(module, module), ())} == set()


def test_the_table_has_no_other_names() -> None:
    for table in TABLES:
        for module, names in table.items():
            assert set(names) <= {*import_module(module).__all__, *OF_2_11.get(module, ())}


def test_the_documentation_has_the_table() -> None:
    """A row of each module and kind, with the names in order."""
    made = [
        [f"`{module}`", kind, ", ".join(f"`{name}`" for name in sorted(names))]
        for kind, table in (("a constant", CONSTANTS), ("refused", REFUSED))
        for module, names in dict[str, Any](table).items()
    ]
    with open(DOCS, encoding="utf-8", newline="") as stream:
        assert sorted(list(csv.reader(stream))[1:]) == sorted(made)


@pytest.mark.supports("`torch.cuda`, `torch.accelerator`: every public name", "GPUs")
@pytest.mark.supports("pickles, `deepcopy`, object collectives of GPU tensors", "GPUs")
def test_torch_cuda_reports_the_simulated_gpu(tmp_path: Path) -> None:
    """The script asserts it; the object that it gathers takes as many bytes as its pickle."""
    count = tmp_path / "bytes"
    recording = play_script(
        SCRIPTS / "torch_cuda.py", str(count), str(tmp_path / "checkpoint"), ranks=(1, 2), steps=100
    )
    gathered = [span for span in recording.spans if span.rank == 0 and span.kind == "all_gather"]
    assert int(count.read_text()) in [span.bytes_in for span in gathered if span.dtype == "uint8"]
