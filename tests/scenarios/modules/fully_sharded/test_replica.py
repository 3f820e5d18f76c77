"""What a fully sharded module does in the simulator: what overlaps, what it holds, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard._fsdp_collectives import _get_gradient_divide_factors
from torch.optim import Adam

from scenarios.config.scenario import Compression, DenseParallel
from scenarios.modules.fully_sharded.shards import ShardedParameter, copy_out, cut
from scenarios.modules.module import Module
from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from sim.run import simulate
from tests.scenarios.modules.training import play, trains
from tests.small import Play, cluster, scenario

FSDP, HSDP = DenseParallel(kind="fsdp"), DenseParallel(kind="hsdp")


class Tower(nn.Module):
    """Equal layers, each a unit, then a loss."""

    def __init__(self, layers: int = 4, width: int = 512) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def of(recording: Recording, kind: str, ending: str = "") -> list[Span]:
    spans = [span for span in recording.spans if (span.rank, span.step, span.kind) == (0, 1, kind)]
    return [span for span in spans if span.label.endswith(ending)]


def test_a_unit_is_gathered_while_the_one_before_computes() -> None:
    recording = play(trains(Module(Tower, scenario(), parallel=FSDP, optimizer=Adam), 32768, 512))
    gathers, outs = of(recording, "all_gather_into_tensor"), of(recording, "compute", ".copy_out")
    assert [span.label.split(".")[2] for span in gathers] == ["0", "1", "2", "3", "3", "2", "1", "0"]
    passes = [span for span in of(recording, "compute") if ".forward." in span.label]
    for ahead, computes in zip(gathers[1:4], passes, strict=False):
        assert ahead.start_ns < computes.end_ns, "ahead of its own unit"
    for gather, out in zip(gathers, outs, strict=True):
        assert gather.end_ns <= out.start_ns
    reductions = of(recording, "reduce_scatter_tensor")
    assert [span.label.split(".")[2] for span in reductions] == ["3", "2", "1", "0"]
    on_the_wire = sorted([*gathers, *reductions], key=lambda span: span.start_ns)
    for before, after in pairwise(on_the_wire):
        assert before.end_ns <= after.start_ns, "one process group does one at a time"
    assert of(recording, "compute", ".update")[0].start_ns >= reductions[-1].end_ns


def test_replicas_are_averaged_during_the_next_unit() -> None:
    recording = play(trains(Module(Tower, scenario(), parallel=HSDP, optimizer=Adam), 32768, 512))
    averaged, reductions = of(recording, "all_reduce"), of(recording, "reduce_scatter_tensor")
    assert [span.bytes_in for span in averaged] == [span.bytes_out for span in reductions]
    beside = [span for span in of(recording, "compute") if ".backward." in span.label]
    assert any(span.start_ns < averaged[0].start_ns < span.end_ns for span in beside)


def test_an_optimizer_changes_shards_alone() -> None:
    whole, shards = (
        of(
            play(trains(Module(Tower, scenario(), parallel=parallel, optimizer=Adam), 32768, 512)), "compute", ".update"
        )[0]
        for parallel in (DenseParallel(), FSDP)
    )
    assert shards.bytes_read == pytest.approx(whole.bytes_read / 4, rel=1e-3)


def test_memory_contains_shards_and_gathered_units() -> None:
    layer, x = 4 * (512 * 512 + 512), torch.empty(64, 512, device="meta")
    whole = scenario(cluster(), library="nccl")
    parts: dict[str, list[int]] = {}
    for part in Module(Tower, whole, parallel=FSDP, optimizer=Adam).memory(x):
        parts.setdefault(part.name, []).append(part.size_bytes)
    assert parts["weights"] == parts["gradient shards"] == [4 * layer // 4]
    assert parts["optimizer state"] == [pytest.approx(2 * layer, rel=1e-3)]
    # One is copied out of its gather while the next is on its way; in the backward pass that comes after the copy.
    assert parts["gathered units"] == [3 * layer, 2 * layer]
    assert parts["reduced units"] == [layer]


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_shards_put_together_are_the_parameter(rows: int, size: int) -> None:
    made = [nn.Parameter(torch.randn(rows, 2)) for _ in range(2)]
    values = [each.detach().clone() for each in made]
    by_rank = [[ShardedParameter(nn.Parameter(value), size, place) for value in values] for place in range(size)]
    flat = torch.cat([each.padded for own in by_rank for each in own])
    copy_out(by_rank[0], flat, size)
    assert all(torch.equal(each.parameter, value) for each, value in zip(by_rank[0], values, strict=True))
    assert sum(each.own.shape[0] for own in by_rank for each in own) == 2 * rows
    again = torch.full_like(flat, torch.nan)
    cut(values, again, size)
    assert torch.equal(again, flat)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("parallel", [FSDP, HSDP], ids=lambda each: each.kind)
def test_gradients_are_divided_as_in_torch(parallel: DenseParallel, dtype: torch.dtype) -> None:
    class OfSize:
        def __init__(self, ranks: int) -> None:
            self.size = lambda: ranks

    sizes = (12, None) if parallel is FSDP else (3, OfSize(4))
    found: list[Any] = []

    async def body(rank: Rank) -> None:
        found.append(Module(Tower, scenario(), parallel=parallel).on(rank)._factors(dtype))  # type: ignore[attr-defined]

    simulate(scenario(cluster(4, 3), library="nccl", payload="sizes"), Play(body))
    before, after, *_ = _get_gradient_divide_factors(OfSize(sizes[0]), sizes[1], dtype)  # type: ignore[arg-type]
    assert found[0] == (before or 1, after or 1)


class Borrows(nn.Module):
    """Uses a layer's weight outside of the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return (self.own(x) @ self.own.weight).mean()


