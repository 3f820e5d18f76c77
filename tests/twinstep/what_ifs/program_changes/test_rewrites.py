"""What changes of a program make of kernels: operators that the changed program would run, priced by one law."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from scenarios.config.catalogue import library_files
from scenarios.config.load import load
from scenarios.modules.module import Module
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel, together
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import (
    Product,
    linear,
    linear_input_gradient,
    linear_weight_gradient,
)
from scenarios.seam.operations.rows import IndexPut, ScatterAdd
from scenarios.seam.trace import COPYING
from sim.operators.laws import seconds
from sim.rank.observed import Observed, ObservedComputation
from tests.small import recommender
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes import cuda_graphs, fused_optimizer, index_backward, padding
from twinstep.what_ifs.program_changes.kernels import Step

BYTES = {"bfloat16": 2, "tf32": 4}
INDEX_PUT = IndexPut(slices=8192, count=351, inner=1, dtype="float32", target_elements=8192 * 729, is_contiguous=False)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("scenario") / "h200.toml"
    file.write_text(recommender("name = 'one'\nrows = 100\nids_per_sample = 1", profile="hgx_h200"))
    return load(file)


def of(*operations: Operation, host: HostWork | None = None) -> Kernel:
    kernels = [Kernel(kind="gemm", operations=(each,)) for each in operations]
    return together(kernels) if host is None else Kernel(kind="gemm", operations=operations, host=host)


def step_of(scenario: Any, *computed: tuple[Any, ...], waits: Iterable[int] = ()) -> Step:
    observed = Observed()
    for place, one in enumerate(computed):
        if place in waits:
            observed.record_wait(0)
        observed.record_computation(0, ObservedComputation(*one))
    return Step(observed.last, observed.before, scenario.cluster.host.gpu)


def products(inner: int, columns: int, dtype: str) -> list[Product]:
    """A linear layer and both of its backward products."""
    makers = (linear, linear_input_gradient, linear_weight_gradient)
    return [make(8192, inner, columns, dtype, element_bytes=BYTES[dtype]) for make in makers]


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
def test_padded_products_have_the_next_aligned_size(scenario: Any, dtype: str) -> None:
    before, after = products(479, 1024, dtype), products(480, 1024, dtype)
    forward, *backward = before
    (one,) = padding.proposals(step_of(scenario, ("top.0", of(forward)), ("top.0.backward", of(*backward, *backward))))
    assert (one.name, one.made_by) == ("products of 479 padded to 480", "pad with zeros in top.0 (8192 x 479 x 1024)")
    assert one.rewrite is not None
    changed = one.rewrite(ObservedComputation("top.0.backward", of(*before)))
    assert [each for part in changed.parts for each in part.operations] == after
    gpu = scenario.cluster.host.gpu
    saved_ns = [1e9 * (seconds(old, gpu) - seconds(new, gpu)) for old, new in zip(before, after, strict=True)]
    if not gpu.kernel_tables:
        assert one.saves_at_most_ns == pytest.approx(saved_ns[0] + 2 * sum(saved_ns[1:]))
    assert one.saves_at_most_ns > 100_000


def test_a_result_that_is_not_aligned_is_padded_too(scenario: Any) -> None:
    (one,) = padding.proposals(step_of(scenario, ("head", of(*products(768, 50257, "bfloat16")))))
    assert one.name == "products of 50257 padded to 50264"


@pytest.mark.parametrize(("inner", "columns"), [(480, 1024), (1024, 1)])
def test_aligned_products_and_vectors_are_not_padded(scenario: Any, inner: int, columns: int) -> None:
    step = step_of(scenario, ("top", of(*products(inner, columns, "bfloat16"))))
    assert [*padding.proposals(step)] == []
    kernel = of(*products(inner, columns, "bfloat16"))
    assert padding.Padded(479, 480)(ObservedComputation("top", kernel)) is kernel


def test_an_accumulating_index_put_becomes_atomic_additions(scenario: Any) -> None:
    (one,) = index_backward.proposals(step_of(scenario, ("dot", of(INDEX_PUT)), ("dot.backward", of(INDEX_PUT))))
    assert one.rewrite is not None
    changed = one.rewrite(ObservedComputation("dot.backward", of(INDEX_PUT))).parts[0].operations
    assert changed == (ScatterAdd(elements=8192 * 351, dtype="float32", target_elements=8192 * 729),)
    assert one.made_by.startswith("z.flatten(1).index_select(1, i * n + j) for z[:, i, j] in dot, whose backward takes")
    assert [*index_backward.proposals(step_of(scenario, ("dot", of(*changed))))] == []


def optimizer_kernel(scenario: Any, make: Callable[[Any], torch.optim.Optimizer]) -> Kernel:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8))

    return Module(model, scenario, optimizer=make).update().kernel


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("how", ["default", "loop", "amsgrad"])
def test_a_step_of_adam_becomes_what_torch_runs_with_fused(scenario: Any, kind: str, how: str) -> None:
    optimizer, options = getattr(torch.optim, kind), {"amsgrad": how == "amsgrad"}
    before = optimizer_kernel(
        scenario, lambda each: optimizer(each, foreach=None if how != "loop" else False, **options)
    )
    fused = optimizer_kernel(scenario, lambda each: optimizer(each, fused=True, **options))
    label = f"{kind}.step"
    changed = ObservedComputation(label, fused_optimizer.fused_kernel(ObservedComputation(label, before, "optimizer")))
    assert count(changed) == count(ObservedComputation(label, fused))
    assert changed.kernel.launches == fused.launches < before.launches
    assert 0 < changed.kernel.host.dispatches < before.host.dispatches
    assert fused_optimizer.fused_kernel(ObservedComputation(label, fused, "optimizer")) is fused
    if kind == "Adam":  # a program's own label does not say which optimizer it is
        own = ObservedComputation(
            "dense.update", fused_optimizer.fused_kernel(ObservedComputation("dense.update", before, "optimizer"))
        )
        assert count(own) == count(changed)
    assert [one.made_by for one in fused_optimizer.proposals(step_of(scenario, (label, before, "optimizer")))] == [
        f"fused=True for {kind}"
    ]


def count(computed: ObservedComputation) -> dict[Operation, int]:
    found: dict[Operation, int] = {}
    for operation, times in computed.operations():
        found[operation] = found.get(operation, 0) + times
    return found


@pytest.mark.parametrize("kind", ["Adagrad", "RAdam", "Adamax", "RMSprop"])
def test_an_optimizer_without_a_fused_kernel_stays_as_it_is(scenario: Any, kind: str) -> None:
    kernel = optimizer_kernel(scenario, getattr(torch.optim, kind))
    for label, role in ((f"{kind}.step", "optimizer"), ("dense.update", "optimizer"), ("Adam.step", "")):
        assert fused_optimizer.fused_kernel(ObservedComputation(label, kernel, role)) is kernel


def test_a_class_of_ones_own_that_steps_as_adam_does_is_not_told_to_be_fused(scenario: Any) -> None:
    kernel = optimizer_kernel(scenario, torch.optim.Adam)
    assert fused_optimizer.fused_kernel(ObservedComputation("MyAdam.step", kernel, "optimizer")) is kernel


@pytest.mark.parametrize(("waits", "is_barred"), [((), False), ((0,), False), ((2,), True)])
def test_a_step_that_reads_back_cannot_be_a_graph(scenario: Any, waits: tuple[int, ...], *, is_barred: bool) -> None:
    one, two = products(480, 1024, "tf32")[:2]
    computed = [("a", of(one)), ("b", of(two)), ("c", of(one))]
    assert step_of(scenario, *computed, waits=waits).observed.reads_back == is_barred


def test_waits_behind_the_last_kernel_and_behind_copies_of_a_batch_do_not_count(scenario: Any) -> None:
    copy = ("input", Kernel(kind="permute", operations=(contiguous("_to_copy", 100, "float32"),)))
    work = ("a", of(*products(480, 1024, "tf32")))
    observed = step_of(scenario, copy, work, waits=(1,)).observed
    observed.waits.append(2)
    assert not observed.reads_back
    observed.computed.append(ObservedComputation(*work))
    assert observed.reads_back


def test_waits_behind_copies_of_a_script_count_between_other_kernels_alone(scenario: Any) -> None:
    copy = ("train.py:3", Kernel(kind=COPYING, host_read=400.0, bytes_written=400.0, dtype=""))
    work = ("a", of(*products(480, 1024, "tf32")))
    assert not step_of(scenario, copy, copy, work, work, waits=(0, 1, 2)).observed.reads_back
    assert step_of(scenario, copy, work, copy, work, waits=(3,)).observed.reads_back


def test_shapes_that_differ_from_step_to_step_cannot_be_a_graph(scenario: Any) -> None:
    observed = Observed()
    for step, inner in enumerate((480, 512)):
        observed.record_computation(step, ObservedComputation("a", of(*products(inner, 1024, "tf32"))))
    other = Step(observed.last, observed.before, scenario.cluster.host.gpu)
    assert "differ from step to step" in cuda_graphs.why_barred(other)
    assert cuda_graphs.why_barred(Step(observed.last, observed.last, scenario.cluster.host.gpu)) == ""


def test_a_graph_is_proposed_where_the_scenario_can_say_so(scenario: Any) -> None:
    step = step_of(scenario, ("a", of(*products(480, 1024, "tf32"), host=HostWork(operators=3))))
    (one,) = cuda_graphs.proposals(scenario, step)
    assert isinstance(one, Counterfactual)
    assert one.values == {"launching.cuda_graphs": True}
    assert one.saves_at_most_ns == step.host_ns > 3 * 7_000
    powersgd = next(file for file in library_files() if file.stem == "powersgd_16x1_10g")
    assert [*cuda_graphs.proposals(load(powersgd), step)] == []
