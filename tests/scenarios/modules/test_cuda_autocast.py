"""Autocast for traces of GPUs against torch's own rules for CUDA, on tensors that claim to be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scenarios.modules.cuda_autocast import (
    _LOWER,
    _LOWER_ALIKE,
    _SUMS,
    _WIDE,
    _WIDE_ALIKE,
    _WIDEST,
    autocast_here,
    autocast_on_meta,
    cuda_autocast,
)

Make = Callable[..., Tensor]
aten = torch.ops.aten

# Functions of (tensor of the drawn dtype, tensor of float32), each of any shape.
CASES: dict[str, Callable[[Make, Make], object]] = {
    "linear": lambda some, wide: functional.linear(some(3, 4), wide(5, 4), wide(5)),
    "matmul": lambda some, wide: some(3, 4) @ wide(4, 5),
    "bmm": lambda some, wide: torch.bmm(some(2, 3, 4), wide(2, 4, 5)),
    "einsum": lambda some, wide: torch.einsum("ij,kj->ik", some(3, 4), wide(5, 4)),
    "mv": lambda some, wide: torch.mv(some(3, 4), wide(4)),
    "addmv": lambda some, wide: torch.addmv(wide(3), some(3, 4), wide(4)),
    "addr": lambda some, wide: torch.addr(some(3, 4), wide(3), wide(4)),
    "multi_dot": lambda some, wide: torch.linalg.multi_dot([some(3, 4), wide(4, 5), wide(5, 2)]),
    "prelu": lambda some, wide: functional.prelu(some(3, 4), wide(4)),
    "conv2d": lambda some, wide: functional.conv2d(some(1, 2, 5, 5), wide(3, 2, 3, 3)),
    "conv1d same": lambda some, wide: functional.conv1d(some(1, 2, 5), wide(3, 2, 3), padding="same"),
    "exp": lambda some, wide: some(3).exp(),
    "log1p": lambda some, wide: some(3).log1p(),
    "pow": lambda some, wide: some(3) ** 3,
    "pow of a number": lambda some, wide: 2 ** some(3),
    "rsqrt": lambda some, wide: some(3).rsqrt(),
    "softplus": lambda some, wide: functional.softplus(some(3)),
    "layer_norm": lambda some, wide: functional.layer_norm(some(3, 4), (4,), wide(4), wide(4)),
    "rms_norm": lambda some, wide: functional.rms_norm(some(3, 4), (4,)),
    "group_norm": lambda some, wide: functional.group_norm(some(3, 4), 2),
    "cosine_similarity": lambda some, wide: functional.cosine_similarity(some(3, 4), wide(3, 4)),
    "logsumexp": lambda some, wide: some(3, 4).logsumexp(1),
    "upsample": lambda some, wide: functional.interpolate(some(1, 2, 4), scale_factor=2),
    "cdist": lambda some, wide: torch.cdist(some(3, 4), some(2, 4)),
    "sum": lambda some, wide: some(3, 4).sum(),
    "sum of rows": lambda some, wide: some(3, 4).sum(1),
    "sum in a dtype": lambda some, wide: some(3, 4).sum(dtype=torch.float16),
    "cumsum": lambda some, wide: some(3, 4).cumsum(1),
    "prod": lambda some, wide: some(3, 4).prod(),
    "norm": lambda some, wide: torch.linalg.vector_norm(some(3, 4), dim=1),
    "mean": lambda some, wide: some(3, 4).mean(),
    "softmax": lambda some, wide: functional.softmax(some(3, 4), 1),
    "log_softmax": lambda some, wide: functional.log_softmax(some(3, 4), 1),
    "cross_entropy": lambda some, wide: functional.cross_entropy(some(3, 4), wide(3, 4)),
    "mse_loss": lambda some, wide: functional.mse_loss(some(3), wide(3)),
    "bce with logits": lambda some, wide: functional.binary_cross_entropy_with_logits(some(3), wide(3)),
    "addcmul": lambda some, wide: torch.addcmul(some(3), wide(3), some(3)),
    "dot": lambda some, wide: torch.dot(some(3), wide(3)),
    "tensordot": lambda some, wide: torch.tensordot(some(3, 4), wide(4, 5), 1),
    "bilinear": lambda some, wide: functional.bilinear(some(3, 4), some(3, 5), wide(2, 4, 5)),
    "cat": lambda some, wide: torch.cat([some(3), wide(3)]),
    "cat of one dtype": lambda some, wide: torch.cat([some(3), some(3)]),
    "stack": lambda some, wide: torch.stack([some(3), wide(3)]),
    "add": lambda some, wide: some(3) + wide(3),
    "relu": lambda some, wide: some(3).relu(),
    "max_pool3d": lambda some, wide: functional.max_pool3d(some(1, 2, 4, 4, 4), 2),
    "pad": lambda some, wide: functional.pad(some(1, 2, 4), (1, 1), mode="reflect"),
}
NO_WORK = {"empty", "device", "t", "view", "permute", "unsqueeze", "transpose", "expand", "_unsafe_view", "squeeze"}


class Seen(TorchDispatchMode):
    """What is dispatched below autocast: operators, with the dtypes that they read and make."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[torch.dtype], list[torch.dtype]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in NO_WORK:
            both = (tree_leaves(each) for each in ((args, kwargs), result))
            self.calls.append((name, *([one.dtype for one in each if isinstance(one, Tensor)] for each in both)))
        return result


