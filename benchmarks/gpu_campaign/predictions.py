"""Predicts what a campaign has measured: by the data sheet, by the calibrated profile, by a script's own trace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.eager_steps import recorded_step_ms, step_ms, torch_bytes
from benchmarks.gpu_campaign.plans import Plan
from reports.store import run_folder as store

DATA_SHEET, CALIBRATED, TRACE = "data sheet", "calibrated", "its trace"
_ON = ("--hosts", "1", "--gpus-per-host", "1", "--steps", "4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A predicted step: its median in ms and what the rank holds at most, in bytes; or why there is none."""

    step_ms: float = 0.0
    peak_bytes: int = 0
    why_not: str = ""


Key = tuple[str, str]  # a script or scenario, and what its prediction rests on


def predict(plan: Plan, folder: Path, like: str, *, workers: int) -> dict[Key, Predicted]:
    """Return the predictions of all that was measured, `workers` at a time; runs are kept and not played again."""
    commands = dict(_commands(plan, folder, like))
    (folder / "predicted").mkdir(exist_ok=True)
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda key: _predict(folder / "predicted" / "-".join(key), commands[key]), commands)
        return dict(zip(commands, found, strict=True))


def _commands(plan: Plan, folder: Path, like: str) -> Iterator[tuple[Key, tuple[str, ...]]]:
    calibrated = folder / "measured.toml"
    bases: dict[str, tuple[str, ...]] = {DATA_SHEET: ("--profile", like)}
    if plan.is_table_used and calibrated.exists():
        bases[CALIBRATED] = ("--profile", str(calibrated))
    for name, script in plan.scripts.items():
        if not (folder / f"{name}.json").exists():
            continue
        trace = folder / f"{name}.trace.json.gz"
        own = {TRACE: ("--profile", like, "--kernels", str(trace))} if plan.is_table_used and trace.exists() else {}
        for basis, on in (bases | own).items():
            yield (name, basis), (*on, *_ON, *script.words)
    for name in plan.scenarios:
        if (folder / f"{name}-real").exists():
            for basis, on in bases.items():
                yield (name, basis), (*on, str(folder / f"{name}.toml"))


def _predict(run: Path, words: tuple[str, ...]) -> Predicted:
    if not run.exists():
        command = [sys.executable, "-m", "sim", "--quiet", "--out", str(run), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return Predicted(why_not=(done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    found = store.load(run)
    return Predicted(step_ms=step_ms(found), peak_bytes=int(torch_bytes(found)))


def measured_ms(folder: Path, name: str) -> Mapping[str, float]:
    """Return the medians of a step in ms by who ran it: "plain", as torchrun does, and "real", the harness.

    "recorded" is that of the harness while every call is recorded.
    """
    found: dict[str, float] = {}
    plain, real = folder / f"{name}.json", folder / f"{name}-real"
    if plain.exists():
        found["plain"] = float(plain_steps(folder, name)["step_ms"])
    if real.exists():
        run = store.load(real)
        found["real"], found["recorded"] = step_ms(run), recorded_step_ms(run)
    return found


def plain_steps(folder: Path, name: str) -> dict[str, Any]:
    """Return what `plain` wrote of a script."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found
