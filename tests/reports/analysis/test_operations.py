from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from reports.analysis.operations import OPERATIONS, fold_layers, layer_times
from reports.run import Run
from scenarios.seam.trace import Span, Thinned
from tests.reports.recordings import by_hand, span, with_spans


def calls(kind: str, *, ranks: int = 4, hosts: bool = True, **changes: int) -> list[Span]:
    """One call of 1000 bytes, which all but the first enter at 0, the first at 50; it ends at 150 ns."""
    return [
        span(rank, "step", 0, 150, host=rank if hosts else 0, **changes)
        if number
        else span(
            rank,
            kind,
            0 if rank else 50,
            150,
            label="x",
            group="world",
            call=0,
            host=rank if hosts else 0,
            bytes_in=250 if kind.startswith("all_gather") else 1000,
            bytes_out=1000,
            **changes,
        )
        for rank in range(ranks)
        for number in (0, 1)
    ]


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 2 * 3 / 4),
        ("all_gather_into_tensor", 3 / 4),
        ("reduce_scatter_tensor", 3 / 4),
        ("all_to_all_single", 3 / 4),
        ("broadcast", 1),
    ],
)
def test_bandwidths_are_those_of_nccl_tests_since_the_last_rank_entered(kind: str, factor: float) -> None:
    run = Run.of(with_spans(by_hand(world_size=4), *calls(kind)))
    (row,) = run.operations.to_dict("records")
    assert (row["members"], row["size_bytes"], row["moving_ns"]) == (4, 1000, 100)
    assert row["algbw_bytes_per_s"] == 1000 / 100e-9
    assert row["busbw_bytes_per_s"] == pytest.approx(factor * row["algbw_bytes_per_s"])


def test_only_collectives_with_bytes_have_a_bandwidth() -> None:
    for spans in (calls("barrier"), calls("all_reduce", ranks=1), [span(0, "step", 0, 9), span(0, "send", 0, 9)]):
        assert Run.of(with_spans(by_hand(world_size=4), *spans)).operations["busbw_bytes_per_s"].isna().all()


def test_representatives_count_as_the_ranks_that_they_represent_but_not_within_a_host() -> None:
    across = Run.of(with_spans(by_hand(world_size=8), *calls("all_reduce", ranks=2, rank_count=4)))
    inside = Run.of(with_spans(by_hand(world_size=8), *calls("all_reduce", ranks=2, hosts=False, rank_count=4)))
    assert across.operations["members"].tolist() == [8]
    assert inside.operations["members"].tolist() == [2]


def test_where_ranks_were_left_out_bandwidths_are_not_known() -> None:
    recording = with_spans(by_hand(world_size=4), *calls("all_reduce"))
    kept = Thinned(ranks=(0, 1, 2), steps=None, left_out=1, phases=())
    run = Run.of(dataclasses.replace(recording, info=dataclasses.replace(recording.info, thinned=kept)))
    assert run.operations["busbw_bytes_per_s"].isna().all()
    assert (run.operations["mean_ns"] > 0).all()


def test_repeated_layers_that_take_about_as_long_are_one_row_with_their_sums() -> None:
    times = {"layers.0.norm": 100.0, "layers.1.norm": 110.0, "layers.0.ff": 100.0, "layers.1.ff": 200.0, "head": 50.0}
    rows = [
        dict.fromkeys(OPERATIONS, 0.0)
        | {"kind": "compute", "label": label, "stream": "main", "part": "compute", "role": ""}
        | {"ranks": 8, "calls": 2, "mean_ns": ns, "hidden_ns": ns / 2}
        for label, ns in times.items()
    ]
    found = fold_layers(pd.DataFrame(rows)).set_index("label")
    assert found["mean_ns"].to_dict() == {
        "layers.*.norm x 2": 210.0, "layers.0.ff": 100.0, "layers.1.ff": 200.0, "head": 50.0
    }  # fmt: skip
    assert found.loc["layers.*.norm x 2", ["ranks", "calls", "hidden_ns", "hidden_share"]].tolist() == [
        8,
        4,
        105.0,
        0.5,
    ]


def test_computations_are_divided_among_layers_and_repeated_ones_are_one() -> None:
    times = {"dense.forward.0": (100.0, 0.0), "dense.backward": (200.0, 40.0), "dense.update": (50.0, 0.0)}
    frame = pd.DataFrame(
        [
            dict.fromkeys(OPERATIONS, 0.0) | {"label": label, "part": "compute", "mean_ns": ns, "launch_ns": launch_ns}
            for label, (ns, launch_ns) in times.items()
        ]
    )
    shares = {
        "dense.forward.0": {"cross.0.up": 0.3, "cross.1.up": 0.3, "top.0": 0.1, "top.2": 0.2, "Dlrm": 0.1},
        "dense.backward": {"cross.0.up": 0.25, "cross.1.up": 0.25, "top.2": 0.25, "": 0.25},
    }

    def summed(layers: pd.DataFrame) -> dict[tuple[str, str], list[float]]:
        found = layer_times(frame, layers).groupby(["name", "phase"], sort=False)[["time_ns", "launch_ns"]].sum()
        return dict(zip(found.index.tolist(), found.to_numpy().tolist(), strict=True))

    layers = pd.DataFrame(
        [
            {"label": label, "layer": layer, "operator": "mm", "shapes": "", "share": share}
            for label, each in shares.items()
            for layer, share in each.items()
        ]
    )
    assert summed(layers) == {
        ("cross.* x 2", "forward"): [60.0, 0.0], ("top", "forward"): [pytest.approx(30.0), 0.0],
        ("Dlrm", "forward"): [10.0, 0.0], ("cross.* x 2", "backward"): [80.0, 20.0],
        ("top", "backward"): [40.0, 10.0], ("(no layer)", "backward"): [40.0, 10.0],
    }  # fmt: skip
    inside = layers.assign(layer="net." + layers["layer"])
    assert set(summed(inside)) >= {("net.cross.* x 2", "forward"), ("net.top", "backward"), ("net.Dlrm", "forward")}