@contextmanager
def of_cuda() -> Iterator[None]:
    """torch.autocast("cuda") without a GPU, which would switch it off."""
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)


@contextmanager
def ours() -> Iterator[None]:
    with cuda_autocast(), torch.autocast("cpu", torch.bfloat16):
        yield


@contextmanager
def on_meta() -> Iterator[None]:
    with autocast_on_meta(lambda tensor: tensor.is_meta), autocast_here(), of_cuda():
        yield


CONTEXTS = {"cuda": of_cuda, "cpu": ours, "meta": on_meta}


def observe(case: Callable[[Make, Make], object], dtype: torch.dtype, device: str) -> Seen:
    tensors = nullcontext() if device == "meta" else FakeTensorMode(allow_non_fake_inputs=True)
    with tensors, torch.no_grad(), CONTEXTS[device]():

        def some(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        def wide(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        with Seen() as found:
            case(some, wide)
    return found


RULES = (_LOWER, _LOWER_ALIKE, _WIDE, _WIDE_ALIKE, _SUMS, _WIDEST)

# The CPU's softmax makes a copy of float32 where CUDA's reads halves.
COPIES = {"softmax", "log_softmax", "cross_entropy"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_autocast_gives_the_dtypes_of_cuda(device: str, name: str, dtype: torch.dtype) -> None:
    theirs, found = (observe(CASES[name], dtype, where).calls for where in ("cuda", device))
    assert found
    if device == "cpu" and name in COPIES:
        makes, ours_makes = ([(op, made) for op, _, made in calls if op != "_to_copy"] for calls in (theirs, found))
        assert ours_makes == makes
    else:
        assert found == theirs


def test_every_rule_of_cuda_is_registered() -> None:
    """But the one that refuses."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    known = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if has(name, "AutocastCUDA")}
    assert known - set(" ".join(RULES).split()) == {"binary_cross_entropy"}


def test_a_parameter_is_cast_once_in_a_context() -> None:
    weight = torch.ones(4, 4, device="meta", requires_grad=True)
    with autocast_on_meta(lambda tensor: tensor.is_meta), autocast_here(), Seen() as found:
        for _ in range(2):
            with of_cuda():
                functional.linear(functional.linear(torch.ones(2, 4, device="meta"), weight), weight)
    assert [op for op, *_ in found.calls].count("_to_copy") == 2 * 2  # with what is multiplied


def test_the_cpus_rules_are_back_afterwards() -> None:
    def find() -> list[torch.dtype]:
        wide = torch.ones(3, 4)
        with torch.autocast("cpu", torch.bfloat16):
            return [each.dtype for each in (torch.softmax(wide.bfloat16(), 1), wide.bfloat16().exp(), wide.prod())]

    before = find()
    with cuda_autocast():
        assert find() == [torch.float32] * 3
    assert find() == before == [torch.bfloat16, torch.bfloat16, torch.float32]
