"""Exchanges that are encoded on their way: TorchRec's to the bit, also averaged gradients; and what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.torchrec_qcomms import BATCH, DIMS, EXCHANGED
from scenarios.config.scenario import QComms
from scenarios.quantized import Codec, RowCodec, quantized_comms
from scenarios.quantized.exchange import exchange
from scenarios.seam.rank import Rank
from scenarios.sparse.output_dist import (
    PooledEmbeddingDist,
    RwPooledEmbeddingDist,
    TwPooledEmbeddingDist,
    TwRwPooledEmbeddingDist,
)
from tests.lockstep import Lockstep
from tests.scenarios.quantized.recorded import record, same_bits

BATCHES = [BATCH] * len(DIMS)


@pytest.mark.parametrize("name", EXCHANGED)
def test_two_ranks_get_what_torchrec_gives_them(name: str) -> None:
    there, back, scale, scale_back = EXCHANGED[name]
    given = QComms(
        forward_precision=there,  # type: ignore[arg-type]
        backward_precision=back,  # type: ignore[arg-type]
        forward_loss_scale=scale,
        backward_loss_scale=scale_back,
    )
    codecs = quantized_comms(given)
    dist: PooledEmbeddingDist = TwPooledEmbeddingDist(dim_sum_per_rank=DIMS, codecs=codecs)
    if name.startswith("reduce_scatter"):
        dist = RwPooledEmbeddingDist(codecs=codecs)
    world = Lockstep(1, len(DIMS))
    inputs, grads = ([record(f"{name}.{part}.{rank}") for rank in range(2)] for part in ("pooled", "grad"))
    outputs = world.run(lambda rank: dist.forward(rank, inputs[rank.rank], BATCHES))
    back_home = world.run(lambda rank: dist.backward(rank, grads[rank.rank], BATCHES))
    for rank in range(len(DIMS)):
        assert same_bits(outputs[rank], record(f"{name}.output.{rank}"))
        assert same_bits(back_home[rank], record(f"{name}.grad_pooled.{rank}"))


INT8 = RowCodec(row_size=32)


def swap(codec: Codec | None, sends: list[list[int]], *, divisor: int = 1) -> tuple[list[Tensor], list[Tensor]]:
    """What ranks send, so many elements from each to each, and what comes of it."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(sum(of), generator=generator) for of in sends]

    async def body(rank: Rank) -> Tensor:
        me, receives = rank.rank, [of[rank.rank] for of in sends]
        return await exchange(
            rank,
            rank.world,
            given[me],
            receives=receives,
            sends=sends[me],
            codec=codec,
            label="x",
            divisor=divisor,
        )

    return given, Lockstep(1, len(sends)).run(body)


def squares(size: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(st.integers(0, 3), min_size=size, max_size=size), min_size=size, max_size=size)


@given(
    st.integers(1, 3).flatmap(squares),
    st.sampled_from(["fp16", "bf16", "int8", "fp8"]),
    st.integers(1, 3),
)
def test_received_values_are_the_sent_ones_after_the_codec(sends: list[list[int]], kind: str, divisor: int) -> None:
    """Also where a rank sends nothing, whatever the splits: rows do not reach over from one member to the next."""
    made = QComms(forward_precision=kind, fp8_quantize_dim=16)  # type: ignore[arg-type]
    codec = quantized_comms(made).all_to_all.forward
    assert codec is not None
    elements = [[32 * count for count in of] for of in sends]
    given, arrived = swap(codec, elements, divisor=divisor)
    parts = [codec.decode(codec.encode(one)).split(of) for one, of in zip(given, elements, strict=True)]
    for me, found in enumerate(arrived):
        wanted = torch.cat([part[me] for part in parts])
        assert same_bits(found, wanted / divisor)


def test_parts_of_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^x: 20 elements between this rank and rank 1, expected a multiple of 32"):
        swap(INT8, [[32, 20], [32, 32]])


def test_only_float32_is_encoded() -> None:
    dist = TwPooledEmbeddingDist(dim_sum_per_rank=DIMS, codecs=quantized_comms(QComms(forward_precision="fp16")))
    with pytest.raises(ValueError, match=r"output_dist: elements of torch.float64, expected torch.float32"):
        Lockstep(1, 2).run(lambda rank: dist.forward(rank, torch.zeros(8, DIMS[rank.rank]).double(), BATCHES))


@pytest.mark.parametrize("hosts", [1, 2])
def test_sums_of_int8_are_refused(hosts: int) -> None:
    codecs = quantized_comms(QComms(forward_precision="int8", backward_precision="int8"))
    batches, refused = [4] * (2 * hosts), "sums of rows of 32 elements in 8 bits, expected fp16 or bf16"
    dists: list[PooledEmbeddingDist] = [RwPooledEmbeddingDist(codecs=codecs)]
    dists.append(TwRwPooledEmbeddingDist(dim_sum_per_node=(8,) * hosts, codecs=codecs))
    pooled, grad = torch.zeros(sum(batches), 8), torch.zeros(4, 8 * hosts)
    for dist in dists:
        with pytest.raises(ValueError, match=refused):
            Lockstep(hosts, 2).run(lambda rank, dist=dist: dist.forward(rank, pooled, batches))
        with pytest.raises(ValueError, match=refused):
            Lockstep(hosts, 2).run(lambda rank, dist=dist: dist.backward(rank, grad, batches))
