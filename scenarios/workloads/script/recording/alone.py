"""Answers a rank that is played by itself, in a world of more ranks than are played: others are taken to do as it does.

What its peers would send is what it sends itself, unless they are played, too: then broadcasts and messages are theirs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Backend, Done
from scenarios.seam.calls import MISTAKES, Call
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.workloads.script.gpu.shadows import MOST_FLOATS
from scenarios.workloads.script.meeting.stores import WAITS, Stored, Stores
from scenarios.workloads.script.recording.lines import MESSAGES, Families
from scenarios.workloads.script.requests import Collective, Packed, Refused, issue

_META = torch.device("meta")


class Sent:
    """What played ranks have sent, each under the number of its group.

    Attributes:
        broadcasts: by its group, the source and which of the source's broadcasts in the group it is.
        messages: from a source to a target, in order.
        stores: as the ranks played so far have left them.
        play: have a rank go on until the condition holds, if it can.
        begun: the ranks that are played.
    """

    def __init__(self, play: Callable[[int, Callable[[], bool]], None], begun: Collection[int] = ()) -> None:
        self.broadcasts: dict[tuple[int, int, int], Sequence[Packed]] = {}
        self.messages = defaultdict[tuple[int, int, int], list[Packed]](list)
        self.stores, self.play, self.begun = Stores(), play, begun

    def broadcast(self, key: tuple[int, int, int]) -> Sequence[Packed] | None:
        """Return a broadcast, by its key in `broadcasts`, of a source that is played; None if there is none."""
        if key[1] in self.begun:
            self.play(key[1], lambda: key in self.broadcasts)
        return self.broadcasts.get(key)

    def await_change(self, request: Stored) -> None:
        """Have each rank that is played go on until what a request reads has changed."""
        before = self.stores.changes(request)
        for rank in tuple(self.begun):
            self.play(rank, lambda: self.stores.changes(request) != before)

    def message(self, group: int, members: Sequence[int], ends: tuple[int, int], number: int) -> Packed | None:
        """Return a message from a source to a target (`ends`); if it has not come, the one that a rank as far from
        another one has sent; None if there is none, either.
        """
        found = self.messages[group, *ends]
        if len(found) <= number:
            self.play(ends[0], lambda: len(found) > number)
        if len(found) > number:
            return found[number]
        size, away = len(members), members.index(ends[1]) - members.index(ends[0])
        for (other, source, target), sent in self.messages.items():
            is_like = other == group and (members.index(target) - members.index(source) - away) % size == 0
            if is_like and len(sent) > number:
                return sent[number]
        return None


class Alone:
    """Answers a rank's requests.

    Attributes:
        made: the groups that it has made.
        has_messages: the numbers of groups in which it sent or received messages, each with how far the ends are apart.
    """

    def __init__(self, rank: int, world_size: int, sent: Sent) -> None:
        self._rank, self._sent = rank, sent
        self.made = Families(world_size)
        self.has_messages = set[tuple[int, int]]()
        self._groups = [Group("world", tuple(range(world_size)))]
        self._checks = Rank(cast(Backend, _Checking(rank, self._groups[0])))
        self._answers: dict[int, list[Packed]] = {}
        self._receives: dict[int, tuple[Collective, int, int]] = {}  # with the source, and which of its messages it is
        self._counts: defaultdict[tuple[int, str, int], int] = defaultdict(int)

    def answer(self, kind: str, argument: Any) -> Any:
        """Return what the others of the rank's world would make of a request, which does as they do."""
        if kind != "store":
            self._sent.stores.goes_on(self._rank)
        match kind:
            case "issue":
                if (mistake := self._mistake(argument)) is not None:
                    return mistake
                if argument.verb in MESSAGES:
                    self._exchange(argument)
                else:
                    self._answers[argument.number] = self._result(argument)
            case "wait":
                received = self._receives.pop(argument[0], None)
                return self._answers.pop(argument[0]) if received is None else [self._received(*received)]
            case "new_group":
                self.made.add(argument)
                self._groups.append(Group(f"group{len(self._groups)}", tuple(argument)))
                return len(self._groups) - 1
            case "store":
                return self._stored(argument)
        return None

    def _exchange(self, call: Collective) -> None:
        """Post a message, or note that one is to be received."""
        is_sent = call.verb == "send"
        peer = int(call.options["dst" if is_sent else "src"])
        self.has_messages.add((call.group, abs(peer - self._rank)))
        if is_sent:
            self._sent.messages[call.group, self._rank, peer].append(call.inputs[0])
            self._answers[call.number] = []
        else:
            self._receives[call.number] = call, peer, self._next(call, peer)

    def _received(self, call: Collective, source: int, number: int) -> Packed:
        """Return what a rank receives: of many floats the shape, as whoever sends them does not know their values."""
        (target,) = call.outputs or call.inputs
        found = None
        if not target.dtype.is_floating_point or math.prod(target.shape) <= MOST_FLOATS:
            members = self._groups[call.group].ranks
            found = self._sent.message(call.group, members, (source, self._rank), number)
        return Packed(target.shape, target.dtype) if found is None else found

    def _next(self, call: Collective, source: int) -> int:
        """Return how many calls of that verb from that source there were before in the group."""
        key = call.group, call.verb, source
        self._counts[key] += 1
        return self._counts[key] - 1

    def _stored(self, request: Stored) -> Any:
        if request.verb == "joined":  # as the others do
            return None
        stores, before = self._sent.stores, -1
        while True:
            seen = stores.changes(request)
            found = stores.answer(request)
            has_changed = stores.changes(request) != seen
            waits = found is WAITS or stores.is_polling(self._rank, request, found, has_changed=has_changed)
            if not waits:
                return found
            if seen == before:
                break
            before = seen
            self._sent.await_change(request)
        raise ProgramError(
            f"rank {self._rank}: {request}: expected what ranks that are played have set, one of each class;"
            " run.ranks = 'each' plays all, at most 64"
        )

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
        if call.verb == "broadcast":
            return self._broadcast(call)
        if any(each.values is None for each in call.inputs):
            return shapes
        given = [each.tensor(torch.device("cpu")) for each in call.inputs]
        made = _alike(call, given, shapes, len(members), members.index(self._rank))
        return shapes if made is None else [Packed.of(each) for each in made]

    def _broadcast(self, call: Collective) -> list[Packed]:
        source = int(call.options["src"])
        key = call.group, source, self._next(call, source)
        if source == self._rank:
            self._sent.broadcasts[key] = list(call.inputs)
        return list(self._sent.broadcast(key) or call.inputs)


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
