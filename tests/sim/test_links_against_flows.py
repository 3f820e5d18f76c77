"""Fidelity "links" against "flows" on random clusters with random traffic: a collective, several at once, a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.hardware import Cluster, Inside, Link, Network, Nics
from scenarios.config.scenario import Compression, Gradients, Ids, Scenario, ShardingType
from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Span
from scenarios.workloads.build import build
from sim.nccl import transport as phases
from sim.nccl.transport import COARSE_SHARE, MOST_EXACT
from sim.run import simulate
from tests.lanes import examples
from tests.sim.test_dlrm_steps import training
from tests.small import Play, cluster, scenario, with_model

# Ranks that are drawn. "links" plays what "flows" plays up to 64 of either library (`transport`, `phases`); gloo's
# messages take a while, so of more than 24 there is one example for each collective.
MOST_RANKS = {"gloo": 24, "nccl": 64}
LIBRARIES = st.sampled_from(["gloo", "nccl"])
OPS = ("all_to_all", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter")
STEP_SHARE = 0.03


@dataclasses.dataclass(frozen=True)
class Traffic:
    """A collective of some ranks, with `size_bytes` on each; an all-to-all's splits are drawn."""

    op: str
    ranks: tuple[int, ...]
    size_bytes: int
    seed: int

    @property
    def splits(self) -> list[list[int]]:
        """Bytes by source and target: a few that are large, many that are small, and some that are none."""
        size = len(self.ranks)
        shares = np.random.default_rng(self.seed).dirichlet(np.full(size, 0.3), size)
        return [[int(share * self.size_bytes) for share in row] for row in shares]

    def issue(self, rank: Rank, group: Group) -> Work[torch.Tensor]:
        whole, mine = empty(len(self.ranks) * self.size_bytes), empty(self.size_bytes)
        match self.op:
            case "all_to_all":
                me, splits = self.ranks.index(rank.rank), self.splits
                sends, receives = splits[me], [row[me] for row in splits]
                return rank.all_to_all_single(empty(sum(receives)), empty(sum(sends)), receives, sends, group)
            case "all_reduce":
                return rank.all_reduce(mine, group=group)
            case "reduce_scatter":
                return rank.reduce_scatter_tensor(mine, whole, group=group)
            case "all_gather":
                return rank.all_gather_into_tensor(whole, mine, group=group)
        return self._with_root(rank, mine, group)

    def _with_root(self, rank: Rank, mine: torch.Tensor, group: Group) -> Work[torch.Tensor]:
        root, listed = self.ranks[-1], [empty(self.size_bytes) for _ in self.ranks]
        lists = [listed if rank.rank == root else None] if self.op in ("gather", "scatter") else []
        verb: Any = getattr(rank, self.op)
        return cast("Work[torch.Tensor]", verb(mine, *lists, root, group=group))


def empty(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.int8, device="meta")


