"""Runs a training script as torchrun does and times its steps: what the harness and predictions are compared with.

    torchrun --nproc-per-node 1 -m benchmarks.gpu_campaign.plain --out STEPS.json [--trace TRACE.json.gz] SCRIPT ARGS

A step ends with each call of the script's first optimizer. All that is added to one is an event, or on CPUs a look at
the clock; the script ends after so many steps.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

# Of the steps that a trace is of; the profiler itself is loaded in the one before.
TRACED = 2


class Steps:
    """The ends of a script's steps."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._first: Any = None
        self._host_ns: list[int] = []
        self._events: list[Any] = []
        self._peak_bytes = 0
        self._profiler: Any = None
        self._on_gpu = torch.cuda.is_available()

    def __call__(self, optimizer: Any, *_: object) -> None:
        """Note the end of a step, if the optimizer is the script's first one."""
        if self._first is None:
            self._first = optimizer
        if optimizer is not self._first:
            return
        self._mark()
        timed = len(self._host_ns) - 1 - self._options.warm_up
        behind = timed - self._options.steps
        if self._on_gpu and not timed:
            torch.cuda.reset_peak_memory_stats()
        if self._on_gpu and not behind:
            self._peak_bytes = torch.cuda.max_memory_allocated()
        if behind == (0 if self._options.trace is None else TRACED + 1):
            self._end()
        if behind == 1:
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
            self._profiler = profile(activities=activities, record_shapes=True)
            self._profiler.start()

    def _mark(self) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        self._host_ns.append(time.perf_counter_ns())

    def _end(self) -> None:
        """Write what was measured and leave: a script has more steps, and may catch what ends others."""
        if self._on_gpu:
            torch.cuda.synchronize()
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler.export_chrome_trace(str(self._options.trace))
        if int(os.environ.get("RANK", "0")) == 0:
            self._options.out.write_text(json.dumps(self.summary(), indent=1))
        sys.stdout.flush()
        os._exit(0)

    def summary(self) -> dict[str, Any]:
        """Return a step's times in ms behind the warm-up, and the most that torch had allocated in these."""
        first, last = self._options.warm_up, self._options.warm_up + self._options.steps
        host = [(end - begin) / 1e6 for begin, end in pairwise(self._host_ns[first : last + 1])]
        ends = pairwise(self._events[first : last + 1])
        times = [begin.elapsed_time(end) for begin, end in ends] if self._on_gpu else host
        return {
            "step_ms": median(times),
            "least_ms": min(times),
            "most_ms": max(times),
            "host_ms": median(host),
            "steps": len(times),
            "warm_up": self._options.warm_up,
            "peak_bytes": self._peak_bytes,
        }


def main() -> None:
    """Run a script under the hook."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="what was measured, as JSON")
    parser.add_argument("--trace", type=Path, help=f"a trace of {TRACED} steps behind those that are timed")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=10, help="steps before those that are timed")
    parser.add_argument("script", help="its path; its own arguments follow")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    register_optimizer_step_post_hook(Steps(options))
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(Path(options.script).parent))
    runpy.run_path(options.script, run_name="__main__")
    sys.exit(f"{options.script}: ended before {options.warm_up + options.steps} steps")


if __name__ == "__main__":
    main()
