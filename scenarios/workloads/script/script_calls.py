"""The calls of a script's rank as calls of a simulated rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.calls import MISTAKES
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.roles import REDUCTION
from scenarios.seam.traits import MESSAGES
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.packed import Packed, issue
from scenarios.workloads.script.further_groups import further_group
from scenarios.workloads.script.meeting.stores import Meeting
from scenarios.workloads.script.outcome import Outcomes
from scenarios.workloads.script.requests import Refused
from scenarios.workloads.script.script_streams import ScriptStreams


class ScriptCalls:
    """The calls that a rank's script has begun, and the groups that it has made.

    Attributes:
        works: calls by number, until the script has waited for them.
        on_host: numbers of those that gloo carries beside a GPU.
    """

    def __init__(
        self, rank: Rank, scenario: Scenario, streams: ScriptStreams, mail: Mail, outcomes: Outcomes, *, is_live: bool
    ) -> None:
        """Begin with the group of all ranks; `is_live`: tensors may have values, which a recording's have not."""
        self.works: dict[int, Work[Any]] = {}
        self.on_host: set[int] = set()
        self._rank, self._streams, self._mail, self._outcomes = rank, streams, mail, outcomes
        self._library, self._is_live = scenario.run.library, is_live
        self._is_on_gpu = scenario.cluster.host.gpu.device.is_launched
        self._is_known: dict[int, bool] = {}
        self._receives: dict[int, Hashable] = {}  # by the call's number, where its values are in the mail
        self._groups: list[Group] = [rank.world]

    def make_group(self, members: Sequence[int], host_classes: HostClasses | None) -> int:
        """Make a further group of these ranks, and return its number."""
        self._groups.append(further_group(self._rank, tuple(members), host_classes))
        return len(self._groups) - 1

    def issue(self, call: IssueCall, *, is_in_step: bool) -> Refused | None:
        """Issue a call's verb on tensors of its own; a call that is refused raises in the script."""
        is_posted = self._is_on_gpu and call.verb in (*MESSAGES, "scatter")
        is_known = all(each.values is not None for each in call.inputs) and not is_posted
        has_values = is_known and self._is_live  # a recording has none, but waits for the same calls
        device = self._rank.control_device if has_values else self._rank.device
        given = call.inputs if has_values else [replace(each, values=None) for each in call.inputs]
        inputs, targets = ([each.tensor(device) for each in tensors] for tensors in (given, call.outputs))
        group = self._groups[call.group]
        if call.library not in ("", self._library):
            group = cast(Meeting, self._rank.backend).over(group, call.library)
            if is_in_step:
                self._outcomes.note_left_out([f"sums and a host's own messages of {call.library}, on CPUs"])
        stream = self._streams.of(call.stream)
        asked = stream.for_role(REDUCTION) if call.of_reducer else stream, call.verb, inputs, targets
        try:
            self.works[call.number] = issue(*asked, group=group, label=call.label, options=call.options)
        except MISTAKES as mistake:
            return Refused.of(mistake)
        if call.library:
            self.on_host.add(call.number)
        if (key := self._post(call, group)) is not None:
            self._receives[call.number] = key
        else:
            self._is_known[call.number] = is_known
        return None

    def _post(self, call: IssueCall, group: Group) -> Hashable | None:
        """Post the values of a message on GPUs; return where those are that the rank receives, if it does."""
        if not self._is_on_gpu or call.verb not in (*MESSAGES, "scatter"):
            return None
        # Groups of equal members have messages of their own: counted by their order, which is equal on all ranks.
        number = sum(each.ranks == group.ranks for each in self._groups[: call.group])
        return self._mail.post(call, self._rank.rank, group.ranks, number)

    async def wait(self, number: int, stream: int) -> list[Packed]:
        """Wait for a call and return its outputs."""
        work = self.works.pop(number)
        self.on_host.discard(number)
        if number in self._receives:
            await work
            return [self._mail.take(self._receives.pop(number))]
        if self._is_on_gpu and not self._is_known.pop(number):
            self._streams.after(stream, work)
            return []
        found = await work
        outputs = [] if found is None else found if isinstance(found, Sequence) else [found]
        if outputs and isinstance(outputs[0], Sequence):  # lists of tensors
            outputs = [*chain.from_iterable(outputs)]
        return [Packed.shape_of(each) if each.is_meta else Packed.of(each) for each in outputs]

    async def settle(self) -> None:
        """Wait for all calls for which the script has not waited."""
        for work in self.works.values():
            await work


class Mail:
    """Messages that were sent and not yet received.

    The n-th message (or scatter part) from a source to a target in a group matches the target's n-th receive from that
    source, in the order of issue, not of waiting.
    """

    def __init__(self) -> None:
        self._sent: dict[Hashable, Packed] = {}
        self._counts = Counter[Hashable]()

    def post(self, call: IssueCall, here: int, members: Sequence[int], number: int) -> Hashable | None:
        """Store what a rank `here` sends by a call; return the key for `take` of what it receives, None for a send.

        `number` distinguishes groups of identical `members`.
        """
        is_scatter, group = call.verb == "scatter", (tuple(members), number)
        if call.verb == "send":
            self._put((here, call.options["dst"], is_scatter, group), call.inputs[0])
            return None
        for target, packed in zip(members, call.inputs if is_scatter else (), strict=False):  # only the root has inputs
            self._put((here, target, is_scatter, group), packed)
        return self._next("received", (call.options["src"], here, is_scatter, group))

    def take(self, key: Hashable) -> Packed:
        """Remove and return the tensor sent under a key."""
        return self._sent.pop(key)

    def _put(self, way: Hashable, packed: Packed) -> None:
        self._sent[self._next("sent", way)] = packed

    def _next(self, what: str, way: Hashable) -> Hashable:
        self._counts[what, way] += 1
        return way, self._counts[what, way]
