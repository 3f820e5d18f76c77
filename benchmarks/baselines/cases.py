"""Cases that predictions are compared on, and their calls; what predicts them is left to the models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, model_validator

from scenarios.config.hardware import Cluster
from scenarios.config.scenario import Exchange
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.workloads.collective.splits import Splits

Matrix = Sequence[Sequence[int]]
_ELEMENT_BYTES = 4
# As the calls are named in torch.distributed.
_CALLED = {
    "reduce_scatter": "reduce_scatter_tensor",
    "all_gather": "all_gather_into_tensor",
    "all_to_all": "all_to_all_single",
}


class Case(BaseModel):
    """One collective on one platform, measured, and predicted by us; sizes as in `scenarios.workloads.collective`.

    `splits` of an all-to-all: "even"; "random", drawn as in the program, from `seed` and `skew` for each of `steps`; or
    for each step a matrix of the bytes that each rank (row) sends to each. With several steps, the median is predicted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    op: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier"]
    size_bytes: int
    splits: Literal["even", "random"] | list[list[list[int]]] | None = None
    skew: float = 0.0
    seed: int = 0
    steps: list[int] | None = None
    hosts: PositiveInt
    ranks_per_host: PositiveInt
    nic_bytes_per_s: PositiveFloat
    measured_s: PositiveFloat
    ours_s: PositiveFloat

    @property
    def world_size(self) -> int:
        return self.hosts * self.ranks_per_host

    @model_validator(mode="after")
    def _check_splits(self) -> Case:
        if self.splits == "random" and not self.steps:
            raise ValueError("random splits want the steps that were measured")
        if isinstance(self.splits, list):
            ranks = self.world_size
            if not self.splits or any([len(row) for row in matrix] != [ranks] * ranks for matrix in self.splits):
                raise ValueError(f"expected splits of {ranks} rows of {ranks} each, for each step")
        return self

    def matrices(self) -> list[Matrix | None]:
        """What each rank sends to each, for every step whose splits differ; None of what is no all-to-all."""
        if self.op != "all_to_all":
            return [None]
        if isinstance(self.splits, list):
            return list(self.splits)
        exchange = Exchange(size_bytes=self.size_bytes, splits=self.splits or "even", skew=self.skew)
        drawn = Splits(exchange, self.world_size, self.seed)
        return [
            [[count * _ELEMENT_BYTES for count in drawn.of_rank(step, rank)[0]] for rank in range(self.world_size)]
            for step in (self.steps or [0] if exchange.splits == "random" else [0])
        ]

    def platform(self, profile: Cluster) -> Cluster:
        """The profile's hosts, as many as the case has."""
        host = dataclasses.replace(profile.host, gpus=self.ranks_per_host)
        return dataclasses.replace(profile, hosts=self.hosts, host=host)


def calls(op: str, size_bytes: int, world_size: int, send_matrix: Matrix | None = None) -> list[Call]:
    """What the ranks of the world call, in their order; a broadcast is rank 0's."""
    group = Group("world", tuple(range(world_size)))
    share = size_bytes // world_size
    made = []
    for rank in group.ranks:
        sends, receives = _exchange(rank, send_matrix) if op == "all_to_all" else ((), ())
        into, out = {
            "all_reduce": (size_bytes, size_bytes),
            "reduce_scatter": (size_bytes, share),
            "all_gather": (share, size_bytes),
            "broadcast": (0, size_bytes) if rank else (size_bytes, 0),
            "all_to_all": (sum(sends), sum(receives)),
            "barrier": (0, 0),
        }[op]
        made.append(
            Call(
                op=_CALLED.get(op, op),
                group=group,
                rank=rank,
                element_size=_ELEMENT_BYTES,
                bytes_in=into,
                bytes_out=out,
                send_bytes=sends,
                recv_bytes=receives,
                root=0 if op == "broadcast" else -1,
            )
        )
    return made


def _exchange(rank: int, send_matrix: Matrix | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a rank sends to and receives from each."""
    assert send_matrix is not None, "an all-to-all says who sends what"
    return tuple(send_matrix[rank]), tuple(row[rank] for row in send_matrix)
