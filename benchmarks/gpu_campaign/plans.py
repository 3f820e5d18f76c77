"""What a campaign measures: scripts and scenarios of one GPU, or small ones on a CPU, which rehearse it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_DATA = _ROOT / "benchmarks" / "data"
_EXAMPLES = _ROOT / "examples" / "scripts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script with its arguments; `needs` is a package that it imports.

    `is_traced`: torch.profiler's trace of two of its steps is kept; `is_harnessed`: `python -m real` runs it, too.
    """

    words: tuple[str, ...]
    needs: str = ""
    is_traced: bool = False
    is_harnessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign: options of `real calibrate --kernels`, and what is run for so many steps behind the warm-up.

    `calibrates_like` is the profile of that command, if not the device's own.

    `scenarios` are files' texts by name, each of one rank, with the profile left open as {profile}. `is_table_used`:
    the measured operators are the device's of which scripts are predicted.
    """

    library: str
    steps: int
    warm_up: int
    calibration: tuple[str, ...]
    calibrates_like: str | None = None
    is_table_used: bool
    scripts: Mapping[str, Script]
    scenarios: Mapping[str, str]


_HEAD = """program = '{program}'

[run]
steps = {steps}
{batch}
[cluster]
profile = '{{profile}}'
hosts = 1
gpus_per_host = 1
"""


def dlrm(*, steps: int, batch: int, rows: int, tables: int, ids: int, dim: int, width: int) -> str:
    """Return a scenario of a recommender: a dot interaction over tables that all have the same size."""
    table = f"rows = {rows}\nids_per_sample = {ids}\n"
    each = "\n".join(f"[[model.tables]]\nname = 'table{number}'\n{table}" for number in range(tables))
    return (
        _HEAD.format(program="dlrm", steps=steps, batch=f"batch_size = {batch}\n")
        + f"\n[model]\ndense_features = 13\nbottom = [{width // 2}, {dim}]\ntop = [{width}, {width // 2}, 1]\n"
        + f"interaction = {{kind = 'dot'}}\nembedding_dim = {dim}\n\n{each}"
    )


def powersgd(*, steps: int, side: int, count: int) -> str:
    """Return a scenario of square gradients that batched PowerSGD compresses."""
    return (
        _HEAD.format(program="powersgd", steps=steps, batch="")
        + "\n[compression]\nkind = 'batched_powersgd'\nmatrix_approximation_rank = 4\nstart_powerSGD_iter = 2\n"
        + f"\n[gradients]\nshapes = [{', '.join([f'[{side}, {side}]'] * count)}]\n"
        + f"backward_flops = '{2 * 64 * count * side**2 / 1e9} GFLOP'\n"
    )


def _own(name: str, *, is_traced: bool = False, is_harnessed: bool = False) -> Script:
    return Script(words=(str(_DATA / "gpu_steps.py"), name), is_traced=is_traced, is_harnessed=is_harnessed)


def _torchrec(name: str, *, is_traced: bool = False, is_harnessed: bool = False) -> Script:
    words = (str(_DATA / "h200_steps.py"), name)
    return Script(words=words, needs="torchrec", is_traced=is_traced, is_harnessed=is_harnessed)


GPU = Plan(
    library="nccl",
    steps=20,
    warm_up=8,
    calibration=("--seconds", "60"),
    is_table_used=True,
    scripts={
        "layers_256": _own("layers_256", is_harnessed=True),
        "dlrm": _own("dlrm", is_traced=True, is_harnessed=True),
        "gpt_medium": _own("gpt_medium", is_traced=True, is_harnessed=True),
        "rec_base": _torchrec("rec_base", is_traced=True, is_harnessed=True),
        "resnet50_bf16": _own("resnet50_bf16", is_traced=True),
        "layers_2048_bf16": _own("layers_2048_bf16"),
        "dcn": _own("dcn"),
        "two_towers": _own("two_towers"),
        "bert": _own("bert"),
        "gpt_fsdp2": _own("gpt_fsdp2"),
        "gpt_compiled": _own("gpt_compiled"),
        "rec_multihot": _torchrec("rec_multihot"),
        "rec_wide": _torchrec("rec_wide"),
    },
    scenarios={
        "dlrm_large": dlrm(steps=30, batch=8192, rows=1_000_000, tables=26, ids=1, dim=128, width=1024),
        "dlrm_hot": dlrm(steps=30, batch=4096, rows=500_000, tables=8, ids=10, dim=128, width=512),
        "powersgd": powersgd(steps=30, side=2048, count=8),
    },
)
CPU = Plan(
    library="gloo",
    steps=5,
    warm_up=3,
    calibration=("--device", "cpu", "--seconds", "3"),
    calibrates_like="hgx_h200",
    is_table_used=False,
    scripts={
        "transformer": Script(words=(str(_EXAMPLES / "transformer_ddp.py"),), is_traced=True, is_harnessed=True),
    },
    scenarios={"dlrm": dlrm(steps=5, batch=128, rows=5_000, tables=4, ids=3, dim=32, width=64)},
)
