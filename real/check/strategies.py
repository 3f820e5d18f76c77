"""Hypothesis strategies for the cases of each property, and the properties by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_args

from hypothesis import strategies as st

from real.check.cases.bucketize import Bucketize
from real.check.cases.case import Case, GroupSpec
from real.check.cases.cross_checks import OPS, AllGatherCase, Broadcast, Messages, ReductionCase
from real.check.cases.error_classes import DTYPES
from real.check.cases.exchanges import AllToAll, AllToAllCase
from real.check.cases.gradients import GradientsCase
from real.check.cases.plans import PlanCase, TableCase
from real.check.cases.twrw import Twrw
from scenarios.sharding_kind import ShardingKind, ShardingType

C = TypeVar("C", bound=Case)
T = TypeVar("T")

# Each example is one play in each world, of up to PER_PLAY cases.
PER_PLAY = 10
# bool and float8 have no sums, and neither gloo nor NCCL sums uint64 in torch.
SUMMED = [dtype for dtype in DTYPES if dtype not in ("bool", "uint64") and not dtype.startswith("float8")]
ID_DTYPES = st.tuples(st.sampled_from(["int64", "int32"]), st.sampled_from(["int32", "int64"]))
SEEDS = st.integers(0, 99)


class PlayingRanks(NamedTuple):
    """The ranks of a world, and the groups that cases may use: each group takes a while to set up."""

    hosts: int
    gpus: int
    places: tuple[GroupSpec, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.hosts * self.gpus


Draws = Callable[[PlayingRanks], st.SearchStrategy[C]]


@st.composite
def plays(draw: st.DrawFn, cases: Draws[C], sizes: Sequence[tuple[int, int]]) -> tuple[C, ...]:
    """Draw cases of one world of one of `sizes` (hosts, GPUs per host), to run one after the other."""
    hosts, gpus = draw(st.sampled_from(sizes))
    places = draw(st.lists(group_specs(hosts, gpus), min_size=1, max_size=3))
    return draw(several(cases(PlayingRanks(hosts, gpus, tuple(places))), 1, PER_PLAY))


@st.composite
def several(draw: st.DrawFn, items: st.SearchStrategy[T], low: int, high: int) -> tuple[T, ...]:
    """Draw from `low` to `high` items. Hypothesis shrinks such a tuple better than a list of long items."""
    return tuple(draw(items) for _ in range(draw(st.integers(low, high))))


@st.composite
def group_specs(draw: st.DrawFn, hosts: int, gpus: int) -> GroupSpec:
    """Draw any group of a world, now and then on the second stream."""
    kind = draw(st.sampled_from(["world", "intra", "cross", "new", "new"]))
    everyone = draw(st.permutations(range(hosts * gpus)))
    ranks = tuple(everyone[: draw(st.integers(1, hosts * gpus))]) if kind == "new" else ()
    return GroupSpec(kind, ranks, draw(st.integers(0, 7)) == 7)


@st.composite
def counts(draw: st.DrawFn, size: int) -> tuple[tuple[int, ...], ...]:
    """Draw rows from each rank to each rank: uneven, or all equal, or from one rank only."""
    kind = draw(st.sampled_from(["even", "any", "one-sided"]))
    if kind == "even":
        return ((draw(st.integers(0, 3)),) * size,) * size
    row = st.lists(st.integers(0, 4), min_size=size, max_size=size).map(tuple)
    giver = draw(st.integers(0, size - 1))
    return tuple(draw(row) if kind == "any" or rank == giver else (0,) * size for rank in range(size))


def _draw_dataclass(kind: type[T], ranks: PlayingRanks, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Draw a dataclass of a kind: fields that are not given are drawn by their name, flags freely."""
    named: dict[str, st.SearchStrategy[Any]] = {
        "hosts": st.just(ranks.hosts),
        "gpus": st.just(ranks.gpus),
        "place": st.sampled_from(ranks.places),
        "dtype": st.sampled_from(DTYPES),
        "dtypes": ID_DTYPES,
        "numel": st.integers(0, 5),
        "longest": st.integers(0, 3),
        "seed": SEEDS,
    }
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    drawn = {one.name: named.get(one.name, st.booleans()) for one in fields if one.name in named or one.type == "bool"}
    return st.builds(kind, **{**drawn, **given})


@st.composite
def exchanges(draw: st.DrawFn, ranks: PlayingRanks) -> AllToAllCase:
    """Draw one all-to-all call."""
    dtype = draw(st.sampled_from(DTYPES))
    is_list = draw(st.booleans())
    scalar = is_list and draw(st.integers(0, 4)) == 4
    strategy = _draw_dataclass(
        AllToAllCase,
        ranks,
        is_list=st.just(is_list),
        dtype=st.just(dtype),
        counts=st.just(((1,) * ranks.size,) * ranks.size) if scalar else counts(ranks.size),
        trailing=st.just(()) if scalar else st.sampled_from([(), (1,), (3,), (2, 2), (0,), (2, 0)]),
        scalar=st.just(scalar),
        shift=st.sampled_from([None, None, 0, 1, 3]),
        conjugates=st.booleans() if dtype in ("complex64", "complex128") else st.just(False),
    )
    return draw(strategy)


def all_to_alls(ranks: PlayingRanks) -> st.SearchStrategy[AllToAll]:
    """Draw up to three all-to-all calls in flight."""
    return _draw_dataclass(
        AllToAll, ranks, exchanges=several(exchanges(ranks), 1, 3), turns=_tuples(st.integers(0, 2), ranks.size)
    )


