"""`--kernels-csv`: the kernels of a prediction on GPUs, of scenarios and scripts alike."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from reports.store import run_folder as store
from tests.commands import command, unfold

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "scripts" / "transformer_ddp.py"
COLUMNS = ["operator", "shapes", "priced_by", "predicted_us", "count", "share"]
ON_GPUS = ["--profile", "dgx_h100", "--set", "cluster.hosts=1", "--set", "cluster.gpus_per_host=2"]


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        assert reader.fieldnames == COLUMNS
        return list(reader)


def test_a_scenario_on_gpus_lists_its_kernels(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "kernels.csv"
    words = ["criteo_small_2x2", *ON_GPUS, "--library", "nccl", "--steps", "3"]
    done = command("sim", *words, "--out", run, "--kernels-csv", file, "--full")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"kernels: {file}"), done.stderr
    found, frame = rows(file), store.load(run).kernels
    assert [one["operator"] for one in found] == frame["operator"].tolist()
    assert {"linear", "mm", "table-batched embeddings"} <= {one["operator"] for one in found}
    assert {one["priced_by"] for one in found} == {"law", "roofline"}
    assert sum(float(one["share"]) for one in found) == pytest.approx(1)
    assert "kernels without a law, priced by a roofline: " in done.stdout


def test_a_script_on_gpus_lists_its_kernels_and_json_is_all_that_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    place = ["--hosts", "1", "--gpus-per-host", "1", "--profile", "dgx_h100", "--steps", "2"]
    done = command("sim", *place, "--json", "--out", tmp_path / "run", "--kernels-csv", file, EXAMPLE)
    assert done.returncode == 0, done.stderr
    assert [one["shapes"] for one in json.loads(done.stdout)["kernels"]] == [one["shapes"] for one in rows(file)]
    assert "linear" in {one["operator"] for one in rows(file)}


def test_a_prediction_on_cpus_has_no_kernels(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    done = command(
        "sim", "criteo_small_2x2", "--steps", "1", "--full", "--out", tmp_path / "run", "--kernels-csv", file
    )
    assert done.returncode == 0
    assert f"note: {file}: no rows, as only predictions on GPUs list their kernels\n" in unfold(done.stderr)
    assert rows(file) == []
    assert "roofline" not in done.stdout


def test_an_unwritable_file_is_one_sentence_before_the_simulation(tmp_path: Path) -> None:
    for file, why in (
        (tmp_path / "no" / "kernels.csv", f"could not be written: {tmp_path / 'no'} is not a folder"),
        (tmp_path, "exists already; nothing is ever overwritten, give another file"),
    ):
        done = command("sim", "criteo_small_2x2", "--out", tmp_path / "run", "--kernels-csv", file)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{file}: {why}\n")
    assert not (tmp_path / "run").exists()
