"""Compare several runs with the first one, the base; pure functions of runs and their frames.

Runs may be of different scenarios, worlds and sizes. Every frame is long, one row per run, so that it concatenates with
others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import KEYS, memory_at_peak
from reports.analysis.step_breakdown import PARTS, parts_of_step, steady_kept, timed_steps
from reports.run import Run
from reports.sections.run.headline import WORLDS
from reports.store.columns import TEXT, frame_of_columns, frame_of_rows
from reports.terminal import text
from reports.user_keys import user_key

Runs = Sequence[tuple[str, Run]]

# The numbers of a run, each with the column of its change against the base.
CHANGES = {
    "step_ns": "step_change",
    "samples_per_s": "samples_change",
    "step_samples": "step_samples_change",
    **{name: name.replace("_ns", "_change") for name in PARTS},
    "bytes_sent": "sent_change",
    "memory_bytes": "memory_change",
    "link_utilisation": "link_change",
    "link_busy_utilisation": "link_busy_change",
    "compute_over_mean": "compute_balance_change",
    "ids_over_mean": "ids_balance_change",
}
RESULTS = {
    **dict.fromkeys(["run", "name", "world"], "str"),
    **dict.fromkeys(["world_size", "steps"], "int"),
    **dict.fromkeys(CHANGES, "float"),
    "link_class": "str",
    **dict.fromkeys(CHANGES.values(), "float"),
}
_OF_OPERATION = ["median_ns", "exposed_ns", "wait_ns", "calls_per_step"]
OPERATIONS = {
    "run": "str",
    **dict.fromkeys([*KEYS, "part"], "str"),
    **dict.fromkeys([*_OF_OPERATION, "change_ns", "exposed_change_ns", "wait_change_ns"], "float"),
}
PLANS = {
    **dict.fromkeys(["run", "table", "sharding_type", "ranks"], "str"),
    **dict.fromkeys(["rank_count", "shards", "storage_bytes"], "int"),
}
SETTINGS = {**dict.fromkeys(["run", "key", "pattern", "field", "value"], "str"), "is_base": "bool", "differs": "bool"}
_TABLES = ("model", "tables")

# The value of a branch that some runs lack and others differ in; its keys follow.
_GIVEN = "given"

Key = tuple[str, ...]


def settings(runs: Sequence[tuple[str, Run]]) -> tuple[pd.DataFrame, int]:
    """Return one row for each key that differs between runs and each run; and the number of keys that do not.

    `key` is the key in a user's file, or after --set; `value` is text, "" where a run has no such key; a branch that
    some runs lack is one key. `pattern` is the key with "[*]" for a table's place. `field` is the path of the value in
    the run's scenario, with a table's name; its ending implies the unit. `differs` is against the base, the first run,
    whose rows have `is_base`. Keys at the top come first, versions last.
    """
    leaves = dict(_leaves((), [_tree(run) for _, run in runs]))
    unlike = {key: values for key, values in leaves.items() if len(set(values)) > 1}
    rows = [
        (name, *_keys(key, runs), ".".join(key), value, at == 0, value != values[0])
        for key, values in sorted(unlike.items(), key=lambda item: (item[0][0] == "versions", len(item[0])))
        for at, ((name, _), value) in enumerate(zip(runs, values, strict=True))
    ]
    return frame_of_rows(rows, SETTINGS), len(leaves) - len(unlike)


def _tree(run: Run) -> Any:
    info = run.info
    about = {"world": WORLDS.get(info.world, info.world), "world_size": info.world_size, "played_on": info.played_on}
    scenario = {key: value for key, value in info.scenario.items() if key not in ("path", "rests_on", "known_errors")}
    return _index_by_name({**about, **scenario, "seed": info.seed, "versions": info.versions})


def _index_by_name(value: Any) -> Any:
    """Return a value with lists of named items as dicts by name, and without empty values."""
    if isinstance(value, Mapping):
        return {str(key): _index_by_name(one) for key, one in value.items() if one not in (None, "")}
    if isinstance(value, list) and value and all(isinstance(one, Mapping) and "name" in one for one in value):
        return {
            str(one["name"]): _index_by_name({key: part for key, part in one.items() if key != "name"}) for one in value
        }
    return value


def _leaves(key: Key, trees: Sequence[Any]) -> Iterator[tuple[Key, list[str]]]:
    said = [tree for tree in trees if tree is not None]
    if not all(isinstance(tree, Mapping) for tree in said):
        yield key, ["" if tree is None else _words(tree) for tree in trees]
        return
    below = [
        leaf
        for name in dict.fromkeys(name for tree in said for name in tree)
        for leaf in _leaves((*key, name), [None if tree is None else tree.get(name) for tree in trees])
    ]
    if len(said) == len(trees):
        yield from below
        return
    # A branch that some runs lack is one key; its own keys matter only where the other runs differ in them.
    unlike = [(place, values) for place, values in below if len({value for value in values if value}) > 1]
    yield key, ["" if tree is None else _GIVEN if unlike else _words(tree) for tree in trees]
    yield from unlike


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return value if isinstance(value, str) else json.dumps(value)


def _keys(key: Key, runs: Runs) -> tuple[str, str]:
    """Return the key that a user writes, and its pattern if it is a table's; keys of no file unchanged."""
    if key[:2] != _TABLES or len(key) < 3:
        return user_key(key), user_key(key)
    models = [run.info.scenario.get("model") or {} for _, run in runs]
    each = [[str(one["name"]) for one in model.get("tables", ())] for model in models]
    place = next(names.index(key[2]) for names in each if key[2] in names)
    own = user_key((*_TABLES, str(place), *key[3:]))
    return own, user_key((*_TABLES, "*", *key[3:])) if len(key) > 3 else own


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """A set of runs by name, the base first, and the differences between them.

    `parts`, `steps`, `memory` (of the fullest rank), `link_classes` and `imbalance` are the runs' own frames, with the
    run's name in front. `same_settings` and `same_tables` count what is left out because it is equal in all runs.
    """

    runs: Runs
    settings: pd.DataFrame
    same_settings: int
    results: pd.DataFrame
    parts: pd.DataFrame
    steps: pd.DataFrame
    operations: pd.DataFrame
    plans: pd.DataFrame
    same_tables: int
    memory: pd.DataFrame
    link_classes: pd.DataFrame
    imbalance: pd.DataFrame

    @property
    def names(self) -> list[str]:
        """The names of the runs."""
        return [name for name, _ in self.runs]

    @property
    def batches_differ(self) -> bool:
        """Whether steps train on different numbers of samples, so that step times do not show which run is faster."""
        return self.results["step_samples"].nunique() > 1

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return every frame by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, pd.DataFrame)}


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return each run folder's name, with as much of its path as makes it unique; else with a number."""
    paths = [folder.resolve().parts for folder in folders]
    return numbered_names([str(Path(*parts)) for parts in text.shortest_endings(paths)])


