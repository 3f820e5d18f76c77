"""The law of fused attention: masks, grouped heads, and backward passes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scenarios.seam.operations.attention import Attention
from sim.operators.laws import seconds
from tests.sim.operators.rows import H200, gpu_of, system

ATTENTIONS = st.builds(
    lambda batch, heads, length, size, dtype: Attention(
        batch=batch, heads=heads, key_heads=heads, queries=length, keys=length, head_size=size, dtype=dtype
    ),
    batch=st.integers(1, 64),
    heads=st.integers(1, 32),
    length=st.integers(1, 8192),
    size=st.sampled_from([32, 64, 80, 128, 256]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
)


@given(ATTENTIONS)
def test_a_causal_mask_never_takes_much_longer(attention: Attention) -> None:
    causal = dataclasses.replace(attention, is_causal=True)
    assert seconds(causal, H200) <= 1.5 * seconds(attention, H200)


@given(ATTENTIONS)
def test_a_backward_pass_takes_longer(attention: Attention) -> None:
    assert seconds(dataclasses.replace(attention, is_backward=True), H200) > seconds(attention, H200)


@given(ATTENTIONS)
def test_twice_the_batch_never_takes_less(attention: Attention) -> None:
    double = dataclasses.replace(attention, batch=2 * attention.batch)
    assert seconds(double, H200) >= 0.999 * seconds(attention, H200)


@given(ATTENTIONS)
def test_a_server_takes_longer_than_a_script(attention: Attention) -> None:
    assert seconds(dataclasses.replace(attention, is_serving=True), H200) > seconds(attention, H200)


@given(ATTENTIONS)
@example(  # 108 tiles, as many as multiprocessors: one wave whatever a tile takes
    Attention(batch=1, heads=1, key_heads=1, queries=6860, keys=6860, head_size=256, dtype="bfloat16")
)
def test_flash_attention_1_takes_longer_in_16_bit(attention: Attention) -> None:
    a100 = gpu_of("dgx_a100")
    older = dataclasses.replace(a100, flash_attention=1)
    for each in (attention, dataclasses.replace(attention, is_backward=True)):
        assert seconds(dataclasses.replace(each, dtype="float32"), older) == seconds(
            dataclasses.replace(each, dtype="float32"), a100
        )
        half = dataclasses.replace(each, dtype="bfloat16")
        assert seconds(half, a100) <= seconds(half, older) <= 1.56 * seconds(half, a100)
        served = dataclasses.replace(half, is_serving=True)
        assert seconds(served, older) == seconds(served, a100)


@pytest.mark.parametrize(("heads", "head_size", "layers", "measured_s"), [(16, 64, 24, 17.42), (12, 64, 12, 6.4351)])
def test_flash_attention_1_is_most_of_a_long_step(heads: int, head_size: int, layers: int, measured_s: float) -> None:
    """MPT-350m and 125m on 8 A100 (llm-foundry v0.0.4), two sequences of 65,536 each: nearly all of it is attention."""
    older = dataclasses.replace(gpu_of("dgx_a100"), flash_attention=1)
    forward = _attention(1, heads, heads, 65536, head_size, is_causal=True)
    takes_s = sum(seconds(dataclasses.replace(forward, is_backward=each), older) for each in (False, True))
    assert 0.85 < 2 * layers * takes_s / measured_s < 0.93


def test_a_window_saves_time_on_long_prompts() -> None:
    whole = _attention(2, 16, 16, 16384, 128, is_causal=True)
    assert seconds(dataclasses.replace(whole, window=1024), H200) < 0.3 * seconds(whole, H200)


def test_grouped_keys_save_memory_alone() -> None:
    many, one = _attention(8, 32, 32, 4096, 128), _attention(8, 32, 1, 4096, 128)
    assert 0.8 * seconds(many, H200) < seconds(one, H200) <= seconds(many, H200)


@pytest.mark.parametrize(("name", "is_packed"), [("h200_sxm", True), ("b200_sxm", False)])
def test_few_queries_share_a_tile_where_heads_share_keys(name: str, is_packed: bool) -> None:
    grouped, single = (
        dataclasses.replace(_attention(256, 32, key_heads, 16, 128, is_causal=True), is_serving=True)
        for key_heads in (4, 32)
    )
    gained = seconds(single, system(name)) / seconds(grouped, system(name))
    assert gained > 3 if is_packed else gained < 1.5


def _attention(batch: int, heads: int, key_heads: int, length: int, size: int, *, is_causal: bool = False) -> Attention:
    return Attention(
        batch=batch,
        heads=heads,
        key_heads=key_heads,
        queries=length,
        keys=length,
        head_size=size,
        dtype="bfloat16",
        is_causal=is_causal,
    )
