"""Judges a table of measured operators by the errors of predictions for held-out operators."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from real.calibration.kernels.fit import group_of
from real.calibration.operators.part import MeasuredRepeats, UnmeasuredOperator
from scenarios.config.provenance import ErrorGroup
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.operations.bags import BagsBackward, BagsForward
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.operations.products import Product

# Every fifth operator of a family is held out of the judged table, up to a limit.
_HELD_OUT, _MOST_HELD_OUT = 5, 200

# Predicts seconds of operators, in order, with a table of these rows over the profile's; without rows, with the
# profile alone.
Predict = Callable[[Sequence[MeasuredOperator], Sequence[Operation]], list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A family's errors on held-out operators: predicted over measured, less 1.

    Attributes:
        measured: number of the family's operators.
        before: errors without the table.
        errors: errors with the table.
        spreads: spreads of repeats, of all of the family's operators.
        sizes: bytes of tensors, of all of the family's operators.
    """

    family: str
    measured: int
    before: tuple[float, ...]
    errors: tuple[float, ...]
    spreads: tuple[float, ...]
    sizes: tuple[float, ...]

    @property
    def typical_before(self) -> float | None:
        """The mean absolute error without the table."""
        return mean(map(abs, self.before)) if self.before else None

    @property
    def typical(self) -> float | None:
        """The mean absolute error with the table."""
        return mean(map(abs, self.errors)) if self.errors else None

    @property
    def is_worse(self) -> bool:
        """Whether the table makes the family worse."""
        return bool(self.errors) and mean(map(abs, self.errors)) > mean(map(abs, self.before))

    def groups(self) -> tuple[ErrorGroup, ...]:
        """Return a profile's groups of the family: without the table, and with the table."""
        counts = ((f"{self.family}, law alone", self.before), (f"{self.family}, with the table", self.errors))
        return tuple(group_of(name, errors, self.spreads, self.sizes) for name, errors in counts if errors)


def judge(measured: Iterable[MeasuredRepeats], predict: Predict, *, is_cold: bool) -> list[Judged]:
    """Judge each family: a table of four in five of its operators predicts the others."""
    by_family: dict[str, list[MeasuredRepeats]] = defaultdict(list)
    for one in measured:
        by_family[family_of(one.operation)].append(one)
    by_held_family = {
        family: members[_HELD_OUT - 1 :: _HELD_OUT][:_MOST_HELD_OUT] for family, members in by_family.items()
    }
    out = {one.operation for members in by_held_family.values() for one in members}
    kept = [one.row(is_cold=is_cold) for members in by_family.values() for one in members if one.operation not in out]
    held_out = [one.operation for members in by_held_family.values() for one in members]
    before = dict(zip(held_out, predict([], held_out), strict=True)) if held_out else {}
    after = dict(zip(held_out, predict(kept, held_out), strict=True)) if held_out else {}

    def errors(members: Sequence[MeasuredRepeats], predicted_s: dict[Operation, float]) -> tuple[float, ...]:
        return tuple(1e6 * predicted_s[one.operation] / median(one.times_us) - 1 for one in members)

    return [
        Judged(
            family=family,
            measured=len(members),
            before=errors(by_held_family[family], before),
            errors=errors(by_held_family[family], after),
            spreads=tuple((max(one.times_us) - min(one.times_us)) / median(one.times_us) for one in members),
            sizes=tuple(float(one.needed_bytes) for one in members),
        )
        for family, members in by_family.items()
    ]


def reasons(refused: Iterable[UnmeasuredOperator]) -> dict[str, Counter[str]]:
    """Count by family the reasons for which operators were not measured, without sizes."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in refused:
        counts[family_of(one.operation)][one.why.split(":", maxsplit=1)[0] if "too large" in one.why else one.why] += 1
    return dict(counts)


def family_of(operation: Operation) -> str:
    """Return the family of an operator: its kind, direction and dtype."""
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
    **{"BagsBackward": "embedding bags backward", "Recurrence": "recurrent layers"},
}
