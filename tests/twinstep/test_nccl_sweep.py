"""`twinstep nccl`: sizes and columns are nccl-tests', times those of single predictions."""

from __future__ import annotations

import json

import pytest

from twinstep.__main__ import main
from twinstep.published.simulated import predict


def sweep(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    assert main(["nccl", *words]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    return [line.split() for line in out.splitlines() if not line.startswith("#")]


def test_a_row_is_a_prediction_with_its_bandwidths(capsys: pytest.CaptureFixture[str]) -> None:
    small, large = sweep(capsys, "all_reduce", "--hosts", "2", "-b", "1K", "-e", "1M", "-f", "1024")
    for row, size in ((small, 1024), (large, 1 << 20)):
        found = predict(
            op="all_reduce", library="nccl", gpu="H100", nodes=2, gpus_per_node=8, size_bytes=size, profile="dgx_h100"
        )
        assert row[:5] == [str(size), str(size // 4), "float", "sum", "-1"]
        assert float(row[5]) == pytest.approx(found.predicted_us, abs=0.005)
        assert float(row[6]) == pytest.approx(size / found.predicted_us / 1e3, abs=0.005)
        assert float(row[7]) == pytest.approx(size / found.predicted_us / 1e3 * 2 * 15 / 16, abs=0.005)


def test_sizes_of_equal_shares_are_multiples_of_an_element_for_each_rank(capsys: pytest.CaptureFixture[str]) -> None:
    rows = sweep(capsys, "all_gather", "-b", "8", "-e", "256", "-f", "2")
    assert [row[:2] for row in rows] == [["32", "1"], ["64", "2"], ["128", "4"], ["256", "8"]]


def test_json_has_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = sweep(capsys, "broadcast", "-b", "4K", "-e", "4K")
    assert main(["nccl", "broadcast", "-b", "4K", "-e", "4K", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["library"], found["hosts"], found["gpus_per_host"]) == ("nccl", 1, 8)
    assert f"{found['rows'][0]['time_us']:.2f}" == row[5]
    assert found["rows"][0]["busbw_gb_per_s"] == found["rows"][0]["algbw_gb_per_s"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--hosts", "0"], "--hosts 0 --gpus-per-host 8: expected at least 2 GPUs in all"),
        (["--gpus-per-host", "1"], "--hosts 1 --gpus-per-host 1: expected at least 2 GPUs in all"),
        (["-b", "1M", "-e", "1K"], "-e 1024: expected at least the first size, -b 1048576"),
        (["--library", "mpi"], "library = 'mpi': expected gloo or nccl"),
    ],
)
def test_mistakes_are_sentences(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nccl", "all_reduce", *words])
    assert capsys.readouterr() == ("", f"{sentence}\n")


@pytest.mark.parametrize("words", [["-b", "0"], ["-e", "1X"], ["-e", "9999999G"], ["-b", "9" * 5000], ["-f", "1"]])
def test_words_that_are_no_size_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nccl", "all_reduce", *words])
    assert f"{words[1]}: expected a" in capsys.readouterr().err
