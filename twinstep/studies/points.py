"""The points of a study: their values, their scenarios, and the digests that identify them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from scenarios.config.overrides.keys import path_of, places
from scenarios.config.overrides.overrides import Overrides
from scenarios.config.scenario import Scenario
from scenarios.config.toml.include import read_tree
from scenarios.config.toml.mistakes import UNKNOWN
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.script.command import is_script, load_given
from twinstep.studies.study_file import Study, StudyAxis

BASELINE = 0
# Keys of a scenario that do not identify a point: where it was read, and its fidelity, which a row has itself.
_NOT_OF_A_POINT = ("path", "rests_on", "known_errors", "fidelity")


@dataclass(frozen=True, slots=True)
class Point:
    """A variation of the scenario; `index` is its place in the study, from 1: `BASELINE` is the scenario as it is."""

    index: int
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A point with its scenario, or with the `sentence` that says why it cannot be loaded."""

    point: Point
    digest: str
    scenario: Scenario | None = None
    sentence: str = ""


def points_of(study: Study) -> Iterator[Point]:
    """Yield the baseline, if wanted, then all combinations of the axes that no condition skips, each once."""
    if study.has_baseline:
        yield Point(BASELINE, {})
    seen = set()
    index = BASELINE
    for rows in product(*(axis.rows for axis in study.axes)):
        values = combine_axes(study.axes, rows)
        text = text_of(values)
        # Axes whose condition does not hold drop out, so that several combinations may be one point.
        if text in seen or study.skips(values):
            continue
        seen.add(text)
        index += 1
        yield Point(index, values)


def text_of(values: Mapping[str, object]) -> str:
    """Return a text that identifies the values of a point."""
    return json.dumps(values, default=str)


def combine_axes(axes: Sequence[StudyAxis], rows: Sequence[Sequence[object]]) -> dict[str, object]:
    """Return the values by key of a row of each axis, without None and without axes whose condition does not hold."""
    whole = {
        key: value for axis, row in zip(axes, rows, strict=True) for key, value in zip(axis.keys, row, strict=True)
    }
    content = {key: value for key, value in whole.items() if value is not None}
    for axis in axes:
        # Conditions see all values, also removed ones, so that the order of axes does not matter.
        if axis.only_if is not None and not axis.only_if.holds(whole):
            for key in axis.keys:
                content.pop(key, None)
    return content


def resolve(study: Study, point: Point) -> Resolved:
    """Load a point's scenario; its mistakes become the sentence."""
    overrides = {**study.shared, **point.values}
    try:
        scenario = _load(study, overrides)
    except ScenarioError as error:
        return Resolved(point, _hash([study.scenario, overrides]), None, str(error))
    content = {key: value for key, value in scenario.as_dict().items() if key not in _NOT_OF_A_POINT}
    if scenario.job is not None:  # no scenario's digest has it, as it changes no step
        content["job"] = asdict(scenario.job)
    return Resolved(point, _hash([content, study.draws] if study.draws else content), scenario)


def _load(study: Study, overrides: Mapping[str, object]) -> Scenario:
    scenario = load_given(Path(study.scenario), overrides, overrides_file=study.overrides_file)
    return replace(scenario, named_in=scenario.program_folder.resolve())  # workers may have another current folder


def as_it_is(study: Study) -> dict[str, object]:
    """Return the scenario's own values of the varied keys, without keys for which its file has no value, or several."""
    if is_script(Path(study.scenario)):
        return {}
    tree = read_tree(study.scenario, Overrides(study.shared, str(study.file))).tree
    own_values = {}
    for key in study.keys:
        with suppress(LookupError, TypeError):
            first, *others = [tree.at(place) for place in places(tree, path_of(key) or ())] or [None]
            if first is not None and all(other == first for other in others):
                own_values[key] = first
    return own_values


def check(study: Study) -> None:
    """Refuse a study whose scenario has mistakes, or which varies a key that no scenario has.

    Raises:
        ScenarioError: with a sentence for each mistake.
    """
    _load(study, study.shared)
    sentences: dict[str, None] = {}
    for key in study.keys:
        try:
            # One value of each key is enough: an unknown key fails with any value.
            _load(study, {**study.shared, key: study.values_of(key)[0]})
        except ScenarioError as error:
            sentences.update(dict.fromkeys(one for one in error.sentences if UNKNOWN in one or _is_no_place(one)))
    if sentences:
        raise ScenarioError(sentences)


def _is_no_place(sentence: str) -> bool:
    return any(words in sentence for words in ("expected an index of", "expected a place", "cannot be overridden"))


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
