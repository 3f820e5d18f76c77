"""Replaces the gradient reduction of a recorded script by other buckets or another compression."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from scenarios.config.scenario import Scenario
from scenarios.modules.ddp_buckets import GradientReducer, assign_buckets
from scenarios.seam.backend import Work
from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Rank
from scenarios.workloads.recording.events.calls import IssueCall, ReplicaGradients

_WHAT = "another compression or other buckets"


class ScriptExchange:
    """The DistributedDataParallel replicas of a rank's script, with the scenario's buckets and compression.

    The recorded computation stays unchanged, including DistributedDataParallel's copies into buckets.
    """

    def __init__(self, rank: Rank, scenario: Scenario) -> None:
        self._rank, self._scenario = rank, scenario
        self._reducers: dict[int, GradientReducer] = {}
        self._shapes: dict[int, list[tuple[tuple[int, ...], torch.dtype]]] = {}

    def in_place_of(self, call: IssueCall) -> int:
        """Return the number (in its rank's recording) of DistributedDataParallel's call that a new call replaces.

        Raises:
            ProgramError: the call goes over another library than the scenario's.
        """
        if call.library not in ("", self._scenario.run.library):
            raise ProgramError(
                f"rank {self._rank.rank}: {call.label}: {_WHAT}: gradients over {call.library}, expected a recording"
                f" whose DistributedDataParallel reduces over run.library = '{self._scenario.run.library}'"
            )
        return call.number

    def begin(self, replica: ReplicaGradients) -> None:
        """Create the reducer of a replica, whose gradients have arrived in this order in its first pass.

        Raises:
            ProgramError: the replica uses a communication hook, or does not reduce over all ranks.
        """
        if replica.has_hook:
            raise ProgramError(
                f"rank {self._rank.rank}: {_WHAT}: expected a recording of DistributedDataParallel without a"
                " communication hook"
            )
        if replica.group:
            raise ProgramError(f"rank {self._rank.rank}: {_WHAT}: expected a recording in which all ranks reduce")
        own = self._shapes[replica.number] = [(tuple(shape), getattr(torch, dtype)) for shape, dtype in replica.shapes]
        dtypes = [dtype for _, dtype in own]
        sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in own]
        buckets = self._scenario.workload.buckets
        self._reducers[replica.number] = GradientReducer(
            self._rank.stream(f"gradients {replica.number}"),
            [shape for shape, _ in own],
            dtype=dtypes,
            compression=self._scenario.workload.compression,
            assigned=assign_buckets(sizes, buckets, arrival=range(len(own)), dtypes=dtypes),
            is_copied=True,
        )

    def add(self, number: int, place: int, after: Iterable[Work[Any]]) -> None:
        """Add a gradient (replica's number, its place in the order of arrival) that is ready after these works."""
        shape, dtype = self._shapes[number][place]
        gradient = torch.empty(shape, dtype=dtype, device=self._rank.device)
        self._reducers[number].add(place, gradient, after=after)

    def take(self) -> list[Work[Any]]:
        """Return all pending reductions, and reset them."""
        return [work for reducer in self._reducers.values() if reducer.is_under_way for work in reducer.take()]
