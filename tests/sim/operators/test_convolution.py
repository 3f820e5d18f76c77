"""The law of convolutions: layouts, gradients and groups."""

from __future__ import annotations

import dataclasses

from scenarios.seam.operations.convolution import Convolution
from sim.operators.laws import seconds
from tests.sim.operators.rows import H200


def test_only_tensor_cores_need_a_change_of_layout() -> None:
    last = _square(32, 64, 64, 56, 3, 1)
    first = dataclasses.replace(last, is_channels_last=False)
    assert seconds(first, H200) > seconds(last, H200)
    single = [dataclasses.replace(each, dtype="float32") for each in (first, last)]
    assert seconds(single[0], H200) == seconds(single[1], H200)


def test_gradients_of_a_strided_convolution_do_the_work_of_its_output() -> None:
    output = _square(64, 256, 512, 28, 3, 2)
    for makes in ("input_gradient", "weight_gradient"):
        gradient = dataclasses.replace(output, makes=makes)
        assert 0.5 < seconds(gradient, H200) / seconds(output, H200) < 2


def test_a_channel_a_group_is_bound_by_memory() -> None:
    depthwise = dataclasses.replace(_square(64, 256, 256, 28, 3, 1), groups=256)
    moved = 2 * (depthwise.inputs + depthwise.outputs)
    assert moved / H200.memory_bytes_per_s < seconds(depthwise, H200, is_cold=True) < 5 * moved / 1e12


def test_an_empty_convolution_takes_no_time() -> None:
    assert seconds(_square(0, 64, 64, 56, 3, 1), H200) == 0


def _square(batch: int, inputs: int, outputs: int, size: int, kernel: int, stride: int) -> Convolution:
    return Convolution(
        batch=batch,
        in_channels=inputs,
        out_channels=outputs,
        size=(size, size),
        out_size=(size // stride, size // stride),
        kernel=(kernel, kernel),
        stride=(stride, stride),
        dtype="bfloat16",
        is_channels_last=True,
    )
