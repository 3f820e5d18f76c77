"""What is remembered of operators, and found for DTensors, is what torch says anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.modules.operators import price, tensors_in
from scenarios.workloads.script.gpu.fakes import find_shapes_of_dtensors
from scenarios.workloads.script.gpu.known_values import Shadows
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory
from scenarios.workloads.script.gpu.repeated import CallOutcome, Repeated, key_of

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


class Remembering(TorchDispatchMode):
    """Holds what is remembered of each operator against what it gives now."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.repeated, self.found = Repeated(), list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        key = key_of(func, args, kwargs)
        known, result = self.repeated.find(key), func(*args, **kwargs)
        kernel, _ = price(func, args, kwargs, result, on_gpu=True)
        if known is not None:
            self.found.append(func.overloadpacket.__name__)
            assert known.kernel == kernel
            assert describe(known.again(args), args) == describe(result, args)
        elif key is not None:
            self.repeated.note(key, tensors_in((args, kwargs)), result, args[0] if args else None, kernel, False)
        return result


def describe(result: Any, args: tuple[Any, ...]) -> Any:
    if result is args[0]:
        return "first"
    sizes = [
        (each.shape, each.stride(), each.dtype, each.storage_offset(), each.untyped_storage().nbytes())
        for each in tensors_in(result)
    ]
    return type(result), sizes


CALLS: list[Callable[[Tensor, Tensor], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x.t() + y[:, :1].t(),
    lambda x, y: x.add_(y, alpha=2),
    lambda x, y: x @ y.t(),
    lambda x, y: torch.nn.functional.layer_norm(x, (6,)),
    lambda x, y: torch._foreach_add([x, y], [y, x]),
    lambda x, y: torch._foreach_addcdiv_([x, y], [y, x], [x, x], [0.5, 0.25]),
    lambda x, y: x.t().clone(),
    lambda x, y: x.clone(memory_format=torch.contiguous_format),
    lambda x, y: x.expand(3, 4, 6).sum(0, keepdim=True),
    lambda x, y: torch.cat([x, y], 1),
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: x.topk(2),
    lambda x, y: x.to(torch.bfloat16),
    lambda x, y: torch.nn.functional.conv2d(x.view(1, 1, 4, 6), y[:2, :2].reshape(1, 1, 2, 2)),
    lambda x, y: x.new_zeros(3, 5),
    lambda x, y: torch.rand_like(x),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_repeated_call_gives_and_costs_what_it_gave(call: Callable[[Tensor, Tensor], Any]) -> None:
    with Remembering() as remembering:
        for _ in range(2):
            call(meta(4, 6), meta(4, 6))
    assert remembering.found


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.t(),
        lambda x: x.detach(),
        lambda x: x.resize_(2, 3),
        lambda x: x.set_(meta(3)),
        lambda x: torch.add(x, x, out=meta(4, 6)),
        lambda x: aten._unsafe_view(x, [24]),
    ],
)
def test_views_and_what_is_given_for_results_are_not_remembered(call: Callable[[Tensor], Any]) -> None:
    with Remembering() as remembering:
        for _ in range(2):
            call(meta(4, 6))
    assert set(remembering.found) <= {"empty"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((aten.mul.Scalar, 2.0), (aten.mul.Scalar, 2)),
        ((aten.mul.Scalar, True), (aten.mul.Scalar, 1)),
        ((aten.sum.dim_IntList, [0]), (aten.sum.dim_IntList, [1])),
        ((aten.full_like.default, 2.0), (aten.full_like.default, 3.0)),
    ],
)
def test_arguments_of_other_types_and_values_are_other_calls(one: Any, other: Any) -> None:
    x = meta(4, 6)
    keys = [key_of(func, (x, value), {}) for func, value in (one, other)]
    assert None not in keys
    assert keys[0] != keys[1]


@pytest.mark.parametrize("has_lists", [True, False])
def test_a_step_of_an_optimizer_repeats_with_another_learning_rate(has_lists: bool) -> None:
    weight = torch.nn.Parameter(meta(4, 6))
    weight.grad = meta(4, 6)
    optimizer = torch.optim.Adam([weight], foreach=has_lists)
    with Remembering() as remembering:
        optimizer.step()
        known = len(remembering.repeated._known)
        optimizer.param_groups[0]["lr"] /= 2
        optimizer.step()
    assert len(remembering.repeated._known) == known


def test_a_fused_step_of_an_optimizer_repeats_with_another_learning_rate() -> None:
    lists, rest = ([meta(4, 6)],) * 5, {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}
    keys = [key_of(aten._fused_adamw_.default, lists, {"lr": rate, **rest}) for rate in (0.1, 0.2)]
    assert keys[0] is not None
    assert keys[0] == keys[1]


def test_long_keys_are_forgotten_ahead_of_many_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.workloads.script.gpu.repeated._MOST_PARTS", 1_000)
    tensors = [meta(size) for size in range(1, 201)]
    with Remembering() as remembering:
        for count in range(50, 200, 10):
            torch._foreach_add_(tensors[:count], 1)
    assert 0 < len(remembering.repeated._known) < 15


