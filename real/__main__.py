"""Command `python -m real`: runs steps on real devices (see `twinstep.measurement`)."""

from scenarios.interruption import end
from twinstep.measurement import leave, main

if __name__ == "__main__":
    end(main, leave)
