"""NCCL's calls on the CUDA lanes of a simulated device; a program behaves on these lanes as on a CPU's."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from real.libraries import library_of, moves, nccl
from real.libraries.gloo import Gloo
from real.libraries.library import DeviceLibrary
from real.libraries.moves import Joined
from real.libraries.nccl import Nccl
from real.rank.agreement import GroupAgreements
from real.rank.backend import TorchBackend
from real.rank.context import RankContext
from real.rank.cuda import Anchors, CudaLane, tensors_in
from real.rank.drive import play
from real.rank.journal import Journal, span
from real.rank.lanes import StreamLane
from scenarios.seam.errors import ScenarioError
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from tests.contract.worlds import scenario
from tests.real.rank.fake_cuda import MS, NAME, Device, NcclWork, Stream

GEMM = Kernel(kind="gemm")


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Iterator[dist.ProcessGroup]:
    """Yield the process group of this process alone."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=30))
    group = dist.group.WORLD
    assert group is not None
    yield group
    dist.destroy_process_group()


class Noted(Nccl):
    """A library of NCCL's calls that calls gloo, on tensors of the host."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.opened: list[str] = []
        self.lane_of: Callable[[bool], StreamLane] = lambda is_main: StreamLane()
        self.between: list[bool] = []

    def new_lane(self, *, is_main: bool) -> StreamLane:
        return self.lane_of(is_main)

    def between_steps(self) -> None:
        self.between.append(True)

    def open(self, joined: Joined) -> None:
        self._flags[joined.group.name] = torch.zeros(1)
        self.opened.append(joined.group.name)


class Handle:
    """A process group that keeps the tensors of its all-reduces."""

    def __init__(self, device: Device) -> None:
        self.device, self.library, self.summed = device, Stream(device), list[list[Tensor]]()

    def allreduce(self, tensors: list[Tensor], options: dist.AllreduceOptions) -> NcclWork:
        assert options.reduceOp == dist.ReduceOp.SUM  # type: ignore[comparison-overlap]
        self.summed.append(tensors)
        return NcclWork(self.library, lambda since_ns: since_ns + 4 * MS, tensors)


def test_a_group_of_nccl_is_opened_by_a_sum_of_one_element_and_a_barrier_is_another(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl, "torch", SimpleNamespace(zeros=lambda size, device: torch.ones(size), cuda=torch.cuda))
    wire, handle = Nccl(NAME), Handle(device)
    joined = Joined(group=Group("world", (0,)), handle=handle, order=(0,))  # type: ignore[arg-type]
    began_ns = device.now_ns
    wire.open(joined)
    assert device.now_ns - began_ns >= 4 * MS, "it is over before another group is made"
    began_ns = device.now_ns
    wire.barrier(joined)
    assert device.now_ns - began_ns < MS, "the program's await is on the device, as for all collectives"
    assert [[(one.numel(), one.dtype) for one in tensors] for tensors in handle.summed] == [[(1, torch.float32)]] * 2


@pytest.mark.parametrize("kind", ["exchange", "all_gather", "reduce_scatter"])
def test_copies_that_the_wire_makes_are_held_with_the_call(
    handle: dist.ProcessGroup, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = Joined(group=Group("world", (0,)), handle=handle, order=(0,))
    tensor = torch.arange(4.0)
    given = list[Tensor]()

    def starts(*arguments: Any, **options: Any) -> object:
        given.extend(arguments[1] if isinstance(arguments[1], list) else [arguments[1]])
        return SimpleNamespace()

    monkeypatch.setattr(dist, "all_to_all", starts)
    monkeypatch.setattr(moves, "ALL_GATHER", starts)
    monkeypatch.setattr(nccl, "REDUCE_SCATTER", starts)
    if kind == "exchange":
        sent = Noted().exchange(joined, [tensor], [tensor])
    elif kind == "all_gather":
        sent = moves.all_gather(joined, tensor, tensor)
    else:
        sent = Noted().reduce_scatter(joined, torch.empty(4, dtype=torch.complex64), torch.ones(4) * 1j, "sum")
    assert given[0].data_ptr() != tensor.data_ptr()
    held = {one.data_ptr() for one in tensors_in(sent.held)}
    assert {one.data_ptr() for one in given} <= held


def play_all(library: DeviceLibrary) -> tuple[list[Any], Journal, Rank]:
    """Call every kind of verb on two streams; calls are checked in the first step."""
    journal = Journal(0, 0, 1)
    observer = SimpleNamespace(step_begins=lambda index: None, step_ends=lambda: None)
    agreements = GroupAgreements(HashStore(), journal, 1, 30.0)
    context = RankContext(
        journal, scenario(1, 1).cluster, library, observer=observer, agreements=agreements, check="first"
    )
    rank = Rank(TorchBackend(context))
    values: list[Any] = []

    async def program() -> None:
        side = rank.stream("side")
        for step in range(3):
            with rank.step(step):
                tensor, parts = torch.arange(6.0) + step, torch.empty(6)
                doubled = await rank.compute(GEMM, torch.mul, tensor, 2)
                spawned = side.spawn(reduces(side, doubled))
                gathered = rank.all_gather_into_tensor(torch.empty(6), tensor)
                await rank.all_to_all([parts[:6]], [tensor])
                await rank.all_to_all_single(tensor, tensor, [6], [6])
                await rank.broadcast(tensor, 0)
                await rank.barrier()
                rank.record("sum", tensor.sum())
                values.append([(await spawned).tolist(), (await gathered).tolist(), parts.tolist()])

    async def reduces(side: Any, tensor: Tensor) -> Tensor:
        await side.all_reduce(tensor, dist.ReduceOp.SUM)
        result: Tensor = await side.compute(GEMM, torch.add, tensor, 1)
        return result

    play(program(), 0)
    context.settle()
    context.leave()
    return values, journal, rank


def test_a_program_runs_on_cuda_lanes_as_on_a_cpus(device: Device, handle: dist.ProcessGroup) -> None:
    anchors, library = Anchors(NAME), Noted()
    library.lane_of = lambda is_main: CudaLane(NAME, anchors, is_main=is_main)
    values, journal, _ = contextvars.copy_context().run(play_all, library)
    expected, of_cpu, _ = contextvars.copy_context().run(play_all, Gloo(torch.device("cpu")))
    assert values == expected
    assert library.opened == ["world", "intra:0", "cross:0", "side/world", "side/intra:0", "side/cross:0"]
    assert len(library.between) == 3
    (rows, metrics), (cpu_rows, cpu_metrics) = journal.take(is_last=True), of_cpu.take(is_last=True)
    assert metrics == cpu_metrics
    key = ("rank", "stream", "step", "kind", "group", "call", "sequence")
    assert sorted([getattr(span(row), name) for name in key] for row in rows) == sorted(
        [getattr(span(row), name) for name in key] for row in cpu_rows
    )
    assert any("side" in name for name in device.threads)
    assert any("checker" in name for name in device.threads)


def test_nccl_without_a_gpu_of_its_own_is_a_mistake_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ScenarioError) as caught:
        library_of("nccl").at(0)
    assert str(caught.value) == "library = 'nccl': expected CUDA devices, this machine has none; 'gloo' needs none"
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "1", "what the user has set, stays"
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")

    def count() -> int:
        assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "32", "it is set before the driver begins"
        return 2

    monkeypatch.setattr(torch.cuda, "device_count", count)
    with pytest.raises(ScenarioError) as caught:
        library_of("nccl").at(2)
    assert str(caught.value) == ("library = 'nccl': expected at most 2 ranks on this machine, one for each CUDA device")
