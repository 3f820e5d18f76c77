"""Notes before a run: keys without effect, and whose operators a GPU's tables are."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from scenarios.config import warnings
from scenarios.config.load import load
from scenarios.config.warnings import notes, notes_of_measuring
from tests.scenarios.config.test_load import MODEL, TABLE, write

BEGIN = (
    "gpu.toml: run.library = 'nccl': embeddings are looked up and updated by chains of torch operations, which take"
    " longer than predicted; "
)

LAMB = 'embedding_dim = 8\noptimizer = {{ kind = "{}" }}\ndense_optimizer = {{ kind = "SGD", lr = 0.1 }}\n'
NAN = "fbgemm's '{}' without weight_decay makes NaN of a row whose first gradient is 0 (model.optimizer)"


def describe(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool, profile: str, more: str = "embedding_dim = 8\n"
) -> list[str]:
    monkeypatch.setattr(warnings, "find_spec", lambda name: ModuleSpec(name, None) if is_there else None)
    text = MODEL.replace("cpu_local", profile).replace("embedding_dim = 8\n", more) + TABLE + "ids_per_sample = 1\n"
    return list(notes_of_measuring(load(write(folder, "gpu.toml", text))))


def test_a_gpu_without_fbgemm_has_a_note(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = describe(folder, monkeypatch, is_there=False, profile="dgx_h100")
    assert found == [BEGIN + 'fbgemm is not installed: `pip install "twinstep[gpu]"`']
    assert describe(folder, monkeypatch, is_there=True, profile="dgx_h100") == []
    assert describe(folder, monkeypatch, is_there=False, profile="cpu_local") == []


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            'embedding_dim = 8\nembedding_dtype = "bfloat16"\n',
            "fbgemm does not support bfloat16 (model.embedding_dtype)",
        ),
        ("embedding_dim = 6\n", "fbgemm needs multiples of 4 as dim, unlike those of a"),
        *((LAMB.format(kind), NAN.format(kind)) for kind in ("lamb", "partial_rowwise_lamb")),
    ],
)
def test_rows_that_fbgemm_does_not_take_have_a_note(
    more: str, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe(folder, monkeypatch, is_there=True, profile="dgx_h100", more=more) == [BEGIN + reason]


@pytest.mark.parametrize(
    ("name", "values", "unused"),
    [
        (
            "criteo_dlrm_2x4",
            {"cluster.inside.latency": "1 ms"},
            "cluster.inside.latency: has no effect with run.library = 'nccl'",
        ),
        ("twrw_2x2", {"cluster.nccl_start": "1 us"}, "cluster.nccl_start: has no effect with run.library = 'gloo'"),
        ("twrw_2x2", {"cluster.network.sharp": True}, "cluster.network.sharp: has no effect with run.library = 'gloo'"),
        ("twrw_2x2", {"model.tf32": True}, "model.tf32 = true: has no effect with cluster.gpu.kind = 'cpu'"),
        (
            "twrw_2x2",
            {"launching.fusion": True},
            "launching.fusion = true: has no effect with cluster.gpu.kind = 'cpu'",
        ),
    ],
)
def test_a_key_without_effect_has_a_note(name: str, values: dict[str, object], unused: str) -> None:
    scenario = load(name, values)
    assert list(notes(scenario)) == [*notes(load(name)), f"{scenario.path}: {unused}"]
