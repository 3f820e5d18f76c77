"""Collects the operators of a run: all that ranks of its simulation compute, each with how often."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.config.catalogue import scenario_file
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.bags import BagsBackward, BagsForward
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.rows import Gather
from scenarios.seam.operations.sorting import BucketizeSparse, PermuteSparse
from scenarios.seam.operations.words import words
from scenarios.workloads.build import build_simulation
from scenarios.workloads.script.command import load_given
from scenarios.workloads.script.recording.file import NAME as RECORDING

Rewrite = Callable[[str, Kernel], Kernel]
# Simulates a scenario's program whose kernels a function is shown.
Play = Callable[[Scenario, Any, Rewrite], None]
_RUN = "run.json"


def scenario_of(given: Path, args: Sequence[str] | None, profile: str, hosts: int | None, gpus: int | None) -> Scenario:
    """Return the scenario of what `--of` names, on the profile.

    Args:
        given: a scenario's file or name, a script, or the folder of a run.
        args: those of a script.
        profile: whose GPUs it runs on.
        hosts: how many there are, of a script alone; one unless given.
        gpus: ranks of a host, of a script alone; one unless given.

    Raises:
        ScenarioError: it is none of these, or says something wrong.
    """
    overrides = {"profile": profile}
    if given.suffix == ".py":
        return load_given(given, overrides, args=args or (), hosts=hosts or 1, gpus_per_host=gpus or 1)
    for name, value in (("hosts", hosts), ("ranks-per-host", gpus)):
        if value is not None:
            raise ScenarioError(f"--{name} = {value}: expected with --of a script; {given} says it itself")
    return load_given(_of_folder(given) if given.is_dir() else given, overrides)


def _of_folder(folder: Path) -> Path:
    """Return what was simulated in a run folder: a script's recording in it, or the ready scenario that it names.

    Raises:
        ScenarioError: neither is there, or the ready scenario was run with other options.
    """
    if (folder / RECORDING).is_file():
        return folder
    try:
        info = json.loads((folder / _RUN).read_text(encoding="utf-8"))
        name, digest = Path(info["scenario"]["path"]), info["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ScenarioError(f"--of = '{folder}': expected a run folder, a scenario or a script") from None
    ready = Path(name.stem)
    if ready.exists() or not Path(scenario_file(ready)).is_file() or load_given(ready, {}).digest() != digest:
        raise ScenarioError(
            f"--of = '{folder}': a run folder keeps no operators, and {name} is no ready scenario as it stands:"
            " expected the scenario's file"
        )
    return ready


def operators_of(scenario: Scenario, play: Play) -> Counter[Operation]:
    """Return the operators that have a law, of all simulated ranks and steps, and how often each runs.

    Raises:
        ProgramError: the simulation went wrong.
    """
    kernels: dict[int, tuple[Kernel, int]] = {}
    found: Counter[Operation] = Counter()

    def seen(_: str, kernel: Kernel) -> Kernel:
        kept, times = kernels.get(id(kernel), (kernel, 0))  # which is kept, so that its id is no other's
        kernels[id(kernel)] = kept, times + 1
        if len(kernels) > _MOST_KEPT:
            _add(found, kernels)
        return kernel

    play(scenario, build_simulation(scenario), seen)
    _add(found, kernels)
    return found


# Kernels that come back as the same objects are looked into once; a step with drawn ids has others each time.
_MOST_KEPT = 4096


def _add(found: Counter[Operation], kernels: dict[int, tuple[Kernel, int]]) -> None:
    for kernel, times in kernels.values():
        for leaf in _leaves(kernel):
            for operation in leaf.operations:
                found[operation] += times * leaf.count
    kernels.clear()


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    if not kernel.parts:
        yield kernel
    for part in kernel.parts:
        yield from _leaves(part)


def by_share(found: Mapping[Operation, int], predicted_s: Callable[[Operation], float]) -> list[tuple[Operation, int]]:
    """Return the operators, those that take most together first, each with how often it runs.

    Those whose words are the same (their drawn ids differ from step to step) are one: the most frequent.
    """
    alike: dict[tuple[str, str], Counter[Operation]] = defaultdict(Counter)
    for operation, count in found.items():
        alike[words(operation) if _has_ids(operation) else ("", repr(operation))][operation] += count
    merged = [(max(each, key=each.__getitem__), each.total()) for each in alike.values()]
    return sorted(merged, key=lambda one: -one[1] * predicted_s(one[0]))


def _has_ids(operation: Operation) -> bool:
    return isinstance(operation, BagsForward | BagsBackward | Gather | PermuteSparse | BucketizeSparse)