def _messages(ranks: PlayingRanks) -> st.SearchStrategy[Messages]:
    """Draw sends and receives between any ranks."""
    pairs = [(source, target) for source in range(ranks.size) for target in range(ranks.size) if source != target]
    message = st.tuples(st.sampled_from(pairs), st.integers(0, 5)).map(lambda drawn: (*drawn[0], drawn[1]))
    return _draw_dataclass(Messages, ranks, messages=st.lists(message, max_size=6).map(tuple) if pairs else st.just(()))


def moves(ranks: PlayingRanks) -> st.SearchStrategy[AllGatherCase | Broadcast | Messages]:
    """Draw gathers, broadcasts and messages."""
    shape = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    broadcasts = _draw_dataclass(Broadcast, ranks, shape=shape, source=st.integers(0, 5))
    return st.one_of(_draw_dataclass(AllGatherCase, ranks), broadcasts, _messages(ranks))


@st.composite
def reductions(draw: st.DrawFn, ranks: PlayingRanks) -> ReductionCase:
    """Draw an all_reduce or a reduce_scatter_tensor."""
    dtype = draw(st.sampled_from(SUMMED))
    # Complex numbers have no order.
    ops = [op for op in OPS if not (dtype.startswith("complex") and op in ("min", "max"))]
    return draw(_draw_dataclass(ReductionCase, ranks, dtype=st.just(dtype), op=st.sampled_from(ops)))


@st.composite
def bucketizes(draw: st.DrawFn, ranks: PlayingRanks) -> Bucketize:
    """Draw a block_bucketize with any options."""
    my_size = draw(st.sampled_from([1, 2, 3, 7, 300]))
    blocks = draw(several(st.integers(0, 9), 1, 4))
    size = len(blocks)
    bounds = st.lists(st.integers(0, 20), min_size=my_size, max_size=my_size).map(lambda rows: (0, *sorted(rows)))
    strategy = _draw_dataclass(
        Bucketize,
        ranks,
        blocks=st.just(blocks),
        batches=st.integers(0, 4).map(lambda batch: (batch,) * size) | _tuples(st.integers(0, 4), size),
        my_size=st.just(my_size),
        longest=st.integers(0, 6),
        bounds=st.none() | _tuples(bounds, size) if my_size < 10 else st.none(),
        keep=st.booleans() | _tuples(st.booleans(), size),
        totals=st.none() | _tuples(st.integers(1, 3).map(lambda times: times * my_size), size),
    )
    return draw(strategy)


@st.composite
def twrws(draw: st.DrawFn, ranks: PlayingRanks) -> Twrw:
    """Draw an input exchange of table-row-wise sharding."""
    features = draw(_tuples(st.integers(0, 2), ranks.hosts))
    count = sum(features)
    is_per_key = count > 0 and draw(st.booleans())
    strategy = _draw_dataclass(
        Twrw,
        ranks,
        features=st.just(features),
        rows=_tuples(st.integers(1, 12), count),
        batches=_tuples(_tuples(st.integers(0, 3), count if is_per_key else 1), ranks.size),
        is_per_key=st.just(is_per_key),
    )
    return draw(strategy)


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[str, ...]) -> TableCase:
    """Draw a table of one of these sharding types."""
    kind = draw(st.sampled_from(kinds))
    cuts = draw(st.integers(1, 3)) if ShardingKind(kind).cuts_columns else 1
    return TableCase(
        kind=kind,
        rows=draw(st.integers(1, 12)),
        widths=(draw(st.integers(1, 3)),) * cuts,
        owners=draw(_tuples(st.integers(0, 5), cuts)),
        processor=draw(st.booleans()),
    )


def plans(ranks: PlayingRanks, kinds: tuple[str, ...]) -> st.SearchStrategy[PlanCase]:
    """Draw up to three tables, from features to pooled rows and back."""
    batches = _tuples(st.integers(0, 3), ranks.size)
    dtype = st.sampled_from(["int64", "int32"])
    return _draw_dataclass(PlanCase, ranks, tables=several(tables(kinds), 1, 3), batches=batches, dtype=dtype)


def gradients(ranks: PlayingRanks) -> st.SearchStrategy[GradientsCase]:
    """Draw gradient buckets and their averages."""
    return _draw_dataclass(
        GradientsCase,
        ranks,
        shapes=several(st.lists(st.integers(0, 4), max_size=3).map(tuple), 0, 5),
        first_bytes=st.integers(1, 100),
        cap_bytes=st.integers(1, 200),
        dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
        steps=st.integers(1, 2),
    )


def _tuples(items: st.SearchStrategy[T], size: int) -> st.SearchStrategy[tuple[T, ...]]:
    """Return a strategy of tuples of `size` items."""
    return st.tuples(*[items] * size)


_KINDS_OF_CASES = (
    AllToAll,
    Bucketize,
    AllGatherCase,
    Broadcast,
    Messages,
    ReductionCase,
    Twrw,
    PlanCase,
    GradientsCase,
)
# The names that a case's repr may contain.
CASES = {kind.__name__: kind for kind in (*_KINDS_OF_CASES, AllToAllCase, GroupSpec, TableCase)}
PROPERTIES: Mapping[str, Draws[Any]] = {
    "all_to_all": all_to_alls,
    "moves": moves,
    "reductions": reductions,
    "gradients": gradients,
    "bucketize": bucketizes,
    "input_exchange": twrws,
    "sharding_twrw": lambda ranks: plans(ranks, ("table_row_wise",)),
    "sharding_any": lambda ranks: plans(ranks, get_args(ShardingType)),
}
