"""Published step times: what is read and refused, how rows are joined with predictions, and what the tables say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.analysis.prediction.measured_steps import FILE
from reports.errors import ReportError
from reports.json_document import document
from reports.published import steps
from reports.published.errors import right_order
from reports.published.steps import StepPrediction, StepRow
from reports.sections.published import STEPS, PublishedView
from scenarios.config.load import load_profile
from scenarios.seam.errors import ScenarioError
from sim.gpu_profiles import profile_of
from tests.reports.refusals import refusal
from twinstep.published.simulated import ready_scenario, scenario_of_step
from twinstep.reporting.cli import main

HEAD = "model,round,system,gpu,nodes,gpus,global_batch,step_ms"
ROWS = """\
dcnv2,3.0,one,NVIDIA H100-SXM5-80GB,1,8,55296,4.0
dcnv2,3.0,two,NVIDIA H100-SXM5-80GB,1,8,55296,3.0
dcnv2,3.1,three,NVIDIA H100-SXM5-80GB,8,64,135168,2.0
"""
PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "steps.csv"


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "steps.csv"
    file.write_text(text)
    return file


def of_nodes(row: StepRow, profile: str | None) -> StepPrediction:
    """7 ms on one node, 1 ms on several."""
    if row.gpu == "Q1":
        raise ReportError("gpu = 'Q1': no profile")
    return StepPrediction(predicted_ms=7.0 if row.nodes == 1 else 1.0, scenario="s", profile=profile or "p")


def test_rows_are_read_and_a_configuration_is_predicted_once(tmp_path: Path) -> None:
    asked = []

    def predict(row: StepRow, profile: str | None) -> StepPrediction:
        asked.append(row.line)
        return of_nodes(row, profile)

    joined = steps.join(steps.read(write(tmp_path, f"{HEAD}\n{ROWS}")).rows, predict)
    assert asked == [2, 4]
    assert joined["error"].tolist() == [7 / 4 - 1, 7 / 3 - 1, 1 / 2 - 1]


def test_ratios_between_configurations_are_those_of_their_medians(tmp_path: Path) -> None:
    joined = steps.join(steps.read(write(tmp_path, f"{HEAD}\n{ROWS}")).rows, of_nodes)
    (pair,) = steps.pairs(steps.configurations(joined)).to_dict("records")
    assert (pair["measured"], pair["predicted"], pair["agrees"]) == (2 / 3.5, 1 / 7, True)
    assert right_order(steps.pairs(steps.configurations(joined))) == (1, 1)


def test_unpredicted_rows_have_a_reason_with_their_lines(tmp_path: Path) -> None:
    rows = ROWS + "dcnv2,3.0,four,Q1,1,8,55296,4.0\n"
    joined = steps.join(steps.read(write(tmp_path, f"{HEAD}\n{rows}")).rows, of_nodes)
    found = document(STEPS, PublishedView(joined=joined))
    assert found["in_all"][0]["rows"] == 3
    assert found["measurements"][3]["reason"] == "gpu = 'Q1': no profile"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("dcnv2,3.0,a,H100,3,8,55296,4.0", "line 2: gpus = 8: expected as many on each of 3 nodes"),
        ("dcnv2,3.0,a,H100,1,8,55296,0", "line 2: step_ms = '0': expected a number above 0"),
        ("dcnv2,3.0,a,,1,8,55296,4", "line 2: gpu = '': expected printable text"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_line(tmp_path: Path, row: str, sentence: str) -> None:
    assert refusal(steps.read, write(tmp_path, f"{HEAD}\n{row}\n")).endswith(sentence)


def test_the_command_knows_steps_by_their_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = write(tmp_path, f"{HEAD},scenario\ndcnv2,3.0,a,H100,1,2,64,9,criteo_small_2x2\n"), tmp_path / "o.csv"
    assert main(["published", str(file), "--json", "--csv", str(out)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["measurements"]
    assert (row["scenario"], row["profile"]) == ("criteo_small_2x2", "dgx_h100")
    assert row["predicted_ms"] > 0
    assert out.read_text().startswith("file,line,model")


@pytest.mark.whole
def test_three_of_mlperfs_step_times_are_predicted_as_the_docs_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        line for line in PUBLISHED.read_text().splitlines() if re.match(r"model|.*,(3\.0|0\.7),.*NVIDIA A100", line)
    ]
    assert main(["published", str(write(tmp_path, "\n".join(lines))), "--json"]) == 0
    computed = _errors(pd.DataFrame(json.loads(capsys.readouterr().out)["measurements"]))
    assert len(computed) == 3
    assert computed == pytest.approx({key: _known_values()[key] for key in computed}, abs=1e-4)


@pytest.mark.slow
@pytest.mark.whole
def test_mlperfs_step_times_are_predicted_as_the_docs_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Within 8 % in the mean, with one number fitted; all pairs of configurations in their order."""
    assert main(["published", str(PUBLISHED), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (every,) = found["in_all"]
    assert (every["rows"], every["mean"] <= 0.08) == (44, True), every
    assert right_order(pd.DataFrame(found["pairs"])) == (43, 43)
    assert _known_values() == pytest.approx(_errors(pd.DataFrame(found["measurements"])), abs=1e-4)


def _known_values() -> dict[str, float]:
    """Return the errors by configuration of which the docs speak."""
    known = pd.read_csv(FILE, comment="#").query("source == 'MLPerf'")
    assert known.loc[known["fitted"], "step"].tolist() == ["dcnv2 1x8"]
    return dict(zip(known["step"] + " " + known["gpu"], known["error"], strict=True))


def _errors(measurements: pd.DataFrame) -> dict[str, float]:
    """Return errors by configuration, whatever its rounds: predicted over the median of what its systems measured, less
    1.
    """
    found: dict[str, float] = {}
    shape: Any
    for shape, same in measurements.groupby(["scenario", "profile", "nodes", "gpus"]):
        name, profile, hosts, gpus = shape
        key = f"{name.removeprefix('mlperf_')} {hosts}x{gpus // hosts} {load_profile(profile).host.gpu.name}"
        found[key] = same["predicted_ms"].median() / same["step_ms"].median() - 1
    return found


def test_files_of_both_kinds_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published", str(PUBLISHED), str(PUBLISHED.with_name("collectives.csv"))]) == 2
    assert "expected files of one kind" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpu", "gpus", "profile"),
    [
        ("NVIDIA H100-SXM5-80GB", 8, "dgx_h100"),
        ("NVIDIA A100-SXM4-80GB (500W)", 8, "dgx_a100"),
        ("NVIDIA H200-SXM-141GB", 8, "hgx_h200"),
        ("Tesla V100-SXM2-16GB", 1, "v100_tcp_10g"),
        ("NVIDIA GB200", 4, "gb200_nvl72"),
        ("NVIDIA V100-SXM3-32GB (450W)", 16, "dgx2_v100"),
        ("NVIDIA A100-PCIe-80GB", 4, "a100_pcie"),
        ("NVIDIA H100-PCIe-80GB", 4, "h100_pcie"),
        ("NVIDIA H200-NVL-141GB", 4, "h200_nvl"),
        ("NVIDIA A30", 8, "a30_pcie"),
        ("NVIDIA A40", 8, "a40_pcie"),
        ("NVIDIA L40", 8, "l40_pcie"),
        ("NVIDIA L40S", 8, "l40s_pcie"),
        ("NVIDIA L4", 1, "l4_pcie"),
        ("Tesla T4", 1, "t4_pcie"),
        ("Tesla V100-PCIE-32GB", 1, "v100_pcie"),
        ("NVIDIA A100 80GB PCIe", 1, "a100_pcie"),
        ("NVIDIA A100-PCIE-40GB", 1, "a100_pcie_40gb"),
        ("NVIDIA H100 80GB HBM3", 1, "dgx_h100"),
        ("NVIDIA B300-SXM-270GB", 8, "hgx_b300"),
        ("NVIDIA B200-SXM-180GB", 8, "p6_b200"),
    ],
)
def test_a_gpu_is_found_by_nvidias_name(gpu: str, gpus: int, profile: str) -> None:
    assert profile_of(gpu, gpus) == profile


def test_a_row_is_a_ready_scenario_with_its_counts() -> None:
    given = {"scenario": "mlperf_dcnv2", "gpu": "H100", "nodes": 2, "gpus": 16, "global_batch": 32_768}
    made = scenario_of_step(**given)  # type: ignore[arg-type]
    assert (made.name, made.cluster.hosts, made.cluster.host.gpus, made.run.batch_size) == ("mlperf_dcnv2", 2, 8, 2048)
    with pytest.raises(ScenarioError, match=r"global_batch = 5: expected a multiple of gpus = 16"):
        scenario_of_step(**{**given, "global_batch": 5})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "round", "system", "scenario"),
    [
        ("dcnv2", "4.1", "dgxh100", "mlperf_dcnv2"),
        ("dlrm_v1", "", "", "mlperf_dlrm_v1"),
        ("dlrm_v1", "2.0", "dgxa100_hugectr", "mlperf_dlrm_v1"),
        ("dlrm_v1", "0.7", "dgxa100_ngc20.06_merlin_hugectr", "mlperf_dlrm_v1_v0_7"),
        ("dlrm_v1", "0.7", "dgxa100_ngc20.06_pytorch", "mlperf_dlrm_v1_pytorch_v0_7"),
        ("dlrm_v1", "1.0", "AS-4124GO-NART_pytorch", "mlperf_dlrm_v1_pytorch_v1_0"),
        ("dlrm_v1", "1.1", "somewhere_pytorch", "mlperf_dlrm_v1"),
    ],
)
def test_the_scenario_is_that_of_the_model_the_round_and_the_systems_software(
    model: str, round: str, system: str, scenario: str
) -> None:
    assert ready_scenario(model, round, system) == scenario


def test_a_model_without_a_ready_scenario_is_a_sentence() -> None:
    sentence = "model = 'bert': expected one of which there is a ready scenario, or a scenario"
    with pytest.raises(ScenarioError, match=sentence):
        ready_scenario("bert")
