"""Draws operators of each family from the ranges of shapes that training uses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from real.calibration.operators.draws import Draw
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.operations import products as layouts
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import BagsBackward, BagsForward, uniform
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import Cat, HostCopy
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous, strided_call
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Sort


def _extent(draw: Draw, least: int, most: int) -> int:
    """Return an extent of a matrix; one in five is unaligned, like 479 features."""
    size = draw.size(least, most)
    if draw.share() < 0.2:
        return size + (size % 2 == 0)
    return max(8, size // 8 * 8)


def product(draw: Draw, dtype: str) -> Operation:
    """Draw a product of a linear layer, or of one of its gradients."""
    layout = draw.one_of((layouts.linear, layouts.linear_input_gradient, layouts.linear_weight_gradient))
    most = draw.scale.multiplications
    inner, columns = (_extent(draw, 8, min(16384, math.isqrt(most >> 4))) for _ in range(2))
    rows = draw.size(1, max(8, min(65536, most // (inner * columns))))
    return layout(rows, inner, columns, dtype, element_bytes=_bytes(dtype))


def _bytes(dtype: str) -> int:
    return ELEMENT_BYTES.get(dtype, 4)


def draw_batched_product(draw: Draw, dtype: str) -> Operation:
    """Draw a batched product."""
    batch = draw.size(2, min(8192, draw.scale.elements >> 8))
    most = max(64, draw.scale.multiplications // batch)
    rows, columns, inner = (draw.size(8, max(8, min(1024, round(most ** (1 / 3))))) for _ in range(3))
    return layouts.product(
        rows,
        columns,
        inner,
        dtype=dtype,
        element_bytes=_bytes(dtype),
        batch=batch,
        right_is_transposed=draw.one_of((False, True)),
    )


def attention(draw: Draw, dtype: str, is_backward: bool) -> Operation:
    """Draw self-attention, causal or not, or its backward pass."""
    head_size, heads = draw.one_of((64, 128)), draw.one_of((8, 12, 16, 32, 64))
    work = draw.scale.multiplications // (heads * head_size) // (8 if dtype == "float32" else 1)
    queries = 32 * draw.size(2, max(2, min(256, math.isqrt(work) // 32)))
    most = work // queries**2
    batch, key_heads = draw.size(1, max(1, min(64, most))), draw.one_of((heads, heads, heads // 4))
    return Attention(
        batch=batch,
        heads=heads,
        key_heads=heads if is_backward or dtype == "float32" else key_heads,
        queries=queries,
        keys=queries,
        head_size=head_size,
        dtype=dtype,
        is_causal=draw.one_of((True, False)),
        is_backward=is_backward,
    )


def convolution(draw: Draw, dtype: str) -> Operation:
    """Draw a convolution of a residual network, or one of its gradients."""
    side, channels = draw.one_of(((56, 64), (28, 128), (14, 256), (7, 512), (56, 256), (28, 512), (14, 1024)))
    kernel, stride, widened = draw.one_of((1, 3)), draw.one_of((1, 1, 2)), draw.one_of((1, 2, 4))
    out_side = -(-side // stride)
    while channels > 8 and channels**2 * widened * (kernel * out_side) ** 2 > draw.scale.multiplications:
        channels //= 2
    work = channels**2 * widened * (kernel * out_side) ** 2
    most = max(1, min(256, draw.scale.multiplications // work, draw.scale.elements // (channels * widened * side**2)))
    return Convolution(
        batch=draw.size(1, most),
        in_channels=channels,
        out_channels=channels * widened,
        size=(side, side),
        out_size=(out_side, out_side),
        kernel=(kernel, kernel),
        stride=(stride, stride),
        dtype=dtype,
        is_channels_last=draw.one_of((True, False)),
        makes=draw.one_of(("output", "input_gradient", "weight_gradient")),
    )


_NAMES = (
    *(("add", 2), ("add_", 2), ("mul", 2), ("mul", 1), ("add", 1), ("sub", 2), ("div", 1), ("relu", 1), ("gelu", 1)),
    *(("gelu_backward", 2), ("threshold_backward", 2), ("silu", 1), ("silu_backward", 2), ("sigmoid", 1), ("tanh", 1)),
    *(("tanh_backward", 2), ("exp", 1), ("rsqrt", 1), ("pow", 1), ("neg", 1), ("addcmul_", 3), ("zero_", 0)),
    *(("copy_", 1), ("native_dropout", 1), ("where", 2), ("gt", 1), ("masked_fill", 1), ("bernoulli_", 0)),
)


def pointwise(draw: Draw, dtype: str) -> Operation:
    """Draw an operator on contiguous elements."""
    name, inputs = draw.one_of(_NAMES)
    elements = draw.elements()
    one, mask = Operand(dtype=dtype, elements=elements), Operand(dtype="bool", elements=elements)
    match name:
        case "native_dropout":
            return Pointwise(name=name, elements=elements, inputs=(one,), outputs=(one, mask))
        case "where":
            return Pointwise(name=name, elements=elements, inputs=(mask, one, one), outputs=(one,))
        case "masked_fill":
            return Pointwise(name=name, elements=elements, inputs=(one, mask), outputs=(one,))
        case "gt":
            return Pointwise(name=name, elements=elements, inputs=(one,), outputs=(mask,))
    return contiguous(name, elements, dtype, inputs=inputs)


def draw_laid_out(draw: Draw, dtype: str) -> Operation:
    """Draw an operator whose operands are broadcast, transposed, slices of wider tensors, or heads of attention."""
    elements, width = draw.elements(1 << 12), draw.one_of((64, 96, 128, 256, 512, 768, 1024, 1600, 2048, 4096))
    rows = max(2, elements // width)
    whole, kind = (dtype, (width, 1)), draw.one_of(("bias", "column", "transposed", "slice", "heads"))
    shape: tuple[int, ...] = (rows, width)
    match kind:
        case "bias":
            return strided_call(draw.one_of(("add", "mul")), shape, [whole, (dtype, (0, 1))], [whole])
        case "column":
            return strided_call(draw.one_of(("mul", "div", "sub")), shape, [whole, (dtype, (1, 0))], [whole])
        case "transposed":
            return strided_call(draw.one_of(("copy_", "clone")), shape, [(dtype, (1, rows))], [whole])
        case "slice":
            return strided_call(draw.one_of(("copy_", "add")), shape, [(dtype, (width + 64, 1))], [whole])
    heads = draw.one_of((8, 12, 16))
    positions = max(2, rows // heads // 8)
    shape = (8, heads, positions, 64)
    head_steps = (heads * positions * 64, 64, heads * 64, 1)
    contiguous_steps = (heads * positions * 64, positions * 64, 64, 1)
    return strided_call("clone", shape, [(dtype, head_steps)], [(dtype, contiguous_steps)])


def cast(draw: Draw, floats: Sequence[str]) -> Operation:
    """Draw a cast, or a copy between dtypes."""
    elements, source, target = draw.elements(), draw.one_of(floats), draw.one_of(floats)
    operands = [(Operand(dtype=each, elements=elements),) for each in (source, target)]
    name = draw.one_of(("_to_copy", "copy_"))
    return Pointwise(name=name, elements=elements, inputs=operands[0], outputs=operands[1])


def reduction(draw: Draw, dtype: str) -> Operation:
    """Draw a reduction over rows, columns, dimensions in the middle, or all elements."""
    name = draw.one_of(("sum", "sum", "mean", "amax", "max", "linalg_vector_norm"))
    elements, kind = draw.elements(), draw.one_of(("rows", "columns", "whole", "middle"))
    width = draw.size(16, max(16, min(16384, elements // 16)))
    rows = max(1, elements // width)
    outer, reduced, inner = {
        "rows": (rows, width, 1),
        "columns": (1, rows, width),
        "whole": (1, elements, 1),
        "middle": (max(1, rows // 32), min(rows, 32), width),
    }[kind]
    return Reduction(name=name, dtype=dtype, outer=outer, reduced=reduced, inner=inner)


def rows(draw: Draw, dtype: str) -> Operation:
    """Draw a softmax, a norm of rows or a loss, forward or backward."""
    kind = draw.one_of(("softmax", "softmax", "norm", "norm", "loss"))
    elements, is_backward, is_so = draw.elements(1 << 12), draw.one_of((False, True)), draw.one_of((False, True))
    dim = draw.size(32, min(65536, max(32, elements // 4)))
    rows = max(1, elements // dim)
    if kind == "softmax":
        return Softmax(rows=rows, dim=dim, dtype=dtype, is_log=is_so, backward=is_backward)
    if kind == "norm":
        return RowNorm(rows=rows, dim=min(dim, 16384), dtype=dtype, backward=is_backward, weights=2 - is_so)
    return NllLoss(rows=rows, classes=dim, dtype=dtype, backward=is_backward)


def batch_norm(draw: Draw, dtype: str) -> Operation:
    """Draw a batch norm of a residual network, forward or backward."""
    side, channels = draw.one_of(((112, 64), (56, 64), (28, 128), (14, 256), (7, 512), (56, 256), (28, 512), (7, 2048)))
    most = max(1, min(256, draw.scale.elements // (channels * side**2)))
    elements = draw.size(1, most) * channels * side**2
    return BatchNorm(elements=elements, channels=channels, dtype=dtype, backward=draw.one_of((False, True)))


def pool(draw: Draw, floats: Sequence[str]) -> Operation:
    """Draw a maximum over windows or a mean over images, forward or backward."""
    dtype, side = draw.one_of(floats), draw.one_of((56, 28, 14, 7))
    images = draw.size(8, max(8, min(16384, draw.scale.elements // (4 * side**2))))
    outputs, is_backward = images * side**2, draw.one_of((False, True))
    if draw.one_of((True, False)):
        window = draw.one_of((4, 9))
        return Pool(
            dtype=dtype,
            inputs=4 * outputs,
            outputs=outputs,
            window=window,
            with_indices=True,
            backward=is_backward,
        )
    return Pool(dtype=dtype, inputs=outputs, outputs=images, window=side**2, backward=is_backward)


def gather(draw: Draw) -> Operation:
    """Draw a lookup of unique rows."""
    dim, dtype = draw.one_of((16, 32, 64, 128, 256, 768, 1024)), draw.one_of(("float32", "bfloat16"))
    rows = draw.size(64, max(64, min(1 << 20, draw.scale.elements // (4 * dim))))
    return Gather(rows=rows, dim=dim, dtype=dtype, unique=rows)


def index(draw: Draw) -> Operation:
    """Draw an index by pairs, as in a recommender's interaction, or by elements."""
    side, samples = draw.one_of((8, 27, 64)), draw.size(16, max(16, min(32768, draw.scale.elements >> 12)))
    if draw.one_of((True, False)):
        elements, source = samples * side * (side - 1) // 2, samples * side**2
        return Index(elements=elements, dtype="float32", indices=2, source_elements=source)
    elements = draw.elements(most=1 << 25)
    return Index(elements=elements, dtype=draw.one_of(("float32", "bfloat16", "int64")), source_elements=4 * elements)


