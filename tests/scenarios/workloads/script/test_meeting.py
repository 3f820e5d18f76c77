"""What ranks of a script meet in, by itself: stores, messages, commands, and calls that a rank alone tries."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Rank
from scenarios.workloads.recording.events.calls import IssueCall, NewGroup, WaitCall
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.notes import ScriptEnd, ScriptFailure, StepEnd
from scenarios.workloads.recording.events.work import Turn
from scenarios.workloads.recording.lines import Logs
from scenarios.workloads.recording.packed import Packed
from scenarios.workloads.script.gpu.known_values import MOST_FLOATS
from scenarios.workloads.script.meeting.launchers import Commands
from scenarios.workloads.script.meeting.seats import Seats
from scenarios.workloads.script.meeting.stores import MOST_POLLS, AskStore, Stores
from scenarios.workloads.script.recording.few import Few
from scenarios.workloads.script.recording.single_rank import Alone, SentByRanks
from scenarios.workloads.script.requests import Refused
from scenarios.workloads.script.runner import LivePlayer
from scenarios.workloads.script.script_calls import Mail

KEYS = ["r0", "r1", "r2"]


def request(verb: str, *arguments: object) -> AskStore:
    return AskStore("here", verb, arguments, "train.py:3")


class Signal:
    """A work that another rank finishes."""

    def __init__(self) -> None:
        self.is_done, self.value = False, object()

    def __await__(self) -> Generator[None, None, object]:
        while not self.is_done:
            yield
        return self.value

    def finish(self, value: object = None) -> None:
        self.is_done, self.value = True, value


def rank_of(number: int) -> Rank:
    async def synchronize(work: Signal) -> object:
        return await work

    backend = SimpleNamespace(pend=lambda _: Signal())
    return cast(Rank, SimpleNamespace(rank=number, backend=backend, synchronize=synchronize))


def goes_on(run: Coroutine[Any, Any, object]) -> bool:
    """Return whether a rank is still there after all that it can do now."""
    try:
        run.send(None)
    except StopIteration:
        return False
    return True


@pytest.mark.parametrize(
    ("poll", "answer"),
    [
        (request("check", KEYS), False),
        (request("add", "ready", 0), 0),
        (request("compare_set", "lock", b"free", b"mine"), b"free"),
        (request("queue_pop", "jobs", False), None),
    ],
)
def test_a_rank_that_polls_waits_for_any_change(poll: AskStore, answer: object) -> None:
    stores, rank, found = Stores(), rank_of(0), list[object]()

    async def polls() -> None:
        for _ in range(MOST_POLLS + 5):
            found.append(await stores.meet(rank, poll))

    run = polls()
    assert goes_on(run)
    assert len(found) in (MOST_POLLS - 1, MOST_POLLS)  # the first makes the key, of `add`
    assert not goes_on(stores.meet(rank_of(1), request("set", "another", b"1")))
    assert not goes_on(run)
    assert found == [answer] * (MOST_POLLS + 5)


def test_polls_that_alternate_let_others_run() -> None:
    """The rank polls each key by itself, so that no request is like the one before it."""
    stores, rank = Stores(), rank_of(0)

    async def polls() -> None:
        while any([not await stores.meet(rank, request("check", [key])) for key in KEYS]):
            pass

    run = polls()
    for key in KEYS:
        assert goes_on(run)
        assert not goes_on(stores.meet(rank_of(1), request("set", key, b"1")))
    assert not goes_on(run)


def test_a_rank_that_reads_the_same_in_each_step_does_not_poll() -> None:
    stores, rank = Stores(), rank_of(0)

    async def steps() -> None:
        for _ in range(3 * MOST_POLLS):
            await stores.meet(rank, request("check", ["stop"]))
            stores.goes_on(0)

    assert not goes_on(steps())


def message(verb: str, peer: int, value: int = 0, root: str = "src") -> IssueCall:
    packed = [Packed((), torch.int64, bytes([value]))]
    options = {"dst" if verb == "send" else root: peer}
    return IssueCall(number=1, verb=verb, group=0, label="", inputs=packed if verb == "send" else (), options=options)


def test_messages_go_by_the_order_of_issue() -> None:
    mail = Mail()
    for value in (1, 2):
        mail.post(message("send", 1, value), 0, (0, 1), 0)
    first, second = (mail.post(message("recv", 0), 1, (0, 1), 0) for _ in range(2))
    assert mail.take(second).values == b"\2"
    assert mail.take(first).values == b"\1"


def test_messages_of_two_groups_are_apart() -> None:
    mail = Mail()
    mail.post(message("send", 1, 1), 0, (0, 1), 0)
    mail.post(message("send", 1, 2), 0, (0, 1, 2), 0)
    assert mail.take(mail.post(message("recv", 0), 1, (0, 1, 2), 0)).values == b"\2"


def test_parts_of_a_scatter_go_by_its_members() -> None:
    mail = Mail()
    parts = [Packed((), torch.int64, bytes([value])) for value in (7, 8)]
    root = IssueCall(number=1, verb="scatter", group=2, label="", inputs=parts, options={"src": 3})
    mail.post(root, 3, (3, 5), 0)
    other = IssueCall(number=1, verb="scatter", group=1, label="", options={"src": 3})
    assert mail.take(mail.post(other, 5, (3, 5), 0)).values == b"\10"


class Refusal(Exception):  # noqa: N818 - a stand-in for the end of the run
    """A sentence that ends the run."""


class Link:
    """A link on which only errors are said."""

    def ask(self, request: ScriptFailure) -> None:
        raise Refusal(request.sentence)


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> Seats:
    for name, value in {"RANK": 3, "LOCAL_RANK": 1, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    return Seats(cast(Any, Link()))


@pytest.mark.parametrize(
    "command",
    [
        *("accelerate env", "accelerate --help", "mpirun --version", "torchrun --help", "torchrun"),
        *("python -m torch.distributed.run --help", "python -m accelerate.commands.env"),
    ],
)
def test_a_launcher_that_tells_of_itself_starts_no_ranks(command: str, seats: Seats) -> None:
    Commands(seats).check(command, None, "train.py:1")


@pytest.mark.parametrize(
    "command",
    [
        *("accelerate launch x.py", "mpirun -n 2 python x.py", "torchrun x.py --help", "fabric run x.py"),
        *("python -m torch.distributed.run x.py", "python -m accelerate.commands.launch x.py"),
    ],
)
def test_a_launcher_that_starts_ranks_is_refused(command: str, seats: Seats) -> None:
    with pytest.raises(Refusal, match="which starts ranks of its own"):
        Commands(seats).check(command, None, "train.py:1")


class Kept(dict[str, bytes]):
    """A store."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value


