"""The work of a computation, in numbers that do not depend on the device."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from scenarios.seam.host_work import NO_WORK, HostWork, total
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import product

# Bytes of an element, by torch's dtype name.
ELEMENT_BYTES = {
    **{"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex64": 8, "complex128": 16},
    **{"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1},
}
# The kind of a kernel that is made of several without flops.
MODULE = "module"

# Paths of modules, each with the parts of a kernel that it runs: a part's place, and how many of its runs.
Layers: TypeAlias = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The work of one computation.

    Attributes:
        kind: row of the efficiency table ("gemm", "embedding_lookup", "embedding_update", "bucketize", "permute",
            "elementwise", "reduction", "qr", "optimizer", "attention", "convolution").
        bytes_read, bytes_written: bytes that the operators touch, assuming no cache hits; small operands (indices, one
            number a row) may be left out.
        bytes_reread: those of `bytes_read` that hit the device's L2 cache, because this kernel read them before.
        host_read, host_written: bytes in the host's memory, which cross the GPU's path to it concurrently.
        lasts_ns: duration of work done elsewhere, such as a data loader's processes; nothing else is priced then. A
            real rank sleeps for what is left of it after its function.
        dtype: of the arithmetic ("float32", ...).
        launches: operators that do work, as torch dispatches them below autograd on CPU tensors; on a GPU each is about
            one kernel. Views, metadata, memory without values and reading one number count 0; a function compiled by
            numba counts 1. If 0, the kernel's own time (if any) includes the program's work around it.
        recomputed_flops: those of `flops` that recompute forward results for a backward pass (activation
            checkpointing).
        operations: descriptions of the operators run, in order, for their laws, all `count` times; empty: the other
            numbers alone decide the time.
        host: host work before all of this is launched, without the launches.
        parts: kernels run one after the other; the other fields are then their sums (`together`).
        layers: modules that run the parts, for reports; kernels that differ in nothing else are equal.
    """

    kind: str
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    bytes_reread: float = 0.0
    host_read: float = 0.0
    host_written: float = 0.0
    lasts_ns: int = 0
    dtype: str = "float32"
    launches: int = 1
    recomputed_flops: float = 0.0
    operations: tuple[Operation, ...] = ()
    count: int = 1
    host: HostWork = NO_WORK
    parts: tuple[Kernel, ...] = ()
    layers: Layers = field(default=(), compare=False)

    @property
    def has_its_verb(self) -> bool:
        """Whether the kernel's time already includes the host's Python around it, as a measured one does."""
        return not self.launches and self.flops + self.lasts_ns > 0

    @property
    def only_operation(self) -> Operation | None:
        """The only operator, run once; None if there are several, or work in the host's memory."""
        if len(self.parts) == 1:
            return self.parts[0].only_operation
        is_one = len(self.operations) == self.count == 1 and not self.parts
        return self.operations[0] if is_one and not self.host_read + self.host_written + self.lasts_ns else None

    def times(self, count: int) -> Kernel:
        """Return this kernel repeated `count` times in sequence, each priced as if alone."""
        return replace(
            self,
            **{name: getattr(self, name) * count for name in (*_SUMMED, "count")},
            host=self.host.times(count) if any(self.host) else self.host,
            parts=tuple(part.times(count) for part in self.parts),
        )


# Fields that add up where kernels run one after the other.
_SUMMED = (
    *("flops", "bytes_read", "bytes_written", "bytes_reread", "host_read", "host_written"),
    *("lasts_ns", "launches", "recomputed_flops"),
)

# A kernel, or a function that makes it on demand; real runs call it after the step.
PricedLater: TypeAlias = Kernel | Callable[[], Kernel]


def price_now(kernel: PricedLater) -> Kernel:
    """Return the kernel, calling the function that makes it if necessary."""
    return kernel if isinstance(kernel, Kernel) else kernel()


def together(kernels: Iterable[Kernel], modules: Sequence[str] = ()) -> Kernel:
    """Return one kernel made of others that run in sequence; most of the flops decide its kind and its dtype.

    Equal kernels are merged: a roofline gives n of them n times the time of one. `modules` are the paths of the modules
    that run them, if known.
    """
    given = list(kernels)
    counted = Counter(given)
    parts = tuple(kernel.times(count) for kernel, count in counted.items())
    kinds, dtypes = defaultdict[str, float](float), defaultdict[str, float](float)
    for part in parts:
        kinds[part.kind] += part.flops
        dtypes[part.dtype] += part.flops
    return Kernel(
        kind=max(kinds, key=kinds.__getitem__) if any(kinds.values()) else MODULE,
        dtype=max(dtypes, key=dtypes.__getitem__, default="float32"),
        host=total(part.host for part in parts if part.host is not NO_WORK),
        **{name: sum([getattr(part, name) for part in parts]) for name in _SUMMED},
        parts=parts,
        layers=_layers(modules, given, counted) if any(modules) else (),
    )


def _layers(modules: Sequence[str], kernels: Sequence[Kernel], distinct: Iterable[Kernel]) -> Layers:
    places, runs = {kernel: place for place, kernel in enumerate(distinct)}, dict[str, Counter[int]]()
    for module, kernel in zip(modules, kernels, strict=True):
        runs.setdefault(module, Counter())[places[kernel]] += 1
    return tuple((module, tuple(each.items())) for module, each in runs.items())


def gemm(m: int, n: int, k: int, *, dtype: str = "float32", batch: int = 1) -> Kernel:
    """Return the kernel of a product of [m, k] and [k, n], repeated `batch` times."""
    size = ELEMENT_BYTES[dtype]
    return Kernel(
        kind="gemm",
        flops=2.0 * batch * m * n * k,
        bytes_read=float(size * batch * (m * k + k * n)),
        bytes_written=float(size * batch * m * n),
        dtype=dtype,
        operations=(product(m, n, k, dtype=dtype, element_bytes=size, batch=batch),),
    )


def attention(
    batch: int, heads: int, *, queries: int, keys: int, dim: int, dtype: str = "float32", backward: bool = False
) -> Kernel:
    """Return fused scaled dot-product attention of [batch, heads, queries, dim] to `keys` keys and values a head.

    Flops are those of all scores, also of a causal mask, as `torch.utils.flop_counter` counts them; the backward pass
    recomputes the scores. The scores are not written to memory.
    """
    size, rows = ELEMENT_BYTES[dtype], batch * heads * dim
    tensors = 2 * queries + 2 * keys  # queries and outputs, keys and values
    return Kernel(
        kind="attention",
        flops=(10.0 if backward else 4.0) * batch * heads * queries * keys * dim,
        bytes_read=float(size * rows * (tensors + queries if backward else tensors - queries)),
        bytes_written=float(size * rows * (tensors - queries if backward else queries)),
        dtype=dtype,
        operations=(
            Attention(
                batch=batch,
                heads=heads,
                key_heads=heads,
                queries=queries,
                keys=keys,
                head_size=dim,
                dtype=dtype,
                is_backward=backward,
            ),
        ),
    )


def elementwise(elements: int, *, dtype: str = "float32", inputs: int = 1, outputs: int = 1) -> Kernel:
    """Return an elementwise kernel that reads `inputs` tensors and writes `outputs` tensors of `elements` elements."""
    size = float(ELEMENT_BYTES[dtype] * elements)
    return Kernel(
        kind="elementwise",
        flops=float(elements),
        bytes_read=inputs * size,
        bytes_written=outputs * size,
        dtype=dtype,
        operations=(contiguous("elementwise", elements, dtype, inputs=inputs, outputs=outputs),) if elements else (),
    )