def index_put(draw: Draw) -> Operation:
    """Draw the backward pass of an index by pairs, or by rows."""
    side, samples = draw.one_of((8, 27, 40)), draw.size(16, max(16, min(32768, draw.scale.elements >> 12)))
    if draw.one_of((True, False)):
        pairs = side * (side - 1) // 2
        target = samples * side**2
        return IndexPut(
            slices=samples, count=pairs, inner=1, dtype="float32", target_elements=target, is_contiguous=False
        )
    rows, inner = draw.size(64, max(64, min(1 << 20, draw.scale.elements >> 8))), draw.one_of((1, 16, 64, 128))
    ids = draw.size(64, max(64, rows))
    return IndexPut(slices=1, count=ids, inner=inner, dtype="float32", target_elements=rows * inner)


def embedding_backward(draw: Draw) -> Operation:
    """Draw the backward pass of an embedding."""
    dim, dtype = draw.one_of((64, 128, 768, 1024)), draw.one_of(("float32", "bfloat16"))
    ids = draw.size(64, max(64, min(1 << 18, draw.scale.elements // (4 * dim))))
    rows = draw.size(1000, max(1000, min(200_000, draw.scale.elements // dim)))
    return EmbeddingBackward(ids=ids, dim=dim, dtype=dtype, table_rows=rows)


def scatter(draw: Draw) -> Operation:
    """Draw an addition by index."""
    elements = draw.elements(most=1 << 26)
    return ScatterAdd(elements=elements, dtype="float32", target_elements=draw.size(min(1024, elements), elements))


def sort(draw: Draw) -> Operation:
    """Draw a sort of one row, or of many."""
    rows, size = draw.one_of((1, 1, 1, 64)), draw.one_of((8, 8, 4))
    elements = max(16, draw.elements(most=1 << 26) // rows)
    return Sort(elements=elements, rows=rows, key_bytes=size, bits=8 * size)


def qr(draw: Draw) -> Operation:
    """Draw a QR decomposition of tall matrices, as PowerSGD has them."""
    columns = draw.one_of((1, 2, 4, 8, 16, 32))
    rows = draw.size(64, max(64, min(16384, draw.scale.elements // 64)))
    return Qr(rows=rows, columns=columns, batch=draw.one_of((1, 1, 4)))


def host_copy(draw: Draw) -> Operation:
    """Draw a copy to or from the host."""
    return HostCopy(
        size_bytes=draw.elements(1 << 12, 1 << 27),
        to_gpu=draw.one_of((True, False)),
        pinned=draw.one_of((True, True, False)),
    )


def cat(draw: Draw, dtype: str) -> Operation:
    """Draw a concatenation of rows or columns."""
    inputs, kind = draw.one_of((2, 3, 8, 27, 64)), draw.one_of(("columns", "columns", "rows"))
    width = draw.one_of((16, 64, 128, 256, 1024))
    rows = max(2, draw.elements(1 << 14, 1 << 27) // (inputs * width))
    is_flat = kind == "rows"
    return Cat(
        dtype=dtype,
        elements=rows * inputs * width,
        inputs=inputs,
        contiguous=is_flat,
        dims=1 if is_flat else 2,
    )


# Names, lists that the kernel handles, lists read and written.
_LISTS = (
    *(("_foreach_add_", 2, 2, 1), ("_foreach_mul_", 1, 1, 1), ("_foreach_lerp_", 2, 2, 1), ("_foreach_sqrt", 2, 1, 1)),
    *(("_foreach_addcmul_", 3, 3, 1), ("_foreach_addcdiv_", 3, 3, 1), ("_foreach_norm", 1, 1, 0)),
    *(("_foreach_zero_", 1, 0, 1), ("_foreach_copy_", 2, 1, 1), ("_foreach_div_", 1, 1, 1)),
    *(("_fused_adam_", 4, 4, 3), ("_fused_adamw_", 4, 4, 3), ("_fused_sgd_", 3, 3, 2)),
)


def foreach(draw: Draw, dtype: str) -> Operation:
    """Draw an operator on the parameters of a model."""
    name, lists, read, written = draw.one_of(_LISTS)
    tensors, elements = draw.size(1, 200), draw.elements(1 << 12, 1 << 26)
    each = max(2, elements // tensors)
    # Weights and biases, as layers have them.
    numels = tuple(max(2, each // 64) if place % 2 else each for place in range(tensors))
    return Foreach(name=name, dtype=dtype, numels=numels, lists=lists, read=read, written=written)


def permute_sparse(draw: Draw) -> Operation:
    """Draw a permutation of jagged ids."""
    bags = 26 * draw.size(64, max(64, min(32768, draw.scale.elements >> 10)))
    return PermuteSparse(bags=bags, ids=bags * draw.one_of((1, 3, 10, 50)), id_bytes=draw.one_of((8, 12)))


def bucketize_sparse(draw: Draw) -> Operation:
    """Draw a division of jagged ids."""
    bags = 26 * draw.size(64, max(64, min(32768, draw.scale.elements >> 10)))
    return BucketizeSparse(bags=bags, ids=bags * draw.one_of((1, 3, 10, 50)), buckets=draw.one_of((2, 8, 64)))


def permute_pooled(draw: Draw) -> Operation:
    """Draw a permutation of pooled embeddings."""
    rows = draw.size(64, max(64, min(65536, draw.scale.elements >> 12)))
    return PermutePooled(size_bytes=4 * 128 * 26 * rows)


def bags(draw: Draw, is_backward: bool) -> Operation:
    """Draw a lookup of table-batched embeddings, or its backward pass, of uniform ids."""
    tables, dim = draw.one_of((1, 8, 26)), draw.one_of((32, 64, 128, 256))
    rows = draw.size(1000, max(1000, min(1_000_000, draw.scale.elements // (tables * dim))))
    bags = draw.size(64, max(64, min(32768, draw.scale.elements // (tables * dim))))
    length = draw.one_of((1, 3, 20))
    contiguous_steps = uniform(tables=tables, rows=rows, dim=dim, bags=bags, length=length)
    if not is_backward:
        return BagsForward(bags=contiguous_steps)
    return BagsBackward(bags=contiguous_steps, optimizer=draw.one_of(("sgd", "rowwise_adagrad", "adam")))
