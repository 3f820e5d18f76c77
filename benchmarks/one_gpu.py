"""One GPU calibrated, and steps on it predicted and measured: `calibrate --kernels`, then `validate`.

    python -m benchmarks.one_gpu FOLDER --like dgx_h100      # minutes, on a machine with a GPU
    python -m benchmarks.one_gpu FOLDER --like cpu_local     # the same on a CPU, with smaller scenarios

FOLDER, which must not exist, then has the measured profile, the scenarios that use it, and `validation`. What the first
part wrote is kept when the second fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scenarios.config.load import load_profile
from scenarios.seam.errors import ScenarioError

_PROFILE = "measured.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large scenarios are: samples a step, rows of a table, their elements, layers' widths, gradients' sides.

    `scripts` are those of the examples, by the name of their scenario, each with its arguments.
    """

    batch: int
    rows: int
    dim: int
    width: int
    side: int
    scripts: Mapping[str, tuple[str, ...]]


_SCRIPTS = Path(__file__).parents[1] / "examples" / "scripts"


_LARGE = ("--layers", "12", "--dim", "1024")
SCALES = {
    "cuda": Scale(
        batch=8192,
        rows=500_000,
        dim=128,
        width=1024,
        side=2048,
        scripts={
            "ddp_large": ("transformer_ddp.py", *_LARGE, "--batch-size", "64"),
            "ddp_small": ("transformer_ddp.py",),
            "fsdp2_large": ("transformer_fsdp2.py", *_LARGE),
            "zero": ("zero.py",),
        },
    ),
    "cpu": Scale(batch=128, rows=5_000, dim=32, width=64, side=128, scripts={"ddp_small": ("transformer_ddp.py",)}),
}


def scenarios(scale: Scale) -> dict[str, str]:
    """Scenario files by name: recommenders of long and of short kernels, PowerSGD with a backward pass, scripts."""
    short = max(1, scale.batch // 64)
    return {
        "dlrm_large": _dlrm(scale, scale.batch, scale.width),
        "dlrm_small": _dlrm(scale, short, scale.width // 4),
        "powersgd": _HEAD.format(profile=_PROFILE, program="powersgd", batch="")
        + "\n[compression]\nkind = 'batched_powersgd'\nmatrix_approximation_rank = 4\nstart_powerSGD_iter = 2\n"
        + f"\n[gradients]\nshapes = [{', '.join([f'[{scale.side}, {scale.side}]'] * 8)}]\n"
        + f"backward_flops = '{2 * 64 * 8 * scale.side**2 / 1e9} GFLOP'\n",
        **{
            name: _HEAD.format(profile=_PROFILE, program="script", batch="")
            + f"\n[script]\npath = '{_SCRIPTS / path}'\nargs = {list(arguments)}\n"
            for name, (path, *arguments) in scale.scripts.items()
        },
    }


_HEAD = """program = '{program}'

[run]
steps = 30
{batch}
[cluster]
profile = '{profile}'
hosts = 1
gpus_per_host = 1
"""


def _dlrm(scale: Scale, batch: int, width: int) -> str:
    tables = "\n".join(
        f"[[model.tables]]\nname = 'table{number}'\nrows = {scale.rows}\nids_per_sample = 10\n" for number in range(8)
    )
    return (
        _HEAD.format(profile=_PROFILE, program="dlrm", batch=f"batch_size = {batch}\n")
        + f"\n[model]\ndense_features = 13\nbottom = [{width}, {scale.dim}]\ntop = [{width}, {width // 2}, 1]\n"
        + f"interaction = {{kind = 'dot'}}\nembedding_dim = {scale.dim}\n\n{tables}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0; 2 for a mistake; else that of the part that failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_gpu", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--like", default="dgx_h100", help="the profile of this GPU's data sheet (default: dgx_h100)")
    options = parser.parse_args(arguments)
    try:
        kind = load_profile(options.like).host.gpu.kind
        options.folder.mkdir(parents=True)
    except (ScenarioError, FileExistsError) as error:
        print(error, file=sys.stderr)
        return 2
    code = _real("calibrate", "--kernels", "--like", options.like, "--out", str(options.folder / _PROFILE))
    if code:
        return code
    files = [options.folder / f"{name}.toml" for name in scenarios(SCALES[kind])]
    for file, text in zip(files, scenarios(SCALES[kind]).values(), strict=True):
        file.write_text(text, encoding="utf-8")
    return _real("validate", *map(str, files), "--out", str(options.folder / "validation"))


def _real(*given: str) -> int:
    return subprocess.run([sys.executable, "-m", "real", *given], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
