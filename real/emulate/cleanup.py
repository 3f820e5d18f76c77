"""`python -m real.emulate.cleanup NAME`: removes an emulated cluster once stdin is closed.

The cluster's owner closes it when it is done, and the kernel when the owner was killed.
"""

from __future__ import annotations

import signal
import sys

from real.emulate.cluster import release

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    release(sys.argv[1])
