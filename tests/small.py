"""Small clusters and programs for tests of any room."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Host, Inside, Link, Network, Nics
from scenarios.config.host_costs import Eager, Tcp
from scenarios.config.scenario import (
    CollectiveCalls,
    GradientReduction,
    Model,
    Recommender,
    RunSettings,
    Scenario,
    UsersCode,
)
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank

# A host that takes nothing between launches, so that times are those of what a test is about.
_FREE: dict[str, Any] = {each.name: 0 if each.name.endswith("_ns") else math.inf for each in dataclasses.fields(Eager)}
FREE_HOST = Eager(**_FREE)
GPU = Gpu(
    name="test",
    kind="cuda",
    memory_bytes=1 << 30,
    memory_bytes_per_s=1e12,
    flops_per_s={"float32": 1e13},
    eager=FREE_HOST,
)

# A core that stands for a GPU, and what TCP costs it: of the order measured on a virtual machine.
CORE = Gpu(
    name="core",
    kind="cpu",
    memory_bytes=1 << 30,
    memory_bytes_per_s=1e10,
    flops_per_s={"float32": 5e10},
)
TCP = Tcp(
    queue_bytes=128 << 10,
    send_buffer_bytes=1 << 20,
    acknowledged_share=0.023,
    send_bytes_per_s=1.5e9,
    receive_bytes_per_s=1e9,
    message_ns=6000,
    post_ns=6000,
    issue_ns=15_000,
    nap_ns=100_000,
    wake_soon_ns=5_000,
    verb_ns=8_000,
    wake_ns=30_000,
    wake_spread=(0.5, 0.75, 1.0, 3.0, 5.0),
)


def with_free_host(scenario: Scenario) -> Scenario:
    """Give a scenario hosts that take nothing between launches."""
    on = scenario.cluster
    gpu = dataclasses.replace(on.host.gpu, eager=FREE_HOST)
    host = dataclasses.replace(on.host, gpu=gpu)
    return dataclasses.replace(scenario, cluster=dataclasses.replace(on, host=host))


def cluster(hosts: int = 2, gpus: int = 2, **changes: Any) -> Cluster:
    """100 GB/s and 1 us inside a host, a NIC of 1.25 GB/s and 2 us for each GPU, an ideal switch."""
    host = Host(
        gpus=gpus,
        gpu=changes.pop("gpu", GPU),
        inside=changes.pop("inside", Inside(kind="nvlink", link=Link(bytes_per_s=1e11, latency_ns=1000))),
        nics=changes.pop("nics", Nics(per="gpu", count=gpus, link=Link(bytes_per_s=1.25e9, latency_ns=2000))),
        cores=changes.pop("cores", 4),
        memory_bytes=1 << 34,
    )
    network = changes.pop("network", Network(kind="non_blocking"))
    return Cluster(profile="test", hosts=hosts, host=host, network=network, **changes)


def scenario(on: Cluster | None = None, **changes: Any) -> Scenario:
    """Values over gloo, message by message, unless changed."""
    whole = Scenario(
        name="test",
        path=Path("test.toml"),
        program="dlrm",
        cluster=on or cluster(),
        run=RunSettings(library="gloo", steps=1, payload="values", timeout_s=30.0),
    )
    return change(whole, **changes)


# Of a recommender of which a test needs no more.
NO_MODEL = Model(dense_features=1, tables=())
_RUN = {one.name for one in dataclasses.fields(RunSettings)}
_KINDS = (Recommender, GradientReduction, CollectiveCalls, UsersCode)


def change(scenario: Scenario, **changes: Any) -> Scenario:
    """Change fields of a scenario, its run, and its workload, which becomes one that has them."""
    run = {name: changes.pop(name) for name in _RUN & changes.keys()}
    fields = {one.name for one in dataclasses.fields(Scenario)}
    own = {name: value for name, value in changes.items() if name not in fields}
    workload = changes.get("workload", scenario.workload)
    if own.keys() <= {one.name for one in dataclasses.fields(workload)}:
        workload = dataclasses.replace(workload, **own)
    else:
        kind = next(one for one in _KINDS if own.keys() <= {each.name for each in dataclasses.fields(one)})
        workload = kind(**({"model": NO_MODEL} if kind is Recommender else {}) | own)
    kept = {name: value for name, value in changes.items() if name in fields}
    return dataclasses.replace(scenario.with_run(**run), **{**kept, "workload": workload})


def model_of(scenario: Scenario) -> Model:
    return Recommender.of(scenario.workload).model


def with_model(scenario: Scenario, **changes: Any) -> Scenario:
    return scenario.with_workload(model=dataclasses.replace(model_of(scenario), **changes))


def recommender(*tables: str, batch_size: int = 128, gpus: int = 2, profile: str = "dgx_h100", more: str = "") -> str:
    """Return the text of a scenario file: two steps of a small DLRM on two hosts.

    `tables` are the keys of a table each, `more` are further keys of the file.
    """
    each = "".join(f"[[model.tables]]\n{keys.strip()}\n" for keys in tables)
    return f"""program = "dlrm"
run = {{steps = 2, batch_size = {batch_size}, payload = "sizes", fidelity = "links"}}
cluster.profile = "{profile}"
cluster.hosts = 2
cluster.gpus_per_host = {gpus}
{more}
[model]
dense_features = 16
bottom = [64]
top = [64, 1]
embedding_dim = 64
interaction.kind = "dot"
{each}"""


@dataclasses.dataclass(slots=True)
class Play(Program):
    """A coroutine function as a program."""

    function: Callable[[Rank], Awaitable[None]]

    async def __call__(self, rank: Rank) -> None:
        await self.function(rank)
