"""Buckets of traced modules against those of real DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from torch import Tensor
from torch._C._distributed_c10d import GradBucket, HashStore
from torch.nn.parallel import DistributedDataParallel

from scenarios.config.scenario import Buckets
from scenarios.modules.module import Module
from tests.lanes import examples
from tests.scenarios.modules.layers import WIDTH, Layers, Shape, shapes
from tests.small import scenario

CAP_BYTES = 20_000
Bucket = tuple[str, ...]


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def of_ddp(shape: Shape, steps: int = 3, **options: Any) -> list[Bucket]:
    """The parameters of each bucket in the order of their reductions, in the last of some steps."""
    module = Layers(shape)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    replica = DistributedDataParallel(module, bucket_cap_mb=CAP_BYTES / (1 << 20), **options)
    reduced: list[Bucket] = []

    def hook(_: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        reduced.append(tuple(names[id(parameter)] for parameter in bucket.parameters()))
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    hook.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}  # DDP reads no strings
    replica.register_comm_hook(None, hook)
    for _ in range(steps):
        reduced.clear()
        replica(torch.ones(3, WIDTH)).backward()
    return reduced


def of_trace(shape: Shape, **options: Any) -> list[Bucket]:
    buckets = Buckets(first_bytes=CAP_BYTES, cap_bytes=CAP_BYTES)
    module = Module(lambda: Layers(shape), scenario(buckets=buckets), **options)
    traced = module.trace(torch.empty(3, WIDTH))
    return [tuple(traced.parameters[index].name for index in bucket) for bucket in module.buckets_of(traced)]


@examples(20, deadline=None)
@given(shape=shapes(unused=False))
def test_buckets_are_rebuilt_in_the_order_of_arrival(shape: Shape) -> None:
    assert of_trace(shape) == of_ddp(shape)


@examples(20, deadline=None)
@given(shape=shapes(unused=True))
def test_buckets_with_static_graph(shape: Shape) -> None:
    assert of_trace(shape, static_graph=True) == of_ddp(shape, static_graph=True)


@examples(20, deadline=None)
@given(shape=shapes(unused=True))
def test_buckets_with_unused_parameters(shape: Shape) -> None:
    assert of_trace(shape, find_unused_parameters=True) == of_ddp(shape, find_unused_parameters=True)
