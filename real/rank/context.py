"""State that the streams of one rank share: its place, its device, its groups and its journal."""

from __future__ import annotations

import time
from typing import Protocol

import torch.distributed as dist

from real.launch.job import Check
from real.libraries.errors import transport
from real.libraries.library import DeviceLibrary
from real.libraries.moves import Joined
from real.machine import check_open_files
from real.rank.agreement import GroupAgreement, GroupAgreements, PairAgreement
from real.rank.call_checker import CHECKING, CallChecker, CheckedCall
from real.rank.journal import Journal
from real.rank.lanes import StreamLane
from scenarios.config.hardware import Cluster
from scenarios.seam.calls import Call
from scenarios.seam.group import Group


class Observer(Protocol):
    """A listener to a rank's steps; called between operations, never inside one."""

    def step_begins(self, index: int) -> None: ...
    def step_ends(self) -> None: ...


class RankContext:
    """A rank's place in a world that it has joined."""

    def __init__(
        self,
        journal: Journal,
        cluster: Cluster,
        library: DeviceLibrary,
        *,
        observer: Observer,
        agreements: GroupAgreements,
        check: Check = "never",
    ) -> None:
        """Store the arguments; `check` applies to what the calling thread issues from now on, see `Job`."""
        self._check = check
        CHECKING.set(check != "never")
        self.journal = journal
        self.rank = journal.rank
        self.world_size = cluster.world_size
        self._cluster = cluster
        self.hosts, self.local_world_size = cluster.hosts, cluster.host.gpus
        self.device = library.device
        self.library = library
        self.observer = observer
        self.agreements = agreements
        self.streams = ["main"]
        self._lanes: list[StreamLane] = []
        self._groups: dict[str, Group] = {}
        self._checkers: dict[str, CallChecker] = {}
        self._refused: list[CheckedCall] = []

    def new_lane(self, *, is_main: bool) -> StreamLane:
        """Open a stream of this rank's device."""
        lane = self.library.new_lane(is_main=is_main)
        self._lanes.append(lane)
        return lane

    def settle(self) -> None:
        """Wait until the device has done everything launched."""
        for lane in self._lanes:
            lane.settle()

    def join(self, name: str, ranks: tuple[int, ...]) -> Group:
        """Return a group of global ranks; every rank, member or not, makes the same calls in the same order."""
        group = Group(name, ranks)
        if self.rank in group:
            # Before torch: without descriptors gloo would retry until its time-out.
            check_open_files(name, len(ranks), self._cluster)
        with transport(self.rank, f"new_group '{name}'"):
            # Sorted here, as torch sorts them anyway: `order` below then maps its places to the program's.
            handle = dist.new_group(sorted(ranks))
        self._groups[name] = group
        if self.rank in group:
            order = tuple(ranks.index(rank) for rank in sorted(ranks))
            joined = Joined(group=group, handle=handle, order=order)
            with transport(self.rank, f"new_group '{name}'"):
                # Now and not at the first call, whose time would include the set-up of connections.
                self.library.open(joined)
            self._checkers[name] = CallChecker(f"rank {self.rank} checker of {name}", joined, GroupAgreement(joined))
        return group

    def knows(self, group: Group) -> bool:
        """Return whether this rank made that group, as a member or not."""
        known = self._groups.get(group.name)
        return known is group or known == group

    def checker(self, group: Group) -> CallChecker:
        """Return the call checker of a group that contains this rank."""
        return self._checkers[group.name]

    def pair_checker(self, group: Group, pair: Group) -> CallChecker:
        """Return the call checker for messages between a pair of that group, source first."""
        checker = self._checkers.get(pair.name)
        if checker is None:
            joined = self._checkers[group.name].joined
            agreement = PairAgreement(joined, self.rank, pair, is_on=self._check != "never")
            checker = CallChecker(f"rank {self.rank} checker of {pair.name}", joined, agreement)
            self._checkers[pair.name] = checker
        return checker

    def refuse(self, checker: CallChecker, call: Call) -> None:
        """Give a refused call its place in the order, if calls are checked."""
        if CHECKING.get() or checker.is_needed:
            self._refused.append(checker.hold(CheckedCall(call, None, is_checked=CHECKING.get())))

    def tell_refused(self, within_s: float) -> None:
        """Wait until the other members have received every refused call, `within_s` at most."""
        until_s = time.monotonic() + within_s
        for held in self._refused:
            held.is_told(max(0.0, until_s - time.monotonic()))

    def step_ends(self) -> None:
        """End a training step; with check "first", later calls are not checked."""
        self.library.between_steps()
        if self._check == "first":
            CHECKING.set(False)

    def leave(self) -> None:
        """Stop the checkers' threads once the program has ended on all ranks."""
        for checker in self._checkers.values():
            checker.dismiss()
