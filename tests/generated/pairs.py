"""Pairs of scenarios of which one has a better part, or less to send, and nothing else is different.

    python -m tests.generated.pairs --count 60 --seed 0

simulates so many pairs of each kind and prints those where the better part makes the steps take longer by more than
0.5 %, or where more bytes are quicker by as much.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.config.load import load
from scenarios.config.toml.include import read_profile_tree
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.build import build
from sim.draws import draws as all_draws
from tests.generated.toml import put, scale, toml_file

MOST_SLOWER = 0.005
# Where times vary from draw to draw, means of so many are compared, to so many standard errors.
_DRAWS, _SURE = 24, 3
_PROFILES = {
    "nccl": ("dgx_h100", "dgx_a100", "hgx_h200", "p6_b200", "v100_tcp_10g", "dgx1_v100"),
    "gloo": ("cpu_local", "emulated_200mbit", "v100_tcp_10g"),
}
_PCIE = {"kind": "pcie", "rate": "32 GB/s", "latency": "1 us", "bridge_rate": "100 GB/s"}
_OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
_FACTORS = (1.1, 1.5, 2.0, 4.0, 10.0)
# Keys of a cluster by the kind of part that they belong to, and whether more of it is better.
_PARTS = {
    "link": {
        "inside.rate": True,
        "inside.bridge_rate": True,
        "inside.latency": False,
        "nic.rate": True,
        "nic.latency": False,
        "network.latency": False,
    },
    "gpu": {"gpu.memory_rate": True, "gpu.flops.float32": True, "gpu.launch": False, "gpu.ramp": False},
    "host": {"core_rate": True, "cores": True},
}
KINDS = (*_PARTS, "bytes")
# What a better part of gloo's hosts does not speed up, on real ranks neither. With more cores each idles for longer and
# wakes up later: two ranks reduce 5.5 KiB in 0.19 ms on one core, in 0.44 ms on two (medians of 3 x 400 calls, two
# cores of a Xeon). And a rank that comes to an exchange after the other's notice sends its data before its own notice,
# so that the two directions go one after the other: the sooner a notice comes, the more often.
_NO_LAW_OF_GLOO = ("cores", "inside.latency", "nic.latency", "network.latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two scenarios as TOML, which differ in `part` by `factor`; the steps of `better` should take no longer."""

    part: str
    factor: float
    worse: str
    better: str


def pairs(seed: int, kind: str) -> Iterator[Pair]:
    """An endless series of a kind; a seed always gives the same one."""
    draw = random.Random(f"{seed} {kind}")
    while True:
        made, other, factor = _scenario(draw), {}, draw.choice(_FACTORS)
        other = copy.deepcopy(made)
        if kind == "bytes":
            part = _enlarge(other, factor)
            yield Pair(part=part, factor=factor, worse=toml_file(other), better=toml_file(made))
            continue
        no_law = _NO_LAW_OF_GLOO if made["run"]["library"] == "gloo" else ()
        parts = [part for part in _PARTS[kind] if part not in no_law and _at(made, part) is not None]
        if parts:
            part = draw.choice(parts)
            _improve(other, part, factor if _PARTS[kind][part] else 1 / factor)
            yield Pair(part=part, factor=factor, worse=toml_file(made), better=toml_file(other))


def steps_ns(text: str, file: Path, draws: int = 0) -> list[int]:
    """What the steps take in all, in draw 0 and so many more if draws differ; nothing where the scenario is refused."""
    file.write_text(text)
    try:
        scenario = load(file)
        recordings = all_draws(scenario, build(scenario), draws)
        return [max(span.end_ns for span in one.spans if span.kind == "step") for one in recordings]
    except ScenarioError:
        return []


def is_wrong(pair: Pair, file: Path) -> bool | None:
    """Whether the better part is slower, beyond what draws leave open; None where one of the two is refused."""
    worse, better = steps_ns(pair.worse, file), steps_ns(pair.better, file)
    if not worse or not better:
        return None
    if better[0] <= worse[0] * (1 + MOST_SLOWER):
        return False
    found = [np.array(steps_ns(text, file, _DRAWS), float) for text in (pair.worse, pair.better)]
    means = [one.mean() for one in found]
    error = sum(one.var() / len(one) for one in found) ** 0.5
    return bool(means[1] > means[0] * (1 + MOST_SLOWER) + _SURE * error)


