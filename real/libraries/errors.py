"""Translates the libraries' errors into this project's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from scenarios.seam.errors import ProgramError, RankLostError


@contextmanager
def transport(rank: int, what: str) -> Iterator[None]:
    """Translate errors that a library raises inside.

    Raises:
        RankLostError: `rank` and `what` failed, with the transport's first line: a connection broke or timed out.
            Another rank is the likely cause.
        ProgramError: the same sentence, if the library refused its arguments.
    """
    try:
        yield
    except RuntimeError as error:
        raise failure_of(rank, what, error) from error


def failure_of(rank: int, what: str, error: RuntimeError) -> ProgramError:
    """Return the error that `transport` raises, for verbs, in which a context manager would cost too much time."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    kind = RankLostError if is_transports(error) else ProgramError
    return kind(f"rank {rank}: {what} failed: {first}")


def is_transports(error: RuntimeError) -> bool:
    """Return whether a connection broke or timed out; else the library has refused its arguments.

    gloo has no exception types of its own, but names its source file; its assertions on arguments are "enforce fail".
    """
    text = str(error)
    is_gloos = "gloo/transport/" in text or "gloo/rendezvous/" in text
    return isinstance(error, dist.DistError) or (is_gloos and "enforce fail" not in text)
