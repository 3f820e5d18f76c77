"""Plays a scenario again and again, with one thing of it changed at a time: what `--what-if` asks for."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from scenarios.config.scenario import Scenario
from scenarios.config.toml.mistakes import toml_text
from scenarios.config.toml.tree import Tree
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import ChangeRow
from sim.study.counterfactuals import Counterfactual, counterfactuals
from sim.study.play import play_point
from sim.study.task import Result, Task

AS_IT_IS = Counterfactual(name="as it is", values={})


def changes_of(
    scenario: Scenario, tree: Tree, measures: Mapping[str, float], load: Callable[[Mapping[str, object]], Scenario]
) -> Iterator[tuple[str, Callable[[], ChangeRow]]]:
    """Yield the name of each change and what plays it, the scenario as it is first, whose `measures` are known.

    `tree` is the scenario as it is written; `load` gives it with further values of its keys.
    """
    yield AS_IT_IS.name, lambda: _row(AS_IT_IS, Result(status="done", measures=dict(measures)))
    for one in counterfactuals(scenario, tree):
        yield one.name, partial(_play, one, load)


def _play(one: Counterfactual, load: Callable[[Mapping[str, object]], Scenario]) -> ChangeRow:
    try:
        scenario = load(one.values)
    except ScenarioError as error:
        return _row(one, Result(status="scenario error", sentence=str(error)))
    return _row(one, play_point(Task(scenario=scenario, fidelity=scenario.fidelity, timeout_s=math.inf, keep="rows")))


def _row(one: Counterfactual, result: Result) -> ChangeRow:
    def known(name: str) -> float:
        value = result.measures.get(name)
        return value if isinstance(value, float) and math.isfinite(value) else 0.0

    return ChangeRow(
        change=one.name,
        options=options_of(one.values),
        status=result.status,
        sentence=result.sentence,
        step_ns=known("step_ns"),
        samples_per_s=known("samples_per_s"),
        transfer_ns=known("transfer_ns"),
        wait_ns=known("wait_ns") + known("skew_ns"),
    )


def options_of(values: Mapping[str, object]) -> str:
    """The options of a command line that give these values."""
    written = [f"{key}={value if isinstance(value, str) else toml_text(value)}" for key, value in values.items()]
    return shlex.join(word for one in written for word in ("--set", one))
