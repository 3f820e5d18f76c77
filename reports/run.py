"""A run as frames, each computed when it is first used."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from reports.analysis import (
    by_role,
    critical_path,
    frames,
    imbalance,
    link_load,
    operations,
    step_times,
    stragglers,
    table_costs,
    waits,
)
from reports.analysis.intervals import Ints
from reports.printed import Printed
from reports.store.columns import TABLES, to_arrow, to_frame
from reports.store.parts import Bools, Part, Spans, SpansInMemory
from scenarios.seam.trace import Recording, RunInfo

if TYPE_CHECKING:
    from reports.page.notebook import Plot
    from reports.sections.model import Report
    from reports.sections.run.subject import RunView

# The names of all frames of a `Run`.
FRAMES = (
    *("spans", "metrics", "plan", "own_plan", "memory", "links", "loads", "traffic", "kernels", "operators"),
    *("layers", "what_if"),
    *("operations", "formulas", "steps", "unrecorded_steps"),
    *("ranks", "link_classes", "stragglers", "imbalance", "imbalance_causes", "plan_costs", "rank_memory"),
    *("metrics_by_step", "critical_path", "waited_for"),
)


class Run(Printed):
    """A run's frames.

    Stored frames are `spans`, `metrics`, `plan`, `own_plan`, `memory`, `loads`, `traffic`, `kernels`, `operators`,
    `layers` and `what_if`; all others are computed from them. `twinstep docs runs` lists every column with its unit.
    Dtypes are int64, float64, bool and text, also in empty frames, so that frames of several runs concatenate.
    """

    def __init__(self, info: RunInfo, stored: Mapping[str, pd.DataFrame], spans: Spans) -> None:
        self.info = info
        self._spans = spans
        self.metrics, self.plan, self.memory = stored["metrics"], stored["plan"], stored["memory"]
        self.own_plan = stored["own_plan"]
        self.loads, self.traffic, self.what_if = stored["loads"], stored["traffic"], stored["what_if"]
        self.kernels, self.operators, self.layers = (stored[name] for name in ("kernels", "operators", "layers"))
        self._link_rows = stored["links"]
        self._found: dict[tuple[str, tuple[int, ...]], pd.DataFrame] = {}

    @classmethod
    def of(cls, recording: Recording) -> Run:
        """Return the run of a recording in memory, equal to the run that is written and loaded."""
        rows = {name: getattr(recording, name) for name in TABLES}
        stored = {name: to_frame(to_arrow(rows[name], kind), kind) for name, kind in TABLES.items()}
        return cls(recording.info, stored, SpansInMemory(stored["spans"]))

    def _report(self) -> tuple[Report, RunView]:
        from reports.sections.run.subject import RunView  # noqa: PLC0415  (knows runs)
        from reports.sections.run.summary import SUMMARY  # noqa: PLC0415  (knows runs)

        return SUMMARY, RunView.of(self)

    def plot(self, section: str = "timeline") -> Plot:
        """Return the drawings of a section of the run's page, which a notebook shows; `figures` are Bokeh's own models.

        `section` is its address on the page: timeline, tables (who carries which), links, parts, hidden, ...

        Raises:
            ReportError: no section with drawings has this name (the message lists those that do), or it is empty.
        """
        from reports.page.notebook import plot  # noqa: PLC0415 - Bokeh takes half a second

        return plot(self, section)

    @property
    def step_ms(self) -> float:
        """The step time in ms, the median of the steady steps; nan if no rank completed a step."""
        return self._median("step_ns") / 1e6

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all ranks together; nan where the scenario has no model to train."""
        return self._median("samples_per_s")

    def _median(self, column: str) -> float:
        from reports.analysis.step_breakdown import timed_steps  # noqa: PLC0415  (knows runs)

        known = timed_steps(self)[column].dropna()
        return float(known.median()) if len(known) else float("nan")

    @property
    def usd_per_1e9(self) -> float:
        """The price of 10^9 samples in dollars; nan where the GPUs have no price or steps train on no samples."""
        from reports.analysis.prediction.costs import costs  # noqa: PLC0415  (knows runs)

        return costs(self).usd_per_1e9_samples

    @property
    def fits(self) -> bool | None:
        """Whether every GPU's memory holds what its rank needs; None where memory was not recorded."""
        return bool((self.rank_memory["free_bytes"] >= 0).all()) if len(self.rank_memory) else None

    @property
    def uncertainty(self) -> float:
        """The half width of the step time's error range, as a share of it; nan for measurements and where unknown."""
        from reports.analysis.prediction.uncertainty import uncertainty  # noqa: PLC0415  (knows runs)

        found = uncertainty(self)
        return float("nan") if found is None else found.share

    def in_memory(self) -> Run:
        """Read all spans now, so that the run's folder may be deleted; return the run itself."""
        self._spans = SpansInMemory(self.spans)
        return self

    @property
    def batch_size(self) -> int | None:
        """Samples of one rank in one step; None where the scenario has no model to train, or they are unknown."""
        value = self.info.scenario.get("batch_size")
        if not (self.info.scenario.get("model") and isinstance(value, int) and value > 0):
            return _whole_number(self.info.scenario, "options", "batch_size") or self.info.step_samples or None
        return value * self.micro_batches

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of a step, whose gradients add up; 1 where the scenario does not state it."""
        return _whole_number(self.info.scenario, "pipeline", "accumulation") or 1

    @property
    def sync_every(self) -> int:
        """The period of averaging replicas of tables, in steps; 0 where tables have no replicas."""
        return _whole_number(self.info.scenario, "replication", "sync_every")

    @cached_property
    def spans(self) -> pd.DataFrame:
        """All spans in memory; no other frame needs all of them at once."""
        return self._spans.whole()

    @property
    def span_count(self) -> int:
        """The number of spans, known without reading them."""
        return len(self._spans)

    @cached_property
    def outline(self) -> frames.Outline:
        """The summary of all spans."""
        return frames.outline(self._spans.parts(frames.OUTLINE_COLUMNS, beside=False))

    @cached_property
    def rank_counts(self) -> pd.Series:
        """The number of ranks that each rank represents, itself included, by rank; ranks without steps are left out."""
        return frames.rank_counts(self.outline)

    def keeps(self, ranks: Ints, steps: Ints) -> Bools:
        """Return for each pair of rank and step whether the run kept its spans."""
        thinned, kept = self.info.thinned, np.ones(len(ranks), bool)
        if thinned is not None and thinned.ranks is not None:
            kept &= np.isin(ranks, thinned.ranks)
        if thinned is not None and thinned.steps is not None:
            kept &= np.isin(steps, thinned.steps)
        return kept

    def parts(self, columns: Sequence[str], steps: Sequence[int] | None = None, *, beside: bool) -> Iterator[Part]:
        """Yield parts as `Spans.parts`; a step's own span counts only if the run kept its rank's other spans, too."""
        for part in self._spans.parts(columns, steps, beside=beside):
            if self.info.thinned is None:
                yield part
            else:
                kept = self.keeps(frames.ints(part.spans, "rank"), frames.ints(part.spans, "step"))
                yield Part(part.spans, part.own & kept)

    def operations_of(self, steps: Sequence[int]) -> pd.DataFrame:
        """Return `operations` of these steps only."""
        return self._with_known(self._of_spans(operations.operations, operations.OPERATION_COLUMNS, steps))

    def flops_of(self, steps: Sequence[int]) -> pd.DataFrame:
        """Return the model's FLOPs per rank and step, by dtype, as means over these steps."""
        return self._of_spans(by_role.flops, by_role.FLOP_COLUMNS, steps)

    def _with_known(self, found: pd.DataFrame) -> pd.DataFrame:
        """Return operations, with nan for bandwidths where the run did not keep all members of collectives."""
        thinned = self.info.thinned
        if thinned is None or thinned.ranks is None:
            return found
        return found.assign(**dict.fromkeys(operations.RATES, np.nan))

    def formulas_of(self, steps: Sequence[int]) -> pd.DataFrame:
        """Return `formulas` of these steps only."""
        return self._of_spans(operations.formulas, operations.FORMULA_COLUMNS, steps)

    def ranks_of(self, steps: Sequence[int]) -> pd.DataFrame:
        """Return `ranks` of these steps only."""
        return self._of_spans(frames.ranks, frames.RANK_COLUMNS, steps)

    def _of_spans(
        self, find: Callable[[Iterator[Part]], pd.DataFrame], columns: Sequence[str], steps: Sequence[int] | None = None
    ) -> pd.DataFrame:
        def find_frame() -> pd.DataFrame:
            return find(self._settle(columns) if steps is None else self.parts(columns, steps, beside=False))

        return find_frame() if steps is None else self._once(find.__name__, steps, find_frame)

    def late_ranks_of(self, steps: Sequence[int]) -> pd.DataFrame:
        """Return the ranks that others waited for in these steps."""
        return self._of_spans(waits.late_ranks, waits.COLUMNS, steps)

    def stragglers_of(self, steps: Sequence[int]) -> pd.DataFrame:
        """Return `stragglers` from the spans of these steps only; loads of links are those of the whole run."""
        of_steps = self.steps["step"].isin(steps).to_numpy(bool)
        context = stragglers.Context(
            steps=len(steps),
            run_steps=len(self.steps),
            step_ns=float(self.steps.loc[of_steps if len(steps) else ~of_steps, "step_ns"].median()),
            own=self.outline.own,
            hosts=_whole_number(self.info.scenario, "cluster", "hosts"),
            hosts_per_leaf=_whole_number(self.info.scenario, "cluster", "network", "hosts_per_leaf"),
        )
        parts = functools.partial(self.parts, stragglers.COLUMNS, steps, beside=False)
        return self._once("stragglers", steps, lambda: stragglers.stragglers(parts, self.links, context))

    def _settle(self, columns: Sequence[str]) -> Iterator[Part]:
        """Yield all spans; spans of warm-up steps are not marked as a part's own."""
        for part in self.parts(columns, beside=True):
            own = ~np.isin(frames.ints(part.spans, "step"), self.warm_up) if self.warm_up else True
            yield Part(part.spans, part.own & own)

    def _once(self, name: str, steps: Sequence[int], find: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return the frame of `find()`, cached by name and steps, because a page needs it several times."""
        key = name, tuple(steps)
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    def critical_path_of(self, step: int) -> pd.DataFrame:
        """Return `critical_path` of this step only."""
        return self._once("path", [step], lambda: self._paths(step))

    def waited_for_of(self, step: int) -> pd.DataFrame:
        """Return `waited_for` of this step only."""
        return critical_path.sum_waits(self.critical_path_of(step))

    def table_costs_of(self, step: int) -> pd.DataFrame:
        """Return each table's cost as estimated by the planner and as spent by this step."""
        return self._once("tables", [step], lambda: table_costs.table_costs(self.plan, self._spans_of(step)))

    def rank_costs_of(self, step: int) -> pd.DataFrame:
        """Return the cost of each table on each of its ranks, as estimated by the planner and as spent by this step."""
        return self._once("rank-costs", [step], lambda: table_costs.rank_costs(self.plan, self._spans_of(step)))

    def busiest_of(self, step: int) -> pd.DataFrame:
        """Return the tables' cost for the bottleneck rank and the mean rank, by the planner and in this step."""
        return self._once("busiest", [step], lambda: table_costs.busiest(self.plan, self._spans_of(step)))

    def _spans_of(self, step: int) -> pd.DataFrame:
        """Return the spans of a step that costs of tables are computed from."""
        found = [part.own_spans() for part in self.parts(table_costs.COSTS_COLUMNS, [step], beside=False)]
        return pd.concat(found, ignore_index=True)

    @cached_property
    def operations(self) -> pd.DataFrame:
        """Time, bytes and hidden communication of each operation, after the warm-up."""
        return self._with_known(self._of_spans(operations.operations, operations.OPERATION_COLUMNS))

    def layer_times_of(self, steps: Sequence[int]) -> pd.DataFrame:
        """Return the time of each layer's operators in these steps."""
        frame = self.operations_of(steps) if steps else self.operations.iloc[:0]
        return self._once("layers", steps, lambda: operations.layer_times(frame, self.layers))

    @cached_property
    def formulas(self) -> pd.DataFrame:
        """NCCL's own time formula compared with the link model."""
        return self._of_spans(operations.formulas, operations.FORMULA_COLUMNS)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Begin and end of each step."""
        return self._steps_of(self.outline)

    def _steps_of(self, outline: frames.Outline) -> pd.DataFrame:
        info = self.info
        return step_times.steps(
            outline,
            info.world_size,
            self.batch_size,
            info.thinned,
            sync_every=self.sync_every,
            may_warm_up=info.world == "real" or info.scenario.get("program") == "script",
        )

    @cached_property
    def unrecorded_steps(self) -> pd.DataFrame:
        """Begin and end of each step that a measured run timed with the recording off, after `steps`."""
        return step_times.unrecorded_steps(self.outline, self.info.world_size, self.batch_size)

    @cached_property
    def warm_up(self) -> list[int]:
        """The numbers of the warm-up steps of a measured run or a script, which frames over steps leave out."""
        found: list[int] = self.steps.loc[self.steps["warm_up"].to_numpy(bool), "step"].tolist()
        return found

    @cached_property
    def kept_steps(self) -> pd.DataFrame:
        """`steps` computed from only the ranks and steps whose other spans the run kept."""
        if self.info.thinned is None:
            return self.steps
        own = self.outline.own
        kept = own[self.keeps(frames.ints(own, "rank"), frames.ints(own, "step"))]
        outline = dataclasses.replace(self.outline, own=kept)
        return self._steps_of(outline)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """Time of each rank in steps after the warm-up: compute, communication, waiting, idle."""
        return self._of_spans(frames.ranks, frames.RANK_COLUMNS)

    @cached_property
    def links(self) -> pd.DataFrame:
        """The load of each link, highest utilisation first."""
        return link_load.links(self._link_rows, self.outline.elapsed_ns)

    @cached_property
    def link_classes(self) -> pd.DataFrame:
        """The load of each class of links."""
        return link_load.link_classes(self.links)

    @cached_property
    def stragglers(self) -> pd.DataFrame:
        """GPUs and links that are slower, or have more work, than their peers in complete steps after the warm-up."""
        complete = self.steps.loc[(self.steps["complete"] & ~self.steps["warm_up"]).to_numpy(bool), "step"]
        return self.stragglers_of([step for step in self.kept_steps["step"].tolist() if step in set(complete)])

    @cached_property
    def imbalance(self) -> pd.DataFrame:
        """The plan's most loaded rank compared with the mean rank."""
        return imbalance.imbalance(self.plan, self.info.world_size)

    @cached_property
    def imbalance_causes(self) -> pd.DataFrame:
        """The tables that cause the imbalance."""
        return imbalance.causes(self.plan, self.info.world_size)

    @cached_property
    def plan_costs(self) -> pd.DataFrame:
        """The bottleneck rank's load under a script's plan and under ours; empty unless the run has both plans."""
        return imbalance.plan_costs(self.plan, self.own_plan, self.info.world_size)

    @cached_property
    def rank_memory(self) -> pd.DataFrame:
        """Memory use of each rank compared with its capacity, the fullest rank first."""
        return frames.rank_memory(self.memory)

    @cached_property
    def metrics_by_step(self) -> pd.DataFrame:
        """Recorded metrics of each step, aggregated over ranks."""
        return frames.metrics_by_step(self.metrics, self.rank_counts)

    @cached_property
    def critical_path(self) -> pd.DataFrame:
        """The critical path of every step, in order of time."""
        return self._paths()

    @cached_property
    def waited_for(self) -> pd.DataFrame:
        """The critical path added up by operation."""
        return critical_path.sum_waits(self.critical_path)

    def _paths(self, step: int | None = None) -> pd.DataFrame:
        """Return the critical path of one step, or of all steps."""
        found = []
        for part in self.parts(critical_path.COLUMNS, None if step is None else [step], beside=True):
            steps = self.kept_steps[self.kept_steps["step"].isin(part.spans["step"][part.own]).to_numpy(bool)]
            found.append(critical_path.critical_path(part.spans, steps))
        return pd.concat(found, ignore_index=True)

    def derived(self) -> dict[str, pd.DataFrame]:
        """Return every frame by name, as `export` writes them."""
        return {name: getattr(self, name) for name in FRAMES}


def _whole_number(scenario: object, *keys: str) -> int:
    """Return an integer from a run's scenario, 0 if absent: it may be of another release, or empty."""
    for key in keys:
        scenario = scenario.get(key) if isinstance(scenario, dict) else None
    return scenario if isinstance(scenario, int) else 0
