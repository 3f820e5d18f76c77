"""Which hosts count as alike: none that differ while there are few, and near ones where there are many."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from scenarios.config.host_classes import MOST_RANKS, HostClasses
from scenarios.config.warnings import notes
from scenarios.workloads.effort import Effort
from tests.small import cluster, scenario

ROWS = arrays.arrays(np.float64, st.tuples(st.integers(1, 60), st.integers(1, 6)), elements=st.floats(0, 1e9))


@given(ROWS, st.sampled_from([1, 8, 64, 200]), st.sets(st.integers(0, 59)))
def test_every_host_is_played_by_one_that_is_near(loads: np.ndarray, gpus: int, apart: set[int]) -> None:
    apart = {host for host in apart if host < len(loads)}
    classes = HostClasses.of(loads, gpus, apart)
    assert sum(classes.counts) == len(loads)
    assert list(classes.representatives) == sorted(set(classes.representatives))
    assert np.bincount(classes.class_of_host, minlength=len(classes.representatives)).tolist() == list(classes.counts)
    assert [classes.class_of_host[host] for host in classes.representatives] == list(
        range(len(classes.representatives))
    )
    assert all(classes.counts[classes.representatives.index(host)] == 1 for host in apart)
    largest = np.maximum(loads.max(axis=0), 1e-300)
    played = loads[np.array(classes.representatives)[classes.class_of_host]]
    assert (np.abs(played - loads) <= (classes.spread + 1e-8) * largest).all()
    assert len(classes.representatives) <= max(1, MOST_RANKS // gpus) + len(apart)


@given(ROWS)
def test_few_kinds_are_exact(loads: np.ndarray) -> None:
    classes = HostClasses.of(np.round(loads % 3), gpus=1)
    assert classes.is_exact
    assert len(classes.representatives) == len(np.unique(np.round(loads % 3), axis=0))


def test_rounding_makes_no_kinds() -> None:
    one = np.array([[0.1 + 0.2, 1.0], [0.3, 1.0], [0.3, 2.0]])
    assert HostClasses.of(one, 8).counts == (2, 1)


def test_outliers_have_their_own_class_when_classes_are_merged() -> None:
    loads = np.linspace(100, 101, 500)[:, None]
    loads[77] = 400
    classes = HostClasses.of(loads, gpus=MOST_RANKS // 4)
    assert len(classes.representatives) == 4
    assert classes.counts[classes.representatives.index(77)] == 1
    assert 0 < classes.spread <= 1 / 400 / 2
    assert not classes.is_exact


def test_ranks_and_leafs() -> None:
    classes = HostClasses.of(np.array([[0.0], [1.0], [0.0], [0.0], [1.0]]), gpus=2)
    assert (classes.representatives, classes.counts) == ((0, 1), (3, 2))
    assert (classes.ranks, classes.rank_counts) == ((0, 1, 2, 3), (3, 3, 2, 2))
    assert classes.per_leaf(2).tolist() == [[1, 1], [2, 0], [0, 1]]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_fullest_of_each_kind(kinds: list[int], gpus: int, random: Random) -> None:
    classes = HostClasses.of(np.array(kinds, float)[:, None], gpus)
    values = np.array([random.randrange(5) for _ in range(len(kinds) * gpus)], float)
    for rank, most in zip(classes.ranks, classes.most(values), strict=True):
        like = [host * gpus + rank % gpus for host, kind in enumerate(kinds) if kind == kinds[rank // gpus]]
        assert most in like
        assert values[most] == values[like].max()


def test_inexact_classes_are_noted() -> None:
    made = scenario(ranks="alike", library="nccl")
    near = HostClasses.of(np.linspace(1, 2, 300)[:, None], gpus=MOST_RANKS // 2)
    assert list(notes(made, near)) == [
        "test.toml: run.ranks = 'alike': the cluster has more than 2 classes of hosts; expected loads in a class"
        " differ by up to 25 % of the largest load"
    ]
    assert not list(notes(made, HostClasses.of(np.zeros((300, 1)), gpus=8)))


def test_many_ranks_one_by_one_are_said() -> None:
    made = scenario(cluster(4096, 8), library="nccl")
    assert list(notes(made, None, Effort(pairs=32_768**2))) == [
        "test.toml: run.ranks = 'each': simulating 32,768 ranks one by one takes about 90 min and 600 GiB;"
        " 'alike' takes seconds, with fidelity 'links', payload 'sizes' and library 'nccl'"
    ]
    assert not list(notes(made, None, Effort(pairs=64**2)))
