"""What both simulators are given, and the line of the table; SimGrid's own result shows where it is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import scale_all_to_all
from benchmarks.scale_all_to_all import AbsentError, Played, compile_program, ours, phase, row, scenario, simgrid


def test_a_line_compares_the_ends_of_all_ranks() -> None:
    mine, theirs = Played(2.0, 100.4, [0.9, 1.01]), Played(50.0, 80.0, [1.0, 1.0])
    assert row(2, mine, theirs) == {
        "ranks": 2,
        "flows": 2,
        "ours_s": 2.0,
        "ours_mib": 100,
        "simgrid_s": 50.0,
        "simgrid_mib": 80,
        "faster": 25.0,
        "difference": "1.00e-02",
        "moved": "5.50e-02",
    }
    assert set(row(2, mine, None)) == {"ranks", "flows", "ours_s", "ours_mib"}
    assert set(row(2, mine, theirs)) == set(scale_all_to_all.COLUMNS)


def test_without_a_compiler_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AbsentError, match=r"expected g\+\+ and SimGrid's headers \(Debian: g\+\+, libsimgrid-dev\)"):
        compile_program(tmp_path)


@pytest.mark.slow
def test_ours_ends_when_its_flows_have(tmp_path: Path) -> None:
    """The busiest link has its bytes by then, and where SimGrid is installed, it says the same."""
    made = scenario(16)
    transfers, mine = phase(made).transfers, ours(16)
    into = [sum(size for _, target, size in transfers if target == rank) for rank in range(16)]
    host = made.cluster.host
    assert max(mine.ends_s) > max(into) / (host.nics.link.bytes_per_s + host.inside.link.bytes_per_s)
    assert len(mine.ends_s) == len(into)
    if shutil.which("g++") is None or not Path("/usr/include/simgrid/s4u.hpp").exists():
        return
    theirs = simgrid(compile_program(tmp_path), 16)
    assert mine.ends_s == pytest.approx(theirs.ends_s, rel=1e-5)
