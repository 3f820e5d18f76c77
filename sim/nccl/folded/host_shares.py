"""Which hosts rings and trees lead to from hosts of each kind; how much goes there is left to `pipelines`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sim.nccl.folded.leaf_uplinks import TREES, degrees_of, edges
from sim.nccl.folded.link_load import Array


def shares(algorithm: str, kinds: Array, counts: Array, *, towards_owner: bool) -> Array:
    """[kinds, kinds]: what one host of each kind gives to all others of each, in what the busiest host gives.

    `kinds` [hosts] is of each host, in the order of the group, `counts` [kinds] how many there are of each.
    `towards_owner` as in `nccl_paths.pat_loads`.
    """
    given = np.zeros((len(counts), len(counts)))
    for sources, targets, share in _ways(algorithm, len(kinds)):
        ends = kinds[sources], kinds[targets]
        np.add.at(given, ends[::-1] if towards_owner and algorithm == "pat" else ends, share)
    return np.asarray(given / counts[:, None])


def _ways(algorithm: str, hosts: int) -> Iterator[tuple[Array, Array, float]]:
    """Hosts, those to which they lead, and the share on each such way."""
    every = np.arange(hosts)
    if algorithm in TREES:
        for child, parent in edges(hosts):
            share = 1 / float(degrees_of(hosts).max())
            yield child, parent, share
            yield parent, child, share
    elif algorithm == "pat":  # a rank on each host, at distances of powers of two
        distances = [1 << power for power in range((hosts - 1).bit_length())]
        for distance in distances:
            yield every, (every + distance) % hosts, min(distance, hosts - distance) / (hosts - 1)
    else:
        yield every, (every + 1) % hosts, 1.0
