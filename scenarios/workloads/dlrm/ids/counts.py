"""Counts the ids of all ranks' batches, for simulations without values: once for all ranks, and for equal scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from scenarios.config.scenario import Scenario, Table
from scenarios.sparse.counted import CountedIds, Ints
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.dlrm.batches import draw_bags, draws_alike
from scenarios.workloads.dlrm.ids.id_cache import DRAWN

# Batches whose counts are kept: pipelines draw few ahead, and a batch that a late rank needs is counted again.
_BATCHES = 16


class IdCounter:
    """A counter of the ids that a scenario's ranks draw, shared by all of them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._features = {
            feature.name: (number, place, draws_alike(feature))
            for number, table in enumerate(scenario.workload.tables)
            for place, feature in enumerate(table.by_feature)
        }
        self._found: dict[int, dict[object, Ints]] = {}  # by batch

    def features(
        self, tables: Sequence[Table], rank: int, batch: int, *, weighted: bool, dtypes: tuple[torch.dtype, torch.dtype]
    ) -> KeyedJagged:
        """Return a rank's features of these tables without values; `dtypes` are those of ids and lengths."""
        keys = tuple(feature.name for table in tables for feature in table.by_feature)
        in_blocks, samples = partial(self._in_blocks, batch), self._scenario.run.batch_size
        whole = np.concatenate([in_blocks(key, 0, 1, is_distinct=False) for key in keys], 1)
        counted = CountedIds(by_rank=whole, in_blocks=in_blocks)
        ids = counted.of_rank(rank)
        total = sum(ids)
        return KeyedJagged(
            keys=keys,
            values=torch.empty(total, dtype=dtypes[0], device="meta"),
            lengths=torch.empty(samples * len(keys), dtype=dtypes[1], device="meta"),
            weights=torch.empty(total, device="meta") if weighted else None,
            stride=samples,
            ids_per_key=ids,
            counted=counted,
        )

    def _in_blocks(self, batch: int, key: str, rows: int, blocks: int, *, is_distinct: bool) -> Ints:
        if batch not in self._found:
            self._found[batch] = {}
            for old in sorted(self._found)[:-_BATCHES]:
                del self._found[old]
        of_batch, cut = self._found.get(batch, {}), (key, rows, blocks, is_distinct)
        if (found := of_batch.get(cut)) is None:
            found = of_batch[cut] = self._count(batch, *cut)
        return found

    def _count(self, batch: int, key: str, rows: int, blocks: int, is_distinct: bool) -> Ints:
        (number, place, law), run, ranks = self._features[key], self._scenario.run, self._scenario.cluster.world_size

        def count(rank: int) -> Ints:
            with_ids = is_distinct or blocks > 1
            drawn = draw_bags(self._scenario, number, rank, batch, feature=place, with_ids=with_ids)
            if not with_ids:
                return np.array([drawn.lengths.sum(dtype=np.int64)])
            ids = np.unique(drawn.ids) if is_distinct else drawn.ids
            return np.bincount(ids // rows if blocks > 1 else np.zeros_like(ids), minlength=blocks)

        drawn, cut = (run.seed, ranks, batch, number, place, law, run.batch_size), (rows, blocks, is_distinct)
        (made,) = DRAWN.get((drawn, cut), lambda: (np.stack([count(rank) for rank in range(ranks)]),))
        return made.astype(np.int64)