def test_processes_of_a_host_share_their_parents_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts of two ranks, each with its own number; a spawn of two ranks is one host's, of four the world's."""
    kept, found = Kept(), dict[int, tuple[object, object]]()
    for rank in range(4):
        size = {"RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2}
        for name, value in size.items():
            monkeypatch.setenv(name, str(value))
        seats = Seats(cast(Any, SimpleNamespace(store=lambda: kept)))
        found[rank] = seats.of_first((10 + rank,), 2), seats.of_first((10 + rank,), 4)
    assert found == {0: ((10,), (10,)), 1: ((10,), (10,)), 2: ((12,), (10,)), 3: ((12,), (10,))}


def nothing_sent() -> SentByRanks:
    return SentByRanks(lambda *_: False)


def call(verb: str, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]], **options: object) -> IssueCall:
    given, made = ([Packed.of(torch.zeros(shape)) for shape in each] for each in (inputs, outputs))
    return IssueCall(number=1, verb=verb, group=0, label="", inputs=given, outputs=made, options=options)


@pytest.mark.parametrize(
    "mistaken",
    [
        call("all_gather_into_tensor", [(2,)], [(5,)]),
        call("reduce_scatter_tensor", [(5,)], [(2,)], op="SUM"),
        call("all_gather", [(2,)], [(2,)] * 3),
        call("all_to_all_single", [(5,)], [(5,)]),
        call("all_to_all_single", [(4,)], [(4,)], input_split_sizes=[4], output_split_sizes=[4]),
    ],
)
def test_a_mistaken_call_of_a_rank_alone_is_refused(mistaken: IssueCall) -> None:
    found = Alone(1, 128, nothing_sent()).answer(mistaken)
    assert isinstance(found, Refused)
    assert "rank" not in str(found.error).split(":")[0]


def test_a_right_call_of_a_rank_alone_is_answered() -> None:
    alone = Alone(1, 128, nothing_sent())
    assert alone.answer(call("all_gather_into_tensor", [(2,)], [(256,)])) is None
    assert alone.answer(WaitCall(1, 0))[0].shape == (256,)


def test_a_rank_alone_does_not_wait_for_others_to_join() -> None:
    assert Alone(0, 128, nothing_sent()).answer(request("joined", 128)) is None


def test_a_rank_alone_that_polls_is_a_sentence() -> None:
    alone = Alone(0, 128, nothing_sent())
    answers = (alone.answer(request("add", "ready", 0), is_last=True) for _ in range(2 * MOST_POLLS))
    with pytest.raises(
        ProgramError, match=r"rank 0: train\.py:3 add of 'ready': expected what ranks that are played have"
    ):
        list(answers)


class Requests:
    """A player of requests that are known ahead; keeps the answers."""

    def __init__(self, *requests: Request) -> None:
        self._left, self.answers = [Turn((), each) for each in requests], list[Any]()

    def next(self) -> Any:
        return self._left.pop(0)

    def answer(self, value: Any) -> None:
        self.answers.append(value)

    def close(self) -> None:
        """End nothing."""


def few(players: dict[int, Requests]) -> Few:
    return Few(lambda rank: cast(LivePlayer, players[rank]), Logs(), world_size=128, steps=1)


def broadcast(value: float) -> IssueCall:
    given = [Packed.of(torch.full((2,), value))]
    return IssueCall(number=1, verb="broadcast", group=0, label="", inputs=given, options={"src": 0})


def test_ranks_that_are_played_in_turns_wait_for_what_others_send_and_set() -> None:
    """Rank 8 broadcasts first, and rank 1 asks for a key, before rank 0 comes to what they wait for."""
    first = Requests(NewGroup((0, 1)), broadcast(7), request("set", "key", b"set"), ScriptEnd({}))
    second = Requests(request("get", "key"), ScriptEnd({}))
    third = Requests(broadcast(3), WaitCall(1, 0), ScriptEnd({}))
    played = few({0: first, 1: second, 8: third})
    played.play(1, 8, 0, to_end=True)
    assert second.answers == [b"set"]
    ((received,),) = third.answers[1:]
    assert received.tensor(torch.device("cpu")).tolist() == [7, 7]


def alone_in_pairs(rank: int, sent: SentByRanks) -> Alone:
    """Return a rank of 128, of which each even one makes a pair with the next one."""
    made = Alone(rank, 128, sent)
    for first in range(0, 128, 2):
        made.answer(NewGroup((first, first + 1)))
    return made


def pairs_message(verb: str, rank: int, dtype: torch.dtype, size: int = 1) -> IssueCall:
    """Return a message of a rank to or from the other of its pair."""
    made = replace(message(verb, rank ^ 1, rank), group=1 + rank // 2)
    packed = [Packed.of(torch.full((size,), rank, dtype=dtype))]
    return replace(made, number=1, inputs=packed if verb == "send" else [], outputs=packed if verb == "recv" else [])


def test_integers_from_a_rank_that_is_not_played_are_those_of_its_place_in_another_group() -> None:
    sent = nothing_sent()
    receiver = alone_in_pairs(101, sent)
    receiver.answer(pairs_message("recv", 101, torch.int64))
    with pytest.raises(ProgramError, match=r"rank 101: .*: expected integers .* but rank 100 is not, nor one"):
        receiver.answer(WaitCall(1, 0), is_last=True)
    for dtype, size in ((torch.float32, 1), (torch.int64, MOST_FLOATS + 1)):
        receiver.answer(pairs_message("recv", 101, dtype, size))
        (found,) = receiver.answer(WaitCall(1, 0), is_last=True)
        assert (found.shape, found.values) == ((size,), None)
    alone_in_pairs(2, sent).answer(pairs_message("send", 2, torch.int64))
    again = alone_in_pairs(101, sent)
    again.answer(pairs_message("recv", 101, torch.int64))
    (found,) = again.answer(WaitCall(1, 0), is_last=True)
    assert found.tensor(torch.device("cpu")).tolist() == [2]


def test_ranks_that_all_wait_for_others_end_with_a_sentence() -> None:
    played = few({rank: Requests(request("get", f"of {rank}")) for rank in (0, 1)})
    with pytest.raises(
        ProgramError, match=r"^rank 0: train\.py:3 get of 'of 0': expected what ranks that are played have set"
    ):
        played.play(0, 1)


def test_a_rank_stops_at_the_end_of_its_first_step_until_it_is_to_go_on() -> None:
    player = Requests(StepEnd(), NewGroup((0, 1)), ScriptEnd({}))
    played = few({0: player})
    played.play(0)
    played.play(0)
    assert player.answers == []
    played.play(0, to_end=True)
    assert player.answers == [None, 1]


def test_ranks_that_wait_for_each_other_in_a_ring_go_on() -> None:
    """Rank 0 waits for a key of rank 8, which waits for one of rank 0, which all others wait for, too."""
    first = Requests(request("get", "of 8"), request("set", "go", b""), ScriptEnd({}))
    others = [Requests(request("get", "go"), ScriptEnd({})) for _ in range(2)]
    third = Requests(request("set", "of 8", b"8"), request("get", "go"), ScriptEnd({}))
    played = few({0: first, 1: others[0], 8: third, 15: others[1]})
    played.begin_early(1, 8, 15)
    played.play(0, to_end=True)
    assert first.answers == [b"8", None]
    played.play(1, 15, to_end=True)
    assert [each.answers for each in others] == [[b""]] * 2
