"""The alpha-beta model: a message of n bytes takes alpha + n beta. Where measured messages come from is left to others.

Roger W. Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel Computing 20(3), 1994.
Costs of collectives, without arithmetic, as in Rajeev Thakur, Rolf Rabenseifner, William Gropp, Optimization of
Collective Communication Operations in MPICH, Int. J. of High Performance Computing Applications 19(1), 2005, of the
algorithms that gloo has: there a reduce-scatter is an all-reduce of its input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

Matrix = Sequence[Sequence[float]]
Round = list[tuple[int, int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaBeta:
    """A message of n bytes takes `alpha_s + n * beta_s_per_byte`, an interface sends and receives at once."""

    alpha_s: float
    beta_s_per_byte: float

    def message_s(self, size_bytes: float) -> float:
        return self.alpha_s + size_bytes * self.beta_s_per_byte


def fit(messages: Sequence[tuple[float, float]]) -> AlphaBeta:
    """Least squares of relative errors over messages of (bytes, seconds one way); neither parameter is negative.

    Raises:
        ValueError: fewer than two sizes, or a time that is not positive.
    """
    _check(messages)
    # In units of each message's time: alpha * x + beta * y is to be 1.
    shares = [(1 / seconds, size / seconds) for size, seconds in messages]
    xx, xy, yy = (sum(x * x for x, _ in shares), sum(x * y for x, y in shares), sum(y * y for _, y in shares))
    x1, y1 = sum(x for x, _ in shares), sum(y for _, y in shares)
    determinant = xx * yy - xy * xy
    alpha_s, beta = (x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant
    if alpha_s < 0:
        return AlphaBeta(alpha_s=0.0, beta_s_per_byte=y1 / yy)
    if beta < 0:
        return AlphaBeta(alpha_s=x1 / xx, beta_s_per_byte=0.0)
    return AlphaBeta(alpha_s=alpha_s, beta_s_per_byte=beta)


def fit_ends(messages: Sequence[tuple[float, float]]) -> AlphaBeta:
    """As reports of latency and bandwidth go: alpha from the smallest message, beta from the two largest.

    Raises:
        ValueError: fewer than two sizes, or a time that is not positive.
    """
    _check(messages)
    ordered = sorted(dict(messages).items())
    (least, least_s), (less, less_s), (most, most_s) = ordered[0], *ordered[-2:]
    beta = max(0.0, (most_s - less_s) / (most - less))
    return AlphaBeta(alpha_s=max(0.0, least_s - least * beta), beta_s_per_byte=beta)


def predict(
    model: AlphaBeta,
    op: str,
    size_bytes: float,
    world_size: int,
    ranks_per_host: int = 1,
    send_matrix: Matrix | None = None,
    *,
    overlapped: bool = False,
) -> float:
    """Seconds of a collective; `op` and `size_bytes`, a rank's larger buffer, as in `scenarios.workloads.collective`.

    The algorithm is a sequence of rounds. A round takes alpha, and beta for each byte through the interface that has
    most to send or to receive: all ranks of a host share one, and what stays inside a host crosses none. With a single
    host, ranks have an interface each. `send_matrix[source][target]` are an all-to-all's bytes, without it all are
    equal. Its p - 1 messages take alpha each as in the paper's pairwise exchange, or one for all of them where
    `overlapped`: gloo posts them at once.
    """
    if op == "all_to_all":
        matrix = send_matrix or [[size_bytes / world_size] * world_size] * world_size
        everything = [(source, target, matrix[source][target]) for source, target in _pairs(world_size)]
        alphas = 0 if world_size == 1 else 1 if overlapped else world_size - 1
        return alphas * model.alpha_s + _busiest_bytes(everything, world_size, ranks_per_host) * model.beta_s_per_byte
    return sum(
        model.message_s(_busiest_bytes(one, world_size, ranks_per_host)) for one in _ROUNDS[op](size_bytes, world_size)
    )


def _check(messages: Sequence[tuple[float, float]]) -> None:
    if len({size for size, _ in messages}) < 2 or any(seconds <= 0 for _, seconds in messages):
        raise ValueError("expected messages of two sizes or more, in times above zero")


def _busiest_bytes(messages: Iterable[tuple[int, int, float]], world_size: int, ranks_per_host: int) -> float:
    """Through one direction of one interface."""
    ranks = 1 if world_size <= ranks_per_host else ranks_per_host
    loads: defaultdict[tuple[str, int], float] = defaultdict(float)
    for source, target, size_bytes in messages:
        if source // ranks != target // ranks:
            loads["out", source // ranks] += size_bytes
            loads["in", target // ranks] += size_bytes
    return max(loads.values(), default=0.0)


def _pairs(ranks: int) -> Iterator[tuple[int, int]]:
    return ((source, target) for source in range(ranks) for target in range(ranks) if source != target)


def _ring(size_bytes: float, ranks: int, times: int) -> Iterator[Round]:
    """`times` around the ring but for one rank, in shares of the buffer."""
    share = [(rank, (rank + 1) % ranks, size_bytes / ranks) for rank in range(ranks)]
    return (share for _ in range(times * (ranks - 1)))


def _all_reduce(size_bytes: float, ranks: int) -> Iterator[Round]:
    """A reduce-scatter, then an all-gather of what was reduced."""
    return _ring(size_bytes, ranks, 2)


def _all_gather(size_bytes: float, ranks: int) -> Iterator[Round]:
    return _ring(size_bytes, ranks, 1)


def _broadcast(size_bytes: float, ranks: int) -> Iterator[Round]:
    """A binomial tree from rank 0: in round i, those who have it send it 2**i ranks further."""
    for distance in _powers(ranks):
        yield [(rank, rank + distance, size_bytes) for rank in range(min(distance, ranks - distance))]


def _barrier(_: float, ranks: int) -> Iterator[Round]:
    """Dissemination: in round i, all tell the one 2**i ranks further."""
    for distance in _powers(ranks):
        yield [(rank, (rank + distance) % ranks, 0.0) for rank in range(ranks)]


def _powers(ranks: int) -> list[int]:
    """Of two, below the number of ranks."""
    return [1 << i for i in range((ranks - 1).bit_length())]


_ROUNDS: dict[str, Callable[[float, int], Iterator[Round]]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _all_reduce,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "barrier": _barrier,
}
