"""NVLinks without a switch: what a square of counts must be, and what a host has of it."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.hardware import Inside, Link
from scenarios.config.load import load_profile
from scenarios.config.toml.hardware.checks import mesh_mistake


@st.composite
def meshes(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(2, 16))
    links = [[0] * size for _ in range(size)]
    tree = [(gpu, draw(st.integers(0, gpu - 1))) for gpu in range(1, size)]
    for i, j in [*tree, *draw(st.lists(st.sampled_from(list(combinations(range(size), 2)))))]:
        links[i][j] = links[j][i] = draw(st.integers(1, 18))
    return links


@given(meshes(), st.data())
def test_a_joined_symmetric_square_is_a_mesh_and_no_other_is(links: list[list[int]], data: st.DataObject) -> None:
    size = len(links)
    assert mesh_mistake(links, data.draw(st.none() | st.integers(1, size))) is None
    assert mesh_mistake(links, size + 1) is not None
    i, j = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    links[i][j] += 1
    assert mesh_mistake(links, size) is not None
    links[i][j] -= 1
    for gpu in range(size):
        links[i][gpu] = links[gpu][i] = 0
    assert mesh_mistake(links, size) is not None


def test_a_dgx1_has_six_nvlinks_a_gpu_of_which_a_smaller_host_has_those_that_stay_inside() -> None:
    inside = load_profile("dgx1_v100").host.inside
    assert [sum(row) for row in inside.links] == [6] * 8
    assert inside.gpu_bytes_per_s(8) == 150e9
    assert inside.gpu_bytes_per_s(4) == 100e9
    assert Inside(kind="nvlink", link=Link(bytes_per_s=450e9, latency_ns=0)).gpu_bytes_per_s(8) == 450e9
