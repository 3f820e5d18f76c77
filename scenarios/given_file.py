"""Reads files from users, checked: regular files of bounded size, UTF-8 text, valid JSON.

Imports only the standard library, as all packages use it. Problems raise an `OSError` with a `strerror`, or a
`ValueError` of a few words; the caller adds the file's name and what was expected.
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

# Limits far above real files and far below a machine's memory: bytes of a file, and of its unpacked content.
MOST_BYTES = 1 << 30
MOST_UNPACKED = 4 << 30
_GZIP = b"\x1f\x8b"
_PART = 1 << 20
# Largest unpacked/packed ratio, for content above a size. Traces and recordings reach 10 to 100, gzip at most 1,032.
_MOST_TIMES, _UNSUSPICIOUS = 200, 256 << 20


def content(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Return a file's bytes.

    Raises:
        OSError: it cannot be read, is larger than `most_bytes`, or is no regular file: pipes and devices may never end.
    """
    if "\0" in os.fspath(path):
        raise OSError(errno.ENOENT, "a name with a null byte, which no file has", os.fspath(path))
    # Non-blocking: opening a pipe would wait for a writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        about = os.fstat(stream.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if about.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {_size(most_bytes)}", os.fspath(path))
        return stream.read(most_bytes)


def text(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> str:
    """Return a file's text, without the byte order mark that Windows writes.

    Raises:
        OSError: as for `content`.
        UnicodeDecodeError: it is not UTF-8.
        UnicodeError: it is UTF-16, or has NUL bytes; the message is what was expected.
    """
    data = content(path, most_bytes)
    if expected := not_text(data):
        raise UnicodeError(expected)
    return data.removeprefix(codecs.BOM_UTF8).decode()


def not_text(data: bytes) -> str:
    """Return what a text file is expected to be whose content is UTF-16 or has NUL bytes; "" for others."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-8 text, not UTF-16; save it as UTF-8"
    first = data.find(0)
    return "" if first < 0 else f"UTF-8 text, without NUL bytes such as byte {first}; if it is UTF-16, save it as UTF-8"


def unpack(data: bytes, most_bytes: int = MOST_UNPACKED) -> bytes:
    """Return data unpacked if it is gzip, else unchanged.

    Raises:
        ValueError: it is damaged, or unpacks to more than `most_bytes` or to more times its size than real files do.
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


def parse_json(data: bytes | str, *, once: bool = False) -> Any:
    """Return the value of a JSON document; of a key given twice the later value, unless each is expected `once`.

    Raises:
        ValueError: it is not JSON in UTF-8, is nested too deeply, or has a key twice where each is expected once.
    """
    try:
        return json.loads(data, parse_int=_integer, object_pairs_hook=_keys_once if once else None)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the content of a JSON file, possibly packed by gzip.

    Raises:
        OSError, ValueError: as for `content`, `unpack` and `parse_json`.
    """
    return parse_json(unpack(content(path)))


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is given twice in one object")
    return found


def _integer(digits: str) -> int | float:
    """Return an integer; one beyond all floats becomes infinite, like JSON's 1e400, which readers refuse."""
    return float(digits) if len(digits) > sys.float_info.max_10_exp else int(digits)


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 30} GiB" if size_bytes >= 1 << 30 else f"{size_bytes >> 20} MiB"
