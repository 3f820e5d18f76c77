"""`python -m real`: runs steps on real devices; `twinstep.measurement` says how."""

from scenarios.interruption import end
from twinstep.measurement import leave, main

if __name__ == "__main__":
    end(main, leave)
