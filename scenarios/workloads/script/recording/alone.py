"""Records a rank by itself, for worlds of more ranks than can be processes: the others are taken to do as it does.

What the others would send is what it sends itself; what rank 0 broadcasts is what rank 0 did, for which others wait.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from scenarios.config.scenario import Scenario
from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Backend, Done
from scenarios.seam.calls import MISTAKES, Call
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.workloads.script.live import LivePlayer
from scenarios.workloads.script.meeting.stores import WAITS, Stored, Stores
from scenarios.workloads.script.recording.lines import RankLog
from scenarios.workloads.script.requests import Collective, Packed, Refused, issue

# Where each rank may be a process of its own.
MOST_PROCESSES = 64
_META = torch.device("meta")
# Of as many it is said that fewer can be recorded.
MANY_PROCESSES = 16


def representatives(hosts: int, gpus_per_host: int) -> list[int]:
    """The ranks that are recorded: of the first rank, of those that are a host's first, and of the rest, each kind
    by its first and its last, which must do the same.
    """
    world = hosts * gpus_per_host
    return sorted(
        {0, *(rank for ranks in _kinds(range(world), gpus_per_host) if ranks for rank in (ranks[0], ranks[-1]))}
    )


def represented_by(recorded: Sequence[int], world_size: int, gpus_per_host: int) -> list[int]:
    """For each rank, the recorded one of its kind."""
    firsts, others = _kinds(recorded, gpus_per_host)
    of_first, of_other = (ranks[0] if ranks else 0 for ranks in (firsts, others))
    return [0, *(of_other if rank % gpus_per_host else of_first for rank in range(1, world_size))]


def note_chosen(chosen: Sequence[int], world_size: int, less: Sequence[int]) -> None:
    """Print which ranks are recorded, and which of them compute less than those that are taken for theirs."""
    names = ", ".join(map(str, chosen[:-1])) + f" and {chosen[-1]}"
    told = f"ranks {names} of {world_size} are recorded, the others are taken to do the same"
    if less:
        told += f"; {' and '.join(map(str, less))} would compute less, on smaller shards"
    print(f"note: {told}", file=sys.stderr)


def note_fewer(scenario: Scenario) -> None:
    """Print how fewer ranks would be played, where many are and options of the scenario's allow it."""
    cluster = scenario.cluster
    if scenario.folded_by and MANY_PROCESSES <= cluster.world_size <= MOST_PROCESSES:
        count = len(representatives(cluster.hosts, cluster.host.gpus))
        print(
            f"note: {cluster.world_size} ranks are played one by one; {scenario.folded_by} plays {count} of them, if"
            " ranks do alike",
            file=sys.stderr,
        )


def _kinds(ranks: Sequence[int], gpus_per_host: int) -> tuple[list[int], list[int]]:
    later = [rank for rank in ranks if rank]
    return [rank for rank in later if rank % gpus_per_host == 0], [rank for rank in later if rank % gpus_per_host]


class Broadcasts:
    """What rank 0 sent to all of a group: by the group's number and which of its broadcasts it was.

    Attributes:
        stores: as ranks recorded before, or meanwhile, have left them.
        is_open: whether rank 0 is recorded meanwhile, and may send more.
    """

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], list[Packed]] = {}
        self.stores = Stores()
        self.is_open = False


class WaitsError(ProgramError):
    """A request that has no answer before other ranks have gone on."""


def record(recorded: Sequence[Recorder]) -> None:
    """Record ranks beside each other: each answers a request in turn, while the processes of the others compute.

    Raises:
        ProgramError: it went wrong, a rank sends messages to single ranks, or all wait for others.
    """
    left = list(recorded)
    while left:
        has_served = [each.serve() for each in left]
        if not any(has_served):
            raise next(each.waits for each in left if each.waits is not None)
        left = [each for each in left if not each.log.is_whole]


class Recorder:
    """A rank of which `steps` steps are recorded, request by request, into `log`.

    Attributes:
        waits: why its last request has no answer yet.
    """

    def __init__(self, player: LivePlayer, alone: Alone, log: RankLog, steps: int) -> None:
        self._player, self._alone, self.log, self._left = player, alone, log, steps + 1
        self.waits: WaitsError | None = None
        self._asked: tuple[str, Any] = "", None  # what it has asked last

    def close(self) -> None:
        """End the rank's process."""
        self._player.close()

    def serve(self) -> bool:
        """Take the next request unless one waits, and answer it; return whether it needs no further answer."""
        if self.waits is None:
            request = self._player.next()
            self.log.note(request)
            self._asked = request[1:]
            self._left -= self._asked[0] == "step"
            if self._asked[0] == "end" or not self._left:
                self.log.is_whole = True
                self._alone.end()
                return True
        try:
            answer, self.waits = self._alone.answer(*self._asked), None
        except WaitsError as error:
            self.waits = error
            return False
        self._player.answer(answer)
        return True


