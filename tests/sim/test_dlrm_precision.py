"""Autocast, loss scaling and TF32 of the dense part: as plain torch, alike in both worlds, priced in their dtypes."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.config.scenario import Launching, Optimizer, Pipeline, Scenario
from scenarios.modules.precision import rounding_to_tf32
from scenarios.modules.trace import Trace
from scenarios.workloads.dlrm.batches import draw_dense
from scenarios.workloads.dlrm.dense import Embeddings
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.sim.test_dlrm_bags import EVERY, mix
from tests.sim.test_dlrm_steps import ALL, CPU, TOLERANCE, Looked, Reference, losses, play_ready, training
from tests.small import GPU, change, cluster, model_of

RATES = {"float32": 1e13, "tf32": 5e13, "float16": 1e14, "bfloat16": 1e14}
FAST = dataclasses.replace(GPU, flops_per_s=RATES)
# Sums of float32 in another order now and then make another half of what a product is given: 2**-11 of float16.
HALVES = {"": TOLERANCE, "float16": 1e-4, "bfloat16": 1e-3}
Half = Literal["", "float16", "bfloat16"]


class Loud(nn.Module):
    """A dense part whose gradients are `volume` times what they might be."""

    def __init__(self, dense_features: int, dims: dict[str, int], volume: float) -> None:
        super().__init__()
        self.volume = volume
        self.below = nn.Linear(dense_features + sum(dims.values()), 8)
        self.above = nn.Linear(8, 1)

    def forward(self, dense: Tensor, embeddings: Embeddings, labels: Tensor) -> Tensor:
        logits = self.above(self.below(torch.cat([dense, *embeddings.values()], 1)).relu())
        loss = functional.binary_cross_entropy_with_logits(logits.squeeze(1), labels)
        return self.volume * loss


def precise(made: Scenario, **changes: Any) -> Scenario:
    """On GPUs that know all dtypes."""
    model = dataclasses.replace(model_of(made), **changes)
    return change(made, model=model, cluster=cluster(2, 2, gpu=FAST))


def loud(volume: float, **changes: Any) -> Scenario:
    own = Optimizer(kind="sgd", learning_rate=0.01 / volume)
    given = {"dense": f"{__name__}:Loud", "dense_options": {"volume": volume}, "bottom": (), "top": ()}
    return precise(training(ALL, steps=5), optimizer=own, **given, **changes)


class ByRank(Reference):
    """A rank's samples after the other's under torch's own autocast and GradScaler, tables' gradients by hand."""

    def __init__(self, made: Scenario) -> None:
        plain = dataclasses.replace(model_of(made), autocast="", loss_scaling=None)
        super().__init__(change(made, model=plain))
        own = model_of(made)
        self.lowered = getattr(torch, own.autocast) if own.autocast else None
        self.is_dynamic = own.loss_scaling == "dynamic"
        given: dict[str, Any] = {"init_scale": own.loss_scaling} if isinstance(own.loss_scaling, float) else {}
        self.scaler = torch.amp.GradScaler("cpu", enabled=own.loss_scaling is not None, **given)
        self.scales: list[float] = []

    def step(self, step: int) -> float:
        self.dense.zero_grad()
        ranks = range(self.training.cluster.world_size)
        found = [self.passes(rank, step) for rank in ranks]
        for each in self.module.parameters():
            each.grad /= len(ranks)
        self.scales.append(self.scaler.get_scale())
        for number, weight in enumerate(self.weights):
            weight.grad = torch.stack([given[number] for _, given in found]).sum(0) / len(ranks)
        self.scaler.step(self.dense)
        self.scaler.update(None if self.is_dynamic else self.scales[0])
        self.update_tables()
        return sum(loss for loss, _ in found) / len(ranks)

    def passes(self, rank: int, step: int) -> tuple[float, list[Tensor]]:
        """The loss, and the gradients of tables by what they give, which hooks have unscaled."""
        drawn, tables = draw_dense(self.training, self.model, rank, step, device=CPU), Looked()
        for weight in self.weights:
            weight.grad = None
        for number, table in enumerate(self.model.tables):
            rows = torch.stack([self.look_up(number, *bag) for bag in self.bags(number, rank, step)])
            rows.register_hook(self.unscale)
            tables[table.name] = rows
        with nullcontext() if self.lowered is None else torch.autocast("cpu", self.lowered):
            loss = self.module(drawn.features, tables, drawn.labels)
        self.scaler.scale(loss).backward()
        return loss.item(), [weight.grad for weight in self.weights if weight.grad is not None]

    def unscale(self, gradient: Tensor) -> Tensor:
        return torch.nan_to_num(gradient / self.scaler.get_scale(), nan=0.0, posinf=0.0, neginf=0.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_trains_as_in_plain_torch(dtype: Half) -> None:
    made = precise(training(ALL, "dcn"), autocast=dtype)
    found = losses(play_ready(made))
    assert found == pytest.approx(ByRank(made).losses(), rel=HALVES[dtype])
    assert found != losses(play_ready(precise(training(ALL, "dcn"))))


@pytest.mark.parametrize("scaling", ["dynamic", 1024.0])
@pytest.mark.parametrize("dtype", ["", "float16"])
def test_scaled_losses_train_as_with_torchs_grad_scaler(dtype: Half, scaling: Any) -> None:
    made = precise(training(ALL), autocast=dtype, loss_scaling=scaling)
    assert losses(play_ready(made)) == pytest.approx(ByRank(made).losses(), rel=HALVES[dtype])


def test_a_scale_of_a_power_of_two_changes_no_loss_that_is_not_lowered() -> None:
    plain = precise(training(ALL))
    assert losses(play_ready(precise(training(ALL), loss_scaling=4096.0))) == losses(play_ready(plain))


def test_steps_that_overflow_are_left_out_until_the_scale_is_small_enough() -> None:
    """By the dense part; tables take what of their gradients is finite."""
    made = loud(64.0, autocast="float16", loss_scaling="dynamic")
    reference = ByRank(made)
    expected = reference.losses()
    assert len(set(reference.scales)) >= 3
    assert losses(play_ready(made)) == pytest.approx(expected, rel=HALVES["float16"])


def test_a_static_scale_stays_and_its_steps_are_left_out_too() -> None:
    made = loud(64.0, autocast="float16", loss_scaling=float(1 << 20))
    reference = ByRank(made)
    expected = reference.losses()
    assert set(reference.scales) == {float(1 << 20)}
    assert losses(play_ready(made)) == pytest.approx(expected, rel=HALVES["float16"])


def test_scaling_goes_with_accumulation_and_pipelines() -> None:
    pipeline = Pipeline(kind="sparse_dist", accumulation=2)
    plain = mix(EVERY, ALL, "adagrad", pipeline=pipeline)
    scaled = precise(plain, loss_scaling=256.0)
    assert losses(play_ready(scaled)) == losses(play_ready(precise(plain)))


def trace(made: Scenario) -> Trace:
    program = DlrmProgram(made)
    outputs = [torch.empty(group.output_shape(made.run.batch_size), device="meta") for group in program.groups]
    embeddings = Embeddings(program.columns, [each.requires_grad_() for each in outputs], [])
    return program.dense.trace(
        torch.empty(made.run.batch_size, model_of(made).dense_features, device="meta"),
        embeddings,
        torch.empty(made.run.batch_size, device="meta"),
    )


def dtypes(found: Trace, kind: str) -> set[str]:
    return {each.kernel.dtype for each in (*found.forward, *found.backward) if each.kernel.kind == kind}


def test_products_are_priced_in_the_dtype_that_they_run_in() -> None:
    plain, lowered = (trace(precise(training(ALL, "dcn"), autocast=each)) for each in ("", "float16"))
    assert dtypes(plain, "gemm") == {"float32"}
    assert dtypes(lowered, "gemm") == {"float16"}
    assert lowered.flops == plain.flops
    assert {each.dtype for each in lowered.parameters} == {torch.float32}
    loss = [each.kernel for each in lowered.forward if "cross_entropy" in each.name]
    assert [each.dtype for each in loss] == ["float32"]
    casts = [each for each in lowered.forward if each.name == "_to_copy"]
    weights = sum(each.name.endswith(("weight", "bias")) for each in lowered.parameters)
    assert len(casts) > weights


def test_tables_give_and_get_float32() -> None:
    """What travels is as wide as without autocast."""
    sent = []
    for autocast in ("", "float16"):
        made = precise(training(ALL), autocast=autocast)
        spans = [one for one in play_ready(made).spans if one.kind.startswith("all_") and "dense" not in one.label]
        sent.append(sorted((one.label, one.bytes_in) for one in spans))
    assert sent[0] == sent[1]


@pytest.mark.parametrize(("tf32", "dtype"), [(True, "tf32"), (False, "float32"), (None, "float32")])
def test_float32_products_run_as_tf32_if_the_scenario_says_so(tf32: bool | None, dtype: str) -> None:
    assert dtypes(trace(precise(training(ALL), tf32=tf32)), "gemm") == {dtype}
    assert not torch.backends.cuda.matmul.allow_tf32


def test_tf32_defaults_to_torchs_setting() -> None:
    with rounding_to_tf32(products=True):
        assert dtypes(trace(precise(training(ALL))), "gemm") == {"tf32"}
        assert dtypes(trace(precise(training(ALL), tf32=False)), "gemm") == {"float32"}


@pytest.mark.parametrize("fuses", [False, True])
def test_unscaling_reads_and_writes_all_gradients(fuses: bool) -> None:
    made = precise(training(ALL), loss_scaling="dynamic")
    program = DlrmProgram(change(made, launching=Launching(fusion=fuses)))
    spans = [one for one in simulate(program.scenario, program).spans if one.step == 1 and one.rank == 0]
    (dense,) = [one for one in spans if one.label == "dense.unscale"]
    size = sum(4 * each.numel() for each in program.dense.build(CPU).parameters())
    assert dense.bytes_read == pytest.approx(size, rel=0.01)
    assert dense.bytes_written == pytest.approx(size, rel=0.01)
    of_tables = [one for one in spans if one.label.endswith(".unscale") and one.label != "dense.unscale"]
    assert len(of_tables) == len(program.groups)
    assert all((one.bytes_read == 0) is fuses for one in of_tables)
