"""The tables `buckets` and `compression`, for all programs that reduce gradients; loads no torch."""

from __future__ import annotations

from typing import Any

from scenarios.config.scenario import LEAST_POWERSGD_START, Buckets, Compression
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ScenarioTable
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath


def _check_compression(section: Any, document: Document, look: Look) -> None:
    """Check, as PowerSGDState does, that state carried between steps has earlier steps."""
    keys = ("start_powerSGD_iter", "use_error_feedback", "warm_start", "kind")
    path: KeyPath = ("compression", "start_powerSGD_iter")
    start = section.start_powerSGD_iter
    carries = {"use_error_feedback": section.use_error_feedback, "warm_start": section.warm_start}
    on = [key for key, value in carries.items() if value is not False]
    if (
        start is not None
        and start < LEAST_POWERSGD_START
        and on
        and look.mistakes.sound(*(("compression", key) for key in keys))
    ):
        look.mistakes.add(path, f"at least {LEAST_POWERSGD_START} with {' and '.join(on)}")


def _compression(document: Document, mistakes: Mistakes) -> Compression:
    """Build the compression; without one its other keys have no effect."""
    section = COMPRESSION.of(document)
    is_on = section is not None and section.kind not in (None, "none")
    return COMPRESSION.build(document) if is_on else Compression()


BUCKETS = ScenarioTable(key="buckets", values=Buckets, about="Sizes of gradient buckets. Default: as in DDP.")
COMPRESSION = ScenarioTable(
    key="compression",
    values=Compression,
    about="Compression of gradients. Default: none.",
    check=_check_compression,
    make=_compression,
)