def numbered_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number appended to each repetition."""
    seen: dict[str, int] = {}
    numbered = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        numbered.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return numbered


def side_by_side(runs: Runs) -> SideBySide:
    """Return the comparison of at least one run, with distinct names; the first run is the base."""
    assert runs, "there is a run to compare with"
    kept = [(name, run, steady_kept(run)) for name, run in runs]
    unlike, same_settings = settings(runs)
    placed, same_tables = plans(runs)
    parts = _concatenate([(name, parts_of_step(run, steps)) for name, run, steps in kept])
    return SideBySide(
        runs=runs,
        settings=unlike,
        same_settings=same_settings,
        results=results(runs, parts),
        parts=parts,
        steps=_concatenate([(name, run.steps) for name, run in runs]),
        operations=operations([(name, run.operations_of(steps)) for name, run, steps in kept if steps]),
        plans=placed,
        same_tables=same_tables,
        memory=_concatenate([(name, _fullest(run)) for name, run in runs]),
        link_classes=_concatenate([(name, run.link_classes) for name, run in runs]),
        imbalance=_concatenate([(name, run.imbalance) for name, run in runs]),
    )


def results(runs: Runs, parts: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run: medians of steady steps, mean parts, fullest rank, hottest link and balance.

    Changes are over the base's value, less 1; nan where either is unknown, or the base's is 0.
    """
    rows = [result(name, run, parts[parts["run"] == name]) for name, run in runs]
    frame = pd.DataFrame(rows)
    base = frame[list(CHANGES)].astype("float64").iloc[0]
    for name, change in CHANGES.items():
        frame[change] = frame[name] / base[name] - 1 if base[name] else np.nan
    return frame_of_columns(frame, RESULTS)


