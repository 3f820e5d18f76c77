"""Answers a rank that is played by itself, in a world of more ranks than are played: others are taken to do as it does.

What its peers would send is what it sends itself, unless they are played, too: then broadcasts and messages are theirs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Backend, Done
from scenarios.seam.calls import MISTAKES, Call
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.workloads.script.events.calls import AskStore, IssueCall, NewGroup, WaitCall
from scenarios.workloads.script.events.event import Request
from scenarios.workloads.script.gpu.known_values import MOST_FLOATS
from scenarios.workloads.script.meeting.stores import WAITS, StoreRequest, Stores
from scenarios.workloads.script.recording.lines import MESSAGES, Families
from scenarios.workloads.script.requests import Packed, Refused, issue

# Ranks that a call may tell apart, and all calls: more are those of values that differ from rank to rank.
_MOST_TOLD, _MOST_TOLD_IN_ALL = 8, 16
_META = torch.device("meta")


class WaitingFor(NamedTuple):
    """An answer that has not come yet: it is another rank's to give, or with None any rank's."""

    rank: int | None


# A group as all ranks know it: its members, and which of the groups of these members it is.
Key = tuple[tuple[int, ...], int]


class SentByRanks:
    """What played ranks have sent.

    Attributes:
        broadcasts: by group, source, and which of the source's broadcasts in the group it is.
        messages: from a source to a target of a group, in order.
        stores: as the ranks played so far have left them.
        may_send: whether a rank is played and not over; with True it is played from now on, if it can be.
    """

    def __init__(self, may_send: Callable[[int, bool], bool]) -> None:
        self.broadcasts: dict[tuple[Key, int, int], Sequence[Packed]] = {}
        self.messages = defaultdict[tuple[Key, int, int], list[Packed]](list)
        self.stores, self.may_send = Stores(), may_send

    def message(
        self, group: Key, ends: tuple[int, int], number: int, made: Families, *, is_last: bool
    ) -> Packed | WaitingFor | None:
        """Return a message from a source to a target (`ends`); if it does not come, the one that a rank as far from
        another one has sent, in this group or in one of its family among those `made`, at the same places there; None
        if there is none, either.
        """
        found, members = self.messages[group, *ends], group[0]
        if len(found) > number:
            return found[number]
        if not is_last and self.may_send(ends[0], True):
            return WaitingFor(ends[0])
        size, places = len(members), [members.index(end) for end in ends]
        family, likes = made.family(members), list[Packed]()
        for (other, *others), sent in self.messages.items():
            if len(sent) <= number or made.family(other[0]) != family:
                continue
            theirs = [other[0].index(end) for end in others]
            if theirs == places:
                return sent[number]
            if other == group and (theirs[1] - theirs[0] - places[1] + places[0]) % size == 0:
                likes.append(sent[number])
        return likes[0] if likes else None


class Alone:
    """Answers a rank's requests.

    Attributes:
        made: the groups that it has made.
        has_messages: the members of groups in which it sent or received messages, each with how far the ends are apart.
        told_apart: ranks that its calls give other sizes than the members before them, where there are few; the
            first calls' where those of all are too many.
    """

    def __init__(self, rank: int, world_size: int, sent: SentByRanks) -> None:
        self._rank, self._sent = rank, sent
        self.made = Families(world_size)
        self.has_messages = set[tuple[tuple[int, ...], int]]()
        self.told_apart = set[int]()
        self._groups = [Group("world", tuple(range(world_size)))]
        self._keys: list[Key] = [(self._groups[0].ranks, 0)]
        self._checks = Rank(cast(Backend, _Checking(rank, self._groups[0])))
        # What calls give, by their numbers; a function where others have to send it, given whether it is the last try.
        self._answers: dict[int, list[Packed] | Callable[[bool], list[Packed] | WaitingFor]] = {}
        self._counts: defaultdict[tuple[int, str, int], int] = defaultdict(int)

    def answer(self, request: Request, *, is_last: bool = False) -> Any:
        """Return what the others of the rank's world would make of a request, which does as they do; or `WaitingFor`.

        Args:
            request: is given again where it waits.
            is_last: no rank goes on, so that what has not come does not come.

        Raises:
            ProgramError: what a store has to give does not come.
        """
        if not isinstance(request, AskStore):
            self._sent.stores.goes_on(self._rank)
        match request:
            case IssueCall():
                if (mistake := self._mistake(request)) is not None:
                    return mistake
                self._answers[request.number] = self._begun(request)
                self._tell_apart(request)
            case WaitCall(number):
                given = self._answers[number]
                found = given(is_last) if callable(given) else given
                if not isinstance(found, WaitingFor):
                    del self._answers[number]
                return found
            case NewGroup(ranks):
                members = tuple(ranks)
                self.made.add(ranks)
                self._keys.append((members, sum(each[0] == members for each in self._keys)))
                self._groups.append(Group(f"group{len(self._groups)}", members))
                return len(self._groups) - 1
            case AskStore(stored):
                return self._stored(stored, is_last)
        return None

    def _begun(self, call: IssueCall) -> list[Packed] | Callable[[bool], list[Packed] | WaitingFor]:
        """Return what a call gives, or how it is found once the rank waits for it."""
        group = self._keys[call.group]
        if call.verb in MESSAGES:
            is_sent = call.verb == "send"
            peer = int(call.options["dst" if is_sent else "src"])
            self.has_messages.add((group[0], abs(peer - self._rank)))
            if is_sent:
                self._sent.messages[group, self._rank, peer].append(call.inputs[0])
                return []
            return partial(self._received, call, peer, self._next(call, peer))
        if call.verb == "broadcast":
            source = int(call.options["src"])
            key = group, source, self._next(call, source)
            if source == self._rank:
                self._sent.broadcasts[key] = list(call.inputs)
            return partial(self._broadcasted, call, key)
        return self._result(call)

    def _tell_apart(self, call: IssueCall) -> None:
        """Note which members begin to get or give something else, by split sizes or tensors of which each has one."""
        members = self._groups[call.group].ranks
        splits = [call.options.get(f"{side}_split_sizes") or () for side in ("input", "output")]
        shapes = [[each.shape for each in side] for side in (call.inputs, call.outputs)]
        for sizes in (each for each in (*splits, *shapes) if len(each) == len(members)):
            found = [members[place] for place in range(1, len(sizes)) if sizes[place] != sizes[place - 1]]
            if len(found) <= _MOST_TOLD and len(self.told_apart.union(found)) <= _MOST_TOLD_IN_ALL:
                self.told_apart.update(found)

    def _received(self, call: IssueCall, source: int, number: int, is_last: bool) -> list[Packed] | WaitingFor:
        """Return what a rank receives: of many floats the shape, as whoever sends them does not know their values.

        Raises:
            ProgramError: nobody knows the values of integers that a script may go by.
        """
        (target,) = call.outputs or call.inputs
        found: Packed | WaitingFor | None = None
        are_few = math.prod(target.shape) <= MOST_FLOATS
        if not target.dtype.is_floating_point or are_few:
            ends = source, self._rank
            found = self._sent.message(self._keys[call.group], ends, number, self.made, is_last=is_last)
        if found is None and are_few and not target.dtype.is_floating_point:
            raise ProgramError(
                f"rank {self._rank}: {call.label}: expected integers that a rank which is played has sent, but rank"
                f" {source} is not, nor one that sends as far; run.ranks = 'each' plays all, at most 64"
            )
        return (
            [Packed(target.shape, target.dtype)]
            if found is None
            else found
            if isinstance(found, WaitingFor)
            else [found]
        )

    def _broadcasted(self, call: IssueCall, key: tuple[Key, int, int], is_last: bool) -> list[Packed] | WaitingFor:
        """Return what the source has sent, if it is played; else the rank's own, as if it were the source."""
        found = self._sent.broadcasts.get(key)
        if found is None and not is_last and self._sent.may_send(key[1], False):
            return WaitingFor(key[1])
        return list(found or call.inputs)

    def _next(self, call: IssueCall, source: int) -> int:
        """Return how many calls of that verb from that source there were before in the group."""
        key = call.group, call.verb, source
        self._counts[key] += 1
        return self._counts[key] - 1

    def _stored(self, request: StoreRequest, is_last: bool) -> Any:
        if request.verb == "joined":  # as the others do
            return None
        stores = self._sent.stores
        before = stores.changes(request)
        found = stores.answer(request)
        has_changed = stores.changes(request) != before
        if found is not WAITS and not stores.is_polling(self._rank, request, found, has_changed=has_changed):
            return found
        if not is_last:
            return WaitingFor(None)
        raise ProgramError(
            f"rank {self._rank}: {request}: expected what ranks that are played have set, one of each class;"
            " run.ranks = 'each' plays all, at most 64"
        )

    def _mistake(self, call: IssueCall) -> Refused | None:
        """Return what is wrong with a call, as scripts try calls to see whether they work."""
        shapes = (call.inputs, call.outputs)
        inputs, targets = ([Packed(one.shape, one.dtype).tensor(_META) for one in each] for each in shapes)
        group = self._groups[call.group]
        try:
            issue(self._checks, call.verb, inputs, targets, group=group, label=call.label, options=call.options)
        except MISTAKES as mistake:
            return Refused.of(mistake)
        return None

    def _result(self, call: IssueCall) -> list[Packed]:
        members = self._groups[call.group].ranks
        shapes = [Packed(each.shape, each.dtype) for each in call.outputs or call.inputs]
        if any(each.values is None for each in call.inputs):
            return shapes
        given = [each.tensor(torch.device("cpu")) for each in call.inputs]
        made = _alike(call, given, shapes, len(members), members.index(self._rank))
        return shapes if made is None else [Packed.of(each) for each in made]


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
    call: IssueCall, given: Sequence[Tensor], shapes: Sequence[Packed], size: int, place: int
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
