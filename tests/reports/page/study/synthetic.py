"""A study of as many points as wanted, whose numbers follow from their values, a few of them failed."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from reports.study.rows import open_rows

RATES = [f"{rate} Gbit/s" for rate in (10, 25, 50, 100, 200, 400, 800)]
VALUES: dict[str, list[Any]] = {
    "cluster.hosts": [1, 2, 4, 8, 16, 32],
    "run.batch_size": [256 * 2**power for power in range(7)],
    "cluster.nic.rate": RATES,
    "compression.kind": ["none", "powersgd", "batched_powersgd"],
    "compression.matrix_approximation_rank": [1, 2, 4, 8],
    "model.tables[*].sharding": [["table_wise"], ["row_wise"]],
}
ABOUT: dict[str, Any] = {
    "study": "studies/wide.toml",
    "scenario": "criteo_dlrm_2x4",
    "keys": list(VALUES),
    "as_it_is": {"cluster.hosts": 2, "run.batch_size": 2048, "cluster.nic.rate": "100 Gbit/s"},
    "set": {"run.steps": 6},
    "goals": {"samples_per_s": "most", "usd_per_1e9_samples": "least"},
    "stages": [""],
    "version": "1",
}
_BASE = {"cluster.hosts": 2, "run.batch_size": 2048, "cluster.nic.rate": "100 Gbit/s", "compression.kind": "none"}


def write_study(folder: Path, count: int, *, failed: bool = False, **about: Any) -> Path:
    """The baseline and `count` points; every 97th has failed, or all have, and the first ones have run folders."""
    whole = [dict(zip(VALUES, values, strict=True)) for values in product(*VALUES.values())]
    for values in whole:
        if values["compression.kind"] == "none":
            del values["compression.matrix_approximation_rank"]
    distinct = [values for at, values in enumerate(whole) if values not in whole[max(0, at - 8) : at]]
    places = np.sort(np.random.default_rng(1).choice(len(distinct), count, replace=False)).tolist()
    points: list[dict[str, Any]] = [{}, *(distinct[at] for at in places)]
    with open_rows(folder, {**ABOUT, **about}, b"", VALUES) as rows:
        rows.finish(_row(folder, index, values, failed) for index, values in enumerate(points))
    return folder


def _row(folder: Path, index: int, values: dict[str, Any], failed: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "index": index, "digest": f"{index:064x}", "fidelity": "flows", "status": "done", "sentence": "",
        "seconds": 0.5, "played": True, "version": "1", "run": "", "worker": "", "values": values,
    }  # fmt: skip
    if failed or index % 97 == 5:
        return {**row, "status": "scenario error", "sentence": f"wide.toml: rank 3 needs {40 + index % 7} GiB of 40"}
    if index < 4:
        row["run"] = f"runs/{index:016x}-flows"
        (folder / row["run"] / "reports").mkdir(parents=True, exist_ok=True)
    return {**row, **_measures({**_BASE, **values})}


def _measures(values: dict[str, Any]) -> dict[str, float]:
    hosts, batch = values["cluster.hosts"], values["run.batch_size"]
    rate = float(values["cluster.nic.rate"].split()[0])
    ratio = {"none": 1, "powersgd": 0.09, "batched_powersgd": 0.05}[values["compression.kind"]]
    rank = values.get("compression.matrix_approximation_rank", 1)
    sharding = values.get("model.tables[*].sharding", ["table_wise"])
    compute_ns = 4e6 + 900 * batch * (1.15 if sharding == ["row_wise"] else 1) + 2e5 * rank * (ratio < 1)
    sent = 2.1e8 * min(1.0, ratio * rank) * (hosts > 1)
    exposed_ns = max(0.0, 8 * sent / rate - 0.4 * compute_ns) + 3e5 * np.log2(hosts)
    step_ns = round(compute_ns + exposed_ns)
    samples_per_s = hosts * 4 * batch * 1e9 / step_ns
    return {
        "world_size": hosts * 4.0, "steps": 5.0, "step_ns": step_ns, "samples_per_s": samples_per_s,
        "usd_per_1e9_samples": (hosts * 4 * 2.5 + rate * hosts * 0.002) * 1e9 / samples_per_s / 3600,
        "step_samples": hosts * 4.0 * batch, "compute_ns": compute_ns, "exposed_ns": exposed_ns, "bytes_sent": sent,
        "exposed_share": exposed_ns / step_ns, "memory_bytes": 2.0**30 * 10 + 2e5 * batch,
        "memory_spare_bytes": 2.0**30 * 30 - 2e5 * batch, "median_step_ns": step_ns,
        "uncertainty_share": 0.125,
        "compute_over_mean": 1.3 if sharding == ["table_wise"] else 1.02,
    }  # fmt: skip