@st.composite
def clusters(draw: st.DrawFn, most_ranks: int, least_hosts: int = 1) -> Cluster:
    gpus = draw(st.integers(1, min(8, most_ranks // least_hosts)))
    hosts = draw(st.integers(least_hosts, min(16, most_ranks // gpus)))
    nic = Link(bytes_per_s=draw(st.sampled_from([1.25e9, 25e9])), latency_ns=draw(st.sampled_from([0, 2000])))
    link = Link(bytes_per_s=draw(st.sampled_from([16e9, 2e11])), latency_ns=500)
    is_leaf_spine = draw(st.booleans())
    return cluster(
        hosts,
        gpus,
        inside=Inside(kind="pcie", link=link, bridge_bytes_per_s=24e9)
        if draw(st.booleans())
        else Inside(kind="nvlink", link=link),
        nics=Nics(per="gpu", count=gpus, link=nic)
        if draw(st.booleans())
        else Nics(per="host", count=draw(st.integers(1, gpus)), link=nic),
        network=Network(
            kind="leaf_spine" if is_leaf_spine else "non_blocking",
            latency_ns=300,
            hosts_per_leaf=draw(st.integers(1, 4)) if is_leaf_spine else None,
            oversubscription=draw(st.sampled_from([1.0, 2.0, 4.0])) if is_leaf_spine else 1.0,
        ),
    )


@st.composite
def traffics(draw: st.DrawFn, world_size: int) -> Traffic:
    ranks = draw(st.lists(st.integers(0, world_size - 1), min_size=1, unique=True)) if draw(st.booleans()) else ()
    size_bytes = draw(st.sampled_from([1, 1 << 12, 1 << 17, 1 << 22]))
    return Traffic(
        draw(st.sampled_from(OPS)), tuple(ranks) or (*range(world_size),), size_bytes, draw(st.integers(0, 9))
    )


def spans(on: Cluster, library: str, fidelity: str, several: list[Traffic], late_ns: list[int]) -> list[Span]:
    """All at once, each on a group of its own; ranks begin late by turns."""

    async def program(rank: Rank) -> None:
        groups = [rank.new_group(one.ranks) for one in several]
        late = late_ns[rank.rank % len(late_ns)]
        await rank.compute(Kernel(kind="wait", flops=late * 1e4), int, label="late")
        works = [one.issue(rank, group) for one, group in zip(several, groups, strict=True) if rank.rank in group]
        for work in works:
            await work

    return simulate(scenario(on, library=library, fidelity=fidelity, payload="sizes"), Play(program)).spans


@examples(40)
@given(LIBRARIES, st.data())
def test_links_are_flows(library: str, data: st.DataObject) -> None:
    """To the ns, also where two collectives share links and ranks come late: it is the same code."""
    on = data.draw(clusters(MOST_RANKS[library]))
    several = data.draw(st.lists(traffics(on.world_size), min_size=1, max_size=2))
    late_ns = data.draw(st.lists(st.sampled_from([0, 0, 10**3, 10**6]), min_size=1, max_size=5))
    flows, links = (spans(on, library, fidelity, several, late_ns) for fidelity in ("flows", "links"))
    assert links == flows


@pytest.mark.parametrize("op", [pytest.param(op, marks=[pytest.mark.slow] * (op != OPS[0])) for op in OPS])
def test_64_ranks_over_gloo_take_equally_long_at_either_fidelity(op: str) -> None:
    on, one = cluster(8, 8), Traffic(op, (*range(64),), 1 << 17, 0)
    flows, links = (spans(on, "gloo", fidelity, [one], [0, 10**5, 0]) for fidelity in ("flows", "links"))
    assert links == flows


@examples(8)
@given(st.integers(1, 2), st.data())
def test_larger_exchanges_over_nccl_agree_with_flows_within_1_percent(count: int, data: st.DataObject) -> None:
    """Of one, or of the longer of two that share links; what it takes is counted from when all have come."""
    on = data.draw(clusters(112, least_hosts=9).filter(lambda on: on.world_size > 64))
    whole = (*range(on.world_size),)
    several = [Traffic("all_to_all", whole, 1 << data.draw(st.integers(18, 24)), number) for number in range(count)]
    assert len(whole) * (len(whole) - 1) > MOST_EXACT
    flows, links = (spans(on, "nccl", fidelity, several, [0]) for fidelity in ("flows", "links"))
    whole_ns = max(span.end_ns for span in flows)
    assert max(span.end_ns for span in links) == pytest.approx(whole_ns, rel=COARSE_SHARE)
    for one, other in zip(links, flows, strict=True):
        assert one.end_ns == pytest.approx(other.end_ns, abs=2 * COARSE_SHARE * whole_ns)


@contextmanager
def count(exact: int, merged: int) -> Iterator[None]:
    """Play as if so many transfers were the most of which each is played, or with merged ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "MOST_EXACT", exact)
        patch.setattr(phases, "MOST_MERGED", merged)
        yield


def test_ranks_of_the_largest_exchanges_end_together() -> None:
    """One activity, whatever the number of transfers: it ends for all. In "flows" nothing changes."""
    on, exchange = cluster(2, 2), Traffic("all_to_all", (0, 1, 2, 3), 1 << 20, 0)
    each = spans(on, "nccl", "flows", [exchange], [0])
    with count(11, 11):
        assert len({span.end_ns for span in spans(on, "nccl", "links", [exchange], [0]) if span.bytes_sent}) == 1
        assert spans(on, "nccl", "flows", [exchange], [0]) == each
    with count(11, 12):
        assert spans(on, "nccl", "links", [exchange], [0]) == each
    assert len({span.end_ns for span in each if span.bytes_sent}) > 1


SHARDINGS: tuple[ShardingType, ...] = ("data_parallel", "table_wise", "row_wise", "table_row_wise", "column_wise")


def dlrm(on: Cluster, types: tuple[ShardingType, ...], batch_size: int) -> Scenario:
    """Return a recommender with skewed ids, so that exchanges are uneven."""
    made = training(types, dim=64, cluster=on, batch_size=batch_size, payload="sizes", steps=2)
    ids = Ids(kind="zipf", exponent=1.4)
    tables = tuple(dataclasses.replace(table, rows=9000, ids=ids, ids_per_sample=8.0) for table in made.workload.tables)
    return with_model(made, tables=tables)


def powersgd(on: Cluster, kind: str) -> Scenario:
    return scenario(
        on,
        program="powersgd",
        gradients=Gradients(shapes=((256, 512), (512,), (512, 64)), forward_flops=1e9, backward_flops=2e9),
        compression=Compression(kind=kind, start_powerSGD_iter=2, matrix_approximation_rank=2),  # type: ignore[arg-type]
        payload="sizes",
        steps=3,
    )


def step_spans(made: Scenario, library: str, fidelity: str) -> list[Span]:
    changed = made.with_run(library=library, fidelity=fidelity)  # type: ignore[arg-type]
    return simulate(changed, build(changed)).spans


@examples(12)
@given(LIBRARIES, st.data())
def test_training_steps_have_equal_spans_at_either_fidelity(library: str, data: st.DataObject) -> None:
    on = data.draw(clusters(16 if library == "gloo" else 24))
    if data.draw(st.booleans()):
        made = powersgd(on, data.draw(st.sampled_from(["none", "batched_powersgd", "layerwise_powersgd"])))
    else:
        made = dlrm(on, tuple(data.draw(st.lists(st.sampled_from(SHARDINGS), min_size=1))), 32)
    assert step_spans(made, library, "links") == step_spans(made, library, "flows")


@pytest.mark.parametrize(("hosts", "gpus"), [(3, 8), (6, 4)])
def test_a_step_with_merged_ends_agrees_with_flows_within_3_percent(hosts: int, gpus: int) -> None:
    """Most of it are uneven exchanges over leaves; as one activity each, they make steps 6 to 11 % shorter."""
    nics = Nics(per="host", count=2, link=Link(bytes_per_s=1.25e9, latency_ns=2000))
    leaves = Network(kind="leaf_spine", hosts_per_leaf=2, oversubscription=4.0)
    made = dlrm(cluster(hosts, gpus, nics=nics, network=leaves), ("row_wise", "table_row_wise", "column_wise"), 2048)
    flows = step_spans(made, "nccl", "flows")
    with count(0, 10**6):
        links = step_spans(made, "nccl", "links")
    for one, other in zip(links, flows, strict=True):
        if one.kind == "step":
            assert one.end_ns - one.start_ns == pytest.approx(other.end_ns - other.start_ns, rel=STEP_SHARE)
