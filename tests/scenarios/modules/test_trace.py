"""What a traced module costs against what it does when it runs: the profiler's operators, the flop counter's flops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from scenarios.modules.operators import price
from scenarios.modules.precision import rounding_to_tf32, rounds_to_tf32
from scenarios.modules.trace import Trace, cost_of, tensors_of, trace
from scenarios.workloads.script.gpu.repeated import key_of
from tests.scenarios.modules.zoo import ZOO, Case
from tests.scenarios.workloads.operators import Computed, Watch


def trace_case(case: Case, arguments: tuple[Any, ...], *, on_gpu: bool = False) -> Trace:
    return trace(case.make, "module", (arguments, {}), on_gpu=on_gpu)


def passes(module: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Forward and back: losses if there are some, else all outputs with a gradient each."""
    outputs = tensors_of(module(*arguments))
    losses = [each for each in outputs if each.numel() == 1]
    chosen = losses or [each for each in outputs if each.requires_grad]
    torch.autograd.backward(chosen, None if losses else [torch.empty_like(each) for each in chosen])


@pytest.mark.parametrize("name", ZOO)
def test_traced_operators_equal_the_profilers(name: str) -> None:
    """Torch adds up gradients in place where tensors have values: add_ for add."""
    case, arguments = ZOO[name], ZOO[name].arguments()
    with set_checkpoint_early_stop(False):  # which stops inside an operator that the profiler has seen begin
        found, module = trace_case(case, arguments), case.make()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            passes(module, arguments)
    names = (each.name for each in (*found.forward, *found.backward))
    counted = Counter(map(in_place, _work(profiler.events())))
    counted["clone_"] += 2 * (name == "gru")  # torch's cells work in place, but where tensors are watched
    assert Counter(map(in_place, names)) == +counted
    assert found.unknown == ()


def test_only_operators_that_checkpointing_repeats_count_as_recomputed() -> None:
    """The forward pass of a block, in its backward pass; without checkpointing there is none, whatever the module."""
    case = ZOO["checkpoint"]
    found = trace_case(case, case.arguments())
    with set_checkpoint_early_stop(False):
        whole = trace_case(case, case.arguments())
    for one in (found, whole):
        again = [each for each in one.backward if each.kernel.recomputed_flops]
        assert {each.module for each in again} <= {f"Checkpointed.block.{place}" for place in range(3)}
        assert all(each.kernel.recomputed_flops == each.kernel.flops for each in again)
        assert not any(each.kernel.recomputed_flops for each in one.forward)
    block = [each for each in whole.forward if each.module.startswith("Checkpointed.block")]
    (segment,) = whole.segments(frozenset())
    assert segment.kernel.recomputed_flops == sum(each.kernel.flops for each in block)
    others = (trace_case(each, each.arguments()) for name, each in ZOO.items() if name != "checkpoint")
    assert not any(each.kernel.recomputed_flops for one in others for each in (*one.forward, *one.backward))


def in_place(name: str) -> str:
    return {"index_put": "index_put_", "_index_put_impl_": "index_put_"}.get(name, name.removesuffix("_") + "_")


def _work(events: Any) -> list[str]:
    """Return the outermost operators that do work: none inside another, no views, nothing that splits into others."""
    found: list[str] = []
    waiting = [event for event in events if event.cpu_parent is None]
    while waiting:
        event = waiting.pop()
        name = event.name.removeprefix("aten::")
        if not event.name.startswith("aten::") or _is_composite(name):
            waiting += event.cpu_children
        elif not (name in FREE or _is_view(name)):
            found.append(name)
    return found


# New names, memory that nobody has filled, numbers read, and the slices of memory that splitting gives.
FREE = {
    *("alias", "detach", "empty", "empty_like", "empty_strided", "new_empty", "resize_", "as_strided", "_unsafe_view"),
    *("_local_scalar_dense", "result_type", "lift_fresh", "unsafe_split", "set_", "_reshape_alias"),
}


def _is_composite(name: str) -> bool:
    """Return whether all that the operator does is to call others."""
    packet = getattr(torch.ops.aten, name)
    schemas = [str(getattr(packet, each)._schema).split("(")[0] for each in packet.overloads()]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    known = [schema for schema in schemas if torch._C._dispatch_has_kernel(schema)]
    return any(has_kernel(each, "CompositeImplicitAutograd") and not has_kernel(each, "CPU") for each in known)


def _is_view(name: str) -> bool:
    packet = getattr(torch.ops.aten, name)
    return any(getattr(packet, each).is_view for each in packet.overloads())


@pytest.mark.parametrize("name", ZOO)
def test_traced_bytes_equal_those_of_a_real_run(name: str) -> None:
    case, arguments = ZOO[name], ZOO[name].arguments()
    found, module = trace_case(case, arguments), case.make()
    watched = Computed("module", found.forward[0].kernel)
    with Watch(watched):
        passes(module, arguments)
    costs = [each.kernel for each in (*found.forward, *found.backward)]
    assert sum(each.bytes_read + each.bytes_written for each in costs) == pytest.approx(
        watched.touched_bytes, rel=0.005
    )


@pytest.mark.parametrize("name", ZOO)
def test_flops_equal_torchs_counter(name: str) -> None:
    """The counter has no formula for the CPU's fused attention, but for attention."""
    case, arguments = ZOO[name], ZOO[name].arguments()
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    formulas = {
        fused: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value),
        back: lambda gradient, query, key, value, *_, **__: sdpa_backward_flop_count(gradient, query, key, value),
    }
    module = case.make()
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        passes(module, arguments)
    assert trace_case(case, arguments).flops == counter.get_total_flops()


