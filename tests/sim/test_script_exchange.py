"""Recorded scripts with other buckets and compression: they reduce what the script would with those."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.seam.errors import ProgramError, ScenarioError
from scenarios.seam.trace import Recording
from tests.sim.test_script_recording import EXAMPLES, SCRIPTS, keep, make, play
from tests.small import with_free_host

DDP = SCRIPTS / "ddp.py"
CAP_MB = 0.2
BUCKETS = f'[buckets]\nfirst = "{int(CAP_MB * 2**20)} B"\ncap = "{int(CAP_MB * 2**20)} B"'
POWERSGD = '[compression]\nkind = "layerwise_powersgd"\nmatrix_approximation_rank = 2\nstart_powerSGD_iter = 2'


def record(folder: Path, script: Path, *args: str, profile: str = "emulated_200mbit", steps: int = 4) -> Recording:
    recording = play(with_free_host(make(script, *args, world=(2, 1), profile=profile, steps=steps)))
    keep(recording, folder)
    return recording


def exchange(folder: Path, tables: str, profile: str = "emulated_200mbit", steps: int = 4) -> Recording:
    file = folder / "exchanged.toml"
    head = f'program = "script"\n[run]\nsteps = {steps}\n[cluster]\nprofile = "{profile}"\nhosts = 2\ngpus_per_host = 1'
    file.write_text(f"{head}\n[script]\nrecording = {json.dumps(str(folder))}\n{tables}\n")
    return play(with_free_host(load(file)))


def sizes(recording: Recording, step: int = 3) -> list[int]:
    """Bytes of each all-reduce of a step, in order."""
    calls = [one for one in recording.spans if one.rank == 0 and one.step == step and one.kind == "all_reduce"]
    return [one.bytes_in for one in sorted(calls, key=lambda one: one.issued_ns)]


def lasts(recording: Recording) -> list[int]:
    return [span.end_ns - span.start_ns for span in recording.spans if span.kind == "step"]


def test_buckets_of_a_scenario_equal_those_set_in_a_script(tmp_path: Path) -> None:
    whole = record(tmp_path, DDP, "", "25")
    small = play(make(DDP, "", str(CAP_MB), world=(2, 1), profile="emulated_200mbit", steps=4))
    assert sizes(exchange(tmp_path, BUCKETS)) == sizes(small) != sizes(whole)


def test_compression_sends_what_torchs_hook_sends(tmp_path: Path) -> None:
    record(tmp_path, DDP, "", "25")
    hooked = play(make(DDP, "powersgd", world=(2, 1), profile="emulated_200mbit", steps=4))
    assert sizes(exchange(tmp_path, POWERSGD)) == sizes(hooked)


def test_on_gpus_the_same_buckets_are_the_same_step(tmp_path: Path) -> None:
    """Beside hosts that take nothing between launches, from the second step on; and smaller ones begin earlier."""
    recording = record(tmp_path, EXAMPLES / "transformer_ddp.py", profile="dgx_h100", steps=2)
    again = exchange(tmp_path, "[buckets]", profile="dgx_h100", steps=2)
    assert sizes(again, 1) == sizes(recording, 1)
    assert lasts(again)[-1] == pytest.approx(lasts(recording)[-1], abs=10)  # ns: launches of a label share its time
    small = exchange(tmp_path, BUCKETS, profile="dgx_h100", steps=2)
    assert sum(sizes(small, 1)) == sum(sizes(recording, 1))
    assert len(sizes(small, 1)) > len(sizes(recording, 1))


@pytest.mark.slow
def test_graphs_leave_out_launching(tmp_path: Path) -> None:
    """Of the first step, as launches of later ones hide behind kernels where the host takes nothing between them."""
    recording = record(tmp_path, EXAMPLES / "transformer_ddp.py", profile="dgx_h100", steps=2)
    graphs = exchange(tmp_path, "[launching]\ncuda_graphs = true", profile="dgx_h100", steps=2)
    assert sizes(graphs, 1) == sizes(recording, 1)
    assert lasts(graphs)[0] < lasts(recording)[0]
    assert lasts(graphs)[-1] == lasts(recording)[-1]


def test_a_hook_cannot_be_exchanged(tmp_path: Path) -> None:
    record(tmp_path, DDP, "fp16", steps=2)
    with pytest.raises(ProgramError, match=r"expected a recording of .* without a communication hook"):
        exchange(tmp_path, POWERSGD, steps=2)


def test_gradients_over_another_library_cannot_be_exchanged(tmp_path: Path) -> None:
    record(tmp_path, DDP, profile="dgx_h100", steps=2)
    with pytest.raises(ProgramError, match=r"ddp.py:\d+ all_reduce: .* gradients over gloo, expected .* = 'nccl'"):
        exchange(tmp_path, BUCKETS, profile="dgx_h100", steps=2)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("[compression]\nkind = 'none'", "compression .*: expected no compression without script.recording"),
        ("[buckets]", "buckets .*: expected no buckets without script.recording"),
        ("[launching]\nfusion = true", "launching.fusion = true: expected no fusion with program = 'script'"),
    ],
)
def test_sections_that_a_script_defines_itself_are_refused(table: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    (tmp_path / "train.py").write_text("")
    file.write_text(
        f'program = "script"\n[cluster]\nprofile = "dgx_h100"\nhosts = 1\n[script]\npath = "train.py"\n{table}\n'
    )
    with pytest.raises(ScenarioError, match=sentence):
        load(file)