class Shares(Tower):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__(2, 8)
        self.layers[1].weight = self.layers[0].weight


def tower(change: Callable[[Any], object]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        made = Tower(2, 8)
        change(made)
        return made

    return make


@pytest.mark.parametrize(
    ("make", "parallel", "sentence"),
    [
        (
            Borrows,
            FSDP,
            "module own: mm in its forward pass reads own.weight while unit own is sharded: expected it to be used only"
            " inside its unit's forward",
        ),
        (Shares, FSDP, "each parameter in one unit, but 'layers.0' and 'layers.1' share one"),
        (Tower, DenseParallel(kind="fsdp", units=("top",)), "submodules that are called, but 'top' is none"),
        (Tower, DenseParallel(kind="fsdp", units=("layers",)), "submodules that are called, but 'layers' is none"),
        (
            tower(lambda made: made.layers[0].requires_grad_(False)),
            FSDP,
            "parameters that all require gradients, but 'layers.0' has one that does not",
        ),
        (
            tower(lambda made: setattr(made, "scale", nn.Parameter(torch.tensor(1.0)))),
            FSDP,
            "parameters with at least one dimension, but 'the root' has a single number",
        ),
        (
            tower(lambda made: made.layers[0].register_parameter("other", nn.Parameter(torch.ones(1).half()))),
            FSDP,
            "parameters of one dtype in each unit, but 'layers.0' has several",
        ),
    ],
)
def test_unsupported_sharding_raises_one_sentence(make: Any, parallel: DenseParallel, sentence: str) -> None:
    with pytest.raises(ProgramError, match=f"{sentence}$"):
        play(trains(Module(make, scenario(), name="own", parallel=parallel), 32768, 8))


def test_a_shard_group_without_replicas_raises_one_sentence() -> None:
    parallel = DenseParallel(kind="hsdp", shard_group_size=3)
    with pytest.raises(ProgramError, match=r"module Tower: parallel.shard_group_size = 3: expected a divisor of the 4"):
        play(trains(Module(Tower, scenario(), parallel=parallel), 32768, 512))


def test_a_second_forward_before_the_backward_raises_one_sentence() -> None:
    async def body(rank: Rank) -> None:
        own = Module(Tower, scenario(), parallel=FSDP).on(rank)
        for _ in range(2):
            await own(torch.ones(4, 512, device=rank.device))

    with pytest.raises(ProgramError, match="rank 0: module Tower: called twice before a backward pass"):
        play(body)


def test_compression_of_shards_raises_one_sentence() -> None:
    compressed = scenario(compression=Compression(kind="batched_powersgd"))
    with pytest.raises(ProgramError, match="'batched_powersgd': expected 'none', for only DDP's gradient buckets are"):
        Module(Tower, compressed, parallel=FSDP)


@pytest.mark.parametrize(
    ("parallel", "compression", "sentence"),
    [
        (
            FSDP,
            Compression(),
            r"'dynamic' with parallel.kind = 'fsdp': expected None, for each rank would check its own",
        ),
        (
            HSDP,
            Compression(),
            r"'dynamic' with parallel.kind = 'hsdp': expected None, for each rank would check its own",
        ),
        (
            DenseParallel(),
            Compression(kind="batched_powersgd"),
            r"with compression.kind = 'batched_powersgd': expected No",
        ),
    ],
)
def test_loss_scaling_with_shards_or_compression_raises_one_sentence(
    parallel: DenseParallel, compression: Compression, sentence: str
) -> None:
    with pytest.raises(ProgramError, match=f"module Tower: loss_scaling = .*{sentence}"):
        Module(Tower, scenario(compression=compression), parallel=parallel, loss_scaling="dynamic")


class Late(nn.Module):
    """Uses its weight before an argument that comes late, whose gradient is so there first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ (self.weight * 2)).mean()


def test_a_gradient_after_its_units_backward_raises_one_sentence_before_any_step() -> None:
    model, x = Module(Late, scenario(), parallel=FSDP), torch.ones(4, 8, requires_grad=True)
    with pytest.raises(ProgramError, match=r"^module Late: no reduction for weight: expected gradients before their"):
        model.traced(((x,), {}), late=(0,))


def test_an_optimizer_over_whole_parameters_raises_one_sentence() -> None:
    model = Module(Tower, scenario(), parallel=FSDP, optimizer=torch.optim.Adafactor)
    with pytest.raises(ProgramError, match=r"module Tower: optimizer Adafactor computes .* over whole parameters"):
        model.updated_on(4)
