"""What a computation costs, in numbers that do not depend on the device."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from scenarios.seam.host_work import NO_WORK, HostWork, total
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import product

# Bytes of an element, by the names of torch's dtypes.
ELEMENT_BYTES = {
    **{"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex64": 8, "complex128": 16},
    **{"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1},
}
# The kind of a kernel that is made of several without flops.
MODULE = "module"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The work of one computation.

    `kind` is the row of the efficiency table ("gemm", "embedding_lookup", "embedding_update", "bucketize", "permute",
    "elementwise", "reduction", "qr", "optimizer", "attention", "convolution"); `dtype` the arithmetic's ("float32",
    ...).

    `launches` are the operators that do work, as torch dispatches them below autograd on CPU tensors; on a GPU each is
    about one kernel. Views, metadata, memory without values and reading a single number count nothing, a function that
    numba compiled counts one. With 0, what the program does beside the kernel is in the kernel's own time, if it has
    any. `bytes_read` and `bytes_written` are what they touch, as if each found nothing in a cache; small operands
    (indices, a number a row) may be left out. `bytes_reread` of those read are found in the device's L2 cache, where
    the kernel itself has read them before. `host_read` and `host_written` are bytes in the host's memory, which cross
    the GPU's path to it while the rest goes on.

    `recomputed_flops` of `flops` compute again, for a backward pass, what the forward pass has computed and not kept,
    as activation checkpointing does.

    `lasts_ns`: the work is done elsewhere, by a data loader's processes say, and takes so long by itself; nothing else
    is priced then. A real rank waits for what is left of it when its function is through.

    `operations` describe what the kernel runs, one after the other, for the laws of operators; all of them `count`
    times. Without any, the kernel's numbers alone say what it takes.

    `host` is what the host of an eager program does before it has launched all of this; launches are beside it.

    `parts` are the kernels that it is made of, which run one after the other; its own numbers are then their sums
    (`together`).
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

    @property
    def has_its_verb(self) -> bool:
        """Whether what the program does beside it is in its own time."""
        return not self.launches and self.flops + self.lasts_ns > 0

    @property
    def only_operation(self) -> Operation | None:
        """The operator that is all of its work, once; None where it runs others, or works in the host's memory."""
        if len(self.parts) == 1:
            return self.parts[0].only_operation
        is_one = len(self.operations) == self.count == 1 and not self.parts
        return self.operations[0] if is_one and not self.host_read + self.host_written + self.lasts_ns else None

    def times(self, count: int) -> Kernel:
        """Return this kernel `count` times, one after the other: each is priced as if by itself."""
        return replace(
            self,
            flops=self.flops * count,
            bytes_read=self.bytes_read * count,
            bytes_written=self.bytes_written * count,
            bytes_reread=self.bytes_reread * count,
            host_read=self.host_read * count,
            host_written=self.host_written * count,
            lasts_ns=self.lasts_ns * count,
            launches=self.launches * count,
            recomputed_flops=self.recomputed_flops * count,
            count=self.count * count,
            host=self.host.times(count) if any(self.host) else self.host,
            parts=tuple(part.times(count) for part in self.parts),
        )


# A kernel, or a function that prices it when somebody asks: of a real run, when its step is over.
PricedLater: TypeAlias = Kernel | Callable[[], Kernel]


def priced_now(kernel: PricedLater) -> Kernel:
    """Return the kernel, priced now if it is not yet."""
    return kernel if isinstance(kernel, Kernel) else kernel()


def together(kernels: Iterable[Kernel]) -> Kernel:
    """Return one kernel made of others, which run one after the other; its kind and its dtype are those of most of the
    flops.

    Those that are equal are put together: a roofline gives n of them n times the time of one.
    """
    counted = Counter(kernels)
    parts = tuple(kernel.times(count) for kernel, count in counted.items())
    kinds, dtypes = defaultdict[str, float](float), defaultdict[str, float](float)
    for part in parts:
        kinds[part.kind] += part.flops
        dtypes[part.dtype] += part.flops
    return Kernel(
        kind=max(kinds, key=kinds.__getitem__) if any(kinds.values()) else MODULE,
        flops=sum(part.flops for part in parts),
        bytes_read=sum(part.bytes_read for part in parts),
        bytes_written=sum(part.bytes_written for part in parts),
        bytes_reread=sum(part.bytes_reread for part in parts),
        host_read=sum(part.host_read for part in parts),
        host_written=sum(part.host_written for part in parts),
        lasts_ns=sum(part.lasts_ns for part in parts),
        dtype=max(dtypes, key=dtypes.__getitem__, default="float32"),
        launches=sum(part.launches for part in parts),
        host=total(part.host for part in parts if part.host is not NO_WORK),
        recomputed_flops=sum(part.recomputed_flops for part in parts),
        parts=parts,
    )


def gemm(m: int, n: int, k: int, *, dtype: str = "float32", batch: int = 1) -> Kernel:
    """The product of [m, k] and [k, n], `batch` times over."""
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
    """Fused scaled dot-product attention of [batch, heads, queries, dim] with as many heads of `keys` keys and values.

    Flops are those of all scores, also of a causal mask, as `torch.utils.flop_counter` counts them; the backward pass
    computes the scores anew. Nothing of the size of the scores is written.
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
    """An operation on each element of `inputs` tensors, which writes `outputs` tensors."""
    size = float(ELEMENT_BYTES[dtype] * elements)
    return Kernel(
        kind="elementwise",
        flops=float(elements),
        bytes_read=inputs * size,
        bytes_written=outputs * size,
        dtype=dtype,
        operations=(contiguous("elementwise", elements, dtype, inputs=inputs, outputs=outputs),) if elements else (),
    )
