"""Costs of the blocks that are probed."""

from __future__ import annotations

from real.calibration.kernels.blocks import cross, dot


def test_blocks_cost_what_their_shapes_say() -> None:
    """A linear layer is 2 * batch * inputs * outputs; a cross layer twice that of its two factors, and 2 a element.

    Its backward writes 4 times [batch, width], the gradient between the factors, and those of all parameters.
    """
    layer = cross(7, 10, 3)
    assert layer.ahead.flops == 7 * (2 * 10 * 3 * 2 + 2 * 10)
    assert dot(7, 4, 5).ahead.flops == 7 * 2 * 4 * 4 * 5
    kernel = layer.back.kernel("float32")
    assert kernel.flops == 2 * layer.ahead.flops
    assert kernel.bytes_written == 4 * (7 * 10 * 4 + 7 * 3 + 2 * 30 + 10)
