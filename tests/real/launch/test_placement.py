"""A rank's place as torchrun, srun and our launcher say it."""

from __future__ import annotations

import pytest

from real.launch.placement import Place, first_host, place
from scenarios.seam.errors import ScenarioError

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "gpu1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NODELIST": "gpu[003-006,9]",
    "SLURM_JOB_ID": "123456",
}


def test_place_is_none_without_a_launcher() -> None:
    assert place({"HOME": "/"}) is None


def test_place_is_read_from_torchrun() -> None:
    assert place(TORCHRUN) == Place(
        by="torchrun",
        rank=5,
        world_size=8,
        local_rank=1,
        address="gpu1",
        port=29500,
        has_agent_store=True,
        attempt=2,
    )


def test_place_is_read_from_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no scontrol
    assert place(SRUN) == Place(by="srun", rank=5, world_size=8, local_rank=1, address="gpu003", port=23456)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu7", "gpu7"),
        ("gpu7,gpu9", "gpu7"),
        ("gpu[003-006,9]", "gpu003"),
        ("gpu[12,14],login", "gpu12"),
        ("rack1-[2-3]-ib,x", "rack1-2-ib"),
    ],
)
def test_the_first_host_of_a_list(monkeypatch: pytest.MonkeyPatch, nodes: str, first: str) -> None:
    monkeypatch.setenv("PATH", "")
    assert first_host(nodes) == first


@pytest.mark.parametrize(
    ("environment", "change", "sentence"),
    [
        (TORCHRUN, {"MASTER_ADDR": ""}, "environment: MASTER_ADDR: missing; expected as set by torchrun or srun"),
        (TORCHRUN, {"RANK": "one"}, "environment: RANK = 'one': expected a number"),
        (SRUN, {"SLURM_NTASKS": ""}, "environment: SLURM_NTASKS: missing; expected as set by torchrun or srun"),
        (
            SRUN,
            {"SLURM_NODELIST": "[1]"},
            "environment: SLURM_NODELIST = '[1]': expected a list of hosts such as 'gpu[01-04]'",
        ),
    ],
)
def test_a_variable_that_is_missing_or_wrong_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], change: dict[str, str], sentence: str
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ScenarioError) as caught:
        place({**environment, **change})
    assert str(caught.value) == sentence