class Alone:
    """Answers a rank's requests."""

    def __init__(self, rank: int, world_size: int, broadcasts: Broadcasts) -> None:
        self._rank, self._broadcasts = rank, broadcasts
        broadcasts.is_open = broadcasts.is_open or rank == 0
        self._groups = [Group("world", tuple(range(world_size)))]
        self._checks = Rank(cast(Backend, _Checking(rank, self._groups[0])))
        self._answers: dict[int, list[Packed]] = {}
        self._counts: defaultdict[int, int] = defaultdict(int)

    def end(self) -> None:
        """Take notice that the rank is recorded."""
        if self._rank == 0:
            self._broadcasts.is_open = False

    def answer(self, kind: str, argument: Any) -> Any:
        """Return what the others of the rank's world would make of a request, which does as they do."""
        if kind != "store":
            self._broadcasts.stores.goes_on(self._rank)
        match kind:
            case "issue":
                if (mistake := self._mistake(argument)) is not None:
                    return mistake
                self._answers[argument.number] = self._result(argument)
            case "wait":
                return self._answers.pop(argument[0])
            case "new_group":
                self._groups.append(Group(f"group{len(self._groups)}", tuple(argument)))
                return len(self._groups) - 1
            case "store":
                return self._stored(argument)
        return None

    def _stored(self, request: Stored) -> Any:
        if request.verb == "joined":  # as the others do
            return None
        stores = self._broadcasts.stores
        before = stores.changes(request)
        found = stores.answer(request)
        has_changed = stores.changes(request) != before
        if found is WAITS or stores.is_polling(self._rank, request, found, has_changed=has_changed):
            raise WaitsError(
                f"rank {self._rank}: {request}: expected what ranks before it have set, as of more than"
                f" {MOST_PROCESSES} ranks only some are recorded, one after the other"
            )
        return found

    def _mistake(self, call: Collective) -> Refused | None:
        """Return what is wrong with a call, as scripts try calls to see whether they work."""
        shapes = (call.inputs, call.outputs)
        inputs, targets = ([Packed(one.shape, one.dtype).tensor(_META) for one in each] for each in shapes)
        group = self._groups[call.group]
        try:
            issue(self._checks, call.verb, inputs, targets, group=group, label=call.label, options=call.options)
        except MISTAKES as mistake:
            return Refused.of(mistake)
        return None

    def _result(self, call: Collective) -> list[Packed]:
        members = self._groups[call.group].ranks
        shapes = [Packed(each.shape, each.dtype) for each in call.outputs or call.inputs]
        if call.verb in ("send", "recv"):
            raise ProgramError(
                f"rank {self._rank}: {call.label}: expected collectives alone, as of more than {MOST_PROCESSES} ranks"
                " only some are recorded, and messages say what single ones do"
            )
        if call.verb == "broadcast":
            return self._broadcast(call)
        if any(each.values is None for each in call.inputs):
            return shapes
        given = [each.tensor(torch.device("cpu")) for each in call.inputs]
        made = _alike(call, given, shapes, len(members), members.index(self._rank))
        return shapes if made is None else [Packed.of(each) for each in made]

    def _broadcast(self, call: Collective) -> list[Packed]:
        key = call.group, self._counts[call.group]
        if call.options["src"] == 0 != self._rank and self._broadcasts.is_open and key not in self._broadcasts.sent:
            raise WaitsError(f"rank {self._rank}: {call.label}: expected what rank 0 broadcasts, which waits itself")
        self._counts[call.group] += 1
        if call.options["src"] == 0 == self._rank:
            self._broadcasts.sent[key] = list(call.inputs)
        found = self._broadcasts.sent.get(key) if call.options["src"] == 0 else None
        return list(found or call.inputs)


class _Checking:
    """A backend of one rank for which its calls are checked alone."""

    device, control_device, stream, local_world_size = _META, torch.device("cpu"), "main", 1

    def __init__(self, rank: int, world: Group) -> None:
        self.rank, self.world_size = rank, world.size
        self.world = self.intra = self.cross = world

    def knows(self, group: Group) -> bool:
        return True

    def refuse(self, call: Call, group: Group) -> None:
        """Tell nobody, as nobody is there."""

    def issue(self, call: Call, group: Group, issue: Issue) -> Done:
        return Done()


def _alike(
    call: Collective, given: Sequence[Tensor], shapes: Sequence[Packed], size: int, place: int
) -> Sequence[Tensor] | None:
    """Return what a collective gives where all members give the same; None: it cannot be told."""
    found = list[Tensor]()
    match call.verb:
        case "all_reduce" | "all_reduce_coalesced" | "reduce":
            found = [_reduced(each, call.options["op"], size) for each in given]
        case "all_gather_into_tensor" | "all_gather_into_tensor_coalesced":
            both = zip(given, shapes, strict=True)
            found = [each.reshape(-1).repeat(size).view(shape.shape) for each, shape in both]
        case "all_gather" | "gather":
            found = [given[0]] * len(shapes)
        case "all_gather_coalesced":
            found = list(given) * size
        case "reduce_scatter_tensor" | "reduce_scatter_tensor_coalesced":
            both = zip(given, shapes, strict=True)
            owns = [each.reshape(size, -1)[place].view(shape.shape) for each, shape in both]
            found = [_reduced(each, call.options["op"], size) for each in owns]
        case "reduce_scatter":
            found = [_reduced(given[place], call.options["op"], size)]
        case "scatter":
            found = [given[place]] if given else []
        case "all_to_all":
            found = [given[place]] * size
        case "all_to_all_single":
            splits = call.options.get("input_split_sizes")
            own = (given[0].split(splits) if splits else given[0].chunk(size))[place]
            found = [torch.cat([own] * size)]
    is_whole = [tuple(each.shape) for each in found] == [each.shape for each in shapes[: len(found)]]
    return found if is_whole and (found or not shapes) else None


def _reduced(tensor: Tensor, op: str, size: int) -> Tensor:
    match op:
        case "SUM":
            return tensor * size
        case "PRODUCT":
            return tensor**size
        case "BXOR":
            return tensor if size % 2 else torch.zeros_like(tensor)
    return tensor
