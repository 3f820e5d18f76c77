"""gloo with one call of a group under way at a time."""

from __future__ import annotations

from real.libraries.gloo import Gloo


class GlooSerial(Gloo):
    """Each exchange has ended before the next begins."""

    lanes = 1


LIBRARY = GlooSerial