def test_a_tensor_given_twice_is_not_two_tensors() -> None:
    x, y = meta(4, 6), meta(4, 6)
    assert key_of(aten.mul.Tensor, (x, x), {}) != key_of(aten.mul.Tensor, (x, y), {})
    assert key_of(aten.mul.Tensor, (x, y), {}) == key_of(aten.mul.Tensor, (y, x), {})


def test_calls_that_depend_on_values_have_no_key() -> None:
    assert key_of(aten.nonzero.default, (meta(4),), {}) is None
    assert key_of(aten.mul.Tensor, (meta(4), meta(4, dtype=torch.complex64)), {}) is None


def test_sizes_that_a_tensor_on_the_cpu_gives_are_not_remembered() -> None:
    found = []
    with Remembering() as remembering:
        for lengths in ([5, 3, 2], [5, 5, 4], [5, 3, 2]):
            data, sizes = aten._pack_padded_sequence(meta(5, 3, 8), torch.tensor(lengths), False)
            padded, again = aten._pad_packed_sequence(data, sizes, False, 0.0, 5)
            found.append((len(data), padded.shape, again.tolist()))
    assert found == [(10, (5, 3, 8), [5, 3, 2]), (14, (5, 3, 8), [5, 5, 4]), (10, (5, 3, 8), [5, 3, 2])]
    assert {"_pack_padded_sequence", "_pad_packed_sequence"}.isdisjoint(remembering.found)


def test_results_on_the_cpu_are_not_remembered() -> None:
    repeated, key = Repeated(), key_of(aten.max.dim, (meta(4, 6), 1), {})
    repeated.note(key, [], (meta(4), torch.zeros(4, dtype=torch.int64)), None, None, False)
    assert repeated.find(key) is None


def test_a_list_of_results_is_made_of_new_tensors() -> None:
    made = CallOutcome(((torch.Size([2]), (1,), torch.float32),) * 2, list, False, None, False).again(())
    assert isinstance(made, list)
    assert made[0] is not made[1]


MESH = DeviceMesh("cpu", [0], _init_backend=False, _rank=0)


def spec(*shape: int, stride: tuple[int, ...] | None = None) -> DTensorSpec:
    steps = torch.empty(shape, device="meta").stride() if stride is None else stride
    return DTensorSpec(
        MESH, (Shard(0) if shape else Replicate(),), tensor_meta=TensorMeta(torch.Size(shape), steps, torch.float32)
    )


SCHEMAS: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.detach.default, (spec(4, 6),)),
    (aten.view.default, (spec(4, 6), [2, 12])),
    (aten.transpose.int, (spec(4, 6), 0, 1)),
    (aten.slice.Tensor, (spec(4, 6), 0, 1, 3)),
    (aten.split.Tensor, (spec(4, 6), 2)),
    (aten.add.Tensor, (spec(4, 6), spec(6))),
    (aten.add.Tensor, (spec(4, 6, stride=(1, 4)), spec(4, 6))),
    (aten.mul.Tensor, (spec(4, 1, 6), spec(3, 6))),
    (aten.mul.Scalar, (spec(4, 6, stride=(1, 4)), 2)),
    (aten.mul_.Tensor, (spec(4, 6, stride=(1, 4)), spec())),
    (aten.gt.Scalar, (spec(4, 6), 0)),
    (aten.pow.Tensor_Scalar, (spec(2, 3, 4, 5, stride=(60, 1, 15, 3)), 2)),
    (aten._foreach_add.List, ([spec(4, 6, stride=(1, 4)), spec(6)], [spec(4, 6), spec(6)])),
    (aten._foreach_div_.Scalar, ([spec(4, 6), spec(6)], 2.0)),
    (aten._foreach_norm.Scalar, ([spec(4, 6), spec(6)], 2)),
    (aten._foreach_lerp_.Scalar, ([spec(4, 6)], [spec(4, 6)], 0.1)),
    (aten._foreach_sqrt.default, ([spec(4, 6, stride=(1, 4))],)),
]


def not_ours(*_: Any) -> None:
    raise AssertionError("torch's own way was asked")


@pytest.mark.parametrize(("func", "args"), SCHEMAS)
def test_dtensors_shapes_are_those_that_torch_finds(func: Any, args: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = OpSchema(func, args, {})
    usual: Any = ShardingPropagator._propagate_tensor_meta_non_cached
    expected = usual(ShardingPropagator(), schema)
    monkeypatch.setattr(ShardingPropagator, "_propagate_tensor_meta_non_cached", not_ours)
    find_shapes_of_dtensors(Shadows(DeviceMemory(1 << 30), lambda: 0))
    found = ShardingPropagator()._propagate_tensor_meta_non_cached(schema)
    assert found == expected
    assert type(found) is type(expected)
