"""One exchange of what the members of a group are about to do, before any data moves; whose turn it is, is the clerk's.

A call travels as whole numbers of a fixed length, 8 (8 + 2 n) bytes in a group of n. Only when the calls do not fit do
labels and sentences follow, in a second exchange, so that every member says the same.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from real.wire import Joined, all_gather
from scenarios.arguments import REDUCE_OPS
from scenarios.calls import Call, disagreement

_OPS = (
    "all_to_all",
    "all_to_all_single",
    "all_reduce",
    "reduce_scatter_tensor",
    "all_gather_into_tensor",
    "broadcast",
    "barrier",
)
_REDUCES = ("", *REDUCE_OPS.values())
_DTYPES = ("", *sorted({str(kind)[len("torch.") :] for kind in vars(torch).values() if isinstance(kind, torch.dtype)}))
_HEAD = 8  # op, reduction, dtype, root, bytes in, bytes out, bytes of text, whether the arguments were refused


def disagreement_of_all(joined: Joined, call: Call) -> str | None:
    """What is wrong with the calls of all members, ours among them: the same sentence on each of them, or None.

    Waits for all members.

    Raises:
        RuntimeError: the transport's.
    """
    rows = _gather(joined, torch.tensor(_numbers(call), dtype=torch.int64)).tolist()
    calls = {member: _call(joined, member, row) for member, row in enumerate(rows)}
    if disagreement(calls) is None:
        return None
    texts = _gather_texts(joined, call, max(row[6] for row in rows))
    return disagreement({member: _worded(calls[member], text) for member, text in enumerate(texts)})


def _numbers(call: Call) -> list[int]:
    words = [_OPS.index(call.op), _REDUCES.index(call.reduce), _DTYPES.index(call.dtype)]
    head = [*words, call.root, call.bytes_in, call.bytes_out, len(_text(call)), bool(call.mistake)]
    sizes = [*call.send_bytes, *call.recv_bytes]
    return head + sizes + [0] * (2 * call.group.size - len(sizes))


def _call(joined: Joined, member: int, row: list[int]) -> Call:
    """Another member's call, as far as `disagreement` looks at it; its words are still missing."""
    group, op = joined.group, _OPS[row[0]]
    exchanges = op in ("all_to_all", "all_to_all_single") and not row[7]
    return Call(
        op=op,
        group=group,
        rank=group.ranks[member],
        reduce=_REDUCES[row[1]],
        dtype=_DTYPES[row[2]],
        root=row[3],
        bytes_in=row[4],
        bytes_out=row[5],
        mistake="refused" if row[7] else "",
        send_bytes=tuple(row[_HEAD : _HEAD + group.size]) if exchanges else (),
        recv_bytes=tuple(row[_HEAD + group.size :]) if exchanges else (),
    )


def _gather_texts(joined: Joined, call: Call, longest: int) -> list[str]:
    own = torch.tensor(list(_text(call).ljust(longest, b"\0")), dtype=torch.uint8)
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in _gather(joined, own)]


def _text(call: Call) -> bytes:
    return (call.mistake or call.label).encode()


def _worded(call: Call, text: str) -> Call:
    return replace(call, mistake=text) if call.mistake else replace(call, label=text)


def _gather(joined: Joined, own: Tensor) -> Tensor:
    """One row for each member, in group order."""
    everyone = own.new_empty((joined.group.size, own.numel()))
    sent = all_gather(joined, everyone, own)
    sent.work.wait()
    if sent.finish is not None:
        sent.finish()
    return everyone
