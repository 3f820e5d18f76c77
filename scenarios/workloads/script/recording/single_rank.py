"""Answers to a rank that runs without most of its peers, assuming that peers do what the rank does.

A peer's contribution is taken to equal the rank's own, except for broadcasts and messages of peers that also run.
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
from scenarios.seam.traits import MESSAGES
from scenarios.workloads.recording.events.calls import IssueCall, NewGroup, WaitCall
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.packed import Packed, issue, root_of
from scenarios.workloads.script.gpu.known_values import MOST_FLOATS
from scenarios.workloads.script.meeting.stores import WAITS, AskStore, Stores
from scenarios.workloads.script.recording.replay import Families
from scenarios.workloads.script.requests import Refused

# How many ranks one call, and all calls, may set apart: more are taken for sizes that vary from rank to rank with data.
_MOST_TOLD, _MOST_TOLD_IN_ALL = 8, 16
_META = torch.device("meta")


class WaitingFor(NamedTuple):
    """An answer that has not arrived: the rank that has to give it; None: any rank may."""

    rank: int | None


# A group's key on all ranks: its members, and its index among the groups of exactly these members.
Key = tuple[tuple[int, ...], int]


class SentByRanks:
    """A record of what running ranks have sent.

    Attributes:
        broadcasts: tensors by group, source, and index among the source's broadcasts in the group.
        messages: tensors in order, by group, source and target.
        stores: the stores, as the running ranks have left them.
        may_send: returns whether a rank runs and is not over; with True, it starts the rank if possible.
    """

    def __init__(self, may_send: Callable[[int, bool], bool]) -> None:
        self.broadcasts: dict[tuple[Key, int, int], Sequence[Packed]] = {}
        self.messages = defaultdict[tuple[Key, int, int], list[Packed]](list)
        self.stores, self.may_send = Stores(), may_send

    def message(
        self, group: Key, ends: tuple[int, int], number: int, made: Families, *, is_last: bool
    ) -> Packed | WaitingFor | None:
        """Return a message, or a plausible substitute.

        If the message does not arrive, substitutes are one at the same places in a group of the family, then one over
        the same distance in this group.

        Args:
            group: the group's key.
            ends: source and target.
            number: the message's index among those from source to target.
            made: the groups that exist.
            is_last: whether waiting is of no use any more.

        Returns:
            The message; `WaitingFor` while the source may still send it; None if there is no substitute.
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
    """A responder to one rank's requests.

    Attributes:
        made: the groups that the rank has created.
        has_messages: the members of groups in which the rank sent or received messages, with the distance of both ends.
        told_apart: ranks to which a call gives other sizes than to the preceding member, if the call sets few apart.
    """

    def __init__(self, rank: int, world_size: int, sent: SentByRanks) -> None:
        self._rank, self._sent = rank, sent
        self.made = Families(world_size)
        self.has_messages = set[tuple[tuple[int, ...], int]]()
        self.told_apart = set[int]()
        self._groups = [Group("world", tuple(range(world_size)))]
        self._keys: list[Key] = [(self._groups[0].ranks, 0)]
        self._checks = Rank(cast(Backend, _Checking(rank, self._groups[0])))
        # Results of calls by number; a function of `is_last` if another rank has to send the result.
        self._answers: dict[int, list[Packed] | Callable[[bool], list[Packed] | WaitingFor]] = {}
        self._counts: defaultdict[tuple[int, str, int], int] = defaultdict(int)

    def answer(self, request: Request, *, is_last: bool = False) -> Any:
        """Return the answer to a request, as if peers did what this rank does; `WaitingFor` if a peer must act first.

        Args:
            request: repeated by the caller after `WaitingFor`.
            is_last: whether no other rank can advance, so that missing values will not arrive.

        Raises:
            ProgramError: a store's value, or integers of a message, will not arrive.
        """
        if not isinstance(request, AskStore):
            self._sent.stores.goes_on(self._rank)
        match request:
            case IssueCall():
                if (mistake := self._mistake(request)) is not None:
                    return mistake
                self._answers[request.number] = self._begin(request)
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
            case AskStore():
                return self._ask_store(request, is_last)
        return None

    def _begin(self, call: IssueCall) -> list[Packed] | Callable[[bool], list[Packed] | WaitingFor]:
        """Return a call's result, or a function that finds the result once the rank waits for it."""
        group = self._keys[call.group]
        if call.verb in MESSAGES:
            peer = int(call.options[root_of(call.verb)])
            self.has_messages.add((group[0], abs(peer - self._rank)))
            if call.verb == "send":
                self._sent.messages[group, self._rank, peer].append(call.inputs[0])
                return []
            return partial(self._receive, call, peer, self._next(call, peer))
        if call.verb == "broadcast":
            source = int(call.options["src"])
            key = group, source, self._next(call, source)
            if source == self._rank:
                self._sent.broadcasts[key] = list(call.inputs)
            return partial(self._broadcast, call, key)
        return self._result(call)

    def _tell_apart(self, call: IssueCall) -> None:
        """Record members whose sizes, by splits or per-member tensors, differ from those of the preceding member."""
        members = self._groups[call.group].ranks
        splits = [call.options.get(f"{side}_split_sizes") or () for side in ("input", "output")]
        shapes = [[each.shape for each in side] for side in (call.inputs, call.outputs)]
        for sizes in (each for each in (*splits, *shapes) if len(each) == len(members)):
            found = [members[place] for place in range(1, len(sizes)) if sizes[place] != sizes[place - 1]]
            if len(found) <= _MOST_TOLD and len(self.told_apart.union(found)) <= _MOST_TOLD_IN_ALL:
                self.told_apart.update(found)

    def _receive(self, call: IssueCall, source: int, number: int, is_last: bool) -> list[Packed] | WaitingFor:
        """Return a received message; if it has many floats, only the shape, as the sender does not know their values.

        Raises:
            ProgramError: the values of integers, on which a script may branch, are unknown.
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

    def _broadcast(self, call: IssueCall, key: tuple[Key, int, int], is_last: bool) -> list[Packed] | WaitingFor:
        """Return the source's tensors if the source runs; else the rank's own, as if it were the source."""
        found = self._sent.broadcasts.get(key)
        if found is None and not is_last and self._sent.may_send(key[1], False):
            return WaitingFor(key[1])
        return list(found or call.inputs)

    def _next(self, call: IssueCall, source: int) -> int:
        """Return the index of a call among those of its verb and source in its group."""
        key = call.group, call.verb, source
        self._counts[key] += 1
        return self._counts[key] - 1

    def _ask_store(self, request: AskStore, is_last: bool) -> Any:
        if request.verb == "joined":  # peers are assumed to join, too
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
        """Return the refusal of an invalid call, None for a valid one: scripts try calls to see whether they work."""
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
    """A backend of one rank that only checks calls."""

    device, control_device, stream, local_world_size = _META, torch.device("cpu"), "main", 1

    def __init__(self, rank: int, world: Group) -> None:
        self.rank, self.world_size = rank, world.size
        self.world = self.intra = self.cross = world

    def knows(self, group: Group) -> bool:
        return True

    def refuse(self, call: Call, group: Group) -> None:
        """Do nothing: there are no peers to report to."""

    def issue(self, call: Call, group: Group, issue: Issue) -> Done:
        return Done()


def _alike(
    call: IssueCall, given: Sequence[Tensor], shapes: Sequence[Packed], size: int, place: int
) -> Sequence[Tensor] | None:
    """Return a collective's result if all members give the same tensors; None if the result is unknown.

    The rank is at `place` in a group of `size` members.
    """
    found = list[Tensor]()
    match call.verb:
        case "all_reduce" | "all_reduce_coalesced" | "reduce":
            found = [_reduce(each, call.options["op"], size) for each in given]
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
            found = [_reduce(each, call.options["op"], size) for each in owns]
        case "reduce_scatter":
            found = [_reduce(given[place], call.options["op"], size)]
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


def _reduce(tensor: Tensor, op: str, size: int) -> Tensor:
    match op:
        case "SUM":
            return tensor * size
        case "PRODUCT":
            return tensor**size
        case "BXOR":
            return tensor if size % 2 else torch.zeros_like(tensor)
    return tensor
