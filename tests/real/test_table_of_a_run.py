"""A measured run of a program becomes a table of operators, by which another prediction is priced."""

from __future__ import annotations

from pathlib import Path

import pytest

from real.machine import cpu_name
from reports.store import run_folder as store
from scenarios.kernel_tables.file import read_table
from scenarios.seam.operations.optimizers import Foreach
from tests.commands import command

# A rehearsal without GPUs: ranks compute on CPUs what the profile's GPUs would.
SCENARIO = """
include = "twrw_2x2"
[run]
steps = 3
[cluster]
profile = "hgx_h200"
hosts = 1
"""


@pytest.mark.slow
def test_operators_of_a_measured_run_price_a_prediction(tmp_path: Path) -> None:
    scenario, run, table, predicted = (tmp_path / name for name in ("s.toml", "real", "t.parquet", "sim"))
    scenario.write_text(SCENARIO)
    for words in (
        ("real", scenario, "--out", run, "--quiet"),
        ("reports", "times", run, "--table", table),
        ("sim", scenario, "--kernels", table, "--out", predicted, "--quiet"),
    ):
        done = command(*words)
        assert done.returncode == 0, done.stderr
    assert store.load(run).info.devices == (cpu_name(),)
    (update,) = (row for row in read_table(table) if isinstance(row.operations[0], Foreach))
    spans = store.load(run).spans
    took = spans[(spans["label"] == "dense.update") & (spans["step"] > 0)]
    assert update.calls == len(took) == 2 * 2
    assert update.us == pytest.approx(float((took["end_ns"] - took["start_ns"]).mean()) / 1e3)
    kernels = store.load(predicted).kernels.set_index("operator")
    assert kernels.loc["_foreach_add_", "priced_by"] == "measured"
    assert kernels.loc["_foreach_add_", "predicted_us"] == pytest.approx(update.us)
