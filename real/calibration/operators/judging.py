"""Judges a table of measured operators: how far predictions with it are off operators that it does not hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from real.calibration.kernels.fit import group_of
from real.calibration.operators.part import Measured, Refused
from scenarios.config.provenance import Group
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.operations.bags import BagsBackward, BagsForward
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.operations.products import Product

# Every fifth operator of a family is kept out of the table that is judged; no more than this many.
_HELD_OUT, _MOST_HELD_OUT = 5, 200

# Seconds of operators, in their order, predicted with a table of these rows over the profile's; without rows by the
# profile as it is.
Predict = Callable[[Sequence[MeasuredOperator], Sequence[Operation]], list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How far operators of a family that a table does not hold are off: predicted over measured, less 1.

    `before` is without the table, `errors` with it. `measured` counts the family's operators, of all of which are the
    `spreads` of repeats and the `sizes` of tensors, in bytes.
    """

    family: str
    measured: int
    before: tuple[float, ...]
    errors: tuple[float, ...]
    spreads: tuple[float, ...]
    sizes: tuple[float, ...]

    @property
    def typical_before(self) -> float | None:
        """The mean error without the table, signs aside."""
        return mean(map(abs, self.before)) if self.before else None

    @property
    def typical(self) -> float | None:
        """The mean error with the table, signs aside."""
        return mean(map(abs, self.errors)) if self.errors else None

    @property
    def is_worse(self) -> bool:
        """Whether the table makes the family worse."""
        return bool(self.errors) and mean(map(abs, self.errors)) > mean(map(abs, self.before))

    def groups(self) -> tuple[Group, ...]:
        """Return what a profile says of the family: as it was before, and with the table."""
        found = ((f"{self.family}, law alone", self.before), (f"{self.family}, with the table", self.errors))
        return tuple(group_of(name, errors, self.spreads, self.sizes) for name, errors in found if errors)


def judge(measured: Iterable[Measured], predict: Predict, *, is_cold: bool) -> list[Judged]:
    """Return for each family how far the table of four in five of its operators is off the others."""
    by_family: dict[str, list[Measured]] = defaultdict(list)
    for one in measured:
        by_family[family_of(one.operation)].append(one)
    held = {family: members[_HELD_OUT - 1 :: _HELD_OUT][:_MOST_HELD_OUT] for family, members in by_family.items()}
    out = {one.operation for members in held.values() for one in members}
    kept = [one.row(is_cold=is_cold) for members in by_family.values() for one in members if one.operation not in out]
    asked = [one.operation for members in held.values() for one in members]
    before = dict(zip(asked, predict([], asked), strict=True)) if asked else {}
    after = dict(zip(asked, predict(kept, asked), strict=True)) if asked else {}

    def errors(members: Sequence[Measured], predicted_s: dict[Operation, float]) -> tuple[float, ...]:
        return tuple(1e6 * predicted_s[one.operation] / median(one.times_us) - 1 for one in members)

    return [
        Judged(
            family=family,
            measured=len(members),
            before=errors(held[family], before),
            errors=errors(held[family], after),
            spreads=tuple((max(one.times_us) - min(one.times_us)) / median(one.times_us) for one in members),
            sizes=tuple(float(one.needed_bytes) for one in members),
        )
        for family, members in by_family.items()
    ]


def reasons(refused: Iterable[Refused]) -> dict[str, Counter[str]]:
    """Return by family why how many of its operators were not measured; sizes are left out of the reasons."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in refused:
        found[family_of(one.operation)][one.why.split(":", maxsplit=1)[0] if "too large" in one.why else one.why] += 1
    return dict(found)


def family_of(operation: Operation) -> str:
    """Return what an operator is judged with: its kind, direction and dtype."""
    name = _NAMES[type(operation).__name__]
    if isinstance(operation, Product) and operation.batch > 1:
        name = "batched products"
    if getattr(operation, "is_backward", False) or getattr(operation, "backward", False):
        name += " backward"
    if isinstance(operation, Pointwise):
        name = "strided" if operation.dims > 1 else name
        return f"{name} {operation.outputs[0].dtype}" if operation.outputs else name
    if isinstance(operation, BagsForward | BagsBackward):
        return f"{name} {operation.bags.weight_dtype}"
    dtype = getattr(operation, "dtype", "")
    return f"{name} {dtype}" if dtype else name


_NAMES = {
    **{"Product": "products", "Attention": "attention", "Convolution": "convolutions", "Pointwise": "elementwise"},
    **{"Reduction": "reductions", "Qr": "QR", "Pool": "pooling", "Softmax": "softmax", "RowNorm": "row norms"},
    **{"BatchNorm": "batch norms", "NllLoss": "losses", "Gather": "lookups", "Index": "indices"},
    **{"IndexPut": "index backward", "EmbeddingBackward": "embedding backward", "ScatterAdd": "scatter", "Cat": "cat"},
    **{"HostCopy": "host copies", "OneRankCollective": "collectives of one rank", "Foreach": "lists of tensors"},
    **{"Sort": "sorts", "Scan": "scans", "PermuteSparse": "permuted ids", "BucketizeSparse": "bucketized ids"},
    **{"PermutePooled": "permuted embeddings", "BagsForward": "embedding bags"},
    "BagsBackward": "embedding bags backward",
}
