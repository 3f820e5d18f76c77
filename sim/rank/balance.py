"""Balanced runs: each rank computes and sends the mean of all ranks' work, taken from a first simulation of the run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from scenarios.config.compute_times import Ordinals
from scenarios.config.gpu import Gpu
from scenarios.seam.calls import Call
from scenarios.seam.kernel import Kernel
from scenarios.seam.traits import EXCHANGES, TRAITS
from sim.engine.prices import Prices
from sim.engine.roofline import KernelCost

# Whether input and output have a share for each member, for collectives in which all members give equally much.
_SHARES = {
    verb: (known.receives == "share", known.gives == "share")
    for verb, known in TRAITS.items()
    if known.bus and not (known.uneven or known.has_splits)
}
_AMOUNTS = (
    *("flops", "recomputed_flops", "bytes_read", "bytes_written", "bytes_reread", "host_read", "host_written"),
    *("lasts_ns", "launches"),
)
_COSTS = tuple(one.name for one in fields(KernelCost))
_WHOLE = ("lasts_ns", "launches", "launch_ns", "ramp_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedComputation:
    """A computation with its price: `price` overrides that of its kernel, `measured_ns` any price."""

    kernel: Kernel
    measured_ns: int | None = None
    price: KernelCost | None = None


class Balance:
    """A sum of what all ranks compute and send; once `settled`, it gives each rank the mean in place of its own.

    Means are over the ranks' computations of one label, or calls of one operation and label in groups of one size, that
    are the n-th of their kind on their stream in their step; ranks without such a call are not counted. Each pair of
    ranks in an all-to-all gets the mean of its kind of pair: a rank with itself, two ranks of one NVLink domain, two of
    different ones. Collectives with a root or a peer, and coalesced ones, stay as they are. Slow GPUs and links stay
    slow: only work is balanced.
    """

    def __init__(self, gpu: Gpu, domain: Callable[[int], int], rank_counts: Mapping[int, int]) -> None:
        """Start a summing pass; `domain` gives a rank's NVLink domain, `rank_counts` how many ranks each represents."""
        self.settled = False
        self._prices, self._domain, self._counts = Prices(gpu), domain, rank_counts
        self._ordinals = Ordinals()
        self._computations: dict[Hashable, _Work] = {}
        self._sizes: dict[Hashable, _Mean] = {}

    def settle(self) -> None:
        """End the summing pass; the same run follows from its start, in which `computation` and `call` return means."""
        # Counted anew: the n-th computation of this pass gets the mean of the n-th ones of the first pass.
        self.settled, self._ordinals = True, Ordinals()

    def computation(self, rank: int, stream: str, step: int, label: str, own: PricedComputation) -> PricedComputation:
        """Return the rank's next computation: its own while summing, then the mean."""
        kind = "compute", stream, label
        key = step, kind, self._ordinals.next(rank, step, kind)
        if self.settled:
            return self._computations[key].each(own)
        self._computations.setdefault(key, _Work(own)).add(self._counts[rank], own, self._prices)
        return own

    def call(self, stream: str, step: int, own: Call) -> Call:
        """Return the rank's next call: its own while summing, then with mean sizes."""
        if own.mistake or (own.op not in _SHARES and own.op not in EXCHANGES):
            return own
        kind = own.op, stream, own.label, own.group.size
        key = step, kind, self._ordinals.next(own.rank, step, kind)
        if own.op in _SHARES:
            return self._shares(key, own)
        return self._folded_exchange(key, own) if own.expected_send else self._exchange(key, own)

    def _shares(self, key: Hashable, own: Call) -> Call:
        mean = self._sizes.setdefault(key, _Mean())
        if not self.settled:
            mean.add(min(own.bytes_in, own.bytes_out), self._counts[own.rank])
            return own
        share = mean.round_to(own.element_size)
        given, got = (share * (own.group.size if is_all else 1) for is_all in _SHARES[own.op])
        return replace(own, bytes_in=given, bytes_out=got, bytes_sent=given)

    def _exchange(self, key: Hashable, own: Call) -> Call:
        means = [self._sizes.setdefault((key, self._likeness(own.rank, peer)), _Mean()) for peer in own.group.ranks]
        if not self.settled:
            for mean, size_bytes in zip(means, own.send_bytes, strict=True):
                mean.add(size_bytes, self._counts[own.rank])
            return own
        # One list for both directions: by kind of pair a rank sends as much as it receives.
        sizes = tuple(mean.round_to(own.element_size) for mean in means)
        total = sum(sizes)
        sent = total - sizes[own.group.index(own.rank)]
        return replace(own, bytes_in=total, bytes_out=total, bytes_sent=sent, send_bytes=sizes, recv_bytes=sizes)

    def _folded_exchange(self, key: Hashable, own: Call) -> Call:
        """Balance an exchange of representatives. All pairs get one mean: a peer represents near and far ranks."""
        mean = self._sizes.setdefault(key, _Mean())
        if not self.settled:
            for size_bytes, count in zip(own.expected_send, own.group.counts, strict=True):
                mean.add(size_bytes, self._counts[own.rank] * count)
            return own
        sizes = (mean.value,) * len(own.group.ranks)
        total = own.group.total(sizes)
        return replace(
            own,
            bytes_in=round(total),
            bytes_out=round(total),
            bytes_sent=round(total - mean.value),
            expected_send=sizes,
            expected_recv=sizes,
        )

    def _likeness(self, rank: int, peer: int) -> str:
        if rank == peer:
            return "itself"
        return "near" if self._domain(rank) == self._domain(peer) else "far"


