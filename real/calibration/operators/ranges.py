"""Families of operators, and the ranges of shapes that training uses: where a GPU is measured without a run to look at.

Shapes of a family follow a sequence of low discrepancy: however early it is cut off, its points lie evenly over the
ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TypeVar

from scenarios.config.gpu import Gpu
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.operations import products as layouts
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import BagsBackward, BagsForward, uniform
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import Cat, HostCopy
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous, strided
from scenarios.seam.operations.products import Product, alignment
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan, Sort

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The largest operators of a range: elements of a tensor, and multiplications of a product."""

    elements: int
    multiplications: int


# On a GPU 256 M elements, and products of 2 ms on the slowest arithmetic of a current one; on a CPU what takes 1 ms.
GPU_SCALE = Scale(elements=1 << 28, multiplications=1 << 37)
CPU_SCALE = Scale(elements=1 << 16, multiplications=1 << 21)

# Steps of the sequence in each dimension: square roots of primes, whose multiples are spread evenly.
_STEPS = tuple(math.sqrt(prime) % 1 for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37))


class Draw:
    """A point of the sequence: each question takes the next of its coordinates."""

    def __init__(self, number: int, scale: Scale) -> None:
        self.scale = scale
        self._number, self._next = number, 0

    def share(self) -> float:
        """Return a number from 0 to 1."""
        step = _STEPS[self._next % len(_STEPS)] * (1 + self._next // len(_STEPS))
        self._next += 1
        return (0.5 + self._number * step) % 1

    def one_of(self, choices: Sequence[T]) -> T:
        """Return one of some."""
        return choices[int(self.share() * len(choices))]

    def size(self, least: int, most: int) -> int:
        """Return a size whose logarithm is even between these; large ones are multiples of an eighth of a power of 2"""
        size = float(least * (most / least) ** self.share())
        step = 1 << max(0, int(math.log2(max(size, 1))) - 3)
        return max(least, min(most, round(size / step) * step))

    def elements(self, least: int = 1 << 10, most: int = 1 << 28) -> int:
        """Return a number of elements within the scale."""
        most = min(most, self.scale.elements)
        return self.size(min(least, most), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Operators of one kind: `make` returns the one at a point of the sequence, `share` how many come in a round."""

    name: str
    make: Callable[[Draw], Operation]
    share: int = 1


def planned(families: Sequence[Family], scale: Scale) -> Iterator[tuple[str, Operation]]:
    """Yield families' operators without end, all families in turn, each with its family's name; none comes twice."""
    streams = [(family, _stream(family, scale)) for family in families]
    seen: set[Operation] = set()
    while True:
        before = len(seen)
        for family, stream in streams:
            fresh = (each for each in islice(stream, _MOST_REPEATED) if each not in seen)
            for operation in islice(fresh, family.share):
                seen.add(operation)
                yield family.name, operation
        if len(seen) == before:
            return


# A family whose next operators have all been there has no more.
_MOST_REPEATED = 64


def _stream(family: Family, scale: Scale) -> Iterator[Operation]:
    return (family.make(Draw(number, scale)) for number in count(1))


def families(gpu: Gpu, *, has_fbgemm: bool) -> list[Family]:
    """Return all families for a GPU's arithmetic, fbgemm's operators if it is there."""
    dtypes = [each for each in ("float32", "tf32", "bfloat16", "float16") if each in gpu.flops_per_s]
    floats = [each for each in dtypes if each != "tf32"]
    found = [Family(name=f"products {each}", make=_of(_product, each), share=4) for each in dtypes]
    found += [Family(name=f"batched products {each}", make=_of(_batched, each)) for each in dtypes]
    found += [Family(name=f"convolutions {each}", make=_of(_convolution, each), share=2) for each in dtypes]
    for each in floats:
        found += [Family(name=f"attention {each}", make=_of(_attention, each, False), share=2)]
        found += [Family(name=f"attention backward {each}", make=_of(_attention, each, True), share=2)]
        found += [Family(name=f"elementwise {each}", make=_of(_pointwise, each), share=4)]
        found += [Family(name=f"strided {each}", make=_of(_strided, each), share=3)]
        found += [Family(name=f"reductions {each}", make=_of(_reduction, each), share=3)]
        found += [Family(name=f"rows of {each}", make=_of(_rows, each), share=4)]
        found += [Family(name=f"batch norm {each}", make=_of(_batch_norm, each))]
        found += [Family(name=f"concatenations {each}", make=_of(_cat, each))]
        found += [Family(name=f"lists of {each}", make=_of(_foreach, each), share=2)]
    return [*found, *_others(floats), *(_FBGEMM if has_fbgemm else ())]


def _of(make: Callable[..., Operation], *given: object) -> Callable[[Draw], Operation]:
    return lambda draw: make(draw, *given)


def _others(floats: Sequence[str]) -> list[Family]:
    return [
        Family(name="casts", make=_of(_cast, floats), share=2),
        Family(name="lookups", make=_gather, share=2),
        Family(name="indices", make=_index, share=2),
        Family(name="index backward", make=_index_put),
        Family(name="embedding backward", make=_embedding_backward),
        Family(name="scatter", make=_scatter),
        Family(name="sorts", make=_sort),
        Family(name="scans", make=lambda draw: Scan(elements=draw.elements(most=1 << 26))),
        Family(name="pooling", make=_of(_pool, floats)),
        Family(name="QR", make=_qr),
        Family(name="host copies", make=_host_copy),
    ]


def _extent(draw: Draw, least: int, most: int) -> int:
    """Return an extent of a matrix; one in five is not aligned, as 479 features are not."""
    size = draw.size(least, most)
    if draw.share() < 0.2:
        return size + (size % 2 == 0)
    return max(8, size // 8 * 8)


def _product(draw: Draw, dtype: str) -> Operation:
    layout = draw.one_of((layouts.linear, layouts.linear_input_gradient, layouts.linear_weight_gradient))
    most = draw.scale.multiplications
    inner, columns = (_extent(draw, 8, min(16384, math.isqrt(most >> 4))) for _ in range(2))
    rows = draw.size(1, max(8, min(65536, most // (inner * columns))))
    return layout(rows, inner, columns, dtype, element_bytes=_bytes(dtype))


def _bytes(dtype: str) -> int:
    return ELEMENT_BYTES.get(dtype, 4)


def _batched(draw: Draw, dtype: str) -> Operation:
    batch = draw.size(2, min(8192, draw.scale.elements >> 8))
    most = max(64, draw.scale.multiplications // batch)
    rows, columns, inner = (draw.size(8, max(8, min(1024, round(most ** (1 / 3))))) for _ in range(3))
    is_transposed, size = draw.one_of((False, True)), _bytes(dtype)
    return Product(
        batch=batch,
        rows=rows,
        columns=columns,
        inner=inner,
        dtype=dtype,
        right_is_transposed=is_transposed,
        left_alignment=alignment(inner, size),
        right_alignment=alignment(inner if is_transposed else columns, size),
        result_alignment=alignment(columns, size),
    )


def _attention(draw: Draw, dtype: str, is_backward: bool) -> Operation:
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


def _convolution(draw: Draw, dtype: str) -> Operation:
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


def _pointwise(draw: Draw, dtype: str) -> Operation:
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


def _strided(draw: Draw, dtype: str) -> Operation:
    elements, width = draw.elements(1 << 12), draw.one_of((64, 96, 128, 256, 512, 768, 1024, 1600, 2048, 4096))
    rows = max(2, elements // width)
    whole, kind = (dtype, (width, 1)), draw.one_of(("bias", "column", "transposed", "slice", "heads"))
    shape: tuple[int, ...] = (rows, width)
    match kind:
        case "bias":
            return strided(draw.one_of(("add", "mul")), shape, [whole, (dtype, (0, 1))], [whole])
        case "column":
            return strided(draw.one_of(("mul", "div", "sub")), shape, [whole, (dtype, (1, 0))], [whole])
        case "transposed":
            return strided(draw.one_of(("copy_", "clone")), shape, [(dtype, (1, rows))], [whole])
        case "slice":
            return strided(draw.one_of(("copy_", "add")), shape, [(dtype, (width + 64, 1))], [whole])
    heads = draw.one_of((8, 12, 16))
    positions = max(2, rows // heads // 8)
    shape = (8, heads, positions, 64)
    given = (heads * positions * 64, 64, heads * 64, 1)
    made = (heads * positions * 64, positions * 64, 64, 1)
    return strided("clone", shape, [(dtype, given)], [(dtype, made)])


def _cast(draw: Draw, floats: Sequence[str]) -> Operation:
    elements, source, target = draw.elements(), draw.one_of(floats), draw.one_of(floats)
    operands = [(Operand(dtype=each, elements=elements),) for each in (source, target)]
    name = draw.one_of(("_to_copy", "copy_"))
    return Pointwise(name=name, elements=elements, inputs=operands[0], outputs=operands[1])


def _reduction(draw: Draw, dtype: str) -> Operation:
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


def _rows(draw: Draw, dtype: str) -> Operation:
    kind = draw.one_of(("softmax", "softmax", "norm", "norm", "loss"))
    elements, is_backward, is_so = draw.elements(1 << 12), draw.one_of((False, True)), draw.one_of((False, True))
    dim = draw.size(32, min(65536, max(32, elements // 4)))
    rows = max(1, elements // dim)
    if kind == "softmax":
        return Softmax(rows=rows, dim=dim, dtype=dtype, is_log=is_so, backward=is_backward)
    if kind == "norm":
        return RowNorm(rows=rows, dim=min(dim, 16384), dtype=dtype, backward=is_backward, weights=2 - is_so)
    return NllLoss(rows=rows, classes=dim, dtype=dtype, backward=is_backward)


def _batch_norm(draw: Draw, dtype: str) -> Operation:
    side, channels = draw.one_of(((112, 64), (56, 64), (28, 128), (14, 256), (7, 512), (56, 256), (28, 512), (7, 2048)))
    most = max(1, min(256, draw.scale.elements // (channels * side**2)))
    elements = draw.size(1, most) * channels * side**2
    return BatchNorm(elements=elements, channels=channels, dtype=dtype, backward=draw.one_of((False, True)))


def _pool(draw: Draw, floats: Sequence[str]) -> Operation:
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


def _gather(draw: Draw) -> Operation:
    dim, dtype = draw.one_of((16, 32, 64, 128, 256, 768, 1024)), draw.one_of(("float32", "bfloat16"))
    rows = draw.size(64, max(64, min(1 << 20, draw.scale.elements // (4 * dim))))
    return Gather(rows=rows, dim=dim, dtype=dtype, unique=rows)


def _index(draw: Draw) -> Operation:
    side, samples = draw.one_of((8, 27, 64)), draw.size(16, max(16, min(32768, draw.scale.elements >> 12)))
    if draw.one_of((True, False)):
        elements, source = samples * side * (side - 1) // 2, samples * side**2
        return Index(elements=elements, dtype="float32", indices=2, source_elements=source)
    elements = draw.elements(most=1 << 25)
    return Index(elements=elements, dtype=draw.one_of(("float32", "bfloat16", "int64")), source_elements=4 * elements)


def _index_put(draw: Draw) -> Operation:
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


def _embedding_backward(draw: Draw) -> Operation:
    dim, dtype = draw.one_of((64, 128, 768, 1024)), draw.one_of(("float32", "bfloat16"))
    ids = draw.size(64, max(64, min(1 << 18, draw.scale.elements // (4 * dim))))
    rows = draw.size(1000, max(1000, min(200_000, draw.scale.elements // dim)))
    return EmbeddingBackward(ids=ids, dim=dim, dtype=dtype, table_rows=rows)


def _scatter(draw: Draw) -> Operation:
    elements = draw.elements(most=1 << 26)
    return ScatterAdd(elements=elements, dtype="float32", target_elements=draw.size(min(1024, elements), elements))


def _sort(draw: Draw) -> Operation:
    rows, size = draw.one_of((1, 1, 1, 64)), draw.one_of((8, 8, 4))
    elements = max(16, draw.elements(most=1 << 26) // rows)
    return Sort(elements=elements, rows=rows, key_bytes=size, bits=8 * size)


def _qr(draw: Draw) -> Operation:
    columns = draw.one_of((1, 2, 4, 8, 16, 32))
    rows = draw.size(64, max(64, min(16384, draw.scale.elements // 64)))
    return Qr(rows=rows, columns=columns, batch=draw.one_of((1, 1, 4)))


def _host_copy(draw: Draw) -> Operation:
    return HostCopy(
        size_bytes=draw.elements(1 << 12, 1 << 27),
        to_gpu=draw.one_of((True, False)),
        pinned=draw.one_of((True, True, False)),
    )


def _cat(draw: Draw, dtype: str) -> Operation:
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


def _foreach(draw: Draw, dtype: str) -> Operation:
    name, lists, read, written = draw.one_of(_LISTS)
    tensors, elements = draw.size(1, 200), draw.elements(1 << 12, 1 << 26)
    each = max(2, elements // tensors)
    # Weights and biases, as layers have them.
    numels = tuple(max(2, each // 64) if place % 2 else each for place in range(tensors))
    return Foreach(name=name, dtype=dtype, numels=numels, lists=lists, read=read, written=written)


def _permute_sparse(draw: Draw) -> Operation:
    bags = 26 * draw.size(64, max(64, min(32768, draw.scale.elements >> 10)))
    return PermuteSparse(bags=bags, ids=bags * draw.one_of((1, 3, 10, 50)), id_bytes=draw.one_of((8, 12)))


def _bucketize_sparse(draw: Draw) -> Operation:
    bags = 26 * draw.size(64, max(64, min(32768, draw.scale.elements >> 10)))
    return BucketizeSparse(bags=bags, ids=bags * draw.one_of((1, 3, 10, 50)), buckets=draw.one_of((2, 8, 64)))


def _permute_pooled(draw: Draw) -> Operation:
    rows = draw.size(64, max(64, min(65536, draw.scale.elements >> 12)))
    return PermutePooled(size_bytes=4 * 128 * 26 * rows)


def _bags(draw: Draw, is_backward: bool) -> Operation:
    tables, dim = draw.one_of((1, 8, 26)), draw.one_of((32, 64, 128, 256))
    rows = draw.size(1000, max(1000, min(1_000_000, draw.scale.elements // (tables * dim))))
    bags = draw.size(64, max(64, min(32768, draw.scale.elements // (tables * dim))))
    length = draw.one_of((1, 3, 20))
    made = uniform(tables=tables, rows=rows, dim=dim, bags=bags, length=length)
    if not is_backward:
        return BagsForward(bags=made)
    return BagsBackward(bags=made, optimizer=draw.one_of(("sgd", "rowwise_adagrad", "adam")))


_FBGEMM = (
    Family(name="permuted ids", make=_permute_sparse),
    Family(name="bucketized ids", make=_bucketize_sparse),
    Family(name="permuted embeddings", make=_permute_pooled),
    Family(name="embedding bags", make=_of(_bags, False), share=2),
    Family(name="embedding bags backward", make=_of(_bags, True), share=2),
)
