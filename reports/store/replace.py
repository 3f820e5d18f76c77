"""Files that follow from a run and take the place of older ones, each whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reports.errors import ReportError


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A hidden sibling to fill, which then takes the file's place; an error leaves the older file as it is.

    Raises:
        ReportError: an OSError came up.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)
    except OSError as error:
        raise ReportError(f"{path}: could not be written: {error.strerror or error}") from error
    except UnicodeEncodeError:
        raise ReportError(f"{str(path)!r}: could not be written; expected a path in UTF-8") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