@dataclass(slots=True)
class _Mean:
    """A weighted mean, exact where all values are the same whole number."""

    total: float = 0
    weight: int = 0

    def add(self, value: float, weight: int) -> None:
        self.total += value * weight
        self.weight += weight

    @property
    def value(self) -> float:
        return self.total / self.weight

    def round_to(self, unit: int = 1) -> int:
        """Return the mean, rounded to a multiple of `unit`."""
        return round(self.value / unit) * unit


@dataclass(slots=True)
class _Work:
    """The computations of all ranks that become one in a balanced run."""

    first: PricedComputation
    is_same: bool = True
    amounts: dict[str, _Mean] = field(default_factory=lambda: {name: _Mean() for name in _AMOUNTS})
    costs: dict[str, _Mean] = field(default_factory=lambda: {name: _Mean() for name in _COSTS})
    measured: _Mean = field(default_factory=_Mean)
    is_measured: bool = False
    _mean: PricedComputation | None = None

    def add(self, count: int, own: PricedComputation, prices: Prices) -> None:
        """Add the computation of a rank that represents `count` ranks."""
        self.is_same = self.is_same and own == self.first
        self.is_measured = self.is_measured or own.measured_ns is not None
        if not self.first.kernel.launches:  # an empty kernel must not decide the kind of work
            self.first = own
        for name, mean in self.amounts.items():
            mean.add(getattr(own.kernel, name), count)
        price = prices.cost(own.kernel)
        for name, mean in self.costs.items():
            mean.add(getattr(price, name), count)
        self.measured.add(own.measured_ns or 0, count)

    def each(self, own: PricedComputation) -> PricedComputation:
        """Return the computation for each rank: its own if all are equal, else the mean."""
        if self.is_same:
            return own
        if self._mean is None:
            self._mean = self._share()
        return self._mean

    def _share(self) -> PricedComputation:
        amounts: dict[str, Any] = {name: mean.value for name, mean in self.amounts.items()}
        costs: dict[str, Any] = {name: mean.value for name, mean in self.costs.items()}
        for whole in (amounts, costs):
            whole.update({name: round(value) for name, value in whole.items() if name in _WHOLE})
        if self.amounts["launches"].total:
            amounts["launches"] = max(amounts["launches"], 1)
        measured_ns = self.measured.round_to() if self.is_measured else None
        # Without operators and parts: those of one rank have shapes that do not add up to the mean.
        kernel = replace(self.first.kernel, **amounts, operations=(), parts=())
        return PricedComputation(kernel=kernel, measured_ns=measured_ns, price=KernelCost(**costs))
