"""Events of a profiler's trace, samples of traces, and what is read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.kineto import recording as kineto
from reports.kineto.recording import Profile
from scenarios.seam.trace import Span
from tests.reports.refusals import refusal

SAMPLES = Path(__file__).parents[2] / "data" / "kineto"
GPU = [SAMPLES / "gpu_rank0.json", SAMPLES / "gpu_rank1.json"]
OLD, CPU = SAMPLES / "old_2.0.json", SAMPLES / "cpu_2.13.json"


def event(category: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, *, stream: int = 7, correlation: int = 0, **args: Any) -> dict[str, Any]:
    return event("kernel", name, ts, dur, stream, device=0, stream=stream, correlation=correlation, **args)


def launch(ts: float, correlation: int, tid: int = 1) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, 1, tid, correlation=correlation)


def spans(profile: Profile, **wanted: Any) -> list[Span]:
    found = [s for s in profile.recording.spans if all(getattr(s, key) == value for key, value in wanted.items())]
    return sorted(found, key=lambda span: span.start_ns)


def refuse(*paths: Path) -> list[str]:
    return refusal(kineto.read, paths, "r").split("\n")
