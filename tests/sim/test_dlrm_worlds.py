"""Each feature of `dlrm`: sizes take as long as values, and real ranks make the same calls and learn the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache

import pytest

from scenarios.config.scenario import Bag, Compression, Data, Optimizer, Pipeline, QComms, Scenario, ShardingType
from scenarios.seam.trace import Recording
from scenarios.workloads.dlrm.program import DlrmProgram
from tests.contract.worlds import WORLDS
from tests.scenarios.workloads.dlrm.test_accumulation import accumulating
from tests.scenarios.workloads.dlrm.test_dense_parallel import FSDP, HSDP, shard
from tests.scenarios.workloads.dlrm.test_grouped_all_reduce import COPIES, SMALL, group
from tests.scenarios.workloads.dlrm.test_pipelines import COPIES as COPIED
from tests.scenarios.workloads.dlrm.test_pipelines import SEMI_SYNC, on_nvlink
from tests.scenarios.workloads.dlrm.test_replication import STRIDED, replicate
from tests.sim.test_dlrm_bags import EVERY, PIPELINE, SEQUENCES, calls, mix
from tests.sim.test_dlrm_features import share
from tests.sim.test_dlrm_host_memory import PREFETCH, make_hosted
from tests.sim.test_dlrm_optimizers import CUT_BY_ROWS, with_few_rows
from tests.sim.test_dlrm_precision import precise
from tests.sim.test_dlrm_qcomms import FP8, HALVES, INT8, WHOLE, quantize
from tests.sim.test_dlrm_steps import ALL, MORE, losses, play_ready, training
from tests.small import change, with_model

BAGS: tuple[Bag, ...] = (*EVERY, "distinct")
OVERLAPPED = Pipeline(kind="sparse_dist", order="overlapped")
POWERSGD = Compression(kind="batched_powersgd", start_powerSGD_iter=2, min_compression_rate=1)
ADAM = Optimizer(kind="partial_rowwise_adam", learning_rate=0.05)


def replicas(kind: str, types: tuple[ShardingType, ...], *, inter_host: bool) -> Scenario:
    bags: tuple[Bag, ...] = ("sequence", "weighted", "pooled")
    pipeline = Pipeline(kind=kind, accumulation=2)  # type: ignore[arg-type]
    often = dataclasses.replace(STRIDED, sync_every=2, inter_host_allreduce=inter_host)
    return replicate(mix(bags, types, "adagrad", pipeline=pipeline), often)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "bags": lambda: mix(BAGS, ALL),
    "pipeline": lambda: mix(BAGS, ALL, pipeline=PIPELINE),
    "micro-batches, compressed": lambda: change(
        accumulating(mix(EVERY, ALL), 2, kind="sparse_dist"), compression=POWERSGD
    ),
    "replicas": lambda: replicas("sparse_dist", MORE, inter_host=False),
    "replicas of sequences": lambda: replicas("none", SEQUENCES, inter_host=True),
    "fsdp": lambda: shard(training(ALL, optimizer="adagrad"), FSDP),
    "hsdp": lambda: shard(training(ALL, optimizer="adagrad"), HSDP),
    "grouped": lambda: group(
        mix(EVERY, COPIES, "adagrad", pipeline=dataclasses.replace(OVERLAPPED, accumulation=2)), buckets=SMALL
    ),
    "autocast": lambda: precise(
        mix(EVERY, ALL), autocast="bfloat16", loss_scaling="dynamic", tf32=True, optimizer=ADAM
    ),
    "host memory": lambda: make_hosted(pipeline=PREFETCH),
    "features": lambda: change(
        share(mix(EVERY, (*ALL, "column_wise"))), qcomms=QComms(forward_precision="fp16", backward_precision="bf16")
    ),
    "halves": lambda: quantize(HALVES, ALL),
    "fp8": lambda: quantize(FP8, ALL, pipeline=PIPELINE),
    "int8": lambda: quantize(INT8, WHOLE, dim=32),
    "semi_sync": lambda: on_nvlink(
        mix(EVERY, ALL, pipeline=dataclasses.replace(SEMI_SYNC, accumulation=2)),
        data=Data(copies=True, samples_per_s=1e5, prefetch=3),
    ),
    "few rows": lambda: with_few_rows("adam", CUT_BY_ROWS, ("pooled", "sequence")),
}
# Others of which most has been said.
SLOW: dict[str, Callable[[], Scenario]] = {
    "sequences": lambda: mix(BAGS, SEQUENCES),
    "overlapped": lambda: mix(EVERY, ALL, pipeline=Pipeline(order="overlapped")),
    "overlapped pipeline": lambda: mix(EVERY, ALL, pipeline=OVERLAPPED),
    "micro-batches": lambda: accumulating(mix(EVERY, ALL), 2),
    **{
        f"replicas, {kind}, {'+'.join(types)}, {inter_host}": lambda kind=kind, types=types, inter_host=inter_host: (
            replicas(kind, types, inter_host=inter_host)
        )
        for kind, types, inter_host in [
            ("none", ALL, False),
            ("none", ALL, True),
            ("sparse_dist", MORE, True),
            ("none", SEQUENCES, False),
        ]
    },
    "grouped, eager": lambda: group(mix(EVERY, COPIES, "adagrad", pipeline=Pipeline(accumulation=2)), buckets=SMALL),
    "host memory without a pipeline": make_hosted,
    "features, plain": lambda: share(mix(EVERY, (*ALL, "column_wise"))),
    "copies": lambda: on_nvlink(mix(EVERY, ALL, pipeline=Pipeline(accumulation=2)), data=COPIED),
    "narrow ids": lambda: with_model(mix(EVERY, ALL), ids_dtype="int32", lengths_dtype="int32"),
    "few rows, lamb": lambda: with_few_rows("partial_rowwise_lamb", CUT_BY_ROWS, ("pooled", "sequence")),
}
EACH = pytest.mark.parametrize("name", [*SCENARIOS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
# Real ranks add as the simulator does: nothing, two numbers, or as quantized exchanges say.
EXACT = {"fsdp", "hsdp", "halves", "fp8", "int8"}


@cache
def simulate_ready(name: str) -> tuple[Scenario, Recording]:
    made = {**SCENARIOS, **SLOW}[name]()
    return made, play_ready(made)


@EACH
def test_sizes_take_as_long_as_values(name: str) -> None:
    made, recording = simulate_ready(name)
    sizes = made.with_run(payload="sizes")
    without = play_ready(sizes)
    assert without.spans == recording.spans
    assert without.links == recording.links


@pytest.mark.real
@EACH
def test_real_ranks_make_the_same_calls_and_learn_the_same(name: str) -> None:
    made, recording = simulate_ready(name)
    real = WORLDS["real"](DlrmProgram(made), made)
    assert losses(recording) == pytest.approx(losses(real), rel=0 if name in EXACT else 1e-6, abs=0)
    assert calls(recording) == calls(real)
