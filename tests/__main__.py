"""`python -m tests`: the whole suite in several processes (`tests.workers`); arguments go to pytest."""

from __future__ import annotations

import gc
import sys

import pytest

if __name__ == "__main__":
    gc.disable()  # until tests begin: a third of the time in which they are collected
    sys.exit(pytest.main(["-p", "tests.workers", "-p", "no:cacheprovider", *(sys.argv[1:])]))
