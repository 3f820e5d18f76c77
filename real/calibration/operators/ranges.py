"""Families of operators, and their order: the plan of a measurement without a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from real.calibration.operators import shapes
from real.calibration.operators.draws import Draw, Scale
from scenarios.config.gpu import Gpu
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.sorting import Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of operators of one kind: `make` returns the operator at a point; `share` operators come in a round."""

    name: str
    make: Callable[[Draw], Operation]
    share: int = 1


def plan_operators(families: Sequence[Family], scale: Scale) -> Iterator[tuple[str, Operation]]:
    """Yield the families' operators without end, with their family's name, in turn; no operator comes twice."""
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


# A family that repeats itself this often has no further operators.
_MOST_REPEATED = 64


def _stream(family: Family, scale: Scale) -> Iterator[Operation]:
    return (family.make(Draw(number, scale)) for number in count(1))


def families(gpu: Gpu, *, has_fbgemm: bool) -> list[Family]:
    """Return all families for a GPU's arithmetic; fbgemm's operators if it is installed."""
    dtypes = [each for each in ("float32", "tf32", "bfloat16", "float16") if each in gpu.flops_per_s]
    floats = [each for each in dtypes if each != "tf32"]
    all_families = [Family(name=f"products {each}", make=_of(shapes.product, each), share=4) for each in dtypes]
    all_families += [
        Family(name=f"batched products {each}", make=_of(shapes.draw_batched_product, each)) for each in dtypes
    ]
    all_families += [
        Family(name=f"convolutions {each}", make=_of(shapes.convolution, each), share=2) for each in dtypes
    ]
    for each in floats:
        all_families += [Family(name=f"attention {each}", make=_of(shapes.attention, each, False), share=2)]
        all_families += [Family(name=f"attention backward {each}", make=_of(shapes.attention, each, True), share=2)]
        all_families += [Family(name=f"elementwise {each}", make=_of(shapes.pointwise, each), share=4)]
        all_families += [Family(name=f"strided {each}", make=_of(shapes.draw_laid_out, each), share=3)]
        all_families += [Family(name=f"reductions {each}", make=_of(shapes.reduction, each), share=3)]
        all_families += [Family(name=f"rows of {each}", make=_of(shapes.rows, each), share=4)]
        all_families += [Family(name=f"batch norm {each}", make=_of(shapes.batch_norm, each))]
        all_families += [Family(name=f"concatenations {each}", make=_of(shapes.cat, each))]
        all_families += [Family(name=f"lists of {each}", make=_of(shapes.foreach, each), share=2)]
    return [*all_families, *_others(floats), *(_FBGEMM if has_fbgemm else ())]


def _of(make: Callable[..., Operation], *given: object) -> Callable[[Draw], Operation]:
    return lambda draw: make(draw, *given)


def _others(floats: Sequence[str]) -> list[Family]:
    return [
        Family(name="casts", make=_of(shapes.cast, floats), share=2),
        Family(name="lookups", make=shapes.gather, share=2),
        Family(name="indices", make=shapes.index, share=2),
        Family(name="index backward", make=shapes.index_put),
        Family(name="embedding backward", make=shapes.embedding_backward),
        Family(name="scatter", make=shapes.scatter),
        Family(name="sorts", make=shapes.sort),
        Family(name="scans", make=lambda draw: Scan(elements=draw.elements(most=1 << 26))),
        Family(name="pooling", make=_of(shapes.pool, floats)),
        Family(name="QR", make=shapes.qr),
        Family(name="host copies", make=shapes.host_copy),
    ]


_FBGEMM = (
    Family(name="permuted ids", make=shapes.permute_sparse),
    Family(name="bucketized ids", make=shapes.bucketize_sparse),
    Family(name="permuted embeddings", make=shapes.permute_pooled),
    Family(name="embedding bags", make=_of(shapes.bags, False), share=2),
    Family(name="embedding bags backward", make=_of(shapes.bags, True), share=2),
)
