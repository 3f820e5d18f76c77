"""The parts of a campaign that need the device: each a command whose outcome is kept, so that a campaign goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu_campaign.plans import Plan

DONE, FAILED, SKIPPED = "done", "failed", "no time was left"
# What is kept of what a part said when it failed.
_LAST_LINES = 3
_LIMIT_S = 120.0
# What a part has to end by itself.
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A command and what it leaves in the campaign's folder; `limit_s` is what it may take at most."""

    name: str
    command: tuple[str, ...]
    leaves: str
    limit_s: float = _LIMIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a part ended, after so many seconds; `said` are its last lines where it failed."""

    part: str
    ended: str
    took_s: float = 0.0
    said: str = ""


def parts(plan: Plan, folder: Path, like: str) -> Iterator[Part]:
    """Yield all parts in the order of their use: what is most wanted comes first."""
    real = (sys.executable, "-m", "real")
    calibrate = (*real, "calibrate", "--kernels", "--like", plan.calibrates_like or like, *plan.calibration)
    yield Part(
        name="calibrate",
        command=(*calibrate, "--out", str(folder / "measured.toml"), "--json"),
        leaves="measured.toml",
        limit_s=180.0,
    )
    for name, script in plan.scripts.items():
        if script.needs and find_spec(script.needs) is None:
            continue
        trace = ("--trace", str(folder / f"{name}.trace.json.gz")) if script.is_traced else ()
        counts = ("--steps", str(plan.steps), "--warm-up", str(plan.warm_up))
        yield Part(
            name=f"plain {name}",
            command=(
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"),
                *("-m", "benchmarks.gpu_campaign.plain", "--out", str(folder / f"{name}.json"), *counts, *trace),
                *script.words,
            ),
            leaves=f"{name}.json",
        )
        if script.is_harnessed:
            run = folder / f"{name}-real"
            on = ("--profile", like, "--hosts", "1", "--gpus-per-host", "1", "--library", plan.library)
            steps = ("--steps", str(plan.steps + plan.warm_up))
            timed = ("--set", f"script.unrecorded_steps={plan.steps}")
            command = (*real, *on, *steps, *timed, "--quiet", "--out", str(run), *script.words)
            yield Part(name=f"real {name}", command=command, leaves=run.name)
    for name in plan.scenarios:
        run = folder / f"{name}-real"
        command = (*real, "--library", plan.library, "--quiet", "--out", str(run), str(folder / f"{name}.toml"))
        yield Part(name=f"real {name}", command=command, leaves=run.name)
    check = (*real, "check", "--hosts", "1", "--gpus-per-host", "1", "--library", plan.library, "--plays", "4")
    yield Part(name="check", command=(*check, "--json"), leaves="check.txt")


def play(planned: Iterator[Part], folder: Path, limit_s: float) -> list[Outcome]:
    """Run parts one after the other until so many seconds are over; those that were run before are left as they are.

    Each part's output is NAME.txt in the folder, the outcomes are `parts.json`.
    """
    began_s = time.monotonic()
    kept = folder / "parts.json"
    known = {each["part"]: Outcome(**each) for each in json.loads(kept.read_text())} if kept.exists() else {}
    outcomes: list[Outcome] = []
    for part in planned:
        found = known.get(part.name)
        if found is None or found.ended != DONE:
            left_s = limit_s - (time.monotonic() - began_s)
            found = _play(part, folder, min(part.limit_s, left_s)) if left_s > 0 else _skip(part)
        outcomes.append(found)
        known[part.name] = found
        kept.write_text(json.dumps([asdict(each) for each in known.values()], indent=1))
    return outcomes


def _skip(part: Part) -> Outcome:
    return Outcome(part=part.name, ended=SKIPPED)


def _play(part: Part, folder: Path, limit_s: float) -> Outcome:
    print(f"{part.name} ...", file=sys.stderr, flush=True)
    began_s = time.monotonic()
    said = folder / f"{part.name.replace(' ', '-')}.txt"
    left = folder / part.leaves
    if left.is_dir():  # of an earlier call that failed: a run's folder must not exist
        shutil.rmtree(left)
    with said.open("w") as stream:
        process = subprocess.Popen(part.command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    took_s = round(time.monotonic() - began_s, 1)
    if code == 0 and (folder / part.leaves).exists():
        return Outcome(part=part.name, ended=DONE, took_s=took_s)
    lines = said.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
    why = f"took more than {limit_s:.0f} s" if code is None else f"exit code {code}"
    return Outcome(part=part.name, ended=FAILED, took_s=took_s, said=" / ".join([why, *lines]))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part with all that it has started: what is left would run on the device beside the next part."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