def test_operators_belong_to_the_module_that_calls_them_in_both_passes() -> None:
    case = ZOO["transformer"]
    found = trace_case(case, case.arguments())
    products = [(each.name, each.module) for each in found.backward if each.name == "mm"]
    layers = [f"Transformer.layers.layers.{index}" for index in (1, 0)]
    inner = [f"{layer}.{name}" for layer in layers for name in ("linear2", "linear1", "self_attn", "self_attn")]
    both = [("mm", module) for module in inner for _ in range(2)]  # the gradients of input and weight
    assert products == both[:-1], "the first input needs none"
    assert {each.module for each in found.forward if each.name == "native_layer_norm"} == {
        f"{layer}.{name}" for layer in layers for name in ("norm1", "norm2")
    }


def test_a_pass_has_the_modules_of_its_operators_fused_or_not() -> None:
    case = ZOO["transformer"]
    found = trace_case(case, case.arguments())
    for kernel in (cost_of(found.forward), cost_of(found.forward, fuses="compiled")):
        runs = {layer: sum(dict(each).values()) for layer, each in kernel.layers}
        inner = {layer.removeprefix("layers.layers.0.") for layer in runs if layer.startswith("layers.layers.0.")}
        assert {"linear1", "linear2", "self_attn"} <= inner
        assert all(runs[f"layers.layers.0.{name}"] == runs[f"layers.layers.1.{name}"] for name in inner)
        assert all(place < len(kernel.parts) for _, each in kernel.layers for place, _ in each)
    assert cost_of(found.forward) == replace(cost_of(found.forward), layers=()), "names are no work"


def test_recomputed_operators_belong_to_their_module_and_keep_no_memory() -> None:
    """The block's hidden layer is in the backward pass again, and is not kept for it."""
    case = ZOO["checkpoint"]
    found = trace_case(case, case.arguments())
    assert [each.module for each in found.backward if each.name == "tanh"] == ["Checkpointed.block.1"]
    hidden = 6 * 18 * 4
    assert sum(found.kept_bytes.values()) < hidden < sum(found.held_at_peak.values())


def test_autocast_for_gpus_and_dropout_are_theirs() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                return self.layers(x).float().sum()

    found = trace(Half, "half", ((torch.empty(4, 8),), {}), on_gpu=True)
    assert {each.kernel.dtype for each in found.forward if each.kernel.kind == "gemm"} == {"bfloat16"}
    assert [each.name for each in found.forward if "dropout" in each.module or each.module == "Half.layers.1"] == [
        "native_dropout"
    ]


@pytest.fixture
def tf32() -> Iterator[None]:
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.usefixtures("tf32")
def test_tf32_follows_torchs_backend_setting() -> None:
    case = ZOO["mlp"]
    products = [
        each.kernel for each in trace_case(case, case.arguments(), on_gpu=True).forward if each.kernel.kind == "gemm"
    ]
    assert {each.dtype for each in products} == {"tf32"}
    assert {each.kernel.dtype for each in trace_case(case, case.arguments()).forward} == {"float32"}


def _set_fp32_precision(of_products: str, of_convolutions: str) -> None:
    cudnn: Any = torch.backends.cudnn
    torch.backends.cuda.matmul.fp32_precision = of_products
    cudnn.conv.fp32_precision = of_convolutions


@pytest.mark.parametrize(
    ("tell", "expected"),
    [
        (lambda: None, (False, True)),
        (lambda: torch.set_float32_matmul_precision("high"), (True, True)),
        (lambda: setattr(torch.backends.cudnn, "allow_tf32", False), (False, False)),
        (lambda: _set_fp32_precision("tf32", "ieee"), (True, False)),
        (lambda: _set_fp32_precision("ieee", "tf32"), (False, True)),
    ],
)
def test_tf32_follows_every_setting_of_torch(tell: Callable[[], None], expected: tuple[bool, bool]) -> None:
    given = (torch.empty(4, 4, device="meta"),) * 2
    try:
        tell()
        assert rounds_to_tf32() == expected
        kernel, _ = price(torch.ops.aten.mm.default, given, {}, given[0], on_gpu=True)
        assert kernel is not None
        assert kernel.dtype == ("tf32" if expected[0] else "float32")
        assert key_of(torch.ops.aten.mm.default, given, {}) is not None
    finally:  # `allow_tf32` sets what both ways give
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True


@pytest.mark.parametrize("precisions", [("tf32", "ieee"), ("ieee", "tf32"), None])
def test_rounding_is_set_and_restored_beside_either_setting(precisions: tuple[str, str] | None) -> None:
    """A process that has set `fp32_precision` cannot read `allow_tf32`."""
    backends: Any = torch.backends
    try:
        if precisions:
            _set_fp32_precision(*precisions)
        before = rounds_to_tf32()
        for products, convolutions in (True, False), (False, True):
            with rounding_to_tf32(products=products, convolutions=convolutions):
                assert rounds_to_tf32() == (products, convolutions)
            assert rounds_to_tf32() == before
        if precisions:
            assert (backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision) == precisions
        else:
            assert (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32) == before
    finally:
        backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32 = False, True
