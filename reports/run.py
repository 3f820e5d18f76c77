"""One run as frames, each computed when first asked for; reading and writing folders is left to `store`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pandas as pd

from reports import critical_path, frames, imbalance
from reports.columns import TABLES, to_arrow, to_frame
from scenarios.trace import Recording, RunInfo


class Run:
    """A run's frames. The stored ones are `spans`, `metrics`, `plan`, `memory`; all others follow from them.

    `docs/reports.md` lists every column with its unit. Dtypes are int64, float64, bool and text, fixed also when a
    frame is empty, so that frames of several runs concatenate.
    """

    def __init__(self, info: RunInfo, stored: Mapping[str, pd.DataFrame]) -> None:
        self.info = info
        self.spans = stored["spans"]
        self.metrics = stored["metrics"]
        self.plan = stored["plan"]
        self.memory = stored["memory"]
        self._link_rows = stored["links"]

    @classmethod
    def of(cls, recording: Recording) -> Run:
        """A recording that is still in memory, as if it had been written and loaded."""
        rows = {name: getattr(recording, name) for name in TABLES}
        return cls(recording.info, {name: to_frame(to_arrow(rows[name], kind), kind) for name, kind in TABLES.items()})

    @property
    def batch_size(self) -> int | None:
        """Samples of one rank in one step, where the scenario has a model to train on them."""
        value = self.info.scenario.get("batch_size")
        return value if self.info.scenario.get("model") and isinstance(value, int) and value > 0 else None

    @cached_property
    def operations(self) -> pd.DataFrame:
        """Time, bytes and what was hidden, for each operation."""
        return frames.operations(self.spans)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """When each step began and ended."""
        return frames.steps(self.spans, self.info.world_size, self.batch_size)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """How each rank spent its steps."""
        return frames.ranks(self.spans)

    @cached_property
    def links(self) -> pd.DataFrame:
        """What each link carried, the hottest first."""
        return frames.links(self._link_rows, frames.elapsed_ns(self.spans))

    @cached_property
    def link_classes(self) -> pd.DataFrame:
        """The load of each class of links."""
        return frames.link_classes(self.links)

    @cached_property
    def imbalance(self) -> pd.DataFrame:
        """The plan's most loaded rank against the mean."""
        return imbalance.imbalance(self.plan, self.info.world_size)

    @cached_property
    def imbalance_causes(self) -> pd.DataFrame:
        """The tables that make it so."""
        return imbalance.causes(self.plan, self.info.world_size)

    @cached_property
    def rank_memory(self) -> pd.DataFrame:
        """Each rank's memory against its capacity, the fullest first."""
        return frames.rank_memory(self.memory)

    @cached_property
    def metrics_by_step(self) -> pd.DataFrame:
        """Recorded numbers over the ranks of each step."""
        return frames.metrics_by_step(self.metrics)

    @cached_property
    def critical_path(self) -> pd.DataFrame:
        """What every step waited for, in order."""
        return critical_path.critical_path(self.spans, self.steps)

    @cached_property
    def waited_for(self) -> pd.DataFrame:
        """The critical path added up by operation."""
        return critical_path.waited_for(self.critical_path)

    def derived(self) -> dict[str, pd.DataFrame]:
        """Every frame by name, as `export` writes them."""
        names = ["spans", "metrics", "plan", "memory", "links", "operations", "steps", "ranks", "link_classes"]
        names += ["imbalance", "imbalance_causes", "rank_memory", "metrics_by_step", "critical_path", "waited_for"]
        return {name: getattr(self, name) for name in names}
