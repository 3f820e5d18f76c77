"""The parameter shapes of ResNet-50, made from its architecture.

Kaiming He et al., Deep Residual Learning for Image Recognition, CVPR 2016, table 1, the 50-layer column; parameters in
the order in which torchvision registers them: 161 tensors of 25,557,032 elements in all.
"""

from __future__ import annotations

from collections.abc import Iterator

Shape = tuple[int, ...]

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width of the 3x3 convolutions, number of blocks
EXPANSION = 4  # a block's outputs over its width
CLASSES = 1000


def resnet50_shapes() -> tuple[Shape, ...]:
    """Every trainable parameter's shape, in the order of the forward pass."""
    return tuple(_parameters())


def _parameters() -> Iterator[Shape]:
    yield from _normalized_convolution(3, 64, 7)
    inputs = 64
    for width, blocks in STAGES:
        for block in range(blocks):
            yield from _bottleneck(inputs, width, shortcut=block == 0)
            inputs = width * EXPANSION
    yield (CLASSES, inputs)
    yield (CLASSES,)


def _bottleneck(inputs: int, width: int, *, shortcut: bool) -> Iterator[Shape]:
    yield from _normalized_convolution(inputs, width, 1)
    yield from _normalized_convolution(width, width, 3)
    yield from _normalized_convolution(width, width * EXPANSION, 1)
    if shortcut:
        yield from _normalized_convolution(inputs, width * EXPANSION, 1)


def _normalized_convolution(inputs: int, outputs: int, kernel: int) -> Iterator[Shape]:
    """A convolution without bias, then the weight and bias of its batch normalization."""
    yield (outputs, inputs, kernel, kernel)
    yield (outputs,)
    yield (outputs,)