def main(arguments: list[str] | None = None) -> int:
    """Try as many pairs of each kind as are asked for. Exit code 1: some are the wrong way round."""
    parser = argparse.ArgumentParser(prog="python -m tests.generated.pairs")
    parser.add_argument("--count", type=int, default=60, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the pairs stay that are the wrong way round")
    options = parser.parse_args(arguments)
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.toml"
        for kind in KINDS:
            series, tried = pairs(options.seed, kind), 0
            while tried < options.count:
                pair = next(series)
                wrong = is_wrong(pair, file)
                tried += wrong is not None
                if not wrong:
                    continue
                found += 1
                times = " -> ".join(f"{steps_ns(text, file)[0] / 1e3:.1f}" for text in (pair.worse, pair.better))
                print(f"{kind} {tried}: {pair.part} x {pair.factor}: {times} us", flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    for name in ("worse", "better"):
                        (options.keep / f"{kind}_{tried}_{name}.toml").write_text(getattr(pair, name))
    print(f"{found} of {len(KINDS) * options.count} pairs are the wrong way round")
    return 1 if found else 0


def _scenario(draw: random.Random) -> dict[str, Any]:
    library = draw.choice(sorted(_PROFILES))
    profile = draw.choice(_PROFILES[library])
    cluster = copy.deepcopy(read_profile_tree(profile).tree.values["cluster"])
    cluster["hosts"] = draw.choice((1, 2, 4))
    if library == "nccl" and cluster["inside"]["kind"] == "nvlink" and draw.random() < 0.3:
        cluster["inside"] = dict(_PCIE)
    if cluster["inside"]["kind"] != "nvlink_mesh":
        cluster["gpus_per_host"] = draw.choice((2, 4, 8) if cluster["hosts"] == 1 else (1, 2, 4))
        cluster["cores"] = max(cluster["cores"], cluster["gpus_per_host"])
    run = {"steps": 3, "batch_size": 1024, "library": library, "payload": "sizes", "seed": draw.randrange(1000)}
    run["fidelity"] = draw.choice(("flows", "links")) if library == "nccl" else "flows"
    program = draw.choice(sorted(_PROGRAMS))
    return {"program": program, "run": run, "cluster": cluster, **_PROGRAMS[program](draw, library)}


def _collective(draw: random.Random, library: str) -> dict[str, Any]:
    elements = round(2 ** draw.uniform(4, 20 if library == "gloo" else 25))
    return {"collective": {"op": draw.choice(_OPS), "size": f"{elements * 128} B"}}


def _powersgd(draw: random.Random, library: str) -> dict[str, Any]:
    model = {"model": "resnet50", "forward_flops": "100 GFLOP", "backward_flops": "200 GFLOP"}
    kind = draw.choice(("none", "batched_powersgd", "layerwise_powersgd"))
    rank = {} if kind == "none" else {"matrix_approximation_rank": draw.choice((1, 4)), "start_powerSGD_iter": 2}
    return {"gradients": model, "compression": {"kind": kind, **rank}}


def _dlrm(draw: random.Random, library: str) -> dict[str, Any]:
    sharding = draw.choice(("table_wise", "row_wise", "table_row_wise", "data_parallel"))
    table = {"rows": 4096, "ids_per_sample": 4, "sharding": [sharding]}
    tables = [{"name": f"t{number}", **table} for number in range(8)]
    dense = {"dense_features": 13, "embedding_dim": 32, "bottom": [64, 32], "top": [64, 1]}
    return {"model": {**dense, "interaction": {"kind": "dot"}, "tables": tables}}


_PROGRAMS = {"collective": _collective, "powersgd": _powersgd, "dlrm": _dlrm}


def _at(made: dict[str, Any], part: str) -> Any:
    found: Any = made["cluster"]
    for key in part.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _improve(made: dict[str, Any], part: str, factor: float) -> None:
    value = _at(made, part)
    better = round(value * factor) if isinstance(value, int) else scale(value, factor)
    put(made["cluster"], tuple(part.split(".")), better)


def _enlarge(made: dict[str, Any], factor: float) -> str:
    """More to send by whole elements; the name of what is larger."""
    if "collective" in made:
        size = int(made["collective"]["size"].removesuffix(" B")) // 128
        made["collective"]["size"] = f"{round(size * factor) * 128} B"
        return "collective.size"
    made["run"]["batch_size"] = round(made["run"]["batch_size"] * factor)
    return "run.batch_size"


if __name__ == "__main__":
    sys.exit(main())
