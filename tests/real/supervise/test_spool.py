"""What was spooled is read back, whatever tore the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from real.supervise import spool
from real.supervise.spool import Spool

FRAMES = [("head", {"hostname": "a", "plan": []}), ("spans", [(1, "x", 2.5, -1)]), ("metrics", [])]


def write(folder: Path) -> bytes:
    own = Spool(folder, 3)
    for kind, value in FRAMES:
        own.append(kind, value)
    own.close()
    return spool.read(folder, 3)


def test_frames_come_back_as_they_were_appended(tmp_path: Path) -> None:
    assert list(spool.frames(write(tmp_path))) == FRAMES


def test_a_file_torn_anywhere_gives_the_frames_before(tmp_path: Path) -> None:
    data = write(tmp_path)
    seen = [list(spool.frames(data[:size])) for size in range(len(data) + 1)]
    assert all(FRAMES[: len(frames)] == frames for frames in seen)
    assert [len(frames) for frames in seen] == sorted(len(frames) for frames in seen)
    assert (len(seen[0]), len(seen[-1])) == (0, 3)


@pytest.mark.parametrize("place", [0, 5, 9, 40])
def test_a_damaged_byte_ends_what_is_read(tmp_path: Path, place: int) -> None:
    data = bytearray(write(tmp_path))
    data[place] ^= 0x40
    frames = list(spool.frames(bytes(data)))
    assert frames == FRAMES[: len(frames)]
    assert len(frames) < 3


def test_a_rank_that_never_began_has_no_frames(tmp_path: Path) -> None:
    assert list(spool.frames(spool.read(tmp_path, 0))) == []
