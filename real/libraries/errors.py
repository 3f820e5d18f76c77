"""The door at which the libraries' errors become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from scenarios.seam.errors import ProgramError, RankLostError


@contextmanager
def transport(rank: int, what: str) -> Iterator[None]:
    """Translate what a library raises inside.

    Raises:
        RankLostError: `rank` and `what` failed, with the transport's first line: a connection broke, or waited too
            long. Another rank is the likely cause.
        ProgramError: the same sentence, of a library that refused what it was given.
    """
    try:
        yield
    except RuntimeError as error:
        raise failed(rank, what, error) from error


def failed(rank: int, what: str, error: RuntimeError) -> ProgramError:
    """What `transport` raises, for verbs: they cannot afford a context manager."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    kind = RankLostError if is_transports(error) else ProgramError
    return kind(f"rank {rank}: {what} failed: {first}")


def is_transports(error: RuntimeError) -> bool:
    """Whether a connection broke or waited too long; else the library has refused what it was given.

    gloo has no exception types of its own, but names its source file; its assertions on arguments are "enforce fail".
    """
    text = str(error)
    is_gloos = "gloo/transport/" in text or "gloo/rendezvous/" in text
    return isinstance(error, dist.DistError) or (is_gloos and "enforce fail" not in text)
