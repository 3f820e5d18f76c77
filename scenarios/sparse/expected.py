"""What an exchange of features sends, by formula, as means and deviations a rank; how ids are drawn is left to `Draws`.

Of a group's traffic only vectors over ranks are kept: between two ranks it is an outer product, what the source sends
times the destination's share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from scenarios.sparse.tables import Layout

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Of random counts: `mean` and `variance`, of the same shape; float64."""

    mean: Floats
    variance: Floats


class Draws(Protocol):
    """What ranks draw of one table in a step. All ranks draw alike."""

    @property
    def samples(self) -> int:
        """Bags a rank."""
        ...

    def moments(self, blocks: int = 1, *, joined: int = 1, ranks: int = 1) -> Moments:
        """Ids that `ranks` consecutive ranks, the first a multiple of `ranks`, draw in each part of the table.

        The table's rows are cut into `blocks` blocks of ceil(rows / blocks), the last ones shorter or empty; a part is
        `joined` consecutive blocks. Both moments are [blocks / joined].
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flows:
    """One number a rank, [ranks] float64: what it sends in all, in its host (with itself) and to itself (`kept`), and
    what it receives in all and from its host.
    """

    sent: Floats
    sent_in_host: Floats
    kept: Floats
    received: Floats
    received_in_host: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """What one step's input exchange of a group sends: `ids` (expected), their standard `deviation`s, and `lengths`.

    Source s sends destination d `ids.sent[s] * shares[d]` ids on average; `shares` [ranks] add up to 1. With
    data_parallel a rank keeps all that it draws, and shares are 0. Lengths are elements: one a sample and key.

    The numbers of one rank are not independent: what it keeps is part of what it sends.
    """

    ids: Flows
    deviation: Flows
    lengths: Flows
    shares: Floats


def expected_traffic(layout: Layout, draws: Mapping[str, Draws], local_world_size: int) -> Traffic:
    """The traffic of the group with this layout; `draws` by table, of which each counts as independent of the others.

    Time and memory grow with the pieces of tables times the ranks that cut one, never with ranks squared.

    Raises:
        ValueError: the layout's owners are neither made of whole hosts of `local_world_size` ranks nor parts of one.
    """
    span, world_size = layout.span, len(layout.pieces) * layout.span
    if world_size % local_world_size or (span % local_world_size and local_world_size % span):
        raise ValueError(
            f"local_world_size = {local_world_size}: expected a divisor of {world_size} ranks"
            f" that divides the {span} of a {layout.sharding_type} table, or is a multiple of them"
        )
    held = Counter((owner, piece.table) for owner, owned in enumerate(layout.pieces) for piece in owned)
    stays = layout.kind == "replicated"
    moments = _staying(held, draws, world_size) if stays else _travelling(layout, held, draws, local_world_size)
    ids = Flows(**{name: one.mean for name, one in moments.items()})
    total = 0.0 if stays else ids.received.sum()
    return Traffic(
        ids=ids,
        deviation=Flows(**{name: np.sqrt(one.variance) for name, one in moments.items()}),
        lengths=_lengths(layout, held, draws, local_world_size),
        shares=ids.received / total if total else np.zeros(world_size),
    )


# How many pieces of a table each owner has: they all get the same ids, so that their numbers add up before variances.
_Held = Counter[tuple[int, str]]


def _staying(held: _Held, draws: Mapping[str, Draws], world_size: int) -> dict[str, Moments]:
    """Every rank looks up what it draws."""
    own = _over_ranks(_sums(held, draws, 1), world_size)
    return dict.fromkeys(("sent", "sent_in_host", "kept", "received", "received_in_host"), own)


def _travelling(layout: Layout, held: _Held, draws: Mapping[str, Draws], local: int) -> dict[str, Moments]:
    """By the names of `Flows`."""
    owners, span, blocks = len(layout.pieces), layout.span, layout.buckets
    world_size = owners * span
    in_all, in_host = _joined(held, owners), _joined(held, max(1, local // span))
    parts = {
        "sent": _sums(in_all, draws, 1),
        "sent_in_host": _sums(in_host, draws, world_size // max(local, span), blocks, joined=min(blocks, local)),
        "kept": _sums(held, draws, owners, blocks),
        "received": _sums(held, draws, owners, blocks, ranks=world_size),
        "received_in_host": _sums(held, draws, owners, blocks, ranks=local),
    }
    return {name: _over_ranks(one, world_size) for name, one in parts.items()}


def _joined(held: _Held, owners: int) -> _Held:
    """As if so many consecutive owners were one."""
    joined: _Held = Counter()
    for (owner, table), count in held.items():
        joined[owner // owners, table] += count
    return joined


def _sums(
    held: _Held, draws: Mapping[str, Draws], owners: int, blocks: int = 1, *, joined: int = 1, ranks: int = 1
) -> Moments:
    """Ids of all tables that `ranks` ranks draw for each part of each owner, [owners * blocks / joined]."""
    shape = (owners, blocks // joined)
    total = Moments(np.zeros(shape), np.zeros(shape))
    for (owner, table), pieces in held.items():
        one = draws[table].moments(blocks, joined=joined, ranks=ranks)
        total.mean[owner] += pieces * one.mean
        total.variance[owner] += pieces**2 * one.variance
    return Moments(total.mean.ravel(), total.variance.ravel())


def _over_ranks(moments: Moments, world_size: int) -> Moments:
    """For every rank, from one for each of some that consecutive ranks share."""
    count = world_size // moments.mean.size
    return Moments(np.repeat(moments.mean, count), np.repeat(moments.variance, count))


def _lengths(layout: Layout, held: _Held, draws: Mapping[str, Draws], local: int) -> Flows:
    """Every rank sends all the samples of a key to each rank that holds a piece of it, whatever its rows."""
    owned = np.zeros(len(layout.pieces))
    for (owner, table), pieces in held.items():
        owned[owner] += pieces * draws[table].samples
    one = np.repeat(owned, layout.span)  # from one source to each rank
    if layout.kind == "replicated":
        return Flows(sent=one, sent_in_host=one, kept=one, received=one, received_in_host=one)
    return Flows(
        sent=np.full(one.size, one.sum()),
        sent_in_host=np.repeat(one.reshape(-1, local).sum(1), local),
        kept=one,
        received=one * one.size,
        received_in_host=one * local,
    )
