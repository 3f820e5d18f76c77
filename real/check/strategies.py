"""Hypothesis strategies for the cases of each property, and the properties by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

from real.check.cases.bits import DTYPES
from real.check.cases.bucketize import Bucketize
from real.check.cases.case import Case
from real.check.cases.exchanges import AllToAll, Exchange
from real.check.cases.gradients import Gradients
from real.check.cases.groups import GroupSpec
from real.check.cases.moves import OPS, Broadcast, Gather, Messages, Reduction
from real.check.cases.plans import KINDS, Plan, Table
from real.check.cases.twrw import Twrw

C = TypeVar("C", bound=Case)
T = TypeVar("T")

# Each example is one play in each world, of up to PER_PLAY cases.
PER_PLAY = 10
# bool and float8 have no sums, and neither library here has those of uint64.
SUMMED = [dtype for dtype in DTYPES if dtype not in ("bool", "uint64") and not dtype.startswith("float8")]
ID_DTYPES = st.tuples(st.sampled_from(["int64", "int32"]), st.sampled_from(["int32", "int64"]))
SEEDS = st.integers(0, 99)


class Ranks(NamedTuple):
    """The ranks that play, and the groups that their cases may use: each group takes a while to set up."""

    hosts: int
    gpus: int
    places: tuple[GroupSpec, ...]

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.hosts * self.gpus


Draws = Callable[[Ranks], st.SearchStrategy[C]]


@st.composite
def plays(draw: st.DrawFn, cases: Draws[C], sizes: Sequence[tuple[int, int]]) -> tuple[C, ...]:
    """Cases of one world of one of `sizes` (hosts, GPUs per host), to be played one after the other."""
    hosts, gpus = draw(st.sampled_from(sizes))
    places = draw(st.lists(group_specs(hosts, gpus), min_size=1, max_size=3))
    return draw(several(cases(Ranks(hosts, gpus, tuple(places))), 1, PER_PLAY))


@st.composite
def several(draw: st.DrawFn, items: st.SearchStrategy[T], low: int, high: int) -> tuple[T, ...]:
    """From `low` to `high` items. Hypothesis deletes one of so many, but hardly one of a list, if items are long."""
    return tuple(draw(items) for _ in range(draw(st.integers(low, high))))


@st.composite
def group_specs(draw: st.DrawFn, hosts: int, gpus: int) -> GroupSpec:
    """Any group of a world, now and then on the second stream."""
    kind = draw(st.sampled_from(["world", "intra", "cross", "new", "new"]))
    everyone = draw(st.permutations(range(hosts * gpus)))
    ranks = tuple(everyone[: draw(st.integers(1, hosts * gpus))]) if kind == "new" else ()
    return GroupSpec(kind, ranks, draw(st.integers(0, 7)) == 7)


@st.composite
def counts(draw: st.DrawFn, size: int) -> tuple[tuple[int, ...], ...]:
    """Rows from each rank to each rank: uneven, or all the same, or from one rank only."""
    kind = draw(st.sampled_from(["even", "any", "one-sided"]))
    if kind == "even":
        return ((draw(st.integers(0, 3)),) * size,) * size
    row = st.lists(st.integers(0, 4), min_size=size, max_size=size).map(tuple)
    giver = draw(st.integers(0, size - 1))
    return tuple(draw(row) if kind == "any" or rank == giver else (0,) * size for rank in range(size))


@st.composite
def exchanges(draw: st.DrawFn, ranks: Ranks) -> Exchange:
    """One all-to-all call."""
    dtype = draw(st.sampled_from(DTYPES))
    is_list = draw(st.booleans())
    scalar = is_list and draw(st.integers(0, 4)) == 4
    return Exchange(
        place=draw(st.sampled_from(ranks.places)),
        is_list=is_list,
        dtype=dtype,
        counts=((1,) * ranks.size,) * ranks.size if scalar else draw(counts(ranks.size)),
        trailing=() if scalar else draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,), (2, 0)])),
        scalar=scalar,
        omits_splits=draw(st.booleans()),
        shift=draw(st.sampled_from([None, None, 0, 1, 3])),
        conjugates=dtype in ("complex64", "complex128") and draw(st.booleans()),
        seed=draw(SEEDS),
    )


@st.composite
def all_to_alls(draw: st.DrawFn, ranks: Ranks) -> AllToAll:
    """Up to three all-to-all calls in flight."""
    return AllToAll(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        exchanges=draw(several(exchanges(ranks), 1, 3)),
        turns=tuple(draw(st.lists(st.integers(0, 2), min_size=ranks.size, max_size=ranks.size))),
        is_backwards=draw(st.booleans()),
    )


@st.composite
def gathers(draw: st.DrawFn, ranks: Ranks) -> Gather:
    """all_gather_into_tensor."""
    return Gather(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        place=draw(st.sampled_from(ranks.places)),
        dtype=draw(st.sampled_from(DTYPES)),
        numel=draw(st.integers(0, 5)),
        in_place=draw(st.booleans()),
        seed=draw(SEEDS),
    )


@st.composite
def broadcasts(draw: st.DrawFn, ranks: Ranks) -> Broadcast:
    """broadcast."""
    return Broadcast(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        place=draw(st.sampled_from(ranks.places)),
        dtype=draw(st.sampled_from(DTYPES)),
        shape=tuple(draw(st.lists(st.integers(0, 3), max_size=3))),
        source=draw(st.integers(0, 5)),
        seed=draw(SEEDS),
    )


@st.composite
def messages(draw: st.DrawFn, ranks: Ranks) -> Messages:
    """send and recv between any ranks."""
    pairs = [(source, target) for source in range(ranks.size) for target in range(ranks.size) if source != target]
    drawn = draw(st.lists(st.tuples(st.sampled_from(pairs), st.integers(0, 5)), max_size=6)) if pairs else []
    return Messages(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        dtype=draw(st.sampled_from(DTYPES)),
        messages=tuple((*pair, numel) for pair, numel in drawn),
        seed=draw(SEEDS),
    )


def moves(ranks: Ranks) -> st.SearchStrategy[Gather | Broadcast | Messages]:
    """Gathers, broadcasts and messages."""
    return st.one_of(gathers(ranks), broadcasts(ranks), messages(ranks))


@st.composite
def reductions(draw: st.DrawFn, ranks: Ranks) -> Reduction:
    """all_reduce and reduce_scatter_tensor."""
    dtype = draw(st.sampled_from(SUMMED))
    ops = [op for op in OPS if not (dtype.startswith("complex") and op in ("min", "max"))]
    return Reduction(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        place=draw(st.sampled_from(ranks.places)),
        dtype=dtype,
        numel=draw(st.integers(0, 5)),
        op=draw(st.sampled_from(ops)),
        scatters=draw(st.booleans()),
        big=draw(st.booleans()),
        seed=draw(SEEDS),
    )


@st.composite
def bucketizes(draw: st.DrawFn, ranks: Ranks) -> Bucketize:
    """block_bucketize with any options."""
    my_size = draw(st.sampled_from([1, 2, 3, 7, 300]))
    blocks = draw(several(st.integers(0, 9), 1, 4))
    uniform = draw(st.integers(0, 4))
    batches = draw(st.one_of(st.just((uniform,) * len(blocks)), st.tuples(*[st.integers(0, 4)] * len(blocks))))
    by_feature = st.tuples(*[st.booleans()] * len(blocks))
    totals = st.tuples(*[st.integers(1, 3).map(lambda times: times * my_size)] * len(blocks))
    bounds = st.tuples(*[_bounds(my_size)] * len(blocks))
    return Bucketize(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        blocks=blocks,
        batches=batches,
        my_size=my_size,
        longest=draw(st.integers(0, 6)),
        dtypes=draw(ID_DTYPES),
        weighted=draw(st.booleans()),
        positions=draw(st.booleans()),
        sequence=draw(st.booleans()),
        bounds=draw(st.none() | bounds) if my_size < 10 else None,
        keep=draw(st.booleans() | by_feature),
        totals=draw(st.none() | totals),
        seed=draw(SEEDS),
    )


def _bounds(my_size: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(0, 20), min_size=my_size, max_size=my_size).map(lambda rows: (0, *sorted(rows)))


@st.composite
def twrws(draw: st.DrawFn, ranks: Ranks) -> Twrw:
    """The input exchange of table-row-wise sharding."""
    features = tuple(draw(st.integers(0, 2)) for _ in range(ranks.hosts))
    count = sum(features)
    is_per_key = count > 0 and draw(st.booleans())
    return Twrw(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        features=features,
        rows=tuple(draw(st.integers(1, 12)) for _ in range(count)),
        batches=tuple(
            tuple(draw(st.integers(0, 3)) for _ in range(count if is_per_key else 1)) for _ in range(ranks.size)
        ),
        is_per_key=is_per_key,
        longest=draw(st.integers(0, 3)),
        dtypes=draw(ID_DTYPES),
        weighted=draw(st.booleans()),
        has_feature_processor=draw(st.booleans()),
        need_pos=draw(st.booleans()),
        seed=draw(SEEDS),
    )


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[str, ...]) -> Table:
    """A table of one of these sharding types."""
    kind = draw(st.sampled_from(kinds))
    cuts = draw(st.integers(1, 3)) if kind in ("column_wise", "table_column_wise", "grid_shard") else 1
    return Table(
        kind=kind,
        rows=draw(st.integers(1, 12)),
        widths=(draw(st.integers(1, 3)),) * cuts,
        owners=tuple(draw(st.integers(0, 5)) for _ in range(cuts)),
        processor=draw(st.booleans()),
    )


@st.composite
def plans(draw: st.DrawFn, ranks: Ranks, kinds: tuple[str, ...]) -> Plan:
    """Up to three tables, from features to pooled rows and back."""
    return Plan(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        tables=draw(several(tables(kinds), 1, 3)),
        batches=tuple(draw(st.integers(0, 3)) for _ in range(ranks.size)),
        longest=draw(st.integers(0, 3)),
        dtype=draw(st.sampled_from(["int64", "int32"])),
        weighted=draw(st.booleans()),
        need_pos=draw(st.booleans()),
        seed=draw(SEEDS),
    )


@st.composite
def gradients(draw: st.DrawFn, ranks: Ranks) -> Gradients:
    """Gradient buckets and their averages."""
    shape = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    return Gradients(
        hosts=ranks.hosts,
        gpus=ranks.gpus,
        shapes=draw(several(shape, 0, 5)),
        first_bytes=draw(st.integers(1, 100)),
        cap_bytes=draw(st.integers(1, 200)),
        dtype=draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"])),
        steps=draw(st.integers(1, 2)),
        fractions=draw(st.booleans()),
        seed=draw(SEEDS),
    )


# What the repr of a case may name.
CASES = {
    kind.__name__: kind
    for kind in (
        AllToAll,
        Exchange,
        GroupSpec,
        Gather,
        Broadcast,
        Messages,
        Reduction,
        Bucketize,
        Twrw,
        Plan,
        Table,
        Gradients,
    )
}
PROPERTIES: Mapping[str, Draws[Any]] = {
    "all_to_all": all_to_alls,
    "moves": moves,
    "reductions": reductions,
    "gradients": gradients,
    "bucketize": bucketizes,
    "input_exchange": twrws,
    "sharding_twrw": lambda ranks: plans(ranks, ("table_row_wise",)),
    "sharding_any": lambda ranks: plans(ranks, KINDS),
}
