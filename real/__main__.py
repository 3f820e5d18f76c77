"""`python -m real`: runs steps on real devices; `twinstep.measurement` says how."""

from real.launch.rank_process import end_process
from twinstep.measurement import main

if __name__ == "__main__":
    end_process(main)
