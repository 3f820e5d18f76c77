"""The types of what `import twinstep` has, and of the hooks."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import pandas as pd
import torch
from torch.distributed import GradBucket  # type: ignore[attr-defined]

import twinstep
from real.ddp.hooks import PowerSGDState, batched_powerSGD_hook, powerSGD_hook
from reports.run import Run
from reports.sections.comparison import Comparison
from reports.sections.plans import PlansView
from reports.side_by_side.frames import SideBySide
from scenarios.config.scenario import Scenario


def functions() -> None:
    """Call each once."""
    scenario = twinstep.scenario("criteo_small_2x2", batch_size=64, **{"cluster.hosts": 2})
    assert_type(scenario, Scenario)
    predicted, measured = twinstep.predict(scenario), twinstep.measure("criteo_small_2x2")
    assert_type(predicted, Run)
    assert_type(twinstep.compare(predicted, measured), Comparison | SideBySide)
    assert_type(twinstep.report(predicted), Path)
    assert_type(twinstep.what_if("criteo_small_2x2"), Run)
    assert_type(twinstep.plan("criteo_small_2x2"), PlansView)
    assert_type(twinstep.scenarios(), pd.DataFrame)
    assert_type(twinstep.profiles(), pd.DataFrame)
    assert_type(predicted.step_ms, float)
    assert_type(predicted.fits, bool | None)
    assert_type(twinstep.load("runs/one"), Run)
    assert_type(twinstep.study("runs/study"), pd.DataFrame)
    assert_type(twinstep.front("runs/study"), pd.DataFrame)
    assert_type(predicted.steps, pd.DataFrame)


def hooks(bucket: GradBucket) -> None:
    """Call the hooks as DistributedDataParallel does."""
    state = PowerSGDState(matrix_approximation_rank=2)
    assert_type(powerSGD_hook(state, bucket), torch.futures.Future[torch.Tensor])
    assert_type(batched_powerSGD_hook(state, bucket), torch.futures.Future[torch.Tensor])
