"""The one door for files that a user or a stranger hands in: regular files of bounded size, text in UTF-8, sound JSON.

Of the standard library only, as all rooms use it. What is wrong is an `OSError` with a `strerror`, or a `ValueError` of
a few words; the reader knows the sentence that names the file and what was expected.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import json
import os
import stat
import sys
import zlib
from typing import Any

# Far above what is handed in, and far below what a machine takes down: bytes of a file, and of what it unpacks to.
MOST_BYTES = 1 << 30
MOST_UNPACKED = 4 << 30
_GZIP = b"\x1f\x8b"
_PART = 1 << 20
# Traces and recordings take a tenth to a hundredth when packed; gzip itself ends at 1,032 times.
_MOST_TIMES, _UNSUSPICIOUS = 200, 256 << 20


def content(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Return all of a file.

    Raises:
        OSError: it cannot be read, is larger than `most_bytes`, or is no regular file: the end of a pipe or a device
            may never come.
    """
    if "\0" in os.fspath(path):
        raise OSError(errno.ENOENT, "a name with a null byte, which no file has", os.fspath(path))
    # Without waiting for a writer, as a pipe would.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        about = os.fstat(stream.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if about.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {_size(most_bytes)}", os.fspath(path))
        return stream.read(most_bytes)


def text(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> str:
    """Return a text file's letters, without a byte order mark, as Windows writes it.

    Raises:
        OSError: as `content` raises.
        UnicodeDecodeError: it is not UTF-8.
    """
    return content(path, most_bytes).removeprefix(codecs.BOM_UTF8).decode()


def unpacked(data: bytes, most_bytes: int = MOST_UNPACKED) -> bytes:
    """Return what gzip packed; bytes that it did not pack as they are.

    Raises:
        ValueError: it is damaged, unpacks to more than `most_bytes`, or to so many times its size as only a bomb does.
    """
    if data[:2] != _GZIP:
        return data
    found, most_bytes = bytearray(), min(most_bytes, max(_UNSUSPICIOUS, _MOST_TIMES * len(data)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while part := stream.read(_PART):
                found += part
                if len(found) > most_bytes:
                    raise ValueError(f"unpacks to more than {_size(most_bytes)}")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"not readable as gzip: {error}") from None
    return bytes(found)


def parsed(data: bytes | str) -> Any:
    """Return what JSON says.

    Raises:
        ValueError: it is no JSON in UTF-8, or is nested too deep.
    """
    try:
        return json.loads(data, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_json(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> Any:
    """Return what a file of JSON, perhaps packed by gzip, says. OSError and ValueError as above."""
    return parsed(unpacked(content(path, most_bytes)))


def _integer(digits: str) -> int | float:
    """Return an integer; one beyond all floats is infinite, as JSON's 1e400 is, and so refused by whoever reads it."""
    return float(digits) if len(digits) > sys.float_info.max_10_exp else int(digits)


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 30} GiB" if size_bytes >= 1 << 30 else f"{size_bytes >> 20} MiB"
