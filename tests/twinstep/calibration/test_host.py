"""`python -m real calibrate --host` writes the prices of a host into a copy of another profile."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from real.calibration.host.fit import PRICES
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_measured, load_profile
from scenarios.progress_line import ProgressLine
from tests.commands import command
from twinstep.calibration import host as cli
from twinstep.calibration.snippets import HELD_OUT, SNIPPETS


@pytest.mark.slow
def test_a_hosts_prices_are_measured_and_all_else_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU runs the snippets here: it computes, too, so that prices are no GPU's, but each is found."""

    def on_cpu(like: Cluster, bar: ProgressLine) -> cli.HostFound:
        return measure(like, bar, device="cpu", seconds=0.1)

    measure = cli.measure_host
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cli, "measure_host", on_cpu)
    out = tmp_path / "mine.toml"
    done = command("real", "calibrate", "--host", "--like", "hgx_h200", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    snippets = {row["name"]: row for row in said["snippets"]}
    assert set(snippets) == set(SNIPPETS), done.stderr
    assert {name for name, row in snippets.items() if row["is_held_out"]} == set(HELD_OUT)
    assert said["unseen"] == ["bags"]
    assert {f"{name}_ns" for name in PRICES} < said["eager"].keys()
    views, passes = snippets["views"], snippets["passes"]
    assert views["dispatches"] > 100 * views["operators"] > 0
    assert snippets["bookkeeping"]["calls"] > 500, "its Python counts as a script's, though it lies in this package"
    assert (passes["passes"], passes["gradients"], passes["nodes"]) == (6, 6, 18)
    assert (snippets["collectives"]["collectives"], snippets["data parallel"]["collectives"]) == (12, 1)
    like, found, measured = load_profile("hgx_h200"), load_profile(str(out)), load_measured(str(out))
    eager = found.host.gpu.eager
    assert eager != like.host.gpu.eager
    assert min(dataclasses.astuple(eager)) > 0
    gpu = dataclasses.replace(found.host.gpu, eager=like.host.gpu.eager)
    assert dataclasses.replace(found, profile="hgx_h200", host=dataclasses.replace(found.host, gpu=gpu)) == like
    assert measured is not None
    assert [group.name for group in measured.groups] == ["host of eager programs"]
    assert "# Not measured: bags, as in hgx_h200 times " in out.read_text()
