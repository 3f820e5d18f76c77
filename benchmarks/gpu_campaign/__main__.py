"""`python -m benchmarks.gpu_campaign OUT`: all that is worth measuring on one GPU, in six minutes, and a page about it.

    python -m benchmarks.gpu_campaign OUT                      # on a machine with a GPU
    python -m benchmarks.gpu_campaign OUT --only predict       # elsewhere: predictions and the page of what OUT has
    python -m benchmarks.gpu_campaign OUT --device cpu         # a rehearsal without a GPU

OUT then has `measured.toml` and its table of operators (`python -m real calibrate --kernels`), a JSON file for each
script that ran under torchrun, traces, run folders of `python -m real`, predictions, and `page.md`. Called again with
the same OUT it goes on with what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.gpu_campaign.page import machine_of, page
from benchmarks.gpu_campaign.parts import parts, play
from benchmarks.gpu_campaign.plans import CPU, GPU
from benchmarks.gpu_campaign.predictions import predict
from scenarios.seam.errors import ScenarioError
from sim.gpu_profiles import profile_of

_QUERY = ("nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem,power.limit", "--format=csv,noheader")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0, 1 if a part failed, 2 for a mistake."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_campaign", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="the campaign's folder")
    parser.add_argument(
        "--like", metavar="PROFILE", help="the profile of the device's data sheet; default: by its name"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=330.0, help="what measuring may take (default: 330)")
    parser.add_argument("--only", choices=("measure", "predict"), help="one half; default: both")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and options.only != "predict" and not torch.cuda.is_available():
        print("no CUDA device; expected one, or --device cpu, or --only predict", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    if not (options.out / "machine.json").exists():
        (options.out / "machine.json").write_text(json.dumps(_machine(options.device), indent=1))
    machine = machine_of(options.out)
    try:
        like = options.like or (profile_of(machine["device"], 1) if options.device == "cuda" else "cpu_local")
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    plan = GPU if options.device == "cuda" else CPU
    for name, text in plan.scenarios.items():
        (options.out / f"{name}.toml").write_text(text.replace("{profile}", like), encoding="utf-8")
    planned = parts(plan, options.out, like)
    outcomes = play(planned, options.out, 0.0 if options.only == "predict" else options.seconds)
    workers = max(1, (os.cpu_count() or 1) // 2)
    predicted = {} if options.only == "measure" else predict(plan, options.out, like, workers=workers)
    (options.out / "page.md").write_text(page(plan, options.out, outcomes, predicted), encoding="utf-8")
    print(options.out / "page.md")
    return int(any(one.ended == "failed" for one in outcomes))


def _machine(device: str) -> dict[str, str]:
    """Return the device's name, its limits, and the versions of what runs on it."""
    found = {"torch": torch.__version__, "python": platform.python_version()}
    if device == "cpu":
        return {"device": platform.processor() or platform.machine(), **found}
    name = torch.cuda.get_device_name(0)
    said = []
    if shutil.which(_QUERY[0]) is not None:
        said = subprocess.run(_QUERY, capture_output=True, text=True, check=False).stdout.splitlines()
    limits = {"driver, clocks, power": said[0]} if said else {}
    return {"device": name, **limits, "cuda": str(torch.version.cuda), **found}


if __name__ == "__main__":
    sys.exit(main())
