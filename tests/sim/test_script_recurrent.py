"""Recurrent layers of scripts on simulated GPUs: values as on CPUs, and kernels as cuDNN's."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from scenarios.seam.trace import Recording
from tests.sim.test_gpu_script import SCRIPTS, play_script

VARIANTS = {
    "lstm": ["--cell", "LSTM"],
    "gru, both directions": ["--cell", "GRU", "--bidirectional"],
    "rnn, packed sequences": ["--cell", "RNN", "--packed"],
    "lstm, projected, batch first": ["--projected", "4", "--batch-first"],
}


def test_cells_train_as_on_cpus_and_have_one_kernel_besides_their_products() -> None:
    run = partial(play_script, SCRIPTS / "cells.py", ranks=(1, 2))
    live, on_cpus = (run(profile=profile, payload="values") for profile in ("dgx_h100", "emulated_200mbit"))
    losses, expected = ([one.value for one in each.metrics] for each in (live, on_cpus))
    assert len(losses) == len(expected) > 0
    assert losses == pytest.approx(expected, rel=1e-5)
    counts = Counter[str]()
    for row in run().kernels:
        counts[row.operator] += round(row.count)
    # Two cells of each kind, five steps.
    assert (counts["_thnn_fused_lstm_cell"], counts["_thnn_fused_lstm_cell_backward_impl"]) == (10, 10)
    assert (counts["_thnn_fused_gru_cell"], counts["_thnn_fused_gru_cell_backward"]) == (10, 10)
    assert counts["sigmoid_"] == counts["tanh"] == 0


def play(*args: str, **how: str) -> Recording:
    return play_script(SCRIPTS / "recurrent.py", *args, ranks=(1, 2), **how)  # type: ignore[arg-type]


def kernels(recording: Recording, *names: str) -> list[tuple[str, str, float]]:
    return [(row.operator, row.shapes, row.count) for row in recording.kernels if row.operator in names]


@pytest.mark.supports("`nn.LSTM`, `nn.GRU`, `nn.RNN`", "GPUs")
@pytest.mark.parametrize("args", VARIANTS.values(), ids=VARIANTS)
def test_recurrent_layers_train_as_on_cpus(args: list[str]) -> None:
    live, on_cpus = (play(*args, profile=profile, payload="values") for profile in ("dgx_h100", "emulated_200mbit"))
    losses, expected = ([one.value for one in run.metrics] for run in (live, on_cpus))
    assert len(losses) == len(expected) > 0
    assert losses == pytest.approx(expected, rel=1e-5)
    named = [row.operator for row in play(*args).kernels]
    assert named == [row.operator for row in live.kernels]


def test_each_layer_and_direction_takes_its_steps_forward_and_backward() -> None:
    found = kernels(play("--cell", "GRU", "--bidirectional"), "gru", "gru_backward")
    assert sorted(found) == [("gru", "5 steps of 4x16, tf32", 4), ("gru_backward", "5 steps of 4x16, tf32", 4)]


def test_packed_sequences_have_their_mean_length_and_not_the_kernels_of_small_states() -> None:
    packed, whole = (play(*args) for args in (["--packed"], []))
    ((_, shapes, _),) = kernels(packed, "lstm")
    assert shapes == "5 steps of 3x16, tf32"  # 14 words of 4 samples
    took_us = [next(row.predicted_us for row in each.kernels if row.operator == "lstm") for each in (packed, whole)]
    assert took_us[0] > 3 * took_us[1]


def test_autocast_and_dropout_are_those_of_the_layers() -> None:
    found = play("--autocast", "--dropout", "0.5")
    assert {shapes for _, shapes, _ in kernels(found, "lstm", "lstm_backward")} == {"5 steps of 4x16, bfloat16"}
    assert [count for _, _, count in kernels(found, "native_dropout")] == [1]
    assert kernels(play(), "native_dropout") == []
