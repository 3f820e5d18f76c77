"""gloo with one thread for each group: its collectives run one after the other."""

from __future__ import annotations

import dataclasses

from sim.gloo.library import LIBRARY as GLOO

LIBRARY = dataclasses.replace(GLOO, lanes=1)