def result(name: str, run: Run, parts: pd.DataFrame) -> dict[str, Any]:
    """Return a run's row of `results` without changes; `parts` are those of its steady steps."""
    timed, spent = timed_steps(run), parts.set_index("part")
    ranks = run.ranks_of(steady_kept(run))
    sent = ranks["bytes_sent"] / ranks["steps"].clip(lower=1)
    memory, links, balance = run.rank_memory, run.link_classes, run.imbalance.set_index("measure")["max_over_mean"]
    return {
        "run": name,
        "name": run.info.name,
        "world": run.info.world,
        "world_size": run.info.world_size,
        "steps": len(timed),
        "step_samples": np.nan if run.batch_size is None else run.batch_size * run.info.world_size,
        "step_ns": timed["step_ns"].median(),
        "samples_per_s": timed["samples_per_s"].dropna().median(),  # pandas 2 warns of a median of nan alone
        **{column: spent["mean_ns"].get(part, np.nan) for column, part in PARTS.items()},
        "bytes_sent": np.average(sent, weights=ranks["rank_count"]) if len(ranks) else np.nan,
        "memory_bytes": memory["used_bytes"].iloc[0] if len(memory) else np.nan,
        "link_utilisation": links["peak_utilisation"].iloc[0] if len(links) else np.nan,
        "link_busy_utilisation": links["busy_utilisation"].iloc[0] if len(links) else np.nan,
        "compute_over_mean": spent["max_over_mean"].get(PARTS["compute_ns"], np.nan),
        "ids_over_mean": balance.get("ids_per_step", np.nan),
        "link_class": links["link_class"].iloc[0] if len(links) else "",
    }


def operations(frames: Sequence[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Return one row for each operation of any run and each run, from their `operations`; 0 where a run lacks it.

    `change_ns` is `median_ns` less the first run's. The largest change comes first, then the longest time; runs are in
    their order.
    """
    if not frames:
        return frame_of_rows([], OPERATIONS)
    known = _concatenate(frames)
    names = known[[*KEYS, "part"]].drop_duplicates(KEYS)
    whole = names.merge(pd.DataFrame({"run": [name for name, _ in frames]}), how="cross")
    whole = whole.merge(known[["run", *KEYS, *_OF_OPERATION]], on=["run", *KEYS], how="left")
    whole[_OF_OPERATION] = whole[_OF_OPERATION].fillna(0.0)
    by_key = whole.groupby(KEYS, sort=False)  # the first row of each group is the base's
    changes = {"median_ns": "change_ns", "exposed_ns": "exposed_change_ns", "wait_ns": "wait_change_ns"}
    for name, change in changes.items():
        whole[change] = whole[name] - by_key[name].transform("first")
    by_change = whole.assign(most=whole["change_ns"].abs(), longest=whole["median_ns"]).groupby(KEYS, sort=False)
    order = by_change[["most", "longest"]].transform("max").assign(at=by_key.ngroup())
    whole = whole.loc[order.sort_values(["most", "longest", "at"], ascending=[False, False, True], kind="stable").index]
    return frame_of_columns(whole, OPERATIONS)


def plans(runs: Runs) -> tuple[pd.DataFrame, int]:
    """Return one row for each table placed differently and each run with a plan; and the number of equal placements.

    `ranks` are those that hold a shard, such as "0-3, 8"; "" with no `sharding_type` where a run has no such table.
    """
    placed = [(name, run.plan) for name, run in runs if len(run.plan)]
    tables = dict.fromkeys(table for _, plan in placed for table in plan["table"].unique().tolist())
    of_run = [(name, dict(list(plan.groupby("table", sort=False)))) for name, plan in placed]
    unlike = [table for table in tables if len({_placement(shards.get(table)) for _, shards in of_run}) > 1]
    rows = [_placement_of(name, table, shards.get(table)) for table in unlike for name, shards in of_run]
    return frame_of_rows(rows, PLANS), len(tables) - len(unlike)


def _placement(shards: pd.DataFrame | None) -> tuple[str, bytes]:
    if shards is None:
        return "", b""
    return str(shards["sharding_type"].iloc[0]), np.unique(shards["rank"].to_numpy(np.int64)).tobytes()


def _placement_of(name: str, table: str, shards: pd.DataFrame | None) -> tuple[Any, ...]:
    if shards is None:
        return name, table, "", "", 0, 0, 0
    ranks = np.unique(shards["rank"].to_numpy(np.int64)).tolist()
    kind, storage = shards["sharding_type"].iloc[0], int(shards["storage_bytes"].sum())
    return name, table, kind, text.ranges(ranks), len(ranks), len(shards), storage


def _fullest(run: Run) -> pd.DataFrame:
    """Return the memory of the fullest rank at its peak, by part."""
    return memory_at_peak(run.memory, run.rank_memory.head(1))


def _concatenate(frames: Sequence[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Concatenate frames, with the run's name in front."""
    named = [frame.assign(run=pd.Series(name, frame.index, dtype=TEXT)) for name, frame in frames]
    whole = pd.concat(named, ignore_index=True)
    return whole[["run", *(name for name in whole.columns if name != "run")]]
