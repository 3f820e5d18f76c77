"""A dense part of the user's own in program dlrm: trained as torch trains it, and told about in one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scenarios.config.load import load
from scenarios.modules import module as traced
from scenarios.modules.trace import trainable
from scenarios.seam.errors import ProgramError
from scenarios.workloads.build import build
from scenarios.workloads.dlrm.dense import WideAdagrad
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.conftest import LIBRARY
from tests.mistakes import mistakes_of
from tests.sim.test_dlrm_steps import Reference, losses

ROOT = Path(__file__).parents[4]
HEAD = """
program = "dlrm"
[cluster]
profile = "cpu_local"
hosts = 1
gpus_per_host = 2
[run]
batch_size = 8
payload = "values"
"""
CPU = torch.device("cpu")


def read_documented(folder: Path, number: int = 0, **changes: Any) -> Path:
    """The scenario and the file that docs/how_to/own_program.md has, with tables that a test can hold."""
    page = (ROOT / "docs/how_to/own_program.md").read_text()
    section = page.partition("## Only the dense part")[2].partition("## Rules")[0]
    toml = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)[number]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]
    for old, new in {"1_000_000": "100", "2_000_000": "200", **changes}.items():
        assert old in toml + code
        toml, code = toml.replace(old, new), code.replace(old, new)
    (folder / ("over_arch.py", "history.py")[number]).write_text(code)
    (folder / "s.toml").write_text(HEAD + toml)
    return folder / "s.toml"


def test_the_documented_one_trains_as_in_torch(tmp_path: Path) -> None:
    scenario = load(read_documented(tmp_path))
    recording, reference, each = simulate(scenario, build(scenario)), Reference(scenario), list[float]()
    module = reference.module
    reference.dense = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)

    def add_up(*given: Any) -> Tensor:
        found = module(*given)
        each.append(found["click"].item())
        return found["click"] + found["buy"]

    def recorded(name: str) -> list[float]:
        found = [(metric.step, metric.value) for metric in recording.metrics if metric.name == name]
        return [sum(value for of, value in found if of == step) / 2 for step in range(scenario.run.steps)]

    reference.module = add_up
    assert recorded("loss") == pytest.approx(reference.losses(), rel=1e-5)
    assert recorded("click") == pytest.approx(each, rel=1e-5)


def test_the_documented_history_trains_as_in_torch(tmp_path: Path) -> None:
    scenario = load(read_documented(tmp_path, 1), {"run.steps": 3, "model.optimizer": {"learning_rate": 0.5}})
    recording = simulate(scenario, build(scenario))
    assert losses(recording) == pytest.approx(Reference(scenario).losses(), rel=1e-5)


def test_dense_layers_overlap_with_the_exchange_of_embeddings(tmp_path: Path) -> None:
    scenario = load(read_documented(tmp_path), {"pipeline.order": "overlapped"})
    spans = [each for each in simulate(scenario, build(scenario)).spans if (each.rank, each.step) == (0, 1)]
    (bottom,) = [each for each in spans if each.label == "dense.forward.0"]
    exchanges = [each for each in spans if each.stream == "embeddings" and "output_dist" in each.label]
    assert min(each.start_ns for each in exchanges) < bottom.end_ns < max(each.end_ns for each in exchanges)


def test_the_modules_file_is_part_of_the_scenario(tmp_path: Path) -> None:
    before = load(read_documented(tmp_path))
    assert [source.name for source in before.sources] == ["over_arch.py"]
    (tmp_path / "over_arch.py").write_text((tmp_path / "over_arch.py").read_text() + "# changed\n")
    assert load(tmp_path / "s.toml").digest() != before.digest()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            ":OverArch",
            ":Other",
            "model.dense = './over_arch.py:Other': expected a program in ./over_arch.py, but module",
        ),
        ("./over_arch.py:", "over_arch", "model.dense = 'over_archOverArch': expected 'package.module:factory' or"),
        ('kind = "AdamW"', 'kind = "Adm"', "model.dense_optimizer.kind = 'Adm': expected an optimizer of torch.optim"),
        ('kind = "AdamW", ', "", "model.dense_optimizer.kind: missing; expected "),
        (
            'kind = "AdamW"',
            'kind = "LBFGS"',
            "model.dense_optimizer: expected what torch.optim.LBFGS takes, but it raised TypeError",
        ),
        (
            'kind = "AdamW"',
            'kind = "NAdam"',
            "model.dense_optimizer.kind = 'NAdam': module dense: optimizer NAdam: expected one that steps without a"
            " closure, on tensors without values, but it raised ZeroDivisionError",
        ),
        (
            "weight_decay",
            "decay",
            "model.dense_optimizer: expected what torch.optim.AdamW takes, but it raised TypeError",
        ),
        ("hidden = 256", "width = 256", "model.dense = './over_arch.py:OverArch': expected a module of dense features"),
        (
            'embeddings["items"]',
            'embeddings["ads"]',
            "model.dense = './over_arch.py:OverArch': expected a module of dense",
        ),
        (
            "return losses",
            "return dense",
            "model.dense = './over_arch.py:OverArch': expected a loss, or several, of one",
        ),
        (
            "dense_features = 13",
            "dense_features = 13\nbottom = [3]",
            "model.bottom = [3]: expected no bottom with dense",
        ),
    ],
)
def test_mistakes_in_the_module_are_one_sentence(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    path = read_documented(tmp_path, 0, **{old: new})
    assert sentence in mistakes_of(lambda: build(load(path)))[0]


def test_operators_that_depend_on_values_are_named_with_their_line(tmp_path: Path) -> None:
    path = read_documented(
        tmp_path, 0, **{"bottom = self.bottom(dense)": "bottom = self.bottom(dense[dense.sum(1) > 0])"}
    )
    with pytest.raises(ProgramError, match=r"module OverArch: index .over_arch.py:1\d"):
        build(load(path))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_wide_adagrad_is_torchs_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    wide, usual = nn.Linear(5, 3), nn.Linear(5, 3)
    usual.load_state_dict(wide.state_dict())
    wide.to(dtype)
    for steps in range(3):
        for module, make in ((wide, WideAdagrad), (usual, torch.optim.Adagrad)):
            if not steps:
                module.optimizer = make(module.parameters(), lr=0.1)  # type: ignore[operator, assignment]
            for index, parameter in enumerate(trainable(module)):
                parameter.grad = torch.full_like(parameter, 0.25 * (index + 1))
            module.optimizer.step()  # type: ignore[operator, union-attr]
    for own, other in zip(trainable(wide), trainable(usual), strict=True):
        torch.testing.assert_close(own.float(), other, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=2e-2)


def test_equal_modules_are_traced_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "_TRACES", {})

    def traces(values: dict[str, object]) -> set[int]:
        program = build(load(LIBRARY / "criteo_small_2x2.toml", values))
        assert isinstance(program, DlrmProgram)
        return set(map(id, program.dense._traces.values()))

    first = traces({})
    assert traces({"cluster.nic.latency": "1 us", "run.seed": 7}) == first
    others: list[dict[str, object]] = [
        {"run.batch_size": 32},
        {"model.dtype": "float16"},
        {"model.tables[4].sharding": ["row_wise"]},
    ]
    assert not any(traces(values) & first for values in others)
